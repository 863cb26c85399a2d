//! What the value of a metric is about at present.

use crate::name::{MetricName, NameError};
use crate::proto::registration as proto;

/// Most subjects of a replica, and of one message.
pub const MAX_SUBJECTS: usize = 16;
/// Most characters of a subject. More are cut.
pub const MAX_SUBJECT_CHARS: usize = 160;

/// What the value of a metric is about at present, such as the client behind a share. It changes from interval to
/// interval, which a label could not without a new series each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The metric; all its series.
    pub metric: MetricName,
    text: Box<str>,
}

impl Subject {
    /// The subject of `metric`: the first [`MAX_SUBJECT_CHARS`] characters of `text`. An empty text takes the subject
    /// of the metric away.
    #[must_use]
    pub fn new(metric: MetricName, text: &str) -> Self {
        let end = text.char_indices().nth(MAX_SUBJECT_CHARS).map_or(text.len(), |(end, _)| end);
        Self { metric, text: text[..end].into() }
    }

    /// The text, as the service has written it: not printable as it is.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn decode(message: &proto::Subject) -> Result<Self, NameError> {
        Ok(Self::new(MetricName::new(&message.metric)?, &message.text))
    }

    pub(super) fn encode(&self) -> proto::Subject {
        proto::Subject { metric: self.metric.to_string(), text: self.text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let of = |text: &str| Subject::new(MetricName::new("a").unwrap(), text).text().chars().count();

        assert_eq!((of(""), of("ü"), of(&"ü".repeat(160)), of(&"ü".repeat(161))), (0, 1, 160, 160));
        assert!(Subject::decode(&proto::Subject { metric: "a b".into(), text: String::new() }).is_err());
    }
}
