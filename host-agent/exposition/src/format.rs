//! The formats, how they are negotiated, and what all of them say.

use crate::distribution::HistogramPoint;

/// What an agent asks for, the best first. A server that knows none of them sends [`Format::Text`].
pub const ACCEPT: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.6,*/*;q=0.2";

/// An exposition format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, version 0.0.4.
    #[default]
    Text,
    /// OpenMetrics text, version 1.0.0.
    OpenMetrics,
    /// Messages `io.prometheus.client.MetricFamily`, each with its length in front.
    Protobuf,
}

impl Format {
    /// The format of a response with this `Content-Type`. `None` for a page that is no exposition, such as HTML.
    #[must_use]
    pub fn of(content_type: Option<&str>) -> Option<Self> {
        let Some(content_type) = content_type else { return Some(Self::Text) };
        let mut parts = content_type.split(';').map(str::trim);
        let has = |wanted: &str| content_type.to_ascii_lowercase().replace([' ', '"'], "").contains(wanted);
        match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "application/openmetrics-text" => Some(Self::OpenMetrics),
            "application/vnd.google.protobuf" if has("metricfamily") && !has("encoding=text") => Some(Self::Protobuf),
            // Some servers name no type, or a general one.
            "text/plain" | "" | "application/octet-stream" => Some(Self::Text),
            _ => None,
        }
    }

    /// Its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text 0.0.4",
            Self::OpenMetrics => "OpenMetrics 1.0",
            Self::Protobuf => "protobuf",
        }
    }
}

/// The type of a metric family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FamilyKind {
    /// A value that only grows.
    Counter,
    /// A value that is set.
    Gauge,
    /// Counts per bucket, a count and a sum.
    Histogram,
    /// Buckets of a present state: their counts rise and fall.
    GaugeHistogram,
    /// Quantiles, a count and a sum.
    Summary,
    /// Facts in labels; the value is 1.
    Info,
    /// One of several states.
    StateSet,
    /// Its type is not stated.
    #[default]
    Unknown,
}

impl FamilyKind {
    /// The type of this name in a text format.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"counter" => Self::Counter,
            b"gauge" => Self::Gauge,
            b"histogram" => Self::Histogram,
            b"gaugehistogram" => Self::GaugeHistogram,
            b"summary" => Self::Summary,
            b"info" => Self::Info,
            b"stateset" => Self::StateSet,
            b"unknown" | b"untyped" => Self::Unknown,
            _ => return None,
        })
    }

    /// Its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gauge histogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "state set",
            Self::Unknown => "untyped",
        }
    }

    /// Suffixes of the names of its samples in a text format. The empty one is a sample with the family's own name.
    pub(crate) const fn suffixes(self) -> &'static [(&'static [u8], Role)] {
        match self {
            Self::Counter => &[(b"_total", Role::Counter), (b"", Role::Counter), (b"_created", Role::Ignored)],
            Self::Histogram => &[
                (b"_bucket", Role::Bucket),
                (b"_sum", Role::Sum),
                (b"_count", Role::Count),
                (b"_created", Role::Ignored),
            ],
            Self::GaugeHistogram => {
                &[(b"_bucket", Role::Ignored), (b"_gsum", Role::Ignored), (b"_gcount", Role::Ignored)]
            }
            Self::Summary => {
                &[(b"", Role::Gauge), (b"_sum", Role::Sum), (b"_count", Role::Count), (b"_created", Role::Ignored)]
            }
            Self::Info => &[(b"_info", Role::Ignored), (b"", Role::Ignored)],
            Self::StateSet => &[(b"", Role::Ignored)],
            Self::Gauge | Self::Unknown => &[(b"", Role::Gauge)],
        }
    }
}

/// What a sample is in its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The value of a counter.
    Counter,
    /// The value of a gauge, or a quantile.
    Gauge,
    /// The cumulative count of a bucket; its bound is the label `le`.
    Bucket,
    /// The sum of a histogram or summary.
    Sum,
    /// The count of a histogram or summary.
    Count,
    /// A whole histogram: its count, with its buckets and its sum.
    Distribution,
    /// Nothing that an LMAP can watch: information, states, times of creation.
    Ignored,
}

/// What a sample is of. Read only for samples that were never seen before.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Name of the family, without the suffixes of its samples; of a counter with `_total`.
    pub family: String,
    /// Type of the family.
    pub kind: FamilyKind,
    /// What the sample is in the family.
    pub role: Role,
    /// Labels as exposed, but for `le`.
    pub labels: Vec<(String, String)>,
    /// The upper bound of a bucket.
    pub bound: f64,
    /// The family's unit, if the format states it: in words, or in UCUM.
    pub unit: Option<String>,
}

/// Takes the samples of a scrape.
pub trait Sink {
    /// A sample. `key` names it among the samples of its target, with the same bytes in each scrape. `describe` costs
    /// allocations: call it for a new key only.
    fn sample(&mut self, key: &[u8], value: f64, describe: impl FnOnce() -> Option<Description>);

    /// A whole histogram, which counts since its server has started. Who wants no histograms need not take it.
    fn distribution(&mut self, key: &[u8], point: &HistogramPoint<'_>, describe: impl FnOnce() -> Option<Description>) {
        let _ = (key, point, describe);
    }
}

/// Why an exposition is refused. The whole scrape is, as Prometheus does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A line of text that is no sample.
    #[error("line {line} is no sample: {why}: `{text}`")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
        /// The line's beginning.
        text: String,
    },
    /// OpenMetrics ends with a line `# EOF`: the body was cut.
    #[error("the last line is not `# EOF`: the body was cut")]
    NoEnd,
    /// Not a delimited message.
    #[error("message {message} is no MetricFamily: {why}")]
    Message {
        /// Its number, from 1.
        message: usize,
        /// What is wrong.
        why: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_told_by_its_content_type() {
        let of = |text| Format::of(Some(text));

        assert_eq!(of("text/plain; version=0.0.4; charset=utf-8"), Some(Format::Text));
        assert_eq!(of("application/openmetrics-text;version=1.0.0"), Some(Format::OpenMetrics));
        let protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
        assert_eq!(of(protobuf), Some(Format::Protobuf));
        assert_eq!(Format::of(None), Some(Format::Text));
        assert_eq!(of("text/html; charset=utf-8"), None);
    }
}
