//! Who sends to this endpoint, and who uses the names of others' services.

use core::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use agent_runtime::socket_owner::SocketOwner;
use hyper::HeaderMap;
use wire::time::Nanos;

use super::Edge;
use crate::holders::Holder;
use crate::senders::{Peer, Sender, SenderCheck, SenderRules};
use crate::signal::Signal;
use crate::unverified::{SenderConnection, UnknownSenders, UnverifiedSpans, unknown_senders};

/// How long unverified spans are remembered as a problem.
const UNVERIFIED_FOR: Nanos = Nanos::from_secs(600);
/// Pairs of service and sender that are remembered.
const MAX_UNVERIFIED: usize = 32;

impl Edge {
    /// A connection that was just accepted, of the share of `holder`. Asks the kernel for its owner if a rule needs
    /// that: later it may be closed.
    pub(crate) fn connection(&self, peer: SocketAddr, local: Option<SocketAddr>, holder: Holder) -> SenderConnection {
        let connection = SenderConnection::new(peer, local, holder);
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
        let (token, holder) = (rules.token(headers), connection.holder.clone());
        Sender::Peer(Peer { address, uid, cgroup, token, pod, holder })
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
            let (counter, [spans, exports, logs]) = match signal {
                Signal::Metrics => (&self.counts.unverified_metrics, [0, items, 0]),
                Signal::Logs => (&self.counts.unverified_logs, [0, 0, items]),
                Signal::Traces => (&self.counts.unverified_spans, [items, 0, 0]),
            };
            counter.add(items);
            let is_full = known.len() >= MAX_UNVERIFIED;
            match known.iter_mut().find(|known| known.service == service && known.sender == sender) {
                Some(known) => {
                    (known.spans, known.exports, known.last) = (known.spans + spans, known.exports + exports, now);
                    known.logs += logs;
                }
                None if is_full => {}
                None => {
                    let signal = signal.name();
                    tracing::warn!(service, sender, signal, items, "not counted: the name belongs to others");
                    let sender = sender.clone();
                    known.push(UnverifiedSpans { service, sender, spans, exports, logs, last: now });
                }
            }
        }
    }
}

fn forget_unverified(known: &mut Vec<UnverifiedSpans>, now: Nanos) {
    known.retain(|known| now.since(known.last).is_none_or(|unseen| unseen < UNVERIFIED_FOR));
}
