//! The body of a scrape, in any of the formats.

use crate::format::{Format, FormatError, Sink};
use crate::{protobuf, text};

/// Reads `body`, which is in `format`, into `sink`.
///
/// # Errors
///
/// [`FormatError`] with the place. Samples before it were taken.
pub fn read(body: &[u8], format: Format, sink: &mut impl Sink) -> Result<(), FormatError> {
    match format {
        Format::Text => text::read(body, false, sink),
        Format::OpenMetrics => text::read(body, true, sink),
        Format::Protobuf => protobuf::read(body, sink),
    }
}
