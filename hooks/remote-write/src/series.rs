//! Time series and samples, as a receiver sees them.

use core::hash::{BuildHasher as _, Hash, Hasher};
use std::hash::RandomState;
use std::sync::{Arc, LazyLock};

use hooks::sampling;
use prost::encoding::encode_varint;

use crate::naming::MetricType;

/// Bits of the stale marker: the NaN that ends a series.
pub const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;

/// Identifies a service in this process. Allocated by the [`Shipper`](crate::shipper::Shipper), never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceNumber(pub u32);

/// The ledger that a sample belongs to: service and series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Service that the sample is of.
    pub service: ServiceNumber,
    /// Baseline or dense.
    pub series: sampling::Series,
}

/// A string of a series with a precomputed hash: symbol tables are built for every request. Keyed, since services
/// choose the strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    hash: u64,
    text: Box<str>,
}

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Text {
    fn new(text: String) -> Self {
        Self { hash: KEY.hash_one(&*text), text: text.into() }
    }

    pub(crate) const fn as_str(&self) -> &str {
        &self.text
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A time series, shared by its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Number that orders series; never reused.
    pub number: u64,
    /// Ledger of its samples.
    pub owner: Owner,
    /// Sorted by name, no name twice, none empty.
    labels: Box<[(Text, Text)]>,
    /// Metric type, for metadata.
    pub kind: MetricType,
    /// Unit, for metadata; may be empty.
    pub(crate) unit: Text,
    /// Help, for metadata; may be empty.
    pub(crate) help: Text,
    /// When a counter was 0, in milliseconds since 1970; 0 for other types.
    pub start_ms: i64,
    /// The labels as 1.0 encodes them: fields 1 of a `prometheus.TimeSeries`.
    encoded: Box<[u8]>,
    /// OTLP: attributes of the service's resource.
    resource: Arc<[(String, String)]>,
}

/// Metadata of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesMetadata {
    /// Type of the metric.
    pub kind: MetricType,
    /// Unit; may be empty.
    pub unit: String,
    /// Help text; may be empty.
    pub help: String,
    /// When a counter was 0, in milliseconds since 1970; 0 if unknown, or for other types.
    pub start_ms: i64,
}

fn field(tag: u8, text: &str, into: &mut Vec<u8>) {
    into.push(tag);
    encode_varint(text.len() as u64, into);
    into.extend_from_slice(text.as_bytes());
}

/// Encodes labels as fields 1 of a `prometheus.TimeSeries`, each with name (1) and value (2).
fn encoded(labels: &[(String, String)]) -> Box<[u8]> {
    let (mut all, mut one) = (Vec::new(), Vec::new());
    for (name, value) in labels {
        one.clear();
        field(0x0a, name, &mut one);
        field(0x12, value, &mut one);
        all.push(0x0a);
        encode_varint(one.len() as u64, &mut all);
        all.extend_from_slice(&one);
    }
    all.into()
}

impl Series {
    /// Makes a series with `labels`. They are sorted here; of a repeated name the first counts; empty ones are omitted.
    #[must_use]
    pub fn new(number: u64, owner: Owner, mut labels: Vec<(String, String)>, metadata: SeriesMetadata) -> Self {
        labels.retain(|(name, value)| !(name.is_empty() || value.is_empty()));
        labels.sort_by(|one, other| one.0.cmp(&other.0));
        labels.dedup_by(|later, first| later.0 == first.0);
        let encoded = encoded(&labels);
        Self {
            number,
            owner,
            labels: labels.into_iter().map(|(name, value)| (Text::new(name), Text::new(value))).collect(),
            kind: metadata.kind,
            unit: Text::new(metadata.unit),
            help: Text::new(metadata.help),
            start_ms: metadata.start_ms,
            encoded,
            resource: [].into(),
        }
    }

    /// Sets the OTLP resource.
    #[must_use]
    pub(crate) fn of_resource(mut self, resource: &Arc<[(String, String)]>) -> Self {
        self.resource = Arc::clone(resource);
        self
    }

    /// OTLP: attributes of the service's resource.
    pub(crate) fn resource(&self) -> impl Iterator<Item = (&str, &str)> {
        self.resource.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Name of the metric; empty if it has none.
    pub(crate) fn name(&self) -> &str {
        self.labels().find(|(label, _)| *label == "__name__").map_or("", |(_, name)| name)
    }

    /// Unit; may be empty.
    pub(crate) const fn unit(&self) -> &str {
        self.unit.as_str()
    }

    /// Help text; may be empty.
    pub(crate) const fn help(&self) -> &str {
        self.help.as_str()
    }

    /// Labels, sorted by name.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Labels with their hashes.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &(Text, Text)> {
        self.labels.iter()
    }

    /// Labels as 1.0 encodes them.
    #[must_use]
    pub fn encoded_labels(&self) -> &[u8] {
        &self.encoded
    }
}

