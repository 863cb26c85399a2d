//! Senders of this endpoint: who they are, and which of them use the names of others' services.

use core::net::SocketAddr;
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock, PoisonError};

use hyper::HeaderMap;
use wire::time::Nanos;

use crate::cgroups::Cgroups;
use crate::edge::Edge;
use crate::senders::{Peer, Sender, SenderCheck, SenderRules};
use crate::signal::Signal;
use crate::socket_owner::{self, OwnerLookup, SocketOwner};

/// Spans and metrics of a service whose sender may not use its name.
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
    /// When the last one came, in the time of [`Edge::now`].
    pub last: Nanos,
}

/// How long unverified spans are remembered as a problem.
const UNVERIFIED_FOR: Nanos = Nanos::from_secs(600);
/// Pairs of service and sender that are remembered.
const MAX_UNVERIFIED: usize = 32;

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
fn unknown_senders(ask: OwnerLookup, wanted: bool) -> Option<UnknownSenders> {
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
    peer: SocketAddr,
    /// This end, if the other one is of this machine.
    local: Option<SocketAddr>,
    /// `None` inside: the kernel does not know.
    owner: OnceLock<Option<SocketOwner>>,
    cgroup: OnceLock<Arc<str>>,
}

impl SenderConnection {
    fn new(peer: SocketAddr, local: Option<SocketAddr>) -> Self {
        let is_here = |local: &SocketAddr| {
            let (peer, local) = (peer.ip().to_canonical(), local.ip().to_canonical());
            peer.is_loopback() || peer == local
        };
        Self { peer, local: local.filter(is_here), owner: OnceLock::new(), cgroup: OnceLock::new() }
    }
}

impl Edge {
    /// A connection that was just accepted. Asks the kernel for its owner if a rule needs that: later it may be closed.
    pub(crate) fn connection(&self, peer: SocketAddr, local: Option<SocketAddr>) -> SenderConnection {
        let connection = SenderConnection::new(peer, local);
        self.owner(&connection, &self.senders.load());
        connection
    }

    /// The owner of the other end. The kernel is asked once, if `rules` need it.
    fn owner(&self, connection: &SenderConnection, rules: &SenderRules) -> Option<SocketOwner> {
        let local = connection.local.filter(|_| rules.need_owners())?;
        *connection.owner.get_or_init(|| {
            let found = (self.socket_owner)(connection.peer, local);
            if let Err(error) = &found {
                self.counts.unknown_senders.add(1);
                tracing::debug!(peer = %connection.peer, %error, "the user of a sender is unknown");
            }
            found.ok()
        })
    }

    /// Who sends a request with `headers`, as far as `rules` need to know.
    pub(crate) async fn sender(
        &self,
        connection: &SenderConnection,
        rules: &SenderRules,
        headers: &HeaderMap,
    ) -> Sender {
        let owner = self.owner(connection, rules);
        let id = owner.and_then(|owner| owner.cgroup).filter(|_| rules.need_cgroups());
        let cgroup = match (id, connection.cgroup.get()) {
            (None, _) => None,
            (Some(_), Some(known)) => Some(Arc::clone(known)),
            (Some(id), None) => {
                let found = self.cgroups.path(id, rules, self.now()).await;
                found.map(|path| Arc::clone(connection.cgroup.get_or_init(|| path)))
            }
        };
        let (address, uid) = (connection.peer.ip(), owner.map(|owner| owner.uid));
        let pod = self.pods.as_ref().map(|pods| pods.load().at(address)).unwrap_or_default();
        Sender::Peer(Peer { address, uid, cgroup, token: rules.token(headers), pod })
    }

    /// Why rules by user or cgroup fit no sender of this machine; `None` if they can, or if there are none.
    pub fn unknown_senders(&self) -> Option<UnknownSenders> {
        let rules = self.senders.load();
        if !rules.need_owners() {
            return None;
        }
        let wanted = rules.need_cgroups();
        let mounted = self.cgroups.is_mounted() || !wanted;
        unknown_senders(self.socket_owner, wanted).or((!mounted).then_some(UnknownSenders::NoCgroups))
    }

    /// Senders that use the name of a service that belongs to others, within the last 10 minutes. At most 32.
    pub fn unverified(&self) -> Vec<UnverifiedSpans> {
        let mut known = self.unverified.lock().unwrap_or_else(PoisonError::into_inner);
        forget_unverified(&mut known, self.now());
        known.clone()
    }

    pub(crate) fn record_unverified(&self, check: SenderCheck<'_>, signal: Signal) {
        if check.refused.is_empty() {
            return;
        }
        let (sender, now) = (check.sender.to_string(), self.now());
        let mut known = self.unverified.lock().unwrap_or_else(PoisonError::into_inner);
        forget_unverified(&mut known, now);
        for (service, items) in check.refused {
            let (counter, spans, exports) = match signal {
                Signal::Metrics => (&self.counts.unverified_metrics, 0, items),
                _ => (&self.counts.unverified_spans, items, 0),
            };
            counter.add(items);
            let is_full = known.len() >= MAX_UNVERIFIED;
            match known.iter_mut().find(|known| known.service == service && known.sender == sender) {
                Some(known) => {
                    (known.spans, known.exports, known.last) = (known.spans + spans, known.exports + exports, now);
                }
                None if is_full => {}
                None => {
                    let signal = signal.name();
                    tracing::warn!(service, sender, signal, items, "not counted: the name belongs to others");
                    known.push(UnverifiedSpans { service, sender: sender.clone(), spans, exports, last: now });
                }
            }
        }
    }
}

fn forget_unverified(known: &mut Vec<UnverifiedSpans>, now: Nanos) {
    known.retain(|known| now.since(known.last).is_none_or(|unseen| unseen < UNVERIFIED_FOR));
}
