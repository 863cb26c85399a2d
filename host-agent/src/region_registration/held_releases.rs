//! Slots that services get back once all workers are fenced from RDMA, within a number of bytes.

use std::collections::BTreeMap;

use wire::proto::registration::agent_message::Message;
use wire::proto::registration::{AgentMessage, SlotRun};

use crate::control_plane::ConnectionId;

/// Most bytes of messages that are held back.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// Messages that give slots back, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct HeldReleases {
    messages: Vec<(ConnectionId, AgentMessage)>,
    bytes: usize,
}

/// Memory of a message in bytes. A vector may have grown to twice what it holds.
fn cost(message: &AgentMessage) -> usize {
    let runs = match &message.message {
        Some(Message::Release(release)) => release.runs.capacity() * size_of::<SlotRun>(),
        _ => 0,
    };
    runs + 2 * size_of::<(ConnectionId, AgentMessage)>()
}

impl HeldReleases {
    /// Forgets what is for connections that `is_open` does not know: a service that reconnects repeats what it has
    /// retired.
    pub(super) fn retain(&mut self, is_open: impl Fn(ConnectionId) -> bool) {
        self.messages.retain(|(to, _)| is_open(*to));
        self.bytes = self.messages.iter().map(|(_, message)| cost(message)).sum();
    }

    /// Holds back a message. If there are more than [`MAX_BYTES`] then, forgets those for the connection that has most
    /// of them, and returns it: its slots come back when it connects again.
    pub(super) fn hold(&mut self, to: ConnectionId, message: AgentMessage) -> Option<ConnectionId> {
        self.bytes += cost(&message);
        self.messages.push((to, message));
        if self.bytes <= MAX_BYTES {
            return None;
        }
        let mut held = BTreeMap::<_, usize>::new();
        for (to, message) in &self.messages {
            *held.entry(to.0).or_default() += cost(message);
        }
        let (most, _) = held.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        self.retain(|to| to.0 != most);
        Some(ConnectionId(most))
    }

    /// Takes all messages, the earliest first.
    pub(super) fn take(&mut self) -> Vec<(ConnectionId, AgentMessage)> {
        self.bytes = 0;
        core::mem::take(&mut self.messages)
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::registration::SlotRelease;

    use super::*;

    fn release(runs: usize) -> AgentMessage {
        AgentMessage { message: Some(Message::Release(SlotRelease { runs: vec![SlotRun::default(); runs] })) }
    }

    #[test]
    fn a_service_that_retires_in_a_loop_loses_what_is_held_for_it_and_others_do_not() {
        let mut held = HeldReleases::default();
        assert_eq!(held.hold(ConnectionId(1), release(100)), None);

        let forgotten: Vec<_> = (0..100).filter_map(|_| held.hold(ConnectionId(2), release(50_000))).collect();

        assert!(!forgotten.is_empty() && forgotten.iter().all(|to| *to == ConnectionId(2)), "{forgotten:?}");
        assert!(held.bytes <= MAX_BYTES, "{}", held.bytes);
        let of_first: Vec<_> = held.take().into_iter().filter(|(to, _)| *to == ConnectionId(1)).collect();
        assert_eq!((of_first, held.bytes), (vec![(ConnectionId(1), release(100))], 0));
    }

    #[test]
    fn nothing_is_held_for_connections_that_are_gone() {
        let mut held = HeldReleases::default();
        held.hold(ConnectionId(1), release(10));
        held.hold(ConnectionId(2), release(20));
        held.retain(|to| to == ConnectionId(2));

        assert_eq!((held.messages.len(), held.bytes), (1, cost(&release(20))));
    }
}
