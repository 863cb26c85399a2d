//! The reader's side of a ring. The ring may hold any bytes at any time; work per poll is bounded all the same.

use std::collections::VecDeque;

use wire::layout::Slot;
use wire::span_record::RECORD_WORDS;

use crate::read_mapping::ReadMapping;
use crate::ring::cells::CellState;
use crate::ring::{Cells, Word};
use crate::sync::AtomicU64;

/// Unfinished records that are retried at later polls. Writers are seldom stopped in the middle of a record.
const UNFINISHED: usize = 256;

/// Counts of records that will never be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostRecords {
    /// Overwritten before they were read: the ring is too small or the reader too slow.
    pub overwritten: u64,
    /// Never completed: the writer was killed or stopped, or gave the record up because another writer was stopped.
    pub unfinished: u64,
}

/// The result of one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollSummary {
    /// Number of records read.
    pub read: u64,
    /// Records lost since the last poll.
    pub lost: LostRecords,
}

/// Tracks tickets: every ticket from the first one on is read once, lost, or pending. Pure but for the ring's words.
#[derive(Debug)]
pub struct Tickets<const WORDS: usize = RECORD_WORDS> {
    next: u64,
    unfinished: VecDeque<u64>,
    record: [u64; WORDS],
}

impl<const WORDS: usize> Tickets<WORDS> {
    /// Starts with the record of ticket `first`.
    #[must_use]
    pub const fn new(first: u64) -> Self {
        Self { next: first, unfinished: VecDeque::new(), record: [0; WORDS] }
    }

    /// Passes every complete record to `sink`: first those that were pending, then new ones, oldest first. At most the
    /// number of cells plus 256, whatever the writer does. If the next ticket has moved backwards, nothing is read and
    /// reading goes on from there.
    pub fn poll<W: Word>(&mut self, cells: Cells<'_, W, WORDS>, mut sink: impl FnMut(&[u64; WORDS])) -> PollSummary {
        let mut polled = PollSummary::default();
        let end = cells.next();
        for _ in 0..self.unfinished.len() {
            let Some(ticket) = self.unfinished.pop_front() else { break };
            self.take(cells, ticket, end, &mut polled, &mut sink);
        }
        let kept = end.saturating_sub(cells.cells());
        if self.next < kept {
            polled.lost.overwritten = polled.lost.overwritten.saturating_add(kept - self.next);
            self.next = kept;
        }
        for ticket in self.next..end {
            self.take(cells, ticket, end, &mut polled, &mut sink);
        }
        self.next = end;
        polled
    }

    fn take<W: Word>(
        &mut self,
        cells: Cells<'_, W, WORDS>,
        ticket: u64,
        end: u64,
        polled: &mut PollSummary,
        sink: &mut impl FnMut(&[u64; WORDS]),
    ) {
        match cells.read(ticket, &mut self.record) {
            CellState::Record => {
                polled.read += 1;
                sink(&self.record);
            }
            CellState::Overwritten => polled.lost.overwritten = polled.lost.overwritten.saturating_add(1),
            // A whole lap has passed and its cell was never claimed for it.
            CellState::Unfinished if end.saturating_sub(ticket) > cells.cells() => polled.lost.unfinished += 1,
            CellState::Unfinished => {
                self.unfinished.push_back(ticket);
                if self.unfinished.len() > UNFINISHED {
                    self.unfinished.pop_front();
                    polled.lost.unfinished += 1;
                }
            }
        }
    }

    /// The writers are gone: pending records are lost. Returns their number.
    pub fn give_up(&mut self) -> u64 {
        let lost = self.unfinished.len() as u64;
        self.unfinished.clear();
        lost
    }
}

/// Reads a ring of another process, mapped read-only.
#[derive(Debug)]
pub struct RingReader {
    memory: ReadMapping,
    tickets: Tickets,
}

impl RingReader {
    /// Reads `memory` from ticket `first` on; 0 for a new ring.
    #[must_use]
    pub const fn new(memory: ReadMapping, first: u64) -> Self {
        Self { memory, tickets: Tickets::new(first) }
    }

    /// Passes every complete record to `sink`, see [`Tickets::poll`].
    pub fn poll(&mut self, sink: impl FnMut(&[u64; RECORD_WORDS])) -> PollSummary {
        match cells(&self.memory) {
            Some(cells) => self.tickets.poll(cells, sink),
            None => PollSummary::default(),
        }
    }

    /// The writers are gone: returns the number of pending records, which are lost.
    pub fn give_up(&mut self) -> u64 {
        self.tickets.give_up()
    }

    /// The capacity of the ring, in records.
    #[must_use]
    pub fn records(&self) -> u64 {
        cells(&self.memory).map_or(0, |cells| cells.cells())
    }

    /// Records that the service could not create and never wrote, as it reports itself.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        cells(&self.memory).map_or(0, |cells| cells.dropped().load(crate::sync::Relaxed))
    }
}

fn cells(memory: &ReadMapping) -> Option<Cells<'_, AtomicU64>> {
    Cells::new(memory.words().get(Slot(0).word()..)?)
}
