//! Configuration of the receipt.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use agent_runtime::config::range;
use serde::Deserialize;

use super::{ConfigError, at_least_one};

/// Storage of the receipt's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiptConfig {
    /// Directory of the ledger. `None`: it is kept in memory and lost when the agent ends.
    pub dir: Option<PathBuf>,
    /// Interval between writes in milliseconds, at least 100. An agent that is killed loses what it recorded since the
    /// last write.
    pub write_interval_ms: NonZeroU32,
}

impl Default for ReceiptConfig {
    fn default() -> Self {
        Self { dir: None, write_interval_ms: at_least_one(10_000) }
    }
}

impl ReceiptConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        range(
            self.write_interval_ms.get() >= 100,
            "receipt.write_interval_ms",
            &self.write_interval_ms,
            "must be at least 100",
        )
    }

    /// Interval between writes.
    #[must_use]
    pub fn write_every(&self) -> Duration {
        Duration::from_millis(u64::from(self.write_interval_ms.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn a_write_interval_below_the_minimum_is_refused() {
        let error = Config::parse("receipt: {dir: /var/lib/uview, write_interval_ms: 99}\n").unwrap_err().to_string();
        assert_eq!(error, "receipt.write_interval_ms is 99: must be at least 100");
        let config = Config::parse("receipt: {dir: /var/lib/uview, write_interval_ms: 100}\n").unwrap();
        assert_eq!(config.receipt.write_every().as_millis(), 100);
    }
}
