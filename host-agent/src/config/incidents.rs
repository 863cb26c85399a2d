//! Configuration of incidents.

use std::path::PathBuf;

use agent_runtime::config::range;
use serde::Deserialize;

use super::ConfigError;

/// Least bytes of records: those of eight incidents at a time, twice.
const MIN_BYTES: usize = 4 << 20;

/// Storage of incidents.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IncidentsConfig {
    /// Directory of the records. `None`: they are kept in memory and lost when the agent ends.
    pub dir: Option<PathBuf>,
    /// Bytes of all records, in memory and on disk, at least 4 MiB. The oldest make room.
    pub bytes: usize,
    /// Profiles of services in alarm.
    pub profile: ProfileConfig,
}

impl Default for IncidentsConfig {
    fn default() -> Self {
        Self { dir: None, bytes: 16 << 20, profile: ProfileConfig::default() }
    }
}

/// How a service is sampled whose alarm is led by processor time, page faults or waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileConfig {
    /// Length of a profile in seconds, at most 30. 0: none is taken.
    pub seconds: u32,
    /// Samples for each second of a thread, 1 to 999. 99 keeps out of step with timers.
    pub frequency_hz: u32,
}

impl Default for ProfileConfig {
    fn default() -> Self {
        Self { seconds: 5, frequency_hz: 99 }
    }
}

impl IncidentsConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        range(self.bytes >= MIN_BYTES, "incidents.bytes", &self.bytes, "must be at least 4194304")?;
        let ProfileConfig { seconds, frequency_hz } = self.profile;
        range(seconds <= 30, "incidents.profile.seconds", &seconds, "must be at most 30; 0 takes none")?;
        range((1..=999).contains(&frequency_hz), "incidents.profile.frequency_hz", &frequency_hz, "must be 1 to 999")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn what_cannot_be_kept_or_sampled_is_refused() {
        let error = Config::parse("incidents: {bytes: 1000}\n").unwrap_err().to_string();
        assert_eq!(error, "incidents.bytes is 1000: must be at least 4194304");
        let error = Config::parse("incidents: {profile: {seconds: 31}}\n").unwrap_err().to_string();
        assert_eq!(error, "incidents.profile.seconds is 31: must be at most 30; 0 takes none");
        let error = Config::parse("incidents: {profile: {frequency_hz: 0}}\n").unwrap_err().to_string();
        assert_eq!(error, "incidents.profile.frequency_hz is 0: must be 1 to 999");
        assert!(Config::parse("incidents: {bytes: 4194304, dir: /var/lib/uview/incidents}\n").is_ok());
    }
}
