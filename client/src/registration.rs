//! The builder for a metric: name, labels, unit, then a handle.

use std::marker::PhantomData;
use std::time::Duration;

use wire::histogram::Scale;
use wire::metric::{Group, Kind};
use wire::registration::Shards;

use crate::client::Client;
use crate::handles::{Binding, Counter, Gauge, Histogram, ShardedCounter, UpDownCounter};
use crate::metric_spec::MetricSpec;
use crate::problem::Cause;

mod sealed {
    pub trait Sealed: Sized {
        fn from_binding(binding: &super::Binding, spec: &super::MetricSpec) -> Self;
        fn to_binding(&self) -> super::Binding;
    }
}
pub(crate) use sealed::Sealed;

/// A handle to a metric: [`Counter`], [`ShardedCounter`], [`UpDownCounter`], [`Gauge`] or [`Histogram`].
pub trait Handle: Sealed {}

macro_rules! handles {
    ($($handle:ident),+) => {$(
        impl Handle for $handle {}

        impl Sealed for $handle {
            fn from_binding(binding: &Binding, _asked: &MetricSpec) -> Self {
                Self::new(binding)
            }

            fn to_binding(&self) -> Binding {
                self.binding()
            }
        }
    )+};
}

handles!(Counter, ShardedCounter, UpDownCounter, Gauge);

impl Handle for Histogram {}

impl Sealed for Histogram {
    fn from_binding(binding: &Binding, spec: &MetricSpec) -> Self {
        let scale = if let Kind::Histogram(scale) = spec.kind { scale } else { Scale::DEFAULT };
        Self::new(binding, scale, spec.parts_per_second())
    }

    fn to_binding(&self) -> Binding {
        self.binding()
    }
}

/// Builder for a metric. The metric exists once [`Registration::register`] is called.
#[derive(Debug)]
#[must_use = "the metric is registered only by `register`"]
pub struct Registration<'client, H> {
    client: &'client Client,
    spec: MetricSpec,
    handle: PhantomData<fn() -> H>,
}

impl<'client, H: Handle> Registration<'client, H> {
    pub(crate) fn new(client: &'client Client, name: &str, kind: Kind) -> Self {
        let spec = MetricSpec {
            name: name.to_owned(),
            labels: Vec::new(),
            kind,
            unit: None,
            group: Group::Service,
            parts_per_unit: 1,
            shards: Shards::ONE,
            aggregation: None,
            read_every_ms: 0,
        };
        Self { client, spec, handle: PhantomData }
    }

    /// Adds a label. At most 16 labels, each key once, values of up to 256 bytes.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.spec.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Sets the unit, in UCUM: `s`, `By`, `{request}`.
    pub fn unit(mut self, unit: &str) -> Self {
        self.spec.unit = Some(unit.to_owned());
        self
    }

    /// Sets the group that explanations count the metric under. Default: [`Group::Service`].
    pub fn group(mut self, group: Group) -> Self {
        self.spec.group = group;
        self
    }

    /// Declares how the values of the service's replicas on a node become one: `sum`, `mean`, `min`, `max`, or a
    /// quantile such as `p90` or `quantile(0.9)`. Default: the sum; of gauges the mean. Operators may decide otherwise.
    pub fn aggregation(mut self, aggregation: &str) -> Self {
        self.spec.aggregation = Some(aggregation.to_owned());
        self
    }

    /// Declares how often the metric is worth reading, in whole milliseconds up to an hour. Its last value, or a
    /// counter's mean increment, holds in between. Default: in every row of the LMAP. If no metric of the service asks
    /// for more, the LMAP takes a row only that often.
    pub fn read_every(mut self, period: Duration) -> Self {
        self.spec.read_every_ms = u32::try_from(period.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Registers the metric and returns its handle. The same name, labels and kind give a handle to the same values.
    ///
    /// Never fails: if the metric cannot be registered, the handle is detached (it counts, no agent reads it), and
    /// [`Client::status`] says why.
    #[must_use]
    pub fn register(self) -> H {
        self.register_with_cause().0
    }

    /// As [`Registration::register`], and why the handle is detached, if it is.
    #[must_use]
    pub fn register_with_cause(self) -> (H, Option<Cause>) {
        let (binding, cause) = self.client.bind(&self.spec);
        (H::from_binding(&binding, &self.spec), cause)
    }
}

impl Registration<'_, ShardedCounter> {
    pub(crate) const fn shards(mut self, shards: Shards) -> Self {
        self.spec.shards = shards;
        self
    }
}

impl Registration<'_, Histogram> {
    /// Sets how many parts of the unit a value counts in: 1,000,000 for a unit of `s` and values in µs. 0 counts as 1.
    pub fn parts_per_unit(mut self, binding: u64) -> Self {
        self.spec.parts_per_unit = binding;
        self
    }

    /// The client, and what is registered.
    #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
    pub(crate) const fn client_and_spec(&self) -> (&Client, &MetricSpec) {
        (self.client, &self.spec)
    }

    /// Sets the buckets. Default: [`Scale::DEFAULT`], four per power of two, up to 2^32. For those of OpenTelemetry's
    /// exponential histogram take [`Scale::exponential`].
    pub fn scale(mut self, scale: Scale) -> Self {
        self.spec.kind = Kind::Histogram(scale);
        self
    }
}
