//! One exporter: its series, and the region that they fill.

use std::collections::BTreeMap;

use exposition::{Discards, ExcludedSeries, Target};
use otlp::Holder;
use wire::name::{InstanceName, ServiceName};
use wire::proto::operators as proto;
use wire::time::{Nanos, UnixNanos};

use super::ExportSettings;
use super::export_times::ExportTimes;
use crate::filled_region::{FilledRegion, Sampling};
use crate::node::Node;

/// Names the memory of regions.
const MEMORY: &str = "uview-otlp";
/// After the first request of an export, others may follow that belong to it: for this long at most, and for this part
/// of the usual time between two exports.
const SETTLE: Nanos = Nanos::from_millis(500);
const SETTLE_PART: u64 = 4;
/// Times between exports that are remembered.
const PERIODS: usize = 64;
/// Exports that have to be missing before a replica is gone.
const MISSING: u64 = 5;

/// What another replica of the service watches, and how often.
pub(super) type Model = (Target, Nanos);

/// One replica of a service that exports its metrics.
#[derive(Debug)]
pub(super) struct Exporter {
    service: ServiceName,
    instance: InstanceName,
    /// Who sent its first export: it and its series are of that share.
    holder: Holder,
    target: Target,
    region: Option<FilledRegion>,
    /// When the first request of the present export came; `None` between two exports.
    open: Option<Nanos>,
    /// Points of it that count, and when the latest of them was, by the sender's clock.
    taken: usize,
    latest: UnixNanos,
    times: ExportTimes,
    /// When the last export began, and when the last request came.
    began: Option<Nanos>,
    seen: Nanos,
    periods: Vec<Nanos>,
    /// Time between two exports, once series are chosen.
    interval: Option<Nanos>,
    exports: u64,
    uncounted: u64,
    bytes: usize,
}

/// The usual one of `periods`, in whole seconds, or hundredths if it is shorter.
fn usual(periods: &[Nanos]) -> Option<Nanos> {
    let mut sorted = periods.to_vec();
    sorted.sort_unstable();
    let usual = sorted.get(sorted.len() / 2)?.0;
    let step = if usual >= 1_000_000_000 { 1_000_000_000 } else { 10_000_000 };
    Some(Nanos(((usual + step / 2) / step).max(1) * step))
}

impl Exporter {
    pub(super) fn new(
        (service, instance): (ServiceName, InstanceName),
        holder: Holder,
        settings: &ExportSettings,
    ) -> Self {
        Self {
            service,
            instance,
            holder,
            target: Target::new(settings.target()),
            region: None,
            open: None,
            taken: 0,
            latest: UnixNanos::default(),
            times: ExportTimes::default(),
            began: None,
            seen: Nanos::ZERO,
            periods: Vec::new(),
            interval: None,
            exports: 0,
            uncounted: 0,
            bytes: 0,
        }
    }

    /// What a replica that has not chosen yet takes over from another one of `all`.
    pub(super) fn model(all: &BTreeMap<InstanceName, Self>, instance: &InstanceName) -> Option<Model> {
        if all.get(instance).is_some_and(|exporter| exporter.target.is_chosen()) {
            return None;
        }
        all.values().find_map(|other| other.interval.map(|interval| (other.target.twin(), interval)))
    }

    /// Takes a resource of a request: at most `points` of its points, and `free` series more than are known. Returns
    /// how many points were looked at.
    pub(super) fn take(
        &mut self,
        resource: &[u8],
        (points, free): (usize, usize),
        model: Option<Model>,
        node: &Node,
        now: Nanos,
    ) -> usize {
        if self.open.is_some() && self.target.is_next(resource) {
            self.end(node);
        }
        if self.open.is_none() {
            self.begin(model, now);
        }
        self.target.leave_room(free);
        self.bytes += resource.len();
        self.seen = now;
        let read = self.target.take_part(resource, points);
        self.taken += read.taken;
        self.latest = self.latest.max(read.latest);
        read.points
    }

    fn begin(&mut self, model: Option<Model>, now: Nanos) {
        if let Some((target, interval)) = model {
            (self.target, self.interval) = (target, Some(interval));
        }
        (self.open, self.taken, self.latest, self.bytes) = (Some(now), 0, UnixNanos::default(), 0);
        self.target.begin();
    }

    /// Whether an export has begun and not ended.
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Ends the export if nothing more of it is to come.
    pub(super) fn end_if_due(&mut self, node: &Node, now: Nanos) {
        let usual = self.interval.or_else(|| usual(&self.periods));
        let settle = usual.map_or(SETTLE, |usual| SETTLE.min(Nanos(usual.0 / SETTLE_PART)));
        if self.open.and_then(|open| now.since(open)).is_some_and(|length| length >= settle) {
            self.end(node);
        }
    }

