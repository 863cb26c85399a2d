//! The extension module `uview._uview`: the Rust client as classes of Python.
//!
//! What takes a lock (opening, registering, status, closing) lets other threads run meanwhile; what writes a value is
//! nanoseconds and does not. Locks of this crate are held while the interpreter's is and never beyond, so that no
//! thread holds one at a fork.

mod handles;
mod service;
mod spans;
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
    use crate::spans::{Span, current_span};
    #[pymodule_export]
    use crate::status::Status;
}