/// An exemplar: the trace of one of the requests that a sample counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    /// Trace id in hexadecimal digits.
    pub(crate) trace: Text,
    /// Address of the incident for whose alarm the trace was kept; empty: none.
    pub(crate) incident: Text,
    /// Value measured for the request, in the unit of its histogram.
    pub value: f64,
    /// End of the request, in milliseconds since 1970.
    pub at_ms: i64,
}

/// Label of the trace id.
pub(crate) static TRACE_ID: LazyLock<Text> = LazyLock::new(|| Text::new("trace_id".to_owned()));

/// Label of the incident's address.
pub const INCIDENT: &str = "uview_incident";
pub(crate) static INCIDENT_TEXT: LazyLock<Text> = LazyLock::new(|| Text::new(INCIDENT.to_owned()));
/// Characters of all names and values of an exemplar's labels together (OpenMetrics).
const LABELS_LENGTH: usize = 128;

impl Exemplar {
    /// Makes an exemplar: a request of the trace `trace` that measured `value`.
    #[must_use]
    pub fn new(trace: &str, value: f64, at_ms: i64) -> Self {
        Self { trace: Text::new(trace.to_owned()), incident: Text::new(String::new()), value, at_ms }
    }

    /// The same with the address of an incident. Without it, if labels would become longer than OpenMetrics allows.
    #[must_use]
    pub fn with_incident(self, incident: &str) -> Self {
        let all = [TRACE_ID.as_str(), self.trace(), INCIDENT, incident];
        let fits = all.iter().map(|text| text.chars().count()).sum::<usize>() <= LABELS_LENGTH;
        Self { incident: Text::new(if fits { incident.to_owned() } else { String::new() }), ..self }
    }

    /// Address of the incident for whose alarm the trace was kept; empty: none.
    #[must_use]
    pub const fn incident(&self) -> &str {
        self.incident.as_str()
    }

    /// Names and values of its labels.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&Text, &Text)> {
        let all = [(&*TRACE_ID, &self.trace), (&*INCIDENT_TEXT, &self.incident)];
        all.into_iter().filter(|(_, value)| !value.as_str().is_empty())
    }

    /// Trace id in hexadecimal digits.
    #[must_use]
    pub const fn trace(&self) -> &str {
        self.trace.as_str()
    }

    const fn bytes(&self) -> usize {
        size_of::<Self>() + self.trace().len() + self.incident().len()
    }
}

/// A whole histogram: one sample in OTLP.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Counts per bucket, one more than there are bounds. Not cumulative over buckets.
    pub counts: Vec<u64>,
    /// Inclusive upper bounds, ascending.
    pub bounds: Arc<[f64]>,
    /// Sum of the measured values.
    pub sum: f64,
    /// Exemplars of some of the counted requests.
    pub exemplars: Vec<Exemplar>,
}

/// Further data of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Attachment {
    /// A trace of a counted request.
    Exemplar(Exemplar),
    /// The histogram whose count is the value.
    Distribution(Distribution),
}

impl Attachment {
    /// Number of exemplars in it.
    pub(crate) const fn exemplars(&self) -> usize {
        match self {
            Self::Exemplar(_) => 1,
            Self::Distribution(whole) => whole.exemplars.len(),
        }
    }

    /// Memory in bytes beyond the sample's own, without bounds, which histograms share.
    fn bytes(&self) -> usize {
        let more = match self {
            Self::Exemplar(exemplar) => exemplar.trace().len(),
            Self::Distribution(whole) => {
                size_of_val(&*whole.counts) + whole.exemplars.iter().map(Exemplar::bytes).sum::<usize>()
            }
        };
        size_of::<Self>() + 16 + more
    }
}

/// One sample, or the end of a series. 32 bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Series that the sample is of.
    pub series: Arc<Series>,
    /// Timestamp in milliseconds since 1970.
    pub at_ms: i64,
    /// Bits of the value: the stale marker is one NaN among many.
    pub bits: u64,
    /// Exemplar or histogram.
    pub attachment: Option<Arc<Attachment>>,
}

impl Point {
    /// Makes a sample; `None` ends the series.
    #[must_use]
    pub fn new(series: Arc<Series>, at_ms: i64, value: Option<f64>) -> Self {
        Self { series, at_ms, bits: value.map_or(STALE_NAN, f64::to_bits), attachment: None }
    }

    /// Memory in bytes with the attachment, without the series.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.attachment.as_ref().map_or(0, |attachment| attachment.bytes())
    }

    /// The exemplar, if the attachment is one.
    #[must_use]
    pub fn exemplar(&self) -> Option<&Exemplar> {
        match self.attachment.as_deref() {
            Some(Attachment::Exemplar(exemplar)) => Some(exemplar),
            _ => None,
        }
    }

    /// Whether it ends its series: a stale marker, not a sample of the service.
    #[must_use]
    pub const fn is_stale_marker(&self) -> bool {
        self.bits == STALE_NAN
    }
}

/// A counter that began later than `last_ms` has an unknown start.
pub(crate) fn start_before(series: &mut Arc<Series>, last_ms: u64) {
    if series.start_ms > last_ms as i64 {
        let mut unknown = Series::clone(series);
        unknown.start_ms = 0;
        *series = Arc::new(unknown);
    }
}
