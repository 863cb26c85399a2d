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
    pub(crate) fn problems(&self, now: Nanos) -> Vec<String> {
        let State { refused, left_out, .. } = &*self.state();
        let recent = |last: Option<&(Nanos, String)>, what: &str| {
            let (at, why) = last?;
            let is_recent = now.since(*at).is_none_or(|length| length < REFUSED_FOR);
            is_recent.then(|| format!("otlp: {what} are not watched: {why}"))
        };
        let replicas = recent(refused.as_ref(), "metrics of further replicas");
        replicas.into_iter().chain(recent(left_out.as_ref(), "further series of metrics")).collect()
    }
}
