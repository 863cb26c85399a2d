//! A ring from its reader's side: what may be any bytes, at any time, is copied, looked at, and counted.

use std::collections::VecDeque;

use wire::layout::Slot;
use wire::span_record::RECORD_WORDS;

use crate::read::ReadMapping;
use crate::ring::cells::Found;
use crate::ring::{Cells, Word};
use crate::sync::AtomicU64;

/// Records that are waited for while later ones are read. A writer is stopped between two of its words seldom, and many at once even less.
const UNFINISHED: usize = 256;

/// Records that will not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Overwritten before they were read: the ring is too small, or the reader too slow.
    pub overwritten: u64,
    /// Drawn and never written: their writer was ended or stopped in the middle, or gave up because another one was.
    pub unfinished: u64,
}

/// What one look at a ring brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Records that were read.
    pub read: u64,
    /// Records that will not be.
    pub lost: Lost,
}

/// Which tickets were read. Pure but for the words that it is shown: every ticket from the first one on is read, lost or waited for, once.
#[derive(Debug)]
pub struct Tickets<const WORDS: usize = RECORD_WORDS> {
    next: u64,
    unfinished: VecDeque<u64>,
    record: [u64; WORDS],
}

impl<const WORDS: usize> Tickets<WORDS> {
    /// A reader that begins with the record of ticket `first`.
    #[must_use]
    pub const fn new(first: u64) -> Self {
        Self { next: first, unfinished: VecDeque::new(), record: [0; WORDS] }
    }

    /// Gives every record that is finished to `sink`, the oldest first but for those that were waited for. At most as many as the ring has
    /// cells, and 256: whatever the writer does. A next ticket that lies behind the last one is taken as it is, and nothing is read.
    pub fn poll<W: Word>(&mut self, cells: Cells<'_, W, WORDS>, mut sink: impl FnMut(&[u64; WORDS])) -> Polled {
        let mut polled = Polled::default();
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
        polled: &mut Polled,
        sink: &mut impl FnMut(&[u64; WORDS]),
    ) {
        match cells.read(ticket, &mut self.record) {
            Found::Record => {
                polled.read += 1;
                sink(&self.record);
            }
            Found::Overwritten => polled.lost.overwritten = polled.lost.overwritten.saturating_add(1),
            // Its cell went round and was never taken for it.
            Found::Unfinished if end.saturating_sub(ticket) > cells.cells() => polled.lost.unfinished += 1,
            Found::Unfinished => {
                self.unfinished.push_back(ticket);
                if self.unfinished.len() > UNFINISHED {
                    self.unfinished.pop_front();
                    polled.lost.unfinished += 1;
                }
            }
        }
    }

    /// Nobody writes any more: what is waited for is lost. How many that were.
    pub fn give_up(&mut self) -> u64 {
        let lost = self.unfinished.len() as u64;
        self.unfinished.clear();
        lost
    }
}

/// A ring of another process, mapped read-only.
#[derive(Debug)]
pub struct RingReader {
    memory: ReadMapping,
    tickets: Tickets,
}

impl RingReader {
    /// Reads `memory` from ticket `first` on: 0 for a ring that nobody read before.
    #[must_use]
    pub const fn new(memory: ReadMapping, first: u64) -> Self {
        Self { memory, tickets: Tickets::new(first) }
    }

    /// As [`Tickets::poll`].
    pub fn poll(&mut self, sink: impl FnMut(&[u64; RECORD_WORDS])) -> Polled {
        match cells(&self.memory) {
            Some(cells) => self.tickets.poll(cells, sink),
            None => Polled::default(),
        }
    }

    /// As [`Tickets::give_up`].
    pub fn give_up(&mut self) -> u64 {
        self.tickets.give_up()
    }

    /// How many records it holds.
    #[must_use]
    pub fn records(&self) -> u64 {
        cells(&self.memory).map_or(0, |cells| cells.cells())
    }

    /// How many records the service says it could not even make, and so never wrote.
    #[must_use]
    pub fn unmade(&self) -> u64 {
        cells(&self.memory).map_or(0, |cells| cells.unmade().load(crate::sync::Relaxed))
    }
}

fn cells(memory: &ReadMapping) -> Option<Cells<'_, AtomicU64>> {
    Cells::new(memory.words().get(Slot(0).word()..)?)
}
