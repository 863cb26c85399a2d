//! Rows of one service in a compact file that survives a cut. Pure: bytes in, bytes out; no file, no clock.
//!
//! # Layout, version 1, little-endian
//! ```text
//! file  = magic "uvROWS\r\n" | version u32 | block*
//! block = kind u8 | length u32 | CRC-32 of kind, length and payload u32 | payload, deflated
//!   1 head    service, time between rows, and of each column: title, unit, group, kind. Again whenever columns change
//!   2 rows    up to 512 rows: times, then column by column
//!   3 labels  spans of time in which a fault is known, or nothing counts
//!   4 end     how many rows there are
//! ```
//! Blocks stand alone: whoever finds one whole can read it with the head before it. So a file that is cut, or whose middle is
//! damaged, gives all its whole blocks, and says what is lost. Labels may be appended later, after the end.
//!
//! # Coding
//! Each column of a block is coded in the way that is smallest for it: a constant; integers of a power of ten, or their
//! differences (counts, bytes, times in whole microseconds); the same multiplied by the column before (a mean beside its count is a
//! whole sum again); a dictionary (percentiles are bounds of few buckets); else the bits that differ from the value before, byte by
//! byte. All are exact to the bit, but that every NaN is the one "missing". Deflate then packs the bytes: it is in every build
//! already, for gzip'd CSV, and without a C library, which zstd would bring.
//!
//! # Limits
//! 65,536 columns, 2²⁶ values (512 MiB in memory). Sizes are checked before anything of that size is allocated.
//!
//! ```
//! use recording::{Column, ColumnKind, Encoder, Head};
//!
//! let column = |title: &str| Column { title: title.to_owned(), unit: String::new(), group: String::new(), kind: ColumnKind::Gauge };
//! let head = Head { service: "cart".to_owned(), interval_ns: 100_000_000, columns: vec![column("a"), column("b")] };
//! let (mut encoder, mut file) = Encoder::new(head)?;
//! for row in 0..1000_u32 {
//!     file.extend(encoder.push(u64::from(row) * 100_000_000, &[f64::from(row % 7), 0.25])?.unwrap_or_default());
//! }
//! file.extend(encoder.finish());
//!
//! let recording = recording::decode(&file)?;
//! assert_eq!((recording.rows().len(), recording.complete), (1000, true));
//! assert!(file.len() < 2_000, "{} bytes", file.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`head`](Head), [`labels`](Span) | what is recorded, and what is known about it |
//! | [`encoder`](Encoder) | rows → blocks |
//! | [`decoder`](decode) | bytes → everything that is whole |
//! | `column`, `bytes`, `block` | one column of a block; numbers; frames |

mod block;
mod bytes;
mod column;
mod decoder;
mod encoder;
mod head;
mod labels;

pub use block::{Kind as BlockKind, is_recording, write as write_block};
pub use decoder::{Damage, DamageReason, Recording, RecordingError, decode};
pub use encoder::{Encoder, RowError};
pub use head::{Column, ColumnKind, Head, HeadError};
pub use labels::{Mark, Span, SpanError, encode as label_block};
