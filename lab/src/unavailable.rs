//! What this machine lacks.

use std::fmt;

/// Why something cannot be measured or run on this machine, and what it takes. It is no failure of what is measured.
#[derive(Clone, Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}
