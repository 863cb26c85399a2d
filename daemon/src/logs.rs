//! Logs to standard error, as text or JSON.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Why logs cannot be written as configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The level is none.
    #[error("log.level {level:?} is neither a level nor directives")]
    Level {
        /// As configured.
        level: String,
        /// Why.
        #[source]
        cause: tracing_subscriber::filter::ParseError,
    },
    /// Something else in this process writes logs already.
    #[error("logs are set up already")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Sets up logs for this process.
///
/// # Errors
///
/// [`LogError`]; nothing has changed.
pub fn init(config: &LogConfig) -> Result<(), LogError> {
    use tracing_subscriber::util::SubscriberInitExt as _;

    let filter =
        EnvFilter::try_new(&config.level).map_err(|cause| LogError::Level { level: config.level.clone(), cause })?;
    let colours = std::io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => logs.finish().try_init(),
        LogFormat::Json => logs.json().flatten_event(true).finish().try_init(),
    }
    .map_err(LogError::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_named() {
        let config = LogConfig { level: "info,=".to_owned(), ..LogConfig::default() };

        let error = init(&config).unwrap_err();

        assert!(matches!(error, LogError::Level { .. }) && error.to_string().contains("\"info,=\""), "{error}");
    }
}
