//! Who is at the other end of a connection.

use core::fmt;

use wire::printable;

use super::ROLE_SCHEME;

/// Limit of certificate names that are kept of one certificate.
const MAX_NAMES: usize = 64;
/// A name in a certificate (URI) that is a node's name behind this.
const NODE_SCHEME: &str = "uview:node/";

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A user of this machine, as the kernel recorded it at `connect`.
    User {
        /// The effective user id.
        uid: u32,
        /// The effective group id, and the supplementary ones.
        groups: Vec<u32>,
    },
    /// The holder of a certificate that the configured authority has signed: its DNS names and URIs.
    Certificate(Vec<String>),
    /// An account of a Kubernetes cluster: the name that its API server gives the holder of a token. What it may, the
    /// cluster says; it has no role of this node.
    Account(String),
    /// Anybody who can reach an address that is open on purpose (`insecure: true`).
    Anyone,
}

impl Identity {
    /// The identity in a certificate: its names, up to a limit.
    #[must_use]
    pub fn of_certificate(names: impl Iterator<Item = String>) -> Self {
        Self::Certificate(names.take(MAX_NAMES).collect())
    }

    /// The names of nodes that a certificate has: its DNS names, and what follows `uview:node/` in its URIs. Names are
    /// compared letter by letter.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::Certificate(names) => names.as_slice(),
            Self::User { .. } | Self::Account(_) | Self::Anyone => &[],
        };
        names.iter().filter_map(|name| match name.strip_prefix(NODE_SCHEME) {
            None if name.starts_with(ROLE_SCHEME) => None,
            node => Some(node.unwrap_or(name)),
        })
    }

    /// The same user or certificate, whatever groups it had.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::User { uid, .. }, Self::User { uid: other, .. }) => uid == other,
            _ => self == other,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { uid, .. } => write!(f, "user {uid}"),
            Self::Certificate(names) if names.is_empty() => f.write_str("a certificate without a name"),
            Self::Certificate(names) => write!(f, "certificate {}", printable::line(&names.join(", "))),
            Self::Account(name) => write!(f, "account {}", printable::line(name)),
            Self::Anyone => f.write_str("somebody without a certificate"),
        }
    }
}
