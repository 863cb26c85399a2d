//! Messages queued for the host agent. The queues are bounded, and losses are counted.

use std::collections::VecDeque;

use wire::id::{Epoch, LmapId, RegionId};
use wire::proto::control::worker_message::Message;
use wire::proto::control::{self as proto, WorkerMessage};

/// Most encoded bytes of queued messages other than rows.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Most bytes of one message with rows.
pub(crate) const ROWS_BYTES: usize = 256 << 10;

/// Messages for the host agent. An acknowledgement is sent first, then verdicts, summaries and problems in order, then
/// rows.
#[derive(Debug)]
pub(crate) struct Outbox {
    acknowledge: Option<Epoch>,
    /// With their encoded bytes.
    messages: VecDeque<(usize, Message)>,
    /// Encoded bytes of these messages.
    bytes: usize,
    rows: VecDeque<proto::Rows>,
    most_messages: usize,
    most_rows: usize,
    lost_verdicts: u64,
    lost_rows: u64,
}

impl Outbox {
    pub(crate) fn new(most_messages: usize, most_rows: usize) -> Self {
        Self {
            acknowledge: None,
            messages: VecDeque::new(),
            bytes: 0,
            rows: VecDeque::new(),
            most_messages: most_messages.max(1),
            most_rows,
            lost_verdicts: 0,
            lost_rows: 0,
        }
    }

    /// Queues an acknowledgement. It replaces an earlier one, which it includes.
    pub(crate) fn acknowledge(&mut self, epoch: Epoch) {
        self.acknowledge = Some(epoch);
    }

    pub(crate) fn verdicts(&mut self, verdicts: proto::Verdicts) {
        self.push(Message::Verdicts(verdicts));
    }

    pub(crate) fn summary(&mut self, summary: proto::Summary) {
        self.push(Message::Summary(summary));
    }

    pub(crate) fn problem(&mut self, region: RegionId, problem: String) {
        self.push(Message::RegionProblem(proto::RegionProblem { region: region.0, problem }));
    }

    pub(crate) fn lmap_problem(&mut self, lmap: LmapId, problem: String) {
        self.push(Message::LmapProblem(proto::LmapProblem { lmap: lmap.0, problem }));
    }

    pub(crate) fn retained(&mut self, services: Vec<String>) {
        self.push(Message::Retained(proto::Retained { services }));
    }

    pub(crate) fn connect(&mut self, connect: proto::ConnectQueuePair) {
        self.push(Message::ConnectQueuePair(connect));
    }

    pub(crate) fn stream_states(&mut self, states: proto::StreamStates) {
        self.push(Message::StreamStates(states));
    }

    fn push(&mut self, message: Message) {
        let bytes = message.encoded_len();
        while !self.messages.is_empty()
            && (self.messages.len() >= self.most_messages || self.bytes + bytes > MAX_MESSAGE_BYTES)
        {
            if let Some(Message::Verdicts(lost)) = self.pop_message() {
                self.lost_verdicts += lost.verdicts.len() as u64;
            }
        }
        self.bytes += bytes;
        self.messages.push_back((bytes, message));
    }

    fn pop_message(&mut self) -> Option<Message> {
        let (bytes, message) = self.messages.pop_front()?;
        self.bytes -= bytes;
        Some(message)
    }

    pub(crate) fn rows(&mut self, rows: proto::Rows) {
        if self.rows.len() < self.most_rows {
            self.rows.push_back(rows);
        } else {
            self.lost_rows += rows.rows.len() as u64;
        }
    }

    /// The connection is lost: verdicts stay queued for the next one, everything else is dropped.
    pub(crate) fn disconnected(&mut self) {
        self.acknowledge = None;
        self.messages.retain(|(_, message)| matches!(message, Message::Verdicts(_)));
        self.bytes = self.messages.iter().map(|(bytes, _)| bytes).sum();
        self.lost_rows += self.rows.drain(..).map(|rows| rows.rows.len() as u64).sum::<u64>();
    }

