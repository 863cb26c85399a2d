//! Configuration of log records: all are forwarded, or those that matter.

use agent_runtime::config::range;
use hooks::tracing::{LogRule, Threshold};
use otlp::LogSettings;
use serde::Deserialize;

use super::{ConfigError, KeepMode};

/// Less than this is no buffer.
const MIN_BYTES: usize = 1 << 20;

/// Which log records are forwarded.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogsConfig {
    /// All records, or selected ones only.
    pub keep: KeepMode,
    /// Memory for records that wait, in bytes, for each tenant.
    pub memory_bytes: usize,
    /// Share of records that is always kept, 0 to 1; 0 keeps none.
    pub floor: f64,
    /// Keep errors and worse.
    pub error: bool,
    /// Keep what a service in alarm wrote.
    pub lmap: bool,
}

impl Default for LogsConfig {
    fn default() -> Self {
        let LogSettings { memory_bytes, .. } = LogSettings::default();
        Self { keep: KeepMode::All, memory_bytes, floor: 0.01, error: true, lmap: true }
    }
}

impl LogsConfig {
    /// Settings of the endpoint, where `traces` are kept so; `None`: all records pass through.
    pub(super) fn settings(&self, traces: KeepMode) -> Result<Option<LogSettings>, ConfigError> {
        let (keep, memory_bytes) = (self.keep, self.memory_bytes);
        let with = "needs otlp.traces.keep: tail, since log records are kept with their traces";
        range(keep == KeepMode::All || traces == KeepMode::Tail, "otlp.logs.keep", &"tail", with)?;
        range(memory_bytes >= MIN_BYTES, "otlp.logs.memory_bytes", &memory_bytes, "must be at least 1048576")?;
        range(memory_bytes <= 64 << 30, "otlp.logs.memory_bytes", &memory_bytes, "must be at most 68719476736")?;
        let floor = if self.floor == 0.0 { None } else { Some(self.floor) };
        let floor = floor.map(Threshold::keeping).transpose();
        let floor = floor.map_err(|cause| ConfigError::value("otlp.logs.floor", cause))?;
        let rule = LogRule { floor, error: self.error, lmap: self.lmap };
        Ok((keep == KeepMode::Tail).then_some(LogSettings { rule, memory_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn settings(otlp: &str) -> Option<LogSettings> {
        let text = format!("otlp:\n  upstream: {{endpoint: 'http://c:4318'}}\n{otlp}");
        Config::parse(&text).unwrap().otlp.settings(7, "host-3").unwrap().unwrap().logs
    }

    #[test]
    fn all_records_pass_through_unless_they_are_to_be_chosen() {
        assert_eq!(settings(""), None);
        assert_eq!(settings("  traces: {keep: tail}\n"), None);
        let chosen = settings("  traces: {keep: tail}\n  logs: {keep: tail}\n").unwrap();
        assert_eq!(chosen, LogSettings::default());
        let none = settings("  traces: {keep: tail}\n  logs: {keep: tail, floor: 0, error: false, lmap: false}\n");
        assert_eq!(none.unwrap().rule, LogRule { floor: None, error: false, lmap: false });
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (text, said) in [
            ("  logs: {keep: tail}\n", "otlp.logs.keep is tail: needs otlp.traces.keep: tail"),
            ("  logs: {memory_bytes: 1000}\n", "otlp.logs.memory_bytes is 1000"),
            ("  traces: {keep: tail}\n  logs: {keep: tail, floor: 2}\n", "otlp.logs.floor"),
            ("  logs: {latency: true}\n", "latency"),
        ] {
            let text = format!("otlp:\n  upstream: {{endpoint: 'http://c:4318'}}\n{text}");
            let error = Config::parse(&text).unwrap_err();
            let causes = agent_runtime::chain(&error);
            assert!(causes.contains(said), "{text}: {causes}");
        }
    }
}
