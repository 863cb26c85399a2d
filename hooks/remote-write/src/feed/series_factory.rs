//! Makes the series of a service: numbered, with the labels that all of them share.

use std::sync::Arc;

use hooks::sampling;

use crate::naming;
use crate::series::{Owner, Series, SeriesMetadata, ServiceNumber};

/// Label of dense series.
pub const RESOLUTION: &str = "uview_resolution";
/// Value of [`RESOLUTION`] for dense series.
pub const DENSE: &str = "dense";
/// Attribute of all series in OTLP.
const OTLP_RESOLUTION: &str = "uview.resolution";
/// Value of the attribute for baseline series.
const BASELINE: &str = "baseline";
/// Labels that only this crate sets.
const RESERVED: [&str; 4] = ["__name__", "job", "instance", RESOLUTION];

/// Labels that all series of a service share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Label `job`: the service.
    pub job: String,
    /// Label `instance`: the node.
    pub instance: String,
    /// Further labels that the operator configured.
    pub labels: Vec<(String, String)>,
    /// Use OTLP's names; the labels above are attributes of the resource.
    pub is_otlp: bool,
}

impl Target {
    /// Attributes of the OTLP resource.
    pub(super) fn resource(&self) -> Arc<[(String, String)]> {
        let own = [("service.name", &self.job), ("host.name", &self.instance)];
        let own = own.map(|(key, value)| (key.to_owned(), value.clone()));
        let others = self.labels.iter().filter(|(key, _)| own.iter().all(|(name, _)| name != key)).cloned();
        own.iter().cloned().chain(others).collect()
    }
}

/// Allocates series numbers. One for all feeds whose samples share requests.
#[derive(Debug, Default)]
pub struct SeriesNumbers(u64);

impl SeriesNumbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Makes the series of one service.
#[derive(Debug)]
pub(crate) struct SeriesFactory<'a> {
    pub(super) service: ServiceNumber,
    pub(super) target: &'a Target,
    pub(super) resource: &'a Arc<[(String, String)]>,
    pub(super) numbers: &'a mut SeriesNumbers,
}

impl SeriesFactory<'_> {
    /// Makes a series `name` with the service's own labels.
    pub(crate) fn series<'a>(
        &mut self,
        of: sampling::Series,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        metadata: SeriesMetadata,
    ) -> Arc<Series> {
        let owner = Owner { service: self.service, series: of };
        if self.target.is_otlp {
            return Arc::new(self.otlp_series(owner, name, labels, metadata));
        }
        let Target { job, instance, labels: outer, .. } = self.target;
        let resolution = if of == sampling::Series::Dense { DENSE } else { "" };
        let own = RESERVED.into_iter().zip([name, job.as_str(), instance.as_str(), resolution]);
        let outer = outer.iter().map(|(key, value)| (&**key, &**value));
        // Reserved names can be set neither by the operator nor by the service, even where they are absent.
        let own = outer.filter(|(key, _)| !RESERVED.contains(key)).chain(own);
        let theirs = labels.into_iter().filter(|(key, _)| naming::label_name(key) != RESOLUTION);
        Arc::new(Series::new(self.numbers.next(), owner, naming::labels(own, theirs), metadata))
    }

    /// OTLP attributes keep the service's names. Both series have an attribute that distinguishes them: in OTLP an
    /// absent attribute differs from an empty one.
    fn otlp_series<'a>(
        &mut self,
        owner: Owner,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        metadata: SeriesMetadata,
    ) -> Series {
        let resolution = if owner.series == sampling::Series::Dense { DENSE } else { BASELINE };
        let own = [("__name__", name), (OTLP_RESOLUTION, resolution)];
        let theirs = labels.into_iter().filter(|(key, _)| own.iter().all(|(name, _)| name != key));
        let mut labels: Vec<_> = theirs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
        Series::new(self.numbers.next(), owner, labels, metadata).of_resource(self.resource)
    }

    /// Whether the series are OTLP's.
    pub(crate) const fn is_otlp(&self) -> bool {
        self.target.is_otlp
    }
}
