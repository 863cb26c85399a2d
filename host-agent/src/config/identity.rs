//! Configuration of who may use the name of which service, on the services' socket and in spans.

use std::path::PathBuf;

use otlp::tenants::NetworkError;
use otlp::{SenderRule, SenderRules, Token};
use serde::Deserialize;
use wire::name::{NameError, ServiceName};

use super::{ConfigError, ServicesConfig};
use crate::control_plane::IdentityRule;

/// Key of all rules, in errors.
const KEY: &str = "services.identities";

/// Lets matching processes register as the listed services, and matching senders send spans in their names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Processes of this user; any user if left out.
    pub uid: Option<u32>,
    /// Processes in or below this cgroup (v2 path); any cgroup if left out. Of a sender, that in which it connected.
    pub cgroup: Option<String>,
    /// Spans from these networks (10.1.0.0/16) and addresses.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Spans with the token in this file, in the header `uview-token`.
    pub token_file: Option<PathBuf>,
    /// The services; any service if left out.
    pub services: Option<Vec<String>>,
}

/// A file with a token cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the token in {}", .path.display())]
struct TokenError {
    path: PathBuf,
    #[source]
    cause: std::io::Error,
}

/// A cgroup that no process is in: its path does not begin at the root.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} fits no process, since paths of cgroups (v2) begin with a slash: write {wanted:?}", wanted = format!("/{}", .0))]
struct CgroupError(String);

impl Identity {
    /// The cgroup, whose path begins at the root.
    fn cgroup(&self) -> Result<Option<String>, ConfigError> {
        match &self.cgroup {
            Some(path) if !path.starts_with('/') => {
                Err(ConfigError::value("services.identities.cgroup", CgroupError(path.clone())))
            }
            cgroup => Ok(cgroup.clone()),
        }
    }

    /// Whether it is about spans only: it says nothing about processes on this machine.
    fn is_of_spans(&self) -> bool {
        let says_who_sends = !self.peers.is_empty() || self.token_file.is_some();
        says_who_sends && self.uid.is_none() && self.cgroup.is_none()
    }

    /// The rule for the services' socket.
    pub(super) fn rule(&self) -> Result<IdentityRule, ConfigError> {
        let names = |names: &Vec<String>| names.iter().map(|name| ServiceName::new(name)).collect::<Result<_, _>>();
        let services = self.services.as_ref().map(names).transpose();
        let services = services.map_err(|cause: NameError| ConfigError::value(KEY, cause))?;
        // A process is not known by address or token: such a rule lets none register, and its names are taken.
        Ok(IdentityRule { uid: self.uid, cgroup: self.cgroup()?, services, of_processes: !self.is_of_spans() })
    }

    /// The rule for spans.
    fn sender(&self) -> Result<SenderRule, ConfigError> {
        let peers = self.peers.iter().map(|peer| peer.parse()).collect::<Result<_, _>>();
        let token = self.token_file.as_ref().map(|path| {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|cause| ConfigError::value(KEY, TokenError { path: path.clone(), cause }))?;
            let wanted = "must name a file with one line of visible ASCII characters";
            let token = Token::new(text.trim_end());
            let range = agent_runtime::config::range;
            range(token.is_some(), "services.identities.token_file", &path.display(), wanted)?;
            Ok::<_, ConfigError>(token)
        });
        Ok(SenderRule {
            anyone: self.uid.is_none() && self.cgroup.is_none() && !self.is_of_spans(),
            uid: self.uid,
            cgroup: self.cgroup()?,
            peers: peers.map_err(|cause: NetworkError| ConfigError::value(KEY, cause))?,
            token: token.transpose()?.flatten(),
            services: self.services.clone(),
        })
    }
}

impl ServicesConfig {
    /// Who may send spans in which service's name.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a network is invalid, or a token cannot be read.
    pub fn senders(&self) -> Result<SenderRules, ConfigError> {
        let rules: Vec<_> = self.identities.iter().map(Identity::sender).collect::<Result<_, _>>()?;
        Ok(SenderRules::new(&rules))
    }

