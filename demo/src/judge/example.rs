//! Synthetic runs, for the tests of the evaluation and the reports.

use std::collections::BTreeMap;

use wire::metric::Statistic;
use wire::time::Nanos;

use crate::fault::Kind;
use crate::graph::{Service, Target};
use crate::reason::Reason;
use crate::record::{Episode, Event, InjectedFault, Point, Record};

/// A verdict that arrived after `ms` milliseconds.
pub(crate) fn event(service: impl Into<Target>, ms: u64, ratio: f64, episode: Episode) -> Event {
    let at = Nanos::from_millis(ms);
    Event { at, service: service.into(), score: 10.0 * ratio, gamma: 10.0, silent: false, episode, reasons: Vec::new() }
}

/// A top metric without statistic, labels and unit.
pub(crate) fn reason(metric: &str, share: f64, seen: f64) -> Reason {
    let group = if metric.starts_with("process.cpu") { "cpu" } else { "service" };
    Reason {
        column: metric.into(),
        metric: metric.into(),
        statistic: String::new(),
        labels: BTreeMap::new(),
        group: group.into(),
        unit: String::new(),
        share,
        seen,
        expected: 1.0,
    }
}

/// A statistic of the histogram that `reason` is about, which has no labels yet.
pub(crate) fn statistic(statistic: Statistic, reason: Reason) -> Reason {
    let column = format!("{}{}", reason.metric, statistic.suffix());
    Reason { column, statistic: statistic.name().into(), ..reason }
}

/// `reason` with its only label.
pub(crate) fn labelled(reason: Reason, key: &str, value: &str) -> Reason {
    let column = format!("{}{{{key}={value:?}}}", reason.column);
    Reason { column, labels: [(key.to_owned(), value.to_owned())].into(), ..reason }
}

/// A fault of 10 s.
pub(crate) fn fault(service: impl Into<Target>, kind: Kind, start_ms: u64) -> InjectedFault {
    let started = Nanos::from_millis(start_ms);
    InjectedFault { service: service.into(), kind, started, ended: started.plus(Nanos::from_secs(10)), doubled: None }
}

/// A run of two minutes: all LMAPs armed after 20 s, latency in the store at 60 s, no verdicts.
pub(crate) fn run() -> Record {
    let points = (0..1200).map(|tick| Point { at: Nanos::from_millis(100 * tick), score: 5.0, gamma: 10.0 });
    Record {
        seed: 7,
        interval: Nanos::from_millis(100),
        armed: Service::ALL.into_iter().map(|service| (service.into(), Nanos::from_secs(20))).collect(),
        faults: vec![fault(Service::Store, Kind::Latency, 60_000)],
        scores: Service::ALL.into_iter().map(|service| (service.into(), points.clone().collect())).collect(),
        ended: Nanos::from_secs(120),
        ..Record::default()
    }
}
