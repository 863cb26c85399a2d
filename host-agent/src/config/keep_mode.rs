//! Whether all is forwarded, or what is selected.

use serde::Deserialize;

/// Whether spans, or log records, are forwarded at once, or buffered until they are decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepMode {
    /// All, byte for byte.
    #[default]
    All,
    /// Whole traces, and log records, that a policy selects.
    Tail,
}