    /// The host agent has restarted: drops everything, since it was for the earlier run.
    pub(crate) fn forget(&mut self) {
        self.disconnected();
        while let Some(message) = self.pop_message() {
            if let Message::Verdicts(lost) = message {
                self.lost_verdicts += lost.verdicts.len() as u64;
            }
        }
    }

    pub(crate) fn pop(&mut self) -> Option<WorkerMessage> {
        let acknowledge =
            self.acknowledge.take().map(|epoch| Message::Acknowledgement(proto::Acknowledgement { epoch: epoch.0 }));
        let message = acknowledge.or_else(|| self.pop_message());
        let message = message.or_else(|| self.rows.pop_front().map(Message::Rows))?;
        Some(WorkerMessage { message: Some(message) })
    }

    pub(crate) fn lost_verdicts(&self) -> u64 {
        self.lost_verdicts
    }

    pub(crate) fn lost_rows(&self) -> u64 {
        self.lost_rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(at_unix_ns: u64, count: usize) -> proto::Verdicts {
        proto::Verdicts { at_unix_ns, verdicts: vec![proto::Verdict::default(); count] }
    }

    fn rows(count: usize) -> proto::Rows {
        proto::Rows { lmap: 1, epoch: 1, rows: vec![proto::Row::default(); count] }
    }

    fn all(outbox: &mut Outbox) -> Vec<Message> {
        core::iter::from_fn(|| outbox.pop()).filter_map(|message| message.message).collect()
    }

    #[test]
    fn the_oldest_verdicts_are_lost_and_counted() {
        let mut outbox = Outbox::new(2, 1);

        for at in 1..=4 {
            outbox.verdicts(verdicts(at, 3));
        }

        assert_eq!(outbox.lost_verdicts(), 6);
        assert_eq!(all(&mut outbox), [Message::Verdicts(verdicts(3, 3)), Message::Verdicts(verdicts(4, 3))]);
    }

    #[test]
    fn the_oldest_verdicts_are_lost_when_there_are_too_many_bytes() {
        let mut outbox = Outbox::new(1 << 20, 1);
        let large = |at| proto::Verdicts {
            at_unix_ns: at,
            verdicts: vec![proto::Verdict { silent_replicas: vec![u32::MAX; 1 << 18], ..proto::Verdict::default() }],
        };

        (1..=20).for_each(|at| outbox.verdicts(large(at)));

        assert!(outbox.bytes <= MAX_MESSAGE_BYTES && outbox.lost_verdicts() > 10, "{}", outbox.lost_verdicts());
        let left = all(&mut outbox);
        assert_eq!(left.last(), Some(&Message::Verdicts(large(20))));
        assert_eq!(outbox.bytes, 0);
    }

    #[test]
    fn rows_wait_behind_everything_else_and_the_newest_are_lost() {
        let mut outbox = Outbox::new(2, 1);

        outbox.rows(rows(1));
        outbox.rows(rows(5));
        outbox.verdicts(verdicts(1, 1));
        outbox.acknowledge(Epoch(3));
        outbox.acknowledge(Epoch(4));

        let acknowledge = Message::Acknowledgement(proto::Acknowledgement { epoch: 4 });
        assert_eq!(all(&mut outbox), [acknowledge, Message::Verdicts(verdicts(1, 1)), Message::Rows(rows(1))]);
        assert_eq!(outbox.lost_rows(), 5);
    }

    #[test]
    fn verdicts_survive_a_lost_connection_but_not_another_host_agent() {
        let mut outbox = Outbox::new(8, 8);
        outbox.verdicts(verdicts(1, 2));
        outbox.problem(RegionId(1), "gone".into());
        outbox.rows(rows(4));
        outbox.acknowledge(Epoch(1));

        outbox.disconnected();
        assert_eq!(outbox.lost_rows(), 4);
        assert_eq!(outbox.messages.len(), 1);
        outbox.forget();

        assert_eq!(outbox.lost_verdicts(), 2);
        assert_eq!(all(&mut outbox), []);
    }
}
