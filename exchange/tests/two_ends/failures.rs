//! Each failure by its name.
