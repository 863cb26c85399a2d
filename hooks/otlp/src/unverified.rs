//! Senders of this endpoint: who they are, and which of them use the names of others' services.

use core::net::SocketAddr;
use std::sync::PoisonError;

use wire::time::Nanos;

use crate::edge::Edge;
use crate::senders::{Sender, SenderCheck};
use crate::socket_owner;

/// Spans of a service whose sender may not use its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnverifiedSpans {
    /// The name that belongs to others.
    pub service: String,
    /// Address of the sender, and its user if known.
    pub sender: String,
    /// Spans since the first one.
    pub spans: u64,
    /// When the last one came, in the time of [`Edge::now`].
    pub last: Nanos,
}

/// How long unverified spans are remembered as a problem.
const UNVERIFIED_FOR: Nanos = Nanos::from_secs(600);
/// Pairs of service and sender that are remembered.
const MAX_UNVERIFIED: usize = 32;

impl Edge {
    /// Who is at the other end of a connection. Asks the kernel for the user only if a rule needs it.
    pub(crate) fn sender(&self, peer: SocketAddr, local: Option<SocketAddr>) -> Sender {
        let here = |local: &SocketAddr| {
            let (peer, local) = (peer.ip().to_canonical(), local.ip().to_canonical());
            peer.is_loopback() || peer == local
        };
        let local = local.filter(|local| self.senders.need_users() && here(local));
        let uid = local.and_then(|local| {
            let found = socket_owner::owner(peer, local);
            if let Err(error) = &found {
                self.counts.unknown_senders.add(1);
                tracing::debug!(%peer, %error, "the user of a sender is unknown");
            }
            found.ok()
        });
        Sender::Peer { address: peer.ip(), uid, token: None }
    }

    /// Senders that use the name of a service that belongs to others, within the last 10 minutes. At most 32.
    pub fn unverified(&self) -> Vec<UnverifiedSpans> {
        let mut known = self.unverified.lock().unwrap_or_else(PoisonError::into_inner);
        forget_unverified(&mut known, self.now());
        known.clone()
    }

    pub(crate) fn record_unverified(&self, check: SenderCheck<'_>) {
        if check.refused.is_empty() {
            return;
        }
        let (sender, now) = (check.sender.to_string(), self.now());
        let mut known = self.unverified.lock().unwrap_or_else(PoisonError::into_inner);
        forget_unverified(&mut known, now);
        for (service, spans) in check.refused {
            self.counts.unverified_spans.add(spans);
            let is_full = known.len() >= MAX_UNVERIFIED;
            match known.iter_mut().find(|known| known.service == service && known.sender == sender) {
                Some(known) => (known.spans, known.last) = (known.spans + spans, now),
                None if is_full => {}
                None => {
                    tracing::warn!(service, sender, spans, "spans are not counted: the name belongs to others");
                    known.push(UnverifiedSpans { service, sender: sender.clone(), spans, last: now });
                }
            }
        }
    }
}

fn forget_unverified(known: &mut Vec<UnverifiedSpans>, now: Nanos) {
    known.retain(|known| now.since(known.last).is_none_or(|unseen| unseen < UNVERIFIED_FOR));
}
