//! Streams of packets as evidence: delay and loss of each while an incident is followed.
//!
//! A stream says nothing of a service but for its name and the time. Those in alarm come first, then those whose names
//! have a service of the incident in them, such as `network.payment-store`.
//!
//! *Memory*: [`MAX_STREAMS`] streams of a record, with at most [`FIGURES`] figures of about 60 bytes each.

use wire::proto::operators::{Incident, IncidentFigure, IncidentStream, Reason};
use wire::quantity::quantity;
use wire::time::UnixNanos;

use crate::recorder::short;

/// Streams of one record, and streams that are looked at for all of them together.
pub const MAX_STREAMS: usize = 8;
/// Services whose names begin so are streams.
pub const PREFIX: &str = "network.";
/// What is kept of a stream: delays and loss.
pub const FIGURES: [&str; 8] = [
    "network.delay.p50",
    "network.delay.p95",
    "network.delay.p99",
    "network.owd.mean",
    "network.owd.deviation",
    "network.loss",
    "network.requests.unanswered",
    "network.requests.repeated",
];

/// A stream at one moment.
#[derive(Clone, Copy, Debug)]
pub struct StreamLook<'a> {
    /// Name of its service, which begins with [`PREFIX`].
    pub service: &'a str,
    /// When its newest row was scored.
    pub at: UnixNanos,
    /// All its metrics.
    pub metrics: &'a [Reason],
}

/// The streams among `names` that matter most to the incidents `records`, at most [`MAX_STREAMS`].
#[must_use]
pub fn wanted<'a>(names: impl Iterator<Item = &'a str>, records: &[&Incident]) -> Vec<&'a str> {
    let is_named = |stream: &str| {
        let mut services = records.iter().flat_map(|record| &record.services);
        services.any(|of| !of.service.starts_with(PREFIX) && stream.contains(&of.service.replace('/', ".")))
    };
    let in_alarm = |stream: &str| records.iter().any(|record| is_in_alarm(record, stream));
    let mut streams: Vec<_> =
        names.filter(|name| name.starts_with(PREFIX)).map(|name| (!in_alarm(name), !is_named(name), name)).collect();
    streams.sort_unstable();
    streams.dedup();
    streams.into_iter().take(MAX_STREAMS).map(|(_, _, name)| name).collect()
}

fn is_in_alarm(record: &Incident, stream: &str) -> bool {
    record.services.iter().any(|of| of.service == stream)
}

/// Whether `metric` is one of [`FIGURES`] itself, with a value.
fn is_figure(metric: &Reason) -> bool {
    let is_itself = metric.statistic.is_empty() && metric.labels.is_empty();
    is_itself && FIGURES.contains(&metric.metric.as_str()) && metric.seen.is_finite()
}

/// Adds what a stream says now to `record`. Returns whether that changed it.
pub(crate) fn add(record: &mut Incident, look: &StreamLook<'_>) -> bool {
    let figures: Vec<&Reason> = look.metrics.iter().filter(|metric| is_figure(metric)).collect();
    let service = short(look.service);
    let known = record.streams.iter().position(|stream| stream.service == service);
    if figures.is_empty() || (known.is_none() && record.streams.len() >= MAX_STREAMS) {
        return false;
    }
    let known = known.unwrap_or_else(|| {
        record.streams.push(IncidentStream { service, ..IncidentStream::default() });
        record.streams.len() - 1
    });
    let stream = &mut record.streams[known];
    if look.at.0 <= stream.at_unix_ns {
        return false;
    }
    stream.at_unix_ns = look.at.0;
    for metric in figures {
        note(stream, metric, look.at);
    }
    true
}

/// Notes the value of `metric` at the moment `at`.
fn note(stream: &mut IncidentStream, metric: &Reason, at: UnixNanos) {
    let known = stream.figures.iter().position(|figure| figure.metric == metric.metric);
    let known = known.unwrap_or_else(|| {
        stream.figures.push(IncidentFigure {
            metric: metric.metric.clone(),
            unit: short(&metric.unit),
            expected: metric.expected,
            largest: f64::NEG_INFINITY,
            ..IncidentFigure::default()
        });
        stream.figures.len() - 1
    });
    let figure = &mut stream.figures[known];
    figure.last = metric.seen;
    if metric.seen > figure.largest {
        // What was expected then says how far it is out of the ordinary.
        (figure.largest, figure.largest_unix_ns, figure.expected) = (metric.seen, at.0, metric.expected);
    }
}

