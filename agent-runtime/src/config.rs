//! The configuration file of an agent. Every key has a default; unknown keys are refused with line and column.

use core::error::Error;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Larger configuration files are refused.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Characters of a wrong line that an error message shows.
const MAX_SHOWN_CHARS: usize = 80;

/// The configuration of an agent. An empty file means the default.
pub trait Settings: Default + DeserializeOwned {
    /// Checks that all values are in their ranges and fit together.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the first key that does not.
    fn check(&self) -> Result<(), ConfigError>;

    /// All keys that do not, as far as they can be told apart. By default the first one.
    fn problems(&self) -> Vec<ConfigError> {
        self.check().err().into_iter().collect()
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", .path.display())]
    Read {
        /// The configuration file.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        cause: std::io::Error,
    },
    /// The file is too large; its size in bytes.
    #[error("the configuration file has {0} bytes, at most {MAX_FILE_BYTES} are read")]
    Size(u64),
    /// No YAML, an unknown key, or a value of the wrong type. The text has line, column, and the line itself.
    #[error("the configuration is not valid: {0}")]
    Parse(String),
    /// A value is out of its range.
    #[error("{key} is {found}: {wanted}")]
    Range {
        /// The full name of the key, such as `metrics.listen`.
        key: &'static str,
        /// The value in the file.
        found: String,
        /// What would be accepted.
        wanted: &'static str,
    },
    /// A value is refused by the code that uses it.
    #[error("{key} cannot be used")]
    Value {
        /// The full name of the key, such as `metrics.listen`.
        key: &'static str,
        /// The error of the code that refused the value.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
}

impl ConfigError {
    /// The full name of the key that is wrong; `config` if it is the file.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Range { key, .. } | Self::Value { key, .. } => key,
            Self::Read { .. } | Self::Size(_) | Self::Parse(_) => "config",
        }
    }

    /// [`ConfigError::Value`]: the value of `key` was refused with `cause`.
    pub fn value(key: &'static str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Value { key, cause: Box::new(cause) }
    }
}

/// Checks a range: refuses the value `found` of `key` unless `holds`.
///
/// # Errors
///
/// [`ConfigError::Range`] unless `holds`.
pub fn range(holds: bool, key: &'static str, found: &dyn ToString, wanted: &'static str) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::Range { key, found: found.to_string(), wanted }) }
}

/// Reads and checks the configuration file at `path`.
///
/// # Errors
///
/// [`ConfigError`] if it cannot be read, is not valid, or has a value out of range.
pub fn load<S: Settings>(path: &Path) -> Result<S, ConfigError> {
    parse(&read(path)?)
}

/// The text of the configuration file at `path`.
///
/// # Errors
///
/// [`ConfigError`] if it cannot be read or is too large.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |cause| ConfigError::Read { path: path.to_owned(), cause };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(ConfigError::Size(bytes));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Reads and checks a configuration. Empty text is the default.
///
/// # Errors
///
/// [`ConfigError`] if it is not valid, or has a value out of range.
pub fn parse<S: Settings>(text: &str) -> Result<S, ConfigError> {
    let settings: S = parse_unchecked(text)?;
    settings.check()?;
    Ok(settings)
}

/// Like [`parse`], but values may be out of their ranges: [`Settings::problems`] tells.
///
/// # Errors
///
/// [`ConfigError`] if it is not valid.
pub fn parse_unchecked<S: Settings>(text: &str) -> Result<S, ConfigError> {
    Ok(parse_any(text)?.unwrap_or_default())
}

fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// What a file says; `None` if it has no keys.
pub(crate) fn parse_any<T: DeserializeOwned>(text: &str) -> Result<Option<T>, ConfigError> {
    if is_empty(text) {
        return Ok(None);
    }
    serde_saphyr::from_str(text).map(Some).map_err(|error| ConfigError::Parse(with_line(&error, text)))
}

/// `error` in one line, with line and column, and the line of `text` that it is about.
fn with_line(error: &serde_saphyr::Error, text: &str) -> String {
    let message = error.without_snippet().to_string();
    let number = error.location().and_then(|location| usize::try_from(location.line()).ok()?.checked_sub(1));
    let Some(line) = number.and_then(|number| text.lines().nth(number)).map(str::trim) else { return message };
    let cut = if line.chars().count() > MAX_SHOWN_CHARS { "…" } else { "" };
    format!("{message}: `{}{cut}`", line.chars().take(MAX_SHOWN_CHARS).collect::<String>())
}

/// The device and port to use for RDMA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rdma {
    /// The device's name, such as `mlx5_0`; by default the first with an active port.
    pub device: Option<String>,
    /// The port of the device, from 1 on; by default the first active one.
    pub port: Option<NonZeroU8>,
    /// Index into the port's GID table; by default RoCE v2 over IPv4, else any RoCE v2; none with InfiniBand.
    pub gid_index: Option<u8>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Settings of the log, which goes to standard error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// The format of log lines.
    pub format: LogFormat,
    /// What is logged: a level, or directives such as `info,host_agent=debug`.
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Example {
        workers: u32,
        listen: Option<SocketAddr>,
        rdma: Rdma,
        log: LogConfig,
    }

    impl Settings for Example {
        fn check(&self) -> Result<(), ConfigError> {
            range(self.workers < 5, "workers", &self.workers, "at most 4 are possible")
        }
    }

    fn refused(text: &str) -> String {
        parse::<Example>(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_the_default() {
        for text in ["", "# nothing\n\n", "  # nothing\n"] {
            assert_eq!(parse::<Example>(text).unwrap(), Example::default());
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_column_and_the_line_itself() {
        let error = refused("log:\n  level: debug\n  levels: 5\n");

        assert!(error.contains("line 3") && error.contains("column 3") && error.ends_with(": `levels: 5`"), "{error}");
        assert!(!error.contains("error:") && error.matches("unknown").count() == 1, "named once: {error}");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_with_line_column_and_value() {
        for (text, value) in [
            ("workers: -1\n", "-1"),
            ("workers: many\n", "many"),
            ("listen: nowhere\n", "nowhere"),
            ("rdma:\n  port: 0\n", "port: 0"),
            ("log:\n  format: xml\n", "xml"),
            ("log: [1]\n", "[1]"),
        ] {
            let error = refused(text);
            assert!(error.contains("line ") && error.contains("column ") && error.contains(value), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_its_key_and_what_is_possible() {
        assert_eq!(refused("workers: 5\n"), "workers is 5: at most 4 are possible");
    }

    #[test]
    fn what_is_no_yaml_is_refused_and_a_long_line_is_cut() {
        assert!(refused("workers: [").contains("is not valid"));
        let error = refused(&format!("wrong: {}\n", "x".repeat(500)));
        assert!(error.len() < 400 && error.ends_with("…`"), "{error}");
    }

    #[test]
    fn files_that_are_missing_or_far_too_long_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("long.yaml");
        std::fs::write(&long, vec![b'#'; MAX_FILE_BYTES as usize + 1]).unwrap();

        let missing = load::<Example>(Path::new("/nowhere/agent.yaml")).unwrap_err();
        let long = load::<Example>(&long).unwrap_err();

        assert_eq!(missing.to_string(), "cannot read the configuration file /nowhere/agent.yaml");
        assert!(matches!(long, ConfigError::Size(bytes) if bytes == MAX_FILE_BYTES + 1));
    }
}
