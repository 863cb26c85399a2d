//! Tests that need a real device. Some take a second process: this program again, running one of the ignored tests of
//! `child`.

mod child;
mod memory;
mod missing;
mod peer;
mod torn;