/// The stream's name without what all have in common.
#[must_use]
pub fn name(stream: &IncidentStream) -> &str {
    stream.service.strip_prefix(PREFIX).unwrap_or(&stream.service)
}

/// Largest, expected and last value of a figure, in its unit.
#[must_use]
pub fn values(figure: &IncidentFigure) -> [String; 3] {
    let expected = figure.expected.is_finite().then(|| quantity(figure.expected, &figure.unit));
    [
        quantity(figure.largest, &figure.unit),
        expected.unwrap_or_else(|| "not judged".to_owned()),
        quantity(figure.last, &figure.unit),
    ]
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::{IncidentService, Label};

    use super::*;

    fn incident(services: &[&str]) -> Incident {
        let service = |name: &&str| IncidentService { service: (*name).to_owned(), ..IncidentService::default() };
        Incident { services: services.iter().map(service).collect(), ..Incident::default() }
    }

    fn metric(name: &str, seen: f64, expected: f64) -> Reason {
        let [column, metric] = [(); 2].map(|()| name.to_owned());
        Reason { column, metric, unit: "s".to_owned(), seen, expected, ..Reason::default() }
    }

    fn look(record: &mut Incident, service: &str, at: u64, metrics: &[Reason]) -> bool {
        add(record, &StreamLook { service, at: UnixNanos(at), metrics })
    }

    #[test]
    fn of_a_figure_the_largest_value_is_kept_with_its_time_and_the_last_one() {
        let mut record = incident(&["payment"]);
        for (at, delay) in [(10, 0.004), (20, 0.044), (30, 0.009)] {
            let of_a_client = vec![Label { key: "client".to_owned(), value: "10.0.0.7".to_owned() }];
            let of_a_client = Reason { labels: of_a_client, ..metric("network.delay.p50", 0.9, 0.004) };
            let metrics = [of_a_client, metric("network.delay.p50", delay, 0.004), metric("network.flows", 7.0, 7.0)];
            assert!(look(&mut record, "network.payment-store", at, &metrics));
            assert!(!look(&mut record, "network.payment-store", at, &metrics), "the same row");
        }

        let [stream] = &record.streams[..] else { unreachable!("{record:?}") };
        let [delay] = &stream.figures[..] else { unreachable!("no other metric is kept: {stream:?}") };
        assert_eq!((name(stream), delay.largest_unix_ns), ("payment-store", 20));
        assert_eq!(values(delay), ["44 ms", "4 ms", "9 ms"]);
    }

    #[test]
    fn what_is_not_trusted_or_not_judged_is_no_number() {
        let mut record = incident(&["payment"]);
        assert!(!look(&mut record, "network.a", 1, &[metric("network.loss", f64::NAN, 0.1)]));
        assert!(record.streams.is_empty());

        assert!(look(&mut record, "network.a", 2, &[metric("network.loss", 0.0, f64::NAN)]));

        assert_eq!(values(&record.streams[0].figures[0])[1], "not judged");
    }

    #[test]
    fn streams_in_alarm_and_those_of_its_services_come_first_and_all_are_bounded() {
        let record = incident(&["eu/payment", "network.uplink"]);
        let all: Vec<String> = (0..20).map(|number| format!("network.a{number:02}")).collect();
        let others = ["network.uplink", "network.eu.payment-store", "payment", "eu/payment"];
        let names = all.iter().map(String::as_str).chain(others);

        let wanted = wanted(names, &[&record]);

        assert_eq!(wanted[..3], ["network.uplink", "network.eu.payment-store", "network.a00"]);
        assert_eq!(wanted.len(), MAX_STREAMS);
        let mut record = record;
        for name in &all {
            look(&mut record, name, 1, &[metric("network.loss", 0.1, 0.0)]);
        }
        assert_eq!(record.streams.len(), MAX_STREAMS);
    }
}
