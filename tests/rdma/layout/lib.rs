//! Nothing: see `tests/layout.rs`.
