//! What is named first, in a sentence: a change that precedes an alarm by less than a minute, then the suspected
//! service with its heaviest metric.

use wire::proto::operators::{Incident, IncidentChange, IncidentService, Reason};
use wire::quantity::quantity;
use wire::time::UnixNanos;

/// A change that precedes an alarm by less than this is named first, in nanoseconds.
pub const NAMED_WITHIN: u64 = 60_000_000_000;

/// The metric with seen and expected value in its unit, and the replica that stands out in it.
#[must_use]
pub fn metric(reason: &Reason) -> String {
    let (seen, expected) = (quantity(reason.seen, &reason.unit), quantity(reason.expected, &reason.unit));
    let replica = if reason.replica.is_empty() { String::new() } else { format!(", replica {}", reason.replica) };
    format!("{} {seen}, expected {expected}{replica}", reason.column)
}

/// A length of time in nanoseconds, in at most two units.
#[must_use]
pub fn length(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    match seconds {
        0 => quantity(nanos as f64 / 1e9, "s"),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// The time of the day, in UTC.
#[must_use]
pub fn clock(at: UnixNanos) -> String {
    let seconds = at.second();
    format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Whether `change` is about `service`, or about a pod that a container of it, `service`, is in.
#[must_use]
pub fn is_about(change: &IncidentChange, service: &str) -> bool {
    let of = change.service.as_str();
    !of.is_empty() && service.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The alarm that `change` precedes by less than a minute: the first one of all, or the first one of its own service.
fn alarm_after(change: &IncidentChange, incident: &Incident) -> Option<u64> {
    let own = incident.services.iter().filter(|service| is_about(change, &service.service));
    let alarms = own.map(|service| service.began_unix_ns).chain([incident.began_unix_ns]);
    alarms.filter(|at| at.checked_sub(change.at_unix_ns).is_some_and(|before| before < NAMED_WITHIN)).min()
}

/// Whether a change of this kind can be named first. Replicas that come and go are marks only: load does that, too.
fn is_named(kind: &str) -> bool {
    matches!(kind, "restart" | "version" | "configuration" | "limit")
}

/// Notes for each change whether it precedes an alarm.
pub fn mark(incident: &mut Incident) {
    let precedes: Vec<bool> = incident
        .changes
        .iter()
        .map(|change| is_named(&change.kind) && alarm_after(change, incident).is_some())
        .collect();
    for (change, precedes) in incident.changes.iter_mut().zip(precedes) {
        change.precedes_alarm = precedes;
    }
}

/// The change that is named first: of a service of the incident before others, then by suspicion, then the latest.
#[must_use]
pub fn first_change(incident: &Incident) -> Option<&IncidentChange> {
    let rank = |change: &IncidentChange| {
        let of = incident.services.iter().position(|service| is_about(change, &service.service));
        of.unwrap_or(usize::MAX)
    };
    let named = incident.changes.iter().filter(|change| change.precedes_alarm);
    named.min_by_key(|change| (rank(change), core::cmp::Reverse(change.at_unix_ns)))
}

/// What a service in alarm shows: silent replicas, or its heaviest metric.
#[must_use]
pub fn symptom(service: &IncidentService) -> String {
    match (service.silent_replicas.as_slice(), service.metrics.first()) {
        ([], None) => "out of the ordinary".to_owned(),
        ([], Some(first)) => metric(first),
        ([one], _) => format!("{one} is silent"),
        (several, _) => format!("{} replicas are silent", several.len()),
    }
}

/// A change, and how long before an alarm it was.
#[must_use]
pub fn change(change: &IncidentChange, incident: &Incident) -> String {
    let of = if change.service.is_empty() { String::new() } else { format!("{}: ", change.service) };
    let text = format!("{of}{}", change.text);
    match alarm_after(change, incident).filter(|_| change.precedes_alarm) {
        Some(alarm) => format!("{text}, {} before an alarm", length(alarm - change.at_unix_ns)),
        None => text,
    }
}

/// What is named first.
#[must_use]
pub fn cause(incident: &Incident) -> String {
    let suspected = incident.services.first().map(|service| format!("{}: {}", service.service, symptom(service)));
    match (first_change(incident), suspected) {
        (Some(first), Some(suspected)) => format!("{}; then {suspected}", change(first, incident)),
        (Some(first), None) => change(first, incident),
        (None, Some(suspected)) => suspected,
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn service(name: &str, began: u64) -> IncidentService {
        let metric = Reason {
            column: "http.server.request.duration.p99".to_owned(),
            unit: "s".to_owned(),
            seen: 0.18,
            expected: 0.02,
            ..Reason::default()
        };
        IncidentService {
            service: name.to_owned(),
            began_unix_ns: began * SECOND,
            metrics: vec![metric],
            ..IncidentService::default()
        }
    }

    fn changed(service: &str, kind: &str, at: u64) -> IncidentChange {
        IncidentChange {
            at_unix_ns: at * SECOND,
            service: service.to_owned(),
            kind: kind.to_owned(),
            text: format!("{kind} of {at}"),
            ..IncidentChange::default()
        }
    }

    fn incident(changes: Vec<IncidentChange>) -> Incident {
        let mut incident = Incident {
            began_unix_ns: 1_000 * SECOND,
            services: vec![service("payment", 1_002), service("cart", 1_000)],
            changes,
            ..Incident::default()
        };
        mark(&mut incident);
        incident
    }

    #[test]
    fn without_a_change_the_suspected_service_is_named_with_its_heaviest_metric() {
        let said = cause(&incident(vec![changed("payment", "version", 940)]));
        assert_eq!(said, "payment: http.server.request.duration.p99 180 ms, expected 20 ms");

        let mut of_a_replica = incident(Vec::new());
        of_a_replica.services[0].metrics[0].replica = "payment-7f9c".to_owned();
        let said = cause(&of_a_replica);
        assert_eq!(said, "payment: http.server.request.duration.p99 180 ms, expected 20 ms, replica payment-7f9c");
    }

    #[test]
    fn a_change_less_than_a_minute_before_an_alarm_is_named_first() {
        let said = cause(&incident(vec![changed("payment", "version", 945)]));
        assert_eq!(
            said,
            "payment: version of 945, 55 s before an alarm; then payment: http.server.request.duration.p99 180 ms, expected 20 ms"
        );
    }

    #[test]
    fn of_several_changes_that_of_the_most_suspected_service_and_then_the_latest_counts() {
        let of_others =
            [changed("store", "limit", 999), changed("cart", "restart", 998), changed("", "configuration", 999)];
        let own = [changed("payment", "restart", 990), changed("payment", "version", 991)];

        let first = |changes: &[IncidentChange]| first_change(&incident(changes.to_vec())).cloned().unwrap().text;
        assert_eq!(first(&of_others), "restart of 998");
        assert_eq!(first(&[&of_others[..], &own].concat()), "version of 991");
        assert_eq!(first(&of_others[..1]), "limit of 999", "what is not in alarm may be the cause");
    }

    #[test]
    fn what_comes_after_the_alarm_and_replicas_that_come_are_marks_only() {
        let incident = incident(vec![
            changed("payment", "restart", 1_003),
            changed("cart", "replica", 999),
            changed("store", "version", 1_001),
        ]);

        assert!(first_change(&incident).is_none(), "{incident:?}");
    }

    #[test]
    fn a_pod_is_changed_and_its_containers_are_meant() {
        let change = changed("shop/payment", "version", 1);
        assert!(is_about(&change, "shop/payment") && is_about(&change, "shop/payment/app"));
        assert!(!is_about(&change, "shop/payments") && !is_about(&changed("", "version", 1), "shop/payment"));
    }

    #[test]
    fn silence_comes_before_metrics() {
        let silent = |names: &[&str]| {
            symptom(&IncidentService {
                silent_replicas: names.iter().map(|name| (*name).to_owned()).collect(),
                ..service("payment", 1)
            })
        };

        assert_eq!((silent(&["a"]).as_str(), silent(&["a", "b"]).as_str()), ("a is silent", "2 replicas are silent"));
        assert_eq!(symptom(&IncidentService::default()), "out of the ordinary");
    }

    #[test]
    fn lengths_and_times_are_for_people() {
        let shown = [5_000_000, 12 * SECOND, 125 * SECOND, 7_260 * SECOND].map(length);
        assert_eq!(shown, ["5 ms", "12 s", "2 min 05 s", "2 h 01 min"]);
        assert_eq!(clock(UnixNanos(1_795_761_735_123_456_789)), "06:42:15");
    }
}
