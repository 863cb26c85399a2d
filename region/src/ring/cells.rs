//! The protocol of tickets and cells, generic over the atomic word: those of a mapping, or loom's (`tests/ring.rs`).

use core::sync::atomic::{AtomicU64, Ordering, fence};

use wire::span_record::RECORD_WORDS;

/// The slot with the next ticket.
const NEXT: usize = 0;
/// The slot with the number of ids handed out.
const IDS: usize = 1;
/// The slot with the number of dropped records.
const DROPPED: usize = 2;
/// The first slot of the first cell: on another cache line than the words that all writers change.
pub(crate) const CELLS_AT: usize = 8;
/// The first word of a record on the second cache line of its cell: the sequence word is on the first.
const SECOND_LINE: usize = 7;

/// An atomic word: `AtomicU64`, or loom's, which tries every order of events.
#[expect(missing_docs, reason = "as those of AtomicU64")]
pub trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Replaces `from` by `to`; `false` if the word was not `from`.
    fn compare_exchange(&self, from: u64, to: u64, order: Ordering) -> bool;
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

    fn compare_exchange(&self, from: u64, to: u64, order: Ordering) -> bool {
        self.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// The state of the cell of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellState {
    /// The record is complete.
    Record,
    /// Its writer has not finished, or has not begun.
    Unfinished,
    /// A later writer has claimed or written the cell: the record is lost.
    Overwritten,
}

/// A ring of records of `WORDS` words, over the slots of a region.
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

/// A cell whose ticket was drawn, and that is not claimed yet.
struct DrawnCell<'a, W> {
    sequence: &'a W,
    /// Those of its record.
    words: &'a [W],
    /// The sequence word as it was found.
    found: u64,
    /// What it is while the record is written.
    claimed: u64,
}

impl<W: Word> DrawnCell<'_, W> {
    /// Claims the cell and writes `record`; `false` if the writer had to give it up.
    fn write(self, record: &[u64]) -> bool {
        let Self { sequence, words, found, claimed } = self;
        // Odd: another writer has claimed the cell. Larger: a writer with a later ticket was faster.
        let free = found.is_multiple_of(2) && found < claimed;
        // Acquire: the stores of the cell's last writer come before those of this one.
        if !(free && sequence.compare_exchange(found, claimed, Ordering::Acquire)) {
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
}

impl<'a, W: Word, const WORDS: usize> Cells<'a, W, WORDS> {
    /// Words of a cell: the sequence word and a record.
    pub(crate) const CELL: usize = 1 + WORDS;

    /// As many cells as fit into `words`, a power of two; `None` if none fits. Writer and reader compute the same
    /// number.
    #[must_use]
    pub fn new(words: &'a [W]) -> Option<Self> {
        let fit = words.len().checked_sub(CELLS_AT)? / Self::CELL;
        let cells = 1_u64 << fit.checked_ilog2()?;
        Some(Self { words, mask: cells - 1 })
    }

    /// The number of cells.
    pub(crate) const fn cells(&self) -> u64 {
        self.mask + 1
    }

    /// The ticket that the next record will have.
    pub(crate) fn next(&self) -> u64 {
        self.words[NEXT].load(Ordering::Acquire)
    }

    /// Reserves `count` ids, unique among all writers of the ring, forked children included. Returns the first.
    pub(crate) fn reserve_ids(&self, count: u64) -> u64 {
        self.words[IDS].fetch_add(count, Ordering::Relaxed)
    }

    /// The counter of dropped records.
    pub(crate) fn dropped(&self) -> &W {
        &self.words[DROPPED]
    }

    fn cell(&self, ticket: u64) -> (&'a W, &'a [W]) {
        let at = CELLS_AT + (ticket & self.mask) as usize * Self::CELL;
        let (sequence, record) = self.words[at..at + Self::CELL].split_at(1);
        (&sequence[0], record)
    }

    /// Writes `record` as the next one; `false` if the writer had to give it up. Never waits.
    pub fn push(&self, record: &[u64]) -> bool {
        self.draw().write(record)
    }

    /// The same of a record that `make` writes, of so many words as it returns. It does so while the cell comes from
    /// a cache farther away: a lap ago is long ago.
    #[inline]
    pub fn push_with(&self, make: impl FnOnce(&mut [u64; WORDS]) -> usize) -> bool {
        let cell = self.draw();
        let mut record = [0; WORDS];
        let used = make(&mut record);
        cell.write(&record[..used.min(WORDS)])
    }

    /// Draws the next ticket.
    fn draw(&self) -> DrawnCell<'a, W> {
        let ticket = self.words[NEXT].fetch_add(1, Ordering::Relaxed);
        let (sequence, words) = self.cell(ticket);
        let found = sequence.load(Ordering::Relaxed);
        // For its line only, which comes along with the first one: most records take two.
        _ = words.get(SECOND_LINE).map(|word| word.load(Ordering::Relaxed));
        DrawnCell { sequence, words, found, claimed: ticket.wrapping_mul(2).wrapping_add(1) }
    }

    /// Copies the record of `ticket` to `record`, which is valid only if this returns [`CellState::Record`].
    pub(crate) fn read(&self, ticket: u64, record: &mut [u64; WORDS]) -> CellState {
        let (sequence, words) = self.cell(ticket);
        let done = ticket.wrapping_mul(2).wrapping_add(2);
        match sequence.load(Ordering::Acquire) {
            found if found < done => return CellState::Unfinished,
            found if found > done => return CellState::Overwritten,
            _ => {}
        }
        for (value, word) in record.iter_mut().zip(words) {
            *value = word.load(Ordering::Relaxed);
        }
        // If one of these words was of a later writer, its claim is seen now.
        W::fence(Ordering::Acquire);
        if sequence.load(Ordering::Relaxed) == done { CellState::Record } else { CellState::Overwritten }
    }
}
