//! From when to when an incident lasts.

use wire::proto::operators::Incident;
use wire::time::UnixNanos;

use crate::words;

/// The last moment that is drawn or counted, in nanoseconds since 1970.
pub(super) fn last(incident: &Incident) -> u64 {
    let scored = incident.services.iter().map(|service| {
        let seconds = service.ratios.len() as u64 * u64::from(service.ratio_step_s.max(1));
        service.ratios_from_s.saturating_add(seconds).saturating_mul(1_000_000_000)
    });
    scored.max().unwrap_or_default().max(incident.ended_unix_ns).max(incident.began_unix_ns)
}

/// From when to when, and how long.
pub(super) fn duration(incident: &Incident) -> String {
    let (began, ended) = (incident.began_unix_ns, incident.ended_unix_ns);
    let since = words::clock(UnixNanos(began));
    if ended == 0 {
        return format!("since {since}, it goes on");
    }
    let cut = if incident.cut_short { ", cut short by the end of the agent" } else { "" };
    let length = words::length(ended.saturating_sub(began));
    format!("{since} to {}, {length}{cut}", words::clock(UnixNanos(ended)))
}
