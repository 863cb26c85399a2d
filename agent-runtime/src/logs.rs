//! Log output: standard error, as text or JSON.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::Targets;

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
    let filter: Targets =
        config.level.parse().map_err(|cause| LogError::Level { level: config.level.clone(), cause })?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    let logs = tracing_subscriber::registry().with(filter);
    match config.format {
        LogFormat::Text => logs.with(lines).try_init(),
        LogFormat::Json => logs.with(lines.json().flatten_event(true)).try_init(),
    }
    .map_err(LogError::AlreadySet)
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
