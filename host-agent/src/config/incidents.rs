//! Configuration of incidents.

use std::path::PathBuf;

use agent_runtime::config::range;
use serde::Deserialize;

use super::ConfigError;

/// Least bytes of records: those of eight incidents at a time, twice.
const LEAST_BYTES: usize = 4 << 20;

/// Storage of incidents.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IncidentsConfig {
    /// Directory of the records. `None`: they are kept in memory and lost when the agent ends.
    pub dir: Option<PathBuf>,
    /// Bytes of all records, in memory and on disk, at least 4 MiB. The oldest make room.
    pub bytes: usize,
}

impl Default for IncidentsConfig {
    fn default() -> Self {
        Self { dir: None, bytes: 16 << 20 }
    }
}

impl IncidentsConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        range(self.bytes >= LEAST_BYTES, "incidents.bytes", &self.bytes, "must be at least 4194304")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn room_for_less_than_a_few_incidents_is_refused() {
        let error = Config::parse("incidents: {bytes: 1000}\n").unwrap_err().to_string();
        assert_eq!(error, "incidents.bytes is 1000: must be at least 4194304");
        assert!(Config::parse("incidents: {bytes: 4194304, dir: /var/lib/uview/incidents}\n").is_ok());
    }
}
