//! From when to when an incident lasts.

use wire::proto::operators::Incident;
use wire::time::UnixNanos;

use crate::words;

/// The last moment that is drawn or counted.
pub(super) fn last(incident: &Incident) -> UnixNanos {
    let scored = incident.services.iter().map(|service| {
        let seconds = service.ratios.len() as u64 * u64::from(service.ratio_step_s.max(1));
        UnixNanos::from_secs(service.ratios_from_s.saturating_add(seconds))
    });
    scored.chain([incident.ended_unix_ns, incident.began_unix_ns].map(UnixNanos)).max().unwrap_or_default()
}

/// From when to when, and how long.
pub(super) fn duration(incident: &Incident) -> String {
    let (began, ended) = (UnixNanos(incident.began_unix_ns), UnixNanos(incident.ended_unix_ns));
    let since = words::clock(began);
    if ended == UnixNanos::default() {
        return format!("since {since}, it goes on");
    }
    let cut = if incident.cut_short { ", cut short by the end of the agent" } else { "" };
    let length = words::length(ended.since(began).0);
    format!("{since} to {}, {length}{cut}", words::clock(ended))
}
