//! What operators see of exporters.

use wire::proto::operators as proto;
use wire::time::Nanos;

use super::{Exports, REFUSED_FOR, State};

impl Exports {
    /// Everything, for `uview sources`. The metrics of a service are listed once, with its first replica.
    pub(crate) fn reply(&self) -> Vec<proto::SourceTarget> {
        let State { services, .. } = &*self.state();
        let of_service = |all: &std::collections::BTreeMap<_, super::Exporter>| {
            let each = all.values().enumerate();
            each.map(|(at, exporter)| exporter.reply(at == 0)).collect::<Vec<_>>()
        };
        services.values().flat_map(of_service).collect()
    }

    /// What is wrong now, for the status.
    pub(crate) fn problem(&self, now: Nanos) -> Option<String> {
        let refused = self.state().refused?;
        let is_recent = now.since(refused).is_none_or(|length| length < REFUSED_FOR);
        let limit = self.settings.exporters;
        is_recent.then(|| format!("otlp: metrics of more than {limit} replicas: raise otlp.metrics.max_replicas"))
    }
}
