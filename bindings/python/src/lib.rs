//! The extension module `uview._uview`: the Rust client as classes of Python.
//!
//! What takes a lock (opening, registering, status, closing) lets other threads run meanwhile; what writes a value is
//! nanoseconds and does not. The only lock of this crate is held while the interpreter's is and never beyond, so that
//! no thread holds it at a fork.

mod handles;
mod service;
mod status;

use pyo3::prelude::*;

/// The module as Python sees it.
#[pymodule]
mod _uview {
    #[pymodule_export]
    use crate::handles::{Counter, Gauge, Histogram, UpDownCounter};
    #[pymodule_export]
    use crate::service::Service;
    #[pymodule_export]
    use crate::status::Status;
}
