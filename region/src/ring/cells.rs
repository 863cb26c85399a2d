//! The protocol of tickets and cells, over any atomic words: those of a mapping, or loom's in its model (`tests/ring.rs`).

use core::sync::atomic::{AtomicU64, Ordering, fence};

use wire::span_record::RECORD_WORDS;

/// The slot of the next ticket.
const NEXT: usize = 0;
/// The slot of numbers given out.
const NUMBERS: usize = 1;
/// The slot of records that were never made.
const UNMADE: usize = 2;
/// The first slot of the first cell: a cache line after the words that all writers change.
pub(crate) const CELLS_AT: usize = 8;

/// An atomic word: the processor's, or one whose every order of events is tried.
#[expect(missing_docs, reason = "as those of AtomicU64")]
pub trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Whether it was `from` and is `to` now.
    fn change(&self, from: u64, to: u64, order: Ordering) -> bool;
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        Self::fetch_add(self, value, order)
    }

    fn change(&self, from: u64, to: u64, order: Ordering) -> bool {
        self.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// What the reader finds in the cell of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Its record, whole.
    Record,
    /// A writer that has not finished, or has not begun.
    Unfinished,
    /// A later record, or one in the making: its own is lost.
    Overwritten,
}

/// The slots of a ring of records of `WORDS` words.
#[derive(Debug)]
pub struct Cells<'a, W, const WORDS: usize = RECORD_WORDS> {
    words: &'a [W],
    /// One less than the number of cells.
    mask: u64,
}

impl<W, const WORDS: usize> Clone for Cells<'_, W, WORDS> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W, const WORDS: usize> Copy for Cells<'_, W, WORDS> {}

impl<'a, W: Word, const WORDS: usize> Cells<'a, W, WORDS> {
    /// Words of a cell: its sequence word, and a record.
    pub(crate) const CELL: usize = 1 + WORDS;

    /// As many cells as fit into `words`, a power of two; `None` if that is none. Writer and reader come to the same number.
    #[must_use]
    pub fn new(words: &'a [W]) -> Option<Self> {
        let fit = words.len().checked_sub(CELLS_AT)? / Self::CELL;
        let cells = 1_u64 << fit.checked_ilog2()?;
        Some(Self { words, mask: cells - 1 })
    }

    /// How many there are.
    pub(crate) const fn cells(&self) -> u64 {
        self.mask + 1
    }

    /// The ticket that the next record will have.
    pub(crate) fn next(&self) -> u64 {
        self.words[NEXT].load(Ordering::Acquire)
    }

    /// The first of `count` numbers that nobody who shares the ring was given: a child after fork, too.
    pub(crate) fn numbers(&self, count: u64) -> u64 {
        self.words[NUMBERS].fetch_add(count, Ordering::Relaxed)
    }

    pub(crate) fn unmade(&self) -> &W {
        &self.words[UNMADE]
    }

    fn cell(&self, ticket: u64) -> (&'a W, &'a [W]) {
        let at = CELLS_AT + (ticket & self.mask) as usize * Self::CELL;
        let (sequence, record) = self.words[at..at + Self::CELL].split_at(1);
        (&sequence[0], record)
    }

    /// Writes `record` as the next one; `false` if it had to be given up. Never waits.
    pub fn push(&self, record: &[u64]) -> bool {
        let ticket = self.words[NEXT].fetch_add(1, Ordering::Relaxed);
        let (sequence, words) = self.cell(ticket);
        let found = sequence.load(Ordering::Relaxed);
        let claimed = ticket.wrapping_mul(2).wrapping_add(1);
        // Odd: whoever claimed it is still writing. Larger: somebody who drew a later ticket was here before us.
        let free = found.is_multiple_of(2) && found < claimed;
        // Acquire: what the last writer of this cell stored comes before what this one stores.
        if !(free && sequence.change(found, claimed, Ordering::Acquire)) {
            return false;
        }
        // A reader that sees one of the words to come sees the claim, too.
        W::fence(Ordering::Release);
        for (word, value) in words.iter().zip(record) {
            word.store(*value, Ordering::Relaxed);
        }
        sequence.store(claimed.wrapping_add(1), Ordering::Release);
        true
    }

    /// Copies the record of `ticket` to `record`; what is there means nothing unless it is [`Found::Record`].
    pub(crate) fn read(&self, ticket: u64, record: &mut [u64; WORDS]) -> Found {
        let (sequence, words) = self.cell(ticket);
        let done = ticket.wrapping_mul(2).wrapping_add(2);
        match sequence.load(Ordering::Acquire) {
            found if found < done => return Found::Unfinished,
            found if found > done => return Found::Overwritten,
            _ => {}
        }
        for (value, word) in record.iter_mut().zip(words) {
            *value = word.load(Ordering::Relaxed);
        }
        // If one of these words was of a later writer, its claim is seen now.
        W::fence(Ordering::Acquire);
        if sequence.load(Ordering::Relaxed) == done { Found::Record } else { Found::Overwritten }
    }
}
