//! What the tests of this package share with the fuzzer.

pub mod targets;
