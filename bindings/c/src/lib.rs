//! The client for C and C++: `include/uview.h` says what each function does, this crate is behind it.
//!
//! Arguments have the types that Rust and C agree on: `Option<&T>` is a pointer to a `T` or NULL, `Option<Box<T>>` one
//! that this library made and takes back. What a pointer leads to is C's to promise, and the header says what. No panic
//! leaves a function: it becomes `UVIEW_INTERNAL`.
//!
//! A handle begins with a pointer to its slot, so that the header writes it inline, with the same atomic operation as
//! the Rust client.

mod arguments;
mod handles;
mod outcome;
mod service;
mod spans;

pub use arguments::{Buffer, Label, Labels, MetricOptions, Text};
pub use handles::{CounterHandle, GaugeHandle, HistogramHandle, ShardedHandle, UpDownHandle};
pub use service::{ServiceHandle, ServiceOptions, ServiceState};
pub use spans::{SpanHandle, SpanOptions};