    /// The files that [`senders`](Self::senders) reads.
    pub(crate) fn token_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.identities.iter().filter_map(|identity| identity.token_file.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use wire::id::Incarnation;

    use super::super::Config;
    use super::*;
    use crate::control_plane::{Peer, may_measure};

    #[test]
    fn identities_become_rules() {
        let text =
            "services:\n  identities:\n    - uid: 1000\n      services: [payment]\n    - cgroup: /system.slice\n";
        let rules = Config::parse(text).unwrap().settings(Incarnation(1)).unwrap().identities;

        assert_eq!(rules[0].uid, Some(1000));
        assert_eq!(rules[0].services, Some(vec![ServiceName::new("payment").unwrap()]));
        assert_eq!(rules[1].cgroup.as_deref(), Some("/system.slice"));
        assert_eq!(rules[1].services, None);
    }

    #[test]
    fn a_rule_about_addresses_or_tokens_lets_no_process_register() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "secret\n").unwrap();
        let text = format!(
            "services: {{identities: [{{peers: [10.1.0.0/16], token_file: {}, services: [payment]}}]}}",
            token.display()
        );
        let config = Config::parse(&text).unwrap();
        let settings = config.settings(Incarnation(1)).unwrap();
        let peer = Peer { pid: 1, uid: 0, cgroup: String::new() };

        assert!(!settings.may_be(&peer, &ServiceName::new("payment").unwrap()));
        assert!(!settings.may_be(&peer, &ServiceName::new("cart").unwrap()));
        let measured = |service| may_measure(&settings.identities, "/a", &ServiceName::new(service).unwrap());
        assert_eq!((measured("payment"), measured("cart")), (false, true), "its names are taken");
        let sender = &config.services.identities[0].sender().unwrap();
        assert_eq!((sender.anyone, sender.uid, sender.peers.len()), (false, None, 1));
        assert_eq!(sender.token, Token::new("secret"));
    }

    #[test]
    fn a_process_is_known_by_its_user_and_by_its_cgroup_where_a_rule_names_them() {
        let text = "services: {identities: [{uid: 7, cgroup: /a, services: [x]}, {cgroup: /b, services: [y]}, {}]}";
        let identities = Config::parse(text).unwrap().services.identities;
        let senders: Vec<_> = identities.iter().map(|identity| identity.sender().unwrap()).collect();

        let known: Vec<_> =
            senders.iter().map(|sender| (sender.anyone, sender.uid, sender.cgroup.as_deref())).collect();
        assert_eq!(known, [(false, Some(7), Some("/a")), (false, None, Some("/b")), (true, None, None)]);
    }

    #[test]
    fn a_network_or_token_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "\n").unwrap();
        for (rule, expected) in [
            ("peers: [host]".to_owned(), "\"host\" is not a network"),
            ("token_file: /nowhere/token".to_owned(), "/nowhere/token"),
            (format!("token_file: {}", empty.display()), "must name a file with one line"),
        ] {
            let error = Config::parse(&format!("services: {{identities: [{{{rule}}}]}}")).unwrap_err();
            let causes = agent_runtime::chain(&error);
            assert!(causes.contains(expected), "{rule}: {causes}");
        }
    }
    #[test]
    fn a_cgroup_without_a_leading_slash_is_refused_with_what_to_write() {
        for (written, wanted) in [("system.slice/a.service", "/system.slice/a.service"), ("", "/")] {
            let error = Config::parse(&format!("services: {{identities: [{{cgroup: '{written}'}}]}}")).unwrap_err();

            let cause = core::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(error.to_string().contains("services.identities.cgroup"), "{error}");
            assert!(cause.ends_with(&format!("write \"{wanted}\"")), "{cause}");
        }
        for path in ["/", "/system.slice", "/system.slice/"] {
            Config::parse(&format!("services: {{identities: [{{cgroup: {path}}}]}}")).unwrap();
        }
    }
}
