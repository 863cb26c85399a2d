//! A lock-free ring buffer of records in a region: many writers (threads of the owner), one reader in another process.
//! Neither side ever waits; the oldest records are overwritten.
//!
//! ```text
//! slot 0   ticket of the next record      1   ids handed out      2   records dropped      3 … 7   zero
//!      8   cell 0: sequence word, 63 words of record      72   cell 1, …   (a power of two of them)
//! ```
//!
//! A writer draws a ticket t (`fetch_add`), which determines the cell. It claims the cell by changing the sequence word
//! to 2t + 1, writes the record, and sets the word to 2t + 2. A writer gives its record up if the cell is still claimed
//! by a writer of an earlier lap, or was written by a later one. The reader accepts a record whose sequence word was
//! 2t + 2 before and after the copy: each cell is a seqlock. So every ticket is read once or counted as lost, even if
//! writers are killed.
//!
//! There is one ring for all threads, not one each: runtimes that block start hundreds of threads, a forked child
//! shares all of them, and each would need its own memory. Drawing a ticket is one atomic addition. The price for
//! having no lock: a record is lost if a writer is stopped for a whole lap.

mod cells;
mod reader;
mod writer;

pub use cells::{Cells, Word};
pub use reader::{LostRecords, PollSummary, RingReader, Tickets};
pub use writer::RingWriter;

use wire::layout::{RegionSize, RegionSizeError};

use crate::sync::AtomicU64;
use cells::CELLS_AT;

/// The size of a region for at least `records` records: rounded up to a power of two, 512 bytes each, plus 128 bytes.
///
/// # Errors
///
/// [`RegionSizeError`] beyond 16,384 records, the most that a region may hold.
pub fn size_for(records: u32) -> Result<RegionSize, RegionSizeError> {
    let cells = records.clamp(1, 1 << 20).next_power_of_two();
    RegionSize::for_slots(CELLS_AT as u32 + cells * Cells::<'_, AtomicU64>::CELL as u32)
}
