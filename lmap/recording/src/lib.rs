//! Recordings: the rows of one service in a compact file that stays readable when it is cut or damaged.
//!
//! The crate is pure: bytes in, bytes out; no file, no clock.
//!
//! # Layout, version 1, little-endian
//! ```text
//! file  = magic "uvROWS\r\n" | version u32 | block*
//! block = kind u8 | length u32 | CRC-32 of kind, length and payload u32 | payload, deflated
//!   1 head    service, time between rows, and per column: title, unit, group, kind. Repeated whenever columns change
//!   2 rows    up to 512 rows: times, then column by column
//!   3 labels  spans of time with a known fault, or that do not count
//!   4 end     number of rows
//! ```
//! A block can be read with only the head before it. So all whole blocks of a cut or damaged file are read, and the
//! damage is reported. Labels may be appended later, also after the end.
//!
//! # Coding
//! Each column of a block uses the smallest of these codings:
//!
//! | coding | typical column |
//! | --- | --- |
//! | constant | |
//! | integers over a power of ten, or their differences | counts, bytes, times in whole microseconds |
//! | the same, multiplied by the column before | a mean beside its count: their product is a whole sum |
//! | dictionary | percentiles, which are bounds of few buckets |
//! | bits that differ from the value before, one plane per byte | anything else |
//!
//! All are exact to the bit, except that every NaN is the same "missing". Deflate then compresses the block: every
//! build has it anyway, for gzip'd CSV, and unlike zstd it needs no C library.
//!
//! # Limits
//! 65,536 columns, 2²⁶ values (512 MiB in memory). Sizes are checked before anything of that size is allocated.
//!
//! ```
//! use recording::{Column, ColumnKind, Encoder, Head};
//! use wire::time::{Nanos, UnixNanos};
//!
//! let none = String::new;
//! let column = |title: &str| Column { title: title.into(), unit: none(), group: none(), kind: ColumnKind::Gauge };
//! let (interval, columns) = (Nanos::from_millis(100), vec![column("a"), column("b")]);
//! let head = Head { service: "cart".to_owned(), interval, columns };
//! let (mut encoder, mut file) = Encoder::new(head)?;
//! for row in 0..1000_u32 {
//!     let at = UnixNanos::from_millis(u64::from(row) * 100);
//!     file.extend(encoder.push(at, &[f64::from(row % 7), 0.25])?.unwrap_or_default());
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
//! | [`head`](Head), [`labels`](Span) | what is recorded, and labelled faults |
//! | [`encoder`](Encoder) | rows → blocks |
//! | [`decoder`](decode) | bytes → all whole blocks |
//! | `column`, `bytes`, `block` | coding of a column; of numbers and texts; of blocks |

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
