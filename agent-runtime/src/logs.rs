//! Log output: standard error, as text or JSON. An event is one line, and whatever its fields hold is printable in it
//! ([`wire::printable`]), whoever logs.

use core::fmt;
use std::io::IsTerminal as _;
use std::sync::OnceLock;

use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{DefaultFields, Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry, reload};
use wire::printable;

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
    let (filter, handle) = reload::Layer::new(filter);
    let logs = tracing_subscriber::registry().with(filter);
    let done = match config.format {
        LogFormat::Text => logs.with(text(colours, std::io::stderr)).try_init(),
        LogFormat::Json => logs.with(json(std::io::stderr)).try_init(),
    }
    .map_err(LogError::AlreadySet);
    if done.is_ok() {
        _ = FILTER.set(handle);
    }
    done
}

/// Writes events as text.
fn text<S, W>(colours: bool, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    let layer = tracing_subscriber::fmt::layer().fmt_fields(PrintableFields(DefaultFields::new()));
    layer.with_ansi(colours).with_writer(writer)
}

/// Writes events as JSON.
fn json<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    let event = PrintableJson(Format::default().json().flatten_event(true));
    tracing_subscriber::fmt::layer().fmt_fields(JsonFields::new()).event_format(event).with_writer(writer)
}

/// Fields of events and spans as text in one line. Only they hold what others say; all else of a line, colours
/// included, is ours.
#[derive(Debug)]
struct PrintableFields(DefaultFields);

impl<'a> FormatFields<'a> for PrintableFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'a>, fields: R) -> fmt::Result {
        let mut text = String::new();
        self.0.format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&printable::line(&text))
    }
}

/// Events as JSON, a line each. The library escapes what JSON demands, which is less.
#[derive(Debug)]
struct PrintableJson(Format<Json>);

impl<S> FormatEvent<S, JsonFields> for PrintableJson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&printable::json(&line))
    }
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
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const HOSTILE: &str = "x\u{1b}[2J\nERROR forged\r\0\u{9b}31m\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}y";

    /// What was logged.
    #[derive(Clone, Debug, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Log {
        /// Logs hostile text in each way that there is, and returns the lines.
        fn of<L: Layer<Registry> + Send + Sync + 'static>(layer: impl FnOnce(Self) -> L) -> String {
            let log = Self::default();
            let subscriber = tracing_subscriber::registry().with(layer(log.clone()));
            tracing::subscriber::with_default(subscriber, || {
                let cause = io::Error::other(io::Error::other(HOSTILE));
                let span = tracing::info_span!("of", who = HOSTILE, late = tracing::field::Empty);
                span.record("late", tracing::field::display(HOSTILE));
                let _entered = span.enter();
                tracing::warn!(shown = %HOSTILE, debug = ?HOSTILE, plain = HOSTILE, "a service says {HOSTILE}");
                tracing::warn!(error = &cause as &dyn core::error::Error, "{}", HOSTILE);
            });
            let bytes = log.0.lock().unwrap().clone();
            String::from_utf8(bytes).unwrap()
        }
    }

    #[test]
    fn an_event_is_one_printable_line_whatever_its_fields_and_spans_hold() {
        for log in [Log::of(|log| text(false, move || log.clone())), Log::of(|log| json(move || log.clone()))] {
            let lines: Vec<_> = log.split_terminator('\n').collect();

            assert_eq!(lines.len(), 2, "{log}");
            assert!(log.chars().all(|c| c == '\n' || printable::is_printable(c)), "{log:?}");
            assert!(lines.iter().all(|line| line.contains("forged") && line.contains("202e")), "{log}");
        }
    }

    #[test]
    fn events_as_json_say_what_was_said() {
        let log = Log::of(|log| json(move || log.clone()));

        let event: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();

        assert_eq!(event["plain"], HOSTILE);
        assert_eq!(event["span"]["late"], HOSTILE);
    }

    #[test]
    fn on_a_terminal_the_only_escape_sequences_are_colours_of_ours() {
        let log = Log::of(|log| text(true, move || log.clone()));
        let parts: Vec<_> = log.split('\u{1b}').skip(1).collect();

        assert!(
            !parts.is_empty()
                && parts.iter().all(|part| part.starts_with("[0m")
                    || part.starts_with("[2m")
                    || part.starts_with("[33m")
                    || part.starts_with("[1m")),
            "{log:?}"
        );
        assert_eq!(log.lines().count(), 2, "{log}");
    }

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
