//! Places on the page, which the report at the terminal links to.

/// The HTML anchor of the waterfall of fault number `at`, from 0.
pub(crate) fn anchor(at: usize) -> String {
    format!("trace-of-fault-{}", at + 1)
}
