//! A ring of records in a region: any thread of its owner writes, one reader elsewhere follows, and nobody waits for anybody.
//!
//! ```text
//! slot 0   ticket of the next record      1   numbers given out (ids)      2   records never made      3 … 7   zero
//!      8   cell 0: sequence word, 63 words of record      72   cell 1, …   (a power of two of them)
//! ```
//!
//! A writer draws a ticket (`fetch_add`), which names the record and its cell. It claims the cell by changing the sequence word to 2t + 1, writes,
//! and sets it to 2t + 2. Whoever finds a cell claimed by a writer that has not finished since the last lap, or written by one that overtook it,
//! gives its record up. The reader takes a record whose sequence word was 2t + 2 before and after: a seqlock for each cell. So every ticket is
//! read once or lost, the oldest are overwritten first, and both are known from the tickets alone, however the writers end.
//!
//! One ring for all threads, not one for each: threads come and go by the hundred where runtimes block, a child after fork shares all of
//! them, and memory would be theirs times a ring. A ticket is one atomic addition; in place of a lock, a record is lost in the one case in which
//! a writer was stopped for a whole lap.

mod cells;
mod reader;
mod writer;

pub use cells::{Cells, Word};
pub use reader::{Lost, Polled, RingReader, Tickets};
pub use writer::RingWriter;

use wire::layout::{RegionSize, RegionSizeError};

use crate::sync::AtomicU64;
use cells::CELLS_AT;

/// The size of a region for at least `records` of them: as many as the next power of two, 512 bytes each, and 128.
///
/// # Errors
///
/// [`RegionSizeError`] if that is more than a region may have: beyond 16,384 records.
pub fn size_for(records: u32) -> Result<RegionSize, RegionSizeError> {
    let cells = records.clamp(1, 1 << 20).next_power_of_two();
    RegionSize::for_slots(CELLS_AT as u32 + cells * Cells::<'_, AtomicU64>::CELL as u32)
}
