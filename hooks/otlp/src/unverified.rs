//! Senders of this endpoint: who they are, and which of them use the names of others' services.

use core::net::SocketAddr;
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};

use agent_runtime::socket_owner::{self, OwnerLookup, SocketOwner};
use wire::time::Nanos;

use crate::cgroups::Cgroups;
use crate::holders::Holder;

/// Spans, metrics and log records of a service whose sender may not use its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnverifiedSpans {
    /// The name that belongs to others.
    pub service: String,
    /// Address of the sender, and its user if known.
    pub sender: String,
    /// Spans since the first one.
    pub spans: u64,
    /// Resources with metrics since the first one.
    pub exports: u64,
    /// Log records since the first one, where they are sampled.
    pub logs: u64,
    /// When the last one came, in the time of [`Edge::now`](crate::Edge::now).
    pub last: Nanos,
}

/// What a kernel does not say of senders of its machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownSenders {
    /// The kernel has no `tcp_diag`: it says of no socket whose it is.
    #[error("this kernel does not say who connects from this machine: no rule by uid or cgroup fits a sender")]
    NoModule,
    /// The kernel cannot be asked.
    #[error("the kernel cannot be asked who connects from this machine: no rule by uid or cgroup fits a sender")]
    NotAsked(#[source] std::io::Error),
    /// The kernel says users only, or no cgroups are mounted.
    #[error("this kernel does not say in which cgroup a sender is: no rule by cgroup fits one")]
    NoCgroups,
}

impl UnknownSenders {
    /// What can be done about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::NoModule => "load the module tcp_diag (modprobe tcp_diag), or use token_file".to_owned(),
            Self::NotAsked(error) => format!(
                "{error}: allow netlink sockets (RestrictAddressFamilies=AF_NETLINK, seccomp), or use token_file"
            ),
            Self::NoCgroups => "use Linux 5.8 or later with cgroups v2, or rules by uid or token_file".to_owned(),
        }
    }
}

/// Whether `ask` knows users of senders of this machine, and their cgroups if they are `wanted`.
pub(crate) fn unknown_senders(ask: OwnerLookup, wanted: bool) -> Option<UnknownSenders> {
    match socket_owner::own_owner(ask) {
        Ok(owner) => (wanted && owner.cgroup.is_none()).then_some(UnknownSenders::NoCgroups),
        // There is such a socket: it is the module that there is not.
        Err(error) if error.kind() == ErrorKind::NotFound => Some(UnknownSenders::NoModule),
        Err(error) => Some(UnknownSenders::NotAsked(error)),
    }
}

/// What this machine's kernel does not say of senders on this machine; `None` if it tells users and cgroups apart.
/// Opens a connection to itself on loopback.
#[must_use]
pub fn unknown_senders_here() -> Option<UnknownSenders> {
    let mounted = Cgroups::of_this_machine().is_mounted();
    unknown_senders(socket_owner::socket_owner, true).or((!mounted).then_some(UnknownSenders::NoCgroups))
}

/// One connection of a client: where it comes from, and what is known of its process.
#[derive(Debug)]
pub(crate) struct SenderConnection {
    pub(crate) peer: SocketAddr,
    /// This end, if the other one is of this machine.
    pub(crate) local: Option<SocketAddr>,
    /// `None` inside: the kernel does not know.
    pub(crate) owner: OnceLock<Option<SocketOwner>>,
    pub(crate) cgroup: OnceLock<Arc<str>>,
    /// Whose share of the endpoint it is of.
    pub(crate) holder: Holder,
}

impl SenderConnection {
    pub(crate) fn new(peer: SocketAddr, local: Option<SocketAddr>, holder: Holder) -> Self {
        let is_here = |local: &SocketAddr| {
            let (peer, local) = (peer.ip().to_canonical(), local.ip().to_canonical());
            peer.is_loopback() || peer == local
        };
        Self { peer, local: local.filter(is_here), owner: OnceLock::new(), cgroup: OnceLock::new(), holder }
    }
}
