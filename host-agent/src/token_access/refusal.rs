//! Why the holder of a token is refused, and the command that grants what was refused.

use tonic::Status;
use wire::printable;

use super::account::Account;
use super::credential::MAX_TOKEN_BYTES;
use super::right::{GROUP, Right};

/// What the name of a service account begins with.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Longest name that a binding is given.
const MAX_NAME: usize = 63;

/// Why a caller over TLS is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefusal {
    /// There is no token.
    #[error(
        "no certificate and no token: send the metadata `authorization: Bearer TOKEN`, or use --token-file, with a token \
         for the audience {audience}: `kubectl create token NAME --audience={audience}`, or a projected volume of a pod"
    )]
    Missing {
        /// What tokens have to be for.
        audience: String,
    },
    /// It is no bearer token.
    #[error("the metadata `authorization` is no `Bearer TOKEN` of at most {MAX_TOKEN_BYTES} bytes")]
    Malformed,
    /// The API server does not know it, or not any more.
    #[error(
        "the API server does not accept the token: {why}; it has to be valid now, and for the audience {audience}: \
         `kubectl create token NAME --audience={audience}`, or a projected volume of a pod"
    )]
    Invalid {
        /// What the API server says.
        why: String,
        /// What tokens have to be for.
        audience: String,
    },
    /// The answer is not about this audience.
    #[error(
        "the API server accepts the token for the audience {found}, and not for {audience}: ask for one with \
         `kubectl create token NAME --audience={audience}`, or by a projected volume of a pod"
    )]
    Audience {
        /// Audiences in the answer.
        found: String,
        /// What tokens have to be for.
        audience: String,
    },
    /// What the API server says of its holder is too long to be kept.
    #[error("the account {name} has {bytes} bytes of groups and attributes: at most {most} are taken")]
    Account {
        /// Name of the account.
        name: String,
        /// Bytes of what is said.
        bytes: usize,
        /// The most that is taken.
        most: usize,
    },
    /// No role of the cluster lets its holder.
    #[error("{account} may not {what}: it needs the verb {verb} on {resource} of {GROUP}. To grant it: {grant}")]
    Denied {
        /// Name of the account.
        account: String,
        /// Completes "may not …".
        what: &'static str,
        /// The verb that is needed.
        verb: &'static str,
        /// The resource that it is about.
        resource: String,
        /// The command that grants it.
        grant: String,
    },
    /// The API server does not answer.
    #[error("the API server does not say what the holder of the token may: {why}; call again in a second")]
    Unanswered {
        /// What has happened.
        why: String,
    },
    /// Too many unknown tokens at a time.
    #[error("too many tokens that are not known yet are being checked: call again in a second")]
    Busy,
}

impl TokenRefusal {
    /// `account` lacks `right`, for what completes "may not …".
    pub(super) fn denied(account: &Account, right: Right, what: &'static str) -> Self {
        Self::Denied {
            account: printable::line(&account.name).to_string(),
            what,
            verb: right.verb(),
            resource: right.resource(),
            grant: grant(&account.name, right),
        }
    }

    /// As the reply of a call.
    pub(crate) fn status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::Missing { .. } | Self::Malformed | Self::Invalid { .. } | Self::Audience { .. } => {
                Status::unauthenticated(text)
            }
            Self::Account { .. } | Self::Denied { .. } => Status::permission_denied(text),
            Self::Unanswered { .. } => Status::unavailable(text),
            Self::Busy => Status::resource_exhausted(text),
        }
    }
}

/// The command that gives the account `name` the least role of the chart that has `right`.
fn grant(name: &str, right: Right) -> String {
    let role = right.cluster_role();
    let of_service = name.strip_prefix(SERVICE_ACCOUNT).filter(|rest| rest.contains(':'));
    let (option, subject) = of_service.map_or(("user", name), |rest| ("serviceaccount", rest));
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let binding: String = subject.chars().map(plain).take(MAX_NAME).collect();
    let binding = binding.trim_matches(['-', '.']);
    format!("kubectl create clusterrolebinding {role}-{binding} --clusterrole={role} --{option}={}", word(subject))
}

/// `text` as one word of a shell.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_' | '@' | '/');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", printable::line(text).to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_command_that_grants_it_and_no_name_ends_its_word() {
        let of = |name: &str, right| TokenRefusal::denied(&Account::named(name), right, "read the status").to_string();

        let service = of("system:serviceaccount:shop:dashboard", Right::Read);
        assert_eq!(
            service,
            "system:serviceaccount:shop:dashboard may not read the status: it needs the verb get on agents of uview.dev. \
             To grant it: kubectl create clusterrolebinding uview-viewer-shop-dashboard --clusterrole=uview-viewer \
             --serviceaccount=shop:dashboard"
        );
        let user = of("alice@example", Right::Hook);
        let command = "uview-operator-alice-example --clusterrole=uview-operator --user=alice@example";
        assert!(user.contains("create on agents/hooks") && user.ends_with(command), "{user}");
        let hostile = of("a'; rm -rf /; '\u{1b}", Right::Read);
        assert!(hostile.ends_with(r"--user='a'\''; rm -rf /; '\''\u{1b}'"), "{hostile}");
    }
}
