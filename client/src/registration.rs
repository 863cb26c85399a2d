//! How a metric is asked for: a name, labels, a unit, and at last a handle.

use std::marker::PhantomData;

use wire::histogram::Scale;
use wire::metric::{Group, Kind};

use crate::client::Client;
use crate::handles::{Counter, Gauge, Histogram, Parts, UpDownCounter};

/// What is asked for, unchecked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) kind: Kind,
    pub(crate) unit: Option<String>,
    pub(crate) group: Group,
    pub(crate) parts_per_unit: u64,
}

impl Asked {
    /// Parts of the unit in a second: what turns a duration into a value.
    fn parts_per_second(&self) -> u64 {
        let units_per_second = match self.unit.as_deref() {
            Some("ms") => 1_000,
            Some("us") => 1_000_000,
            Some("ns") => 1_000_000_000,
            _ => 1,
        };
        self.parts_per_unit.max(1).saturating_mul(units_per_second)
    }
}

mod sealed {
    pub trait Sealed: Sized {
        fn from_parts(parts: &super::Parts, asked: &super::Asked) -> Self;
        fn to_parts(&self) -> super::Parts;
    }
}
pub(crate) use sealed::Sealed;

/// What a metric is written through: [`Counter`], [`UpDownCounter`], [`Gauge`], [`Histogram`].
pub trait Handle: Sealed {}

macro_rules! handles {
    ($($handle:ident),+) => {$(
        impl Handle for $handle {}

        impl Sealed for $handle {
            fn from_parts(parts: &Parts, _asked: &Asked) -> Self {
                Self::new(parts)
            }

            fn to_parts(&self) -> Parts {
                self.parts()
            }
        }
    )+};
}

handles!(Counter, UpDownCounter, Gauge);

impl Handle for Histogram {}

impl Sealed for Histogram {
    fn from_parts(parts: &Parts, asked: &Asked) -> Self {
        let scale = if let Kind::Histogram(scale) = asked.kind { scale } else { Scale::DEFAULT };
        Self::new(parts, scale, asked.parts_per_second())
    }

    fn to_parts(&self) -> Parts {
        self.parts()
    }
}

/// A metric that is being asked for. It exists from [`Registration::register`] on.
#[derive(Debug)]
#[must_use = "nothing is registered before `register`"]
pub struct Registration<'client, H> {
    client: &'client Client,
    asked: Asked,
    handle: PhantomData<fn() -> H>,
}

impl<'client, H: Handle> Registration<'client, H> {
    pub(crate) fn new(client: &'client Client, name: &str, kind: Kind) -> Self {
        let asked = Asked {
            name: name.to_owned(),
            labels: Vec::new(),
            kind,
            unit: None,
            group: Group::Service,
            parts_per_unit: 1,
        };
        Self { client, asked, handle: PhantomData }
    }

    /// A label: at most 16, no key twice, up to 256 bytes of text.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.asked.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The unit in UCUM: `s`, `By`, `{request}`.
    pub fn unit(mut self, unit: &str) -> Self {
        self.asked.unit = Some(unit.to_owned());
        self
    }

    /// What the metric tells about; the service itself unless said otherwise.
    pub fn group(mut self, group: Group) -> Self {
        self.asked.group = group;
        self
    }

    /// The handle. The same name, labels and kind give a handle to the same values.
    ///
    /// Always works: if the metric cannot be registered, the handle takes values that nobody reads, and [`Client::status`] says why.
    #[must_use]
    pub fn register(self) -> H {
        H::from_parts(&self.client.place(&self.asked), &self.asked)
    }
}

impl Registration<'_, Histogram> {
    /// In how many parts of the unit values are given: 1,000,000 for seconds in µs. 0 counts as 1.
    pub fn parts_per_unit(mut self, parts: u64) -> Self {
        self.asked.parts_per_unit = parts;
        self
    }

    /// Other buckets than [`Scale::DEFAULT`], which has four per power of two, up to 2^32.
    pub fn scale(mut self, scale: Scale) -> Self {
        self.asked.kind = Kind::Histogram(scale);
        self
    }
}
