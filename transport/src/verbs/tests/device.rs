//! What only a real device can show. Some of it takes a second process: this program again, as one of the ignored tests of `child`, which
//! are no tests of their own.

mod child;
mod memory;
mod missing;
mod peer;
mod torn;
