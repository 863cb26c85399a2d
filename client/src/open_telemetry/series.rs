//! The series of the SDK's data points, found again by name and attributes.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use opentelemetry::KeyValue;
use opentelemetry_sdk::metrics::data::Metric;
use wire::histogram::Scale;
use wire::name::Unit;

use crate::client::Client;
use crate::handles::{Counter, Gauge, UpDownCounter};
use crate::registration::{Handle, Registration};
use crate::signed_histogram::SignedHistogram;
use crate::text;

/// What kind of metric a data point becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SeriesKind {
    Counter,
    UpDownCounter,
    Gauge,
    Histogram,
}

/// A handle; counters and histograms with their parts of a unit.
#[derive(Debug)]
pub(super) enum Series {
    Counter(Counter, f64),
    UpDownCounter(UpDownCounter),
    Gauge(Gauge),
    Histogram(SignedHistogram, f64),
}

/// Whose series a data point is.
#[derive(Debug)]
pub(super) struct SeriesName<'a> {
    metric: &'a Metric,
    kind: SeriesKind,
    is_whole: bool,
    attributes: Vec<&'a KeyValue>,
}

impl<'a> SeriesName<'a> {
    /// Of integers only, if `is_whole`.
    pub(super) fn new(
        metric: &'a Metric,
        kind: SeriesKind,
        is_whole: bool,
        attributes: impl Iterator<Item = &'a KeyValue>,
    ) -> Self {
        Self { metric, kind, is_whole, attributes: attributes.collect() }
    }

    fn register(&self, client: &Client) -> Series {
        match self.kind {
            SeriesKind::Counter if self.is_whole => {
                Series::Counter(self.start(client, Client::counter).register(), 1.0)
            }
            SeriesKind::Counter => {
                let counter = self.labelled(client.counter(&text::name(self.metric.name())));
                let unit = millionth(self.metric.unit());
                Series::Counter(with_unit(counter, &unit).register(), 1e6)
            }
            SeriesKind::UpDownCounter => Series::UpDownCounter(self.start(client, Client::up_down_counter).register()),
            SeriesKind::Gauge => Series::Gauge(self.start(client, Client::gauge).register()),
            SeriesKind::Histogram => {
                let (parts, bits) = if self.is_whole { (1, 48) } else { parts_per_unit(self.metric.unit()) };
                let scale = Scale::new(2, bits).unwrap_or(Scale::DEFAULT);
                let histogram = self.start(client, Client::histogram).parts_per_unit(u64::from(parts)).scale(scale);
                Series::Histogram(histogram.register_signed(), f64::from(parts))
            }
        }
    }

    /// A registration with name, labels and unit.
    fn start<'client, H: Handle>(
        &self,
        client: &'client Client,
        start: impl FnOnce(&'client Client, &str) -> Registration<'client, H>,
    ) -> Registration<'client, H> {
        with_unit(self.labelled(start(client, &text::name(self.metric.name()))), self.metric.unit())
    }

    /// Of attributes whose names become the same label, the last one counts.
    fn labelled<'client, H: Handle>(&self, mut registration: Registration<'client, H>) -> Registration<'client, H> {
        let keys: Vec<_> = self.attributes.iter().map(|attribute| text::name(attribute.key.as_str())).collect();
        for (at, (key, attribute)) in keys.iter().zip(&self.attributes).enumerate() {
            if !keys.iter().skip(at + 1).any(|later| later == key) {
                registration = registration.label(key, &text::label_value(&attribute.value.as_str()));
            }
        }
        registration
    }
}

/// A unit that no series may have is left out.
fn with_unit<'client, H: Handle>(registration: Registration<'client, H>, unit: &str) -> Registration<'client, H> {
    if Unit::new(unit).is_ok() { registration.unit(unit) } else { registration }
}

/// The unit of millionths, in UCUM.
fn millionth(unit: &str) -> String {
    match unit {
        "" | "1" => "10*-6".to_owned(),
        "s" => "us".to_owned(),
        unit => format!("10*-6.{unit}"),
    }
}

/// Parts of a unit in which a histogram of floats counts, and the bits of its largest value.
fn parts_per_unit(unit: &str) -> (u32, u32) {
    match unit {
        // 71 minutes in µs.
        "s" => (1_000_000, 32),
        "ms" | "%" | "KiBy" | "kBy" => (1_000, 48),
        "us" | "ns" | "By" => (1, 48),
        _ => (1_000_000, 48),
    }
}

/// A series and whose it is.
#[derive(Debug)]
struct KnownName {
    name: Box<str>,
    kind: SeriesKind,
    attributes: Box<[KeyValue]>,
    series: Series,
}

impl KnownName {
    fn is(&self, name: &SeriesName<'_>) -> bool {
        *self.name == *name.metric.name()
            && self.kind == name.kind
            && self.attributes.iter().eq(name.attributes.iter().copied())
    }
}

/// All series of an exporter.
#[derive(Debug)]
pub(super) struct KnownSeries {
    by_hash: HashMap<u64, KnownName>,
    hasher: RandomState,
    most: usize,
    /// That of a name that is not remembered.
    other: Option<Series>,
}

impl KnownSeries {
    /// Remembers at most `most` series.
    pub(super) fn new(most: usize) -> Self {
        Self { by_hash: HashMap::new(), hasher: RandomState::new(), most, other: None }
    }

    /// The series of `name`; registered when it is first seen. Beyond `most` names, and if two have the same hash, it
    /// is registered each time, which gives the same series.
    pub(super) fn get(&mut self, client: &Client, name: &SeriesName<'_>) -> &Series {
        let hash = self.hasher.hash_one((name.metric.name(), name.kind, &name.attributes));
        let is_full = self.by_hash.len() >= self.most;
        match self.by_hash.get(&hash).map(|known| known.is(name)) {
            Some(true) => {}
            None if !is_full => {
                let known = KnownName {
                    name: name.metric.name().into(),
                    kind: name.kind,
                    attributes: name.attributes.iter().copied().cloned().collect(),
                    series: name.register(client),
                };
                self.by_hash.insert(hash, known);
            }
            _ => return self.other.insert(name.register(client)),
        }
        &self.by_hash[&hash].series
    }
}
