//! The lines that the demo prints while it runs: one for each event.

use wire::quantity::quantity;
use wire::time::Nanos;

use crate::fault::{Kind, PlannedFault};
use crate::figures::{millis, since_start};
use crate::graph::Target;
use crate::reason::Reason;
use crate::record::Event;
use crate::talkers::TalkersSummary;
use crate::testbed::TestbedConfig;

/// The live page is there.
pub(crate) fn page(address: &str) -> String {
    format!("watch it live, in one browser (another: `uview open`): {address}")
}

/// What this run can be repeated with.
pub(crate) fn title(TestbedConfig { seed, interval_ms, .. }: &TestbedConfig) -> String {
    format!("uview demo, seed {seed}, interval {interval_ms} ms")
}

/// A fault begins.
pub(crate) fn fault(number: usize, planned: &PlannedFault, at: Nanos) -> String {
    let PlannedFault { service, kind, lasts } = planned;
    let lasts = lasts.as_secs_f64();
    format!("\n{} fault {number}: {kind} in {service} for {lasts:.0} s ({})", since_start(at), kind.story())
}

/// A fault is skipped.
pub(crate) fn skipped(kind: Kind, why: &str) -> String {
    format!("  {kind} is skipped: {why}")
}

/// Who visits the frontend is measured, or not.
pub(crate) const fn visitors(is_measured: bool) -> &'static str {
    if is_measured {
        "  who visits the frontend is measured: stream `frontend` in the page's view Network, and in the report"
    } else {
        "  who visits the frontend is not measured either: packets are captured with that link only"
    }
}

/// Who visits the frontend, now and usually.
pub(crate) fn talkers(summary: &TalkersSummary) -> String {
    let [[_, who, usual_one], [_, share, usual_share], [_, clients, usual_clients], _] = summary.rows();
    format!(
        "who visits the frontend: {who} sends most, {share} (usually {usual_one}, {usual_share}); \
         {clients} clients (usually {usual_clients})"
    )
}

/// A fault is over.
pub(crate) fn over(service: Target, kind: Kind) -> String {
    format!("  {kind} in {service} is over")
}

/// An alarm begins; `since` is the start of the last fault.
pub(crate) fn began(event: &Event, since: Nanos) -> String {
    let delay = event.at.since(since).unwrap_or_default();
    let service = event.service;
    let after = if since == Nanos::ZERO { since_start(event.at) } else { millis(delay) };
    if event.silent {
        return format!("  {after:>8}  {service} is silent: its heartbeat stopped");
    }
    let why = event.reasons.first().map(|first| format!(": {}", reason(first))).unwrap_or_default();
    format!("  {after:>8}  {service} in alarm, score {:.1} times γ{why}", event.ratio())
}

/// An alarm is over.
pub(crate) fn ended(service: Target, lasted: Nanos) -> String {
    format!("            {service} quiet again after {:.1} s", lasted.as_secs_f64())
}

/// A heartbeat continues.
pub(crate) fn back(service: Target, silent_for: Nanos) -> String {
    format!("            {service} is back after {:.1} s of silence", silent_for.as_secs_f64())
}

/// A metric with its expected and measured value.
pub(crate) fn reason(reason: &Reason) -> String {
    let Reason { column, unit, expected, seen, .. } = reason;
    format!("{column} expected {}, seen {}", quantity(*expected, unit), quantity(*seen, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::talkers::example;

    #[test]
    fn who_sends_most_stands_in_one_line_with_what_is_usual() {
        let line = talkers(&example::talkers().summary().unwrap());

        assert_eq!(
            line,
            "who visits the frontend: 127.0.0.12 (38 of 99 bytes) sends most, 38.7 % (usually 127.0.0.11, 39.9 %); \
             7 clients (usually 6)"
        );
    }
}
