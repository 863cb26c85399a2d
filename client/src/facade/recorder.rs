//! The recorder: a metric of the facade is registered when it is first used, and found again by its key.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use wire::histogram::Scale;

use super::handles::InUnits;
use super::names;
use crate::client::Client;
use crate::registration::{Handle, Registration};
use crate::text;

/// Records the metrics of a process through its [`Client`]: for `metrics::set_global_recorder`.
#[derive(Debug)]
pub struct Recorder {
    client: Client,
    counters: Handles<crate::Counter>,
    gauges: Handles<crate::Gauge>,
    histograms: Handles<InUnits>,
    /// Units by the metric's name, as described.
    units: RwLock<HashMap<KeyName, Unit>>,
    /// Most handles that are remembered of a kind, and most units.
    most: usize,
}

impl Client {
    /// A recorder for the facade `metrics`: everything that the process counts with it becomes a metric of this
    /// service. It keeps the client connected.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        Recorder::new(self.clone(), self.limits().series)
    }
}

impl Recorder {
    fn new(client: Client, most: usize) -> Self {
        let (counters, gauges, histograms) = (Handles::new(most), Handles::new(most), Handles::new(most));
        Self { client, counters, gauges, histograms, units: RwLock::default(), most }
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>) {
        let Some(unit) = unit else { return };
        let mut units = self.units.write().unwrap_or_else(PoisonError::into_inner);
        if units.len() < self.most || units.contains_key(&name) {
            units.insert(name, unit);
        }
    }

    fn unit(&self, key: &Key) -> Option<Unit> {
        self.units.read().unwrap_or_else(PoisonError::into_inner).get(key.name()).copied()
    }

    /// `start` with the name, labels and unit of `key`. Of labels of the same name, the last one counts.
    fn registration<'client, H: Handle>(
        &'client self,
        key: &Key,
        start: impl FnOnce(&'client Client, &str) -> Registration<'client, H>,
    ) -> Registration<'client, H> {
        let mut registration = start(&self.client, &text::name(key.name()));
        let labels: Vec<_> = key.labels().map(|label| (text::name(label.key()), label.value())).collect();
        for (at, (name, value)) in labels.iter().enumerate() {
            if !labels.iter().skip(at + 1).any(|(later, _)| later == name) {
                registration = registration.label(name, &text::label_value(value));
            }
        }
        match self.unit(key).and_then(names::unit) {
            Some(unit) => registration.unit(unit),
            None => registration,
        }
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _description: SharedString) {
        self.describe(name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _description: SharedString) {
        self.describe(name, unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _description: SharedString) {
        self.describe(name, unit);
    }

    fn register_counter(&self, key: &Key, _metadata: &Metadata<'_>) -> Counter {
        let register = || self.registration(key, Client::counter).register();
        Counter::from_arc(self.counters.get(key, register))
    }

    fn register_gauge(&self, key: &Key, _metadata: &Metadata<'_>) -> Gauge {
        let register = || self.registration(key, Client::gauge).register();
        Gauge::from_arc(self.gauges.get(key, register))
    }

    fn register_histogram(&self, key: &Key, _metadata: &Metadata<'_>) -> Histogram {
        let register = || {
            let unit = self.unit(key);
            let parts = names::parts_per_unit(unit);
            // Seconds in µs have the usual scale. Of others nobody knows how large they become.
            let scale = if unit == Some(Unit::Seconds) { Ok(Scale::DEFAULT) } else { Scale::new(2, 48) };
            let registration = self.registration(key, Client::histogram).parts_per_unit(u64::from(parts));
            let histogram = registration.scale(scale.unwrap_or(Scale::DEFAULT)).register_signed();
            InUnits { histogram, parts_per_unit: f64::from(parts) }
        };
        Histogram::from_arc(self.histograms.get(key, register))
    }
}

/// Handles by their key.
#[derive(Debug)]
struct Handles<H> {
    by_key: RwLock<HashMap<Key, Arc<H>, BuildHasherDefault<ReadyHash>>>,
    most: usize,
}

impl<H> Handles<H> {
    fn new(most: usize) -> Self {
        Self { by_key: RwLock::default(), most }
    }

    /// The handle of `key`; made by `register` at its first use. Beyond `most` keys, which are all that have a series
    /// of their own, nothing is remembered and `register` is called each time.
    fn get(&self, key: &Key, register: impl FnOnce() -> H) -> Arc<H> {
        if let Some(known) = self.by_key.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Arc::clone(known);
        }
        // Two threads that come here at once register the same series twice, and share it.
        let handle = Arc::new(register());
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        if by_key.len() < self.most {
            by_key.entry(key.clone()).or_insert_with(|| Arc::clone(&handle));
        }
        handle
    }
}

/// Keys bring their hash with them.
#[derive(Debug, Default)]
struct ReadyHash(u64);

impl Hasher for ReadyHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// For anything else than a key, which does not come here: FNV-1a.
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
