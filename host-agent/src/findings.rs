//! What verdicts mean for traces: findings, of which tail sampling keeps the requests. Pure.

use hooks::tracing::Metric;
use otlp::Finding;
use wire::control::Episode;
use wire::incident::IncidentId;
use wire::name::ServiceName;
use wire::time::UnixNanos;

use crate::control_plane::Event;
use crate::span_columns;

/// The service that a metric of an LMAP over several is of, and the rest of its name; `None` for a derived column.
fn service_of<'a>(event: &'a Event, metric: &'a str) -> Option<(&'a ServiceName, &'a str)> {
    event
        .concerned
        .iter()
        .find_map(|service| Some((service, metric.strip_prefix(service.as_str())?.strip_prefix('/')?)))
}

/// Whether a metric of the LMAP is made of spans.
fn is_of_spans(event: &Event, metric: &str) -> bool {
    span_columns::is_of_spans(service_of(event, metric).map_or(metric, |(_, metric)| metric))
}

/// What `event` means for traces: nothing unless its service is in alarm or has silent replicas. That of an LMAP over
/// several services is about those whose columns stand out. Each is told its own columns, and what is derived: others
/// may be another tenant's. Addresses of incidents have the name of this `node`.
///
/// Span metrics lag behind: a verdict on them is about earlier requests, those of the period that `covered` gives for
/// the time of its row.
pub fn findings<'a>(
    event: &'a Event,
    node: &'a str,
    covered: impl Fn(UnixNanos) -> Option<(UnixNanos, UnixNanos)>,
) -> impl Iterator<Item = Finding<'a>> {
    let verdict = &event.verdict;
    let of_spans = event.reasons.first().is_some_and(|reason| is_of_spans(event, reason.series.name.as_str()));
    let period = of_spans.then(|| covered(event.at)).flatten();
    let (from, at) = period.unwrap_or((event.at, event.at));
    let incident = event.suspicion.as_ref().map(|suspicion| IncidentId::of(suspicion.incident).at(node));
    let alarm = matches!(verdict.episode, Episode::Began | Episode::On);
    let is_finding = alarm || !event.silent.is_empty();
    let own = event.concerned.is_empty().then_some(&event.service);
    let services = own.into_iter().chain(&event.concerned).filter(move |_| is_finding);
    services.map(move |service| {
        let is_told = |metric: &str| service_of(event, metric).is_none_or(|(of, _)| of == service);
        let metrics = event.reasons.iter().filter(|reason| is_told(reason.series.name.as_str())).map(|reason| Metric {
            title: reason.column().into(),
            unit: reason.unit().into(),
            seen: reason.seen,
            expected: reason.expected,
            of_distribution: reason.statistic.is_of_a_distribution(),
            replica: reason.replica.as_str().into(),
        });
        // A hanging service may show nothing but its silence.
        let silent = Metric {
            title: "silent replicas".into(),
            unit: "".into(),
            seen: event.silent.len() as f64,
            expected: 0.0,
            of_distribution: false,
            replica: "".into(),
        };
        let silent = (!event.silent.is_empty()).then_some(silent);
        Finding {
            service: service.as_str(),
            from,
            at,
            breakdown: event.breakdown.clone(),
            score: event.verdict.score,
            gamma: event.verdict.gamma.unwrap_or(0.0),
            metrics: silent.into_iter().chain(metrics).collect(),
            incident: incident.clone().unwrap_or_default().into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use wire::metric::Statistic;
    use wire::name::InstanceName;
    use wire::time::Nanos;

    use super::*;
    use crate::control_plane::testing::{self, counter};
    use crate::control_plane::{NamedReason, Suspicion};

    fn event(episode: Episode, silent: &[&str]) -> Event {
        let silent = silent.iter().map(|name| InstanceName::new(name).unwrap()).collect();
        Event { silent, ..testing::event("payment", episode, UnixNanos(5)) }
    }

    fn reason(metric: &str) -> NamedReason {
        testing::reason(counter(metric), Statistic::Increment, [2.0, 1.0])
    }

    #[test]
    fn only_alarms_and_silent_replicas_become_findings() {
        let reported = |episode, silent: &[&str]| {
            let event = event(episode, silent);
            findings(&event, "node-3", |_| None)
                .next()
                .map(|finding| finding.metrics.iter().map(ToString::to_string).collect::<Vec<_>>())
        };

        assert_eq!(reported(Episode::Quiet, &[]), None);
        assert_eq!(reported(Episode::Ended, &[]), None);
        assert_eq!(reported(Episode::Began, &[]), Some(vec![]));
        assert_eq!(reported(Episode::On, &[]), Some(vec![]));
        assert_eq!(reported(Episode::Quiet, &["payment-1"]).unwrap(), ["silent replicas 1, expected 0"]);
    }

    #[test]
    fn a_finding_has_the_address_of_its_incident() {
        let incident = UnixNanos(1_795_761_735_123_456_789);
        let mut event = event(Episode::Began, &[]);
        assert_eq!(&*findings(&event, "node-3", |_| None).next().unwrap().incident, "");

        event.suspicion = Some(Suspicion { rank: 1, points_at: None, incident });

        assert_eq!(&*findings(&event, "node-3", |_| None).next().unwrap().incident, "node-3/20261127-064215-123");
    }

    #[test]
    fn an_alarm_over_several_services_is_about_those_that_stand_out_each_with_its_own_columns() {
        let mut event = event(Episode::Began, &[]);
        event.concerned = ["cart", "payment"].map(|name| ServiceName::new(name).unwrap()).to_vec();
        event.reasons = ["payment/requests", "cart/errors", "ratio"].map(reason).to_vec();

        let told: Vec<_> = findings(&event, "node-3", |_| None)
            .map(|of| (of.service, of.metrics.iter().map(|metric| metric.title.to_string()).collect::<Vec<_>>()))
            .collect();

        let titles = |all: [&str; 2]| all.map(str::to_owned).to_vec();
        assert_eq!(
            told,
            [("cart", titles(["cart/errors", "ratio"])), ("payment", titles(["payment/requests", "ratio"]))]
        );
        assert!(!is_of_spans(&event, "payment/requests"));
        assert!(is_of_spans(&event, "payment/traces.span.metrics.duration"));
        assert!(is_of_spans(&event, "traces.span.metrics.errors"));
    }

    #[test]
    fn a_verdict_on_span_metrics_is_about_the_period_that_they_cover() {
        let period = |metric: &str| {
            let event = Event { reasons: vec![reason(metric)], ..event(Episode::Began, &[]) };
            let earlier = |at: UnixNanos| Some((at.minus(Nanos(3)), at.minus(Nanos(1))));
            findings(&event, "node-3", earlier).next().map(|finding| (finding.from.0, finding.at.0))
        };

        assert_eq!(period("traces.span.metrics.errors"), Some((2, 4)));
        assert_eq!(period("requests"), Some((5, 5)));
    }
}
