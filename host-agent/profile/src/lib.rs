//! What a process does with its time: stacks of its threads, sampled by the kernel for some seconds.
//!
//! | module | what |
//! | --- | --- |
//! | [`event`] | what is sampled: processor time, page faults or waiting, chosen by the metric that leads an alarm |
//! | [`take()`] | samples threads of processes, and names the functions |
//! | `stacks`, `tally` | how often each stack was seen, of addresses and of names |
//! | `kernel` | perf events, each with its ring of samples |
//! | [`functions`], `mappings` | from an address to a file, and to the function in it |
//!
//! Frames are found by frame pointers: a program that was built without them has the innermost frame and few others.
//! Files of a process that is watched are not trusted: they are read piece by piece, never mapped, and whatever is too
//! large or does not fit together has no names.

pub mod event;
pub mod functions;
mod kernel;
mod mappings;
mod names;
mod stacks;
pub mod take;
mod tally;

pub use event::Event;
pub use take::{Plan, ProfileError, take};
pub use tally::KEPT_BYTES;