    /// Ends the export: chooses, or writes. One of which no point counts, as a request that is repeated, is none.
    fn end(&mut self, node: &Node) {
        let Some(open) = self.open.take().filter(|_| self.taken > 0) else { return };
        if let Some(period) = self.began.replace(open).and_then(|began| open.since(began)) {
            if self.periods.len() == PERIODS {
                self.periods.remove(0);
            }
            self.periods.push(period);
        }
        self.exports += 1;
        self.uncounted += 1;
        let usual = self.interval.or_else(|| usual(&self.periods));
        let time = self.times.time_of(self.latest, open, usual);
        if self.target.end() {
            self.choose(node, time);
        } else if self.region.is_none() && self.target.is_chosen() {
            self.fill(node, time);
        }
        if let Some(region) = &self.region {
            region.write(&self.target, time);
        }
    }

    fn choose(&mut self, node: &Node, first: Nanos) {
        let before = self.target.placed();
        self.target.choose();
        if self.region.is_some() && self.target.placed() == before {
            return;
        }
        let (service, instance) = (self.service.as_str(), self.instance.as_str());
        let (series, watched, columns) = (self.target.exposed(), self.target.watched(), self.target.columns());
        tracing::info!(service, instance, series, watched, columns, "series of OTLP metrics chosen");
        self.fill(node, first);
    }

    /// Makes a region for what is chosen, with values of `first`. The old one goes after the new one is there, so that
    /// common series stay.
    fn fill(&mut self, node: &Node, first: Nanos) {
        let every = self.interval.or_else(|| usual(&self.periods)).unwrap_or(Nanos::from_secs(1));
        self.interval = Some(every);
        let who = (self.service.clone(), self.instance.clone());
        let sampling = Sampling { every, fastest: None, first };
        match FilledRegion::of_target(MEMORY, who, &self.target, sampling, node) {
            Ok(new) => {
                if let Some(old) = self.region.replace(new) {
                    old.leave(node);
                }
            }
            Err(error) => {
                let service = self.service.as_str();
                tracing::warn!(service, error = &*error as &dyn core::error::Error, "no region for OTLP metrics");
            }
        }
    }

    /// Whether it has exported nothing for `expire`, and for several of its intervals.
    pub(super) fn is_gone(&self, expire: Nanos, now: Nanos) -> bool {
        let usual = self.interval.or_else(|| usual(&self.periods)).unwrap_or(Nanos::ZERO);
        let longest = expire.max(Nanos(usual.0.saturating_mul(MISSING)));
        now.since(self.seen).is_some_and(|length| length > longest)
    }

    /// Removes it from its service.
    pub(super) fn leave(self, node: &Node) {
        if let Some(region) = self.region {
            region.leave(node);
        }
    }

    /// Points that were left out, and exports that ended, since the last call.
    pub(super) const fn take_counts(&mut self) -> (Discards, u64) {
        (self.target.take_discards(), core::mem::replace(&mut self.uncounted, 0))
    }

    pub(super) const fn holder(&self) -> &Holder {
        &self.holder
    }

    pub(super) fn known_series(&self) -> usize {
        self.target.known_samples()
    }

    /// For how many series it counts: more than are known if their names or buckets are long.
    pub(super) fn weight(&self) -> usize {
        self.target.weight()
    }

    /// What is chosen of it, and how many columns that is.
    pub(super) fn watched_series(&self) -> usize {
        self.target.watched()
    }

    /// Its series that no column has, by reason.
    pub(super) fn excluded_series(&self) -> ExcludedSeries {
        self.target.excluded()
    }

    /// Everything, for `uview sources`; with a line for each metric if `with_families`.
    pub(super) fn reply(&self, with_families: bool) -> proto::SourceTarget {
        let report = self.target.report();
        let (learned, needed) = report.learned;
        let families = report.families.into_iter().filter(|_| with_families).map(|family| proto::SourceFamily {
            name: family.name,
            kind: family.kind.to_owned(),
            exposed: family.exposed as u64,
            watched: family.watched as u64,
            why: family.why,
        });
        let interval = self.interval.or_else(|| usual(&self.periods)).unwrap_or(Nanos::ZERO);
        proto::SourceTarget {
            service: self.service.to_string(),
            url: format!("otlp:{}", self.instance),
            state: if learned < needed { "learning" } else { "watching" }.to_owned(),
            format: "OTLP".to_owned(),
            interval_us: interval.0 / 1_000,
            scrapes: self.exports,
            learned,
            needed,
            samples: report.samples as u64,
            bytes: self.bytes as u64,
            refused_samples: report.refused as u64,
            exposed: report.exposed as u64,
            watched: report.watched as u64,
            summed: report.summed as u64,
            columns: report.columns as u64,
            families: families.collect(),
            ..proto::SourceTarget::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_period_is_in_whole_seconds_and_a_late_export_does_not_change_it() {
        let of = |millis: &[u64]| {
            let periods: Vec<_> = millis.iter().map(|millis| Nanos::from_millis(*millis)).collect();
            usual(&periods).map(Nanos::as_millis)
        };

        assert_eq!(of(&[10_003, 9_998, 25_000]), Some(10_000));
        assert_eq!(of(&[60_004]), Some(60_000));
        assert_eq!(of(&[98, 101, 104]), Some(100));
        assert_eq!(of(&[1]), Some(10));
        assert_eq!(of(&[]), None);
    }
}
