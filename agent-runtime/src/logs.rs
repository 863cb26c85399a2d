//! Log output: standard error, as text or JSON.

use std::io::IsTerminal as _;
use std::sync::OnceLock;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Registry, reload};

use crate::config::{LogConfig, LogFormat};

/// Why logs cannot be written as configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The level cannot be parsed.
    #[error("log.level {level:?} is neither a level nor a list of directives")]
    Level {
        /// The configured value of `log.level`.
        level: String,
        /// What the parser reported.
        #[source]
        cause: tracing_subscriber::filter::ParseError,
    },
    /// This process has a logger already.
    #[error("logging is set up already")]
    AlreadySet(#[source] tracing_subscriber::util::TryInitError),
}

/// Sets up logging for this process.
///
/// # Errors
///
/// [`LogError`], and the logger of this process is unchanged.
pub fn init(config: &LogConfig) -> Result<(), LogError> {
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;

    // Levels by target. Directives about spans and fields would need regular expressions, which take long to compile.
    let filter = parse_level(&config.level)?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    let (filter, handle) = reload::Layer::new(filter);
    let logs = tracing_subscriber::registry().with(filter);
    let done = match config.format {
        LogFormat::Text => logs.with(lines).try_init(),
        LogFormat::Json => logs.with(lines.json().flatten_event(true)).try_init(),
    }
    .map_err(LogError::AlreadySet);
    if done.is_ok() {
        _ = FILTER.set(handle);
    }
    done
}

/// The filter in use, if [`init`] has set up logging.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Parses a level for [`set_level`].
///
/// # Errors
///
/// [`LogError::Level`] if it is none.
pub fn parse_level(level: &str) -> Result<Targets, LogError> {
    level.parse().map_err(|cause| LogError::Level { level: level.to_owned(), cause })
}

/// Logs at another level from now on. Does nothing if [`init`] has not set up logging.
pub fn set_level(level: Targets) {
    if let Some(filter) = FILTER.get() {
        // The subscriber lives as long as the process.
        _ = filter.reload(level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_level_is_named() {
        let config = LogConfig { level: "info,host_agent=loud".to_owned(), ..LogConfig::default() };

        let error = init(&config).unwrap_err();

        assert!(
            matches!(error, LogError::Level { .. }) && error.to_string().contains("\"info,host_agent=loud\""),
            "{error}"
        );
    }
}
