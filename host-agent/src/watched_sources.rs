//! Sources whose series are chosen: endpoints that are scraped, and exporters of OTLP metrics.

use std::sync::Arc;

use wire::proto::operators as proto;
use wire::time::Nanos;

use crate::custom_objects::CustomObjects;
use crate::metric_exports::Exports;
use crate::pod_watch::PodWatch;
use crate::prometheus::Targets;

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedSources {
    pub(crate) targets: Targets,
    /// `None`: no OTLP metrics are watched.
    pub(crate) exports: Option<Arc<Exports>>,
    /// `None`: pods are not watched.
    pub(crate) pods: Option<Arc<PodWatch>>,
    /// `None`: no objects of Kubernetes say how pods are watched.
    pub(crate) objects: Option<Arc<CustomObjects>>,
}

impl WatchedSources {
    /// Everything, for `uview sources`.
    pub(crate) fn reply(&self) -> Vec<proto::SourceTarget> {
        let targets = self.targets.views().into_iter().map(|target| target.reply());
        targets.chain(self.exports.iter().flat_map(|exports| exports.reply())).collect()
    }

    /// What is wrong now, for the status.
    pub(crate) fn problems(&self, now: Nanos) -> impl Iterator<Item = String> {
        let targets = self.targets.views().into_iter().filter_map(move |target| target.problem(now));
        let exports = self.exports.iter().flat_map(move |exports| exports.problems(now));
        let objects = self.objects.iter().flat_map(|objects| objects.problems());
        targets.chain(exports).chain(self.pods.iter().filter_map(|pods| pods.problem())).chain(objects)
    }
}
