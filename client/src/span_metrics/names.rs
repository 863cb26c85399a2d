//! The series of each span name, found again without an allocation.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use crate::client::Client;
use crate::handles::{Counter, Histogram};

/// Most names that have series of their own. Each takes five columns of an LMAP.
const MAX_NAMES: usize = 64;
/// The label of all other names, as in OpenTelemetry.
const OVERFLOW_LABEL: (&str, &str) = ("otel.metric.overflow", "true");

/// The three metrics of one span name.
#[derive(Debug)]
pub(super) struct NameSeries {
    spans: Counter,
    errors: Counter,
    duration: Histogram,
}

impl NameSeries {
    fn register(client: &Client, (key, value): (&str, &str)) -> Self {
        Self {
            spans: client.counter("tracing.spans").label(key, value).unit("{span}").register(),
            errors: client.counter("tracing.span.errors").label(key, value).unit("{span}").register(),
            duration: client
                .histogram("tracing.span.duration")
                .label(key, value)
                .unit("s")
                .parts_per_unit(1_000_000)
                .register(),
        }
    }

    /// A span has closed.
    pub(super) fn close(&self, failed: bool, duration: Duration) {
        self.spans.add(1);
        if failed {
            self.errors.add(1);
        }
        self.duration.observe_duration(duration);
    }

    /// A span has begun of which nothing more will be known.
    pub(super) fn count(&self) {
        self.spans.add(1);
    }
}

/// The series of all names.
#[derive(Debug)]
pub(super) struct Names {
    client: Client,
    known: RwLock<HashMap<Box<str>, Arc<NameSeries>>>,
    others: OnceLock<Arc<NameSeries>>,
    most: usize,
}

impl Names {
    /// No names yet; at most `most` of them, and at most [`MAX_NAMES`], get series of their own.
    pub(super) fn new(client: Client, most: usize) -> Self {
        Self { client, known: RwLock::default(), others: OnceLock::new(), most: most.min(MAX_NAMES) }
    }

    /// The series of `name`; registered when the name is first seen.
    pub(super) fn get(&self, name: &str) -> Arc<NameSeries> {
        let full = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(series) = known.get(name) {
                return Arc::clone(series);
            }
            known.len() >= self.most
        };
        if full { self.others() } else { self.add(name) }
    }

    fn others(&self) -> Arc<NameSeries> {
        let register = || Arc::new(NameSeries::register(&self.client, OVERFLOW_LABEL));
        Arc::clone(self.others.get_or_init(register))
    }

    fn add(&self, name: &str) -> Arc<NameSeries> {
        // Outside of the lock. Two threads that come here at once register the same series, and share it.
        let label = crate::text::label_value(name);
        let series = Arc::new(NameSeries::register(&self.client, ("span.name", &label)));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < self.most {
            known.entry(name.into()).or_insert_with(|| Arc::clone(&series));
        }
        series
    }
}
