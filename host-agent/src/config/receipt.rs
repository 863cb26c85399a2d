//! The part of the configuration that is about the receipt.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use daemon::config::range;
use serde::Deserialize;

use super::{ConfigError, at_least_one};

/// Where the receipt's books are kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiptConfig {
    /// The directory; without, books are in memory and end with the agent.
    pub dir: Option<PathBuf>,
    /// How often they are written, at least every 100 ms: so much is not booked of an agent that is killed.
    pub write_ms: NonZeroU32,
}

impl Default for ReceiptConfig {
    fn default() -> Self {
        Self { dir: None, write_ms: at_least_one(10_000) }
    }
}

impl ReceiptConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        range(self.write_ms.get() >= 100, "receipt.write_ms", &self.write_ms, "at least 100 is needed")
    }

    /// How often books are written.
    #[must_use]
    pub fn write_every(&self) -> Duration {
        Duration::from_millis(u64::from(self.write_ms.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn books_are_not_written_all_the_time() {
        let error = Config::parse("receipt: {dir: /var/lib/uview, write_ms: 99}\n").unwrap_err().to_string();
        assert_eq!(error, "receipt.write_ms is 99: at least 100 is needed");
        let config = Config::parse("receipt: {dir: /var/lib/uview, write_ms: 100}\n").unwrap();
        assert_eq!(config.receipt.write_every().as_millis(), 100);
    }
}
