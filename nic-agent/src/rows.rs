//! Raw rows for subscribers: a history of the last rows, and new rows in bounded messages.

use core::num::NonZeroU32;

use lmap::prefetch;
use wire::id::{Epoch, LmapId};
use wire::proto::control as proto;
use wire::time::{Interval, Nanos, UnixNanos};

/// Most values in one message: 256 KiB, far below the limit of a gRPC message.
const MESSAGE_VALUES: usize = 32_768;
/// Most rows in one message.
const MESSAGE_ROWS: usize = 64;
/// A row is buffered for less than this, so that rows share a message.
const MAX_DELAY: Nanos = Nanos::from_millis(100);

/// The last rows of one LMAP, in a ring buffer.
#[derive(Debug)]
pub(crate) struct History {
    columns: usize,
    capacity: usize,
    values: Vec<f64>,
    heads: Vec<(UnixNanos, f64)>,
    next: usize,
}

impl History {
    /// A buffer for `capacity` rows of `columns`: 8 · `capacity` · (`columns` + 2) bytes.
    pub(crate) fn new(capacity: usize, columns: usize) -> Self {
        Self { columns, capacity, values: vec![0.0; capacity * columns], heads: Vec::with_capacity(capacity), next: 0 }
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<f64>() * self.values.len() + size_of::<(UnixNanos, f64)>() * self.capacity
    }

    /// Asks for the memory in which the next row is stored.
    pub(crate) fn prefetch(&self) {
        let start = self.next * self.columns;
        prefetch(self.values.get(start..start + self.columns).unwrap_or_default(), 8);
        prefetch(self.heads.get(self.next..).unwrap_or_default(), 1);
    }

    /// Stores a row in place of the oldest. Never allocates.
    pub(crate) fn push(&mut self, at: UnixNanos, score: f64, row: &[f64]) {
        if self.capacity == 0 || row.len() != self.columns {
            return;
        }
        let start = self.next * self.columns;
        if let Some(place) = self.values.get_mut(start..start + self.columns) {
            place.copy_from_slice(row);
        }
        match self.heads.get_mut(self.next) {
            Some(head) => *head = (at, score),
            None => self.heads.push((at, score)),
        }
        self.next = (self.next + 1) % self.capacity;
    }

    /// Forgets the stored rows.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.next = 0;
    }

    /// The stored rows, oldest first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = proto::Row> + '_ {
        let oldest = if self.heads.len() < self.capacity { 0 } else { self.next };
        (oldest..self.heads.len()).chain(0..oldest).map(|at| {
            let (UnixNanos(at_unix_ns), score) = self.heads[at];
            let values = self.values[at * self.columns..(at + 1) * self.columns].to_vec();
            proto::Row { at_unix_ns, score, values }
        })
    }
}

/// The subscription to the rows of one LMAP.
#[derive(Debug)]
pub(crate) struct Subscription {
    every: NonZeroU32,
    rows_seen: u32,
    buffered: Vec<proto::Row>,
    since: Nanos,
}

impl Subscription {
    pub(crate) fn new(every: NonZeroU32) -> Self {
        Self { every, rows_seen: 0, buffered: Vec::new(), since: Nanos::ZERO }
    }

    /// Selects every `every`-th row from now on.
    pub(crate) fn set_every(&mut self, every: NonZeroU32) {
        self.every = every;
    }

    /// Takes the buffered rows.
    pub(crate) fn take(&mut self) -> Vec<proto::Row> {
        core::mem::take(&mut self.buffered)
    }

    /// Adds a row if the subscription selects it, and returns the buffered rows if they have to be sent now.
    pub(crate) fn push(
        &mut self,
        now: Nanos,
        interval: Interval,
        row: impl FnOnce() -> proto::Row,
    ) -> Option<Vec<proto::Row>> {
        if self.rows_seen.is_multiple_of(self.every.get()) {
            if self.buffered.is_empty() {
                self.since = now;
            }
            self.buffered.push(row());
        }
        self.rows_seen = self.rows_seen.wrapping_add(1);
        let columns = self.buffered.first()?.values.len();
        let full = self.buffered.len() >= rows_per_message(columns);
        let next = now.plus(interval.length());
        let waits = next.since(self.since).is_some_and(|length| length >= MAX_DELAY);
        (full || waits).then(|| core::mem::take(&mut self.buffered))
    }
}

fn rows_per_message(columns: usize) -> usize {
    (MESSAGE_VALUES / columns.max(1)).clamp(1, MESSAGE_ROWS)
}

/// Splits `rows` into messages of bounded size.
pub(crate) fn messages(
    lmap: LmapId,
    epoch: Epoch,
    rows: impl Iterator<Item = proto::Row>,
    columns: usize,
) -> Vec<proto::Rows> {
    let rows: Vec<_> = rows.collect();
    let chunks = rows.chunks(rows_per_message(columns));
    chunks.map(|rows| proto::Rows { lmap: lmap.0, epoch: epoch.0, rows: rows.to_vec() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rows: impl IntoIterator<Item = proto::Row>) -> Vec<u64> {
        rows.into_iter().map(|row| row.at_unix_ns).collect()
    }

    #[test]
    fn the_last_rows_are_kept_in_order() {
        let mut history = History::new(3, 2);
        history.push(UnixNanos(1), 0.1, &[1.0, 1.5]);
        assert_eq!(times(history.rows()), [1]);

        for at in 2..=5 {
            history.push(UnixNanos(at), 0.5, &[at as f64, 0.0]);
        }

        assert_eq!(times(history.rows()), [3, 4, 5]);
        assert_eq!(history.rows().next().unwrap().values, [3.0, 0.0]);
    }

    #[test]
    fn no_history_keeps_nothing() {
        let mut history = History::new(0, 2);

        history.push(UnixNanos(1), 0.0, &[1.0, 2.0]);

        assert_eq!(history.rows().count(), 0);
    }

    #[test]
    fn every_nth_row_is_sent_and_short_intervals_share_a_message() {
        let interval = Interval::new(Nanos::from_millis(10)).unwrap();
        let mut subscription = Subscription::new(NonZeroU32::new(2).unwrap());
        let mut messages = Vec::new();

        for at in 0..40 {
            let row = || proto::Row { at_unix_ns: at, score: 0.0, values: vec![0.0] };
            messages.extend(subscription.push(Nanos::from_millis(10 * at), interval, row).map(times));
        }

        assert_eq!(messages[0], [0, 2, 4, 6, 8]);
        assert_eq!(messages.concat(), (0..40).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_interval_does_not_keep_a_row_waiting() {
        let interval = Interval::new(Nanos::from_secs(1)).unwrap();
        let mut subscription = Subscription::new(NonZeroU32::MIN);

        let sent = subscription.push(Nanos::ZERO, interval, proto::Row::default);

        assert_eq!(sent.map(|rows| rows.len()), Some(1));
    }

    #[test]
    fn wide_rows_travel_alone() {
        let rows = (0..3).map(|at| proto::Row { at_unix_ns: at, score: 0.0, values: vec![0.0; 20_000] });

        let messages = messages(LmapId(1), Epoch(1), rows, 20_000);

        assert_eq!(messages.iter().map(|message| message.rows.len()).collect::<Vec<_>>(), [1, 1, 1]);
    }
}
