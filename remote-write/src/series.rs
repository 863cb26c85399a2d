//! One time series of a receiver, and one sample of it.

use core::hash::{BuildHasher as _, Hash, Hasher};
use std::hash::RandomState;
use std::sync::{Arc, LazyLock};

use hooks::sampling;
use prost::encoding::encode_varint;

use crate::naming::MetricType;

/// The value that marks the end of a series (its bits).
pub const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;

/// Names a service in this process. Given out by the [`Shipper`](crate::shipper::Shipper), never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceNumber(pub u32);

/// Whose books a sample stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The service.
    pub service: ServiceNumber,
    /// Which of the two.
    pub series: sampling::Series,
}

/// A string of a series, with a hash that is made once: tables of strings are made for every request. Keyed, since strings come from services.
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

/// A time series: made once, shared by its samples.
#[derive(Debug, PartialEq, Eq)]
pub struct Series {
    /// Gives series an order; given out by whoever makes them, never reused.
    pub number: u64,
    /// Whose books its samples stand in.
    pub owner: Owner,
    /// Sorted by name, no name twice, none empty.
    labels: Box<[(Text, Text)]>,
    /// Type, for metadata.
    pub kind: MetricType,
    /// Unit, for metadata; may be empty.
    pub(crate) unit: Text,
    /// Help, for metadata; may be empty.
    pub(crate) help: Text,
    /// When a counter was 0, in milliseconds since 1970; 0 for what is no counter.
    pub start_ms: i64,
    /// The labels as 1.0 has them: fields 1 of a `prometheus.TimeSeries`.
    encoded: Box<[u8]>,
    /// Of OTLP: what all series of the service say of it.
    resource: Arc<[(String, String)]>,
}

/// What stands about a series beside its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its type.
    pub kind: MetricType,
    /// Its unit; may be empty.
    pub unit: String,
    /// What it is; may be empty.
    pub help: String,
    /// When a counter was 0, in milliseconds since 1970; 0 if unknown, or for what is no counter.
    pub start_ms: i64,
}

fn field(tag: u8, text: &str, into: &mut Vec<u8>) {
    into.push(tag);
    encode_varint(text.len() as u64, into);
    into.extend_from_slice(text.as_bytes());
}

/// The labels as fields 1 of a `prometheus.TimeSeries`, each with its name (1) and value (2).
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
    /// A series with `labels`, which are sorted here; of a name that comes twice the first stands, and what is empty is left out.
    #[must_use]
    pub fn new(number: u64, owner: Owner, mut labels: Vec<(String, String)>, about: About) -> Self {
        labels.retain(|(name, value)| !(name.is_empty() || value.is_empty()));
        labels.sort_by(|one, other| one.0.cmp(&other.0));
        labels.dedup_by(|later, first| later.0 == first.0);
        let encoded = encoded(&labels);
        Self {
            number,
            owner,
            labels: labels.into_iter().map(|(name, value)| (Text::new(name), Text::new(value))).collect(),
            kind: about.kind,
            unit: Text::new(about.unit),
            help: Text::new(about.help),
            start_ms: about.start_ms,
            encoded,
            resource: [].into(),
        }
    }

    /// The same, of a service that says this of itself in a place of its own.
    #[must_use]
    pub(crate) fn of_resource(mut self, resource: &Arc<[(String, String)]>) -> Self {
        self.resource = Arc::clone(resource);
        self
    }

    /// Of OTLP: what all series of the service say of it.
    pub(crate) fn resource(&self) -> impl Iterator<Item = (&str, &str)> {
        self.resource.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Its name; empty if it has none.
    pub(crate) fn name(&self) -> &str {
        self.labels().find(|(label, _)| *label == "__name__").map_or("", |(_, name)| name)
    }

    /// Its unit.
    pub(crate) const fn unit(&self) -> &str {
        self.unit.as_str()
    }

    /// What it is.
    pub(crate) const fn help(&self) -> &str {
        self.help.as_str()
    }

    /// Its labels, sorted by name.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The same, with their hashes.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &(Text, Text)> {
        self.labels.iter()
    }

    /// Its labels as 1.0 has them.
    #[must_use]
    pub fn encoded_labels(&self) -> &[u8] {
        &self.encoded
    }
}

/// A trace that stands for a sample: one of the requests that it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    /// The trace, in hexadecimal digits.
    pub(crate) trace: Text,
    /// What the request measured, in the unit of its histogram.
    pub value: f64,
    /// When it was over, in milliseconds since 1970.
    pub at_ms: i64,
}

/// The label that names the trace.
pub(crate) static TRACE_ID: LazyLock<Text> = LazyLock::new(|| Text::new("trace_id".to_owned()));

impl Exemplar {
    /// The request of the trace `trace` that measured `value`.
    #[must_use]
    pub fn new(trace: &str, value: f64, at_ms: i64) -> Self {
        Self { trace: Text::new(trace.to_owned()), value, at_ms }
    }

    /// The trace, in hexadecimal digits.
    #[must_use]
    pub const fn trace(&self) -> &str {
        self.trace.as_str()
    }

    const fn bytes(&self) -> usize {
        size_of::<Self>() + self.trace().len()
    }
}

/// A whole histogram, as one sample of OTLP has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// What was counted between the bounds, one more than there are bounds. Not added up.
    pub counts: Vec<u64>,
    /// Upper bounds, rising; each belongs to its bucket.
    pub bounds: Arc<[f64]>,
    /// The sum of what was counted.
    pub sum: f64,
    /// Traces that stand for some of what was counted.
    pub exemplars: Vec<Exemplar>,
}

/// What may stand beside a sample's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Beside {
    /// A trace that stands for it.
    Exemplar(Exemplar),
    /// The histogram of which the value is the count.
    Distribution(Distribution),
}

impl Beside {
    /// How many traces there are in it.
    pub(crate) const fn exemplars(&self) -> usize {
        match self {
            Self::Exemplar(_) => 1,
            Self::Distribution(whole) => whole.exemplars.len(),
        }
    }

    /// Memory, beside the sample that it belongs to, without bounds, which histograms share.
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
    /// Of which series.
    pub series: Arc<Series>,
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// The value's bits: a stale marker is one NaN among many.
    pub bits: u64,
    /// What stands beside it.
    pub beside: Option<Arc<Beside>>,
}

impl Point {
    /// A sample; `None` ends the series.
    #[must_use]
    pub fn new(series: Arc<Series>, at_ms: i64, value: Option<f64>) -> Self {
        Self { series, at_ms, bits: value.map_or(STALE_NAN, f64::to_bits), beside: None }
    }

    /// Memory, with what stands beside it, without its series.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.beside.as_ref().map_or(0, |beside| beside.bytes())
    }

    /// The trace that stands for it, where it is one.
    #[must_use]
    pub fn exemplar(&self) -> Option<&Exemplar> {
        match self.beside.as_deref() {
            Some(Beside::Exemplar(exemplar)) => Some(exemplar),
            _ => None,
        }
    }

    /// Whether it ends its series: not a sample that a service ever had.
    #[must_use]
    pub const fn is_mark(&self) -> bool {
        self.bits == STALE_NAN
    }
}
