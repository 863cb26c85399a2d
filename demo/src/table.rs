//! The report at the terminal.

pub(crate) mod traces;

use core::fmt::Write as _;

use wire::control::NOISY_THRESHOLD;

use crate::fault::Kind;
use crate::figures::{millis, percent, since_start};
use crate::graph::Target;
use crate::judge::{Bar, FaultFinding, Finding, FlaggedService, Outcome};
use crate::messages;
use crate::record::Record;

const HEADINGS: [&str; 7] =
    ["", "fault", "service", "start", "noticed", "rank", "flagged (delay, highest score over γ)"];

/// What now and usually are of who visits the frontend.
pub(crate) const WHEN: &str = "now: the run's last second; usually: the median of all, or who was named most often";

/// The whole report: faults, their metrics and traces, who visits, false alarms, cost, bars. `page` is the URL of the
/// web page, if there is one.
pub(crate) fn closing(record: &Record, finding: &Finding, page: Option<&str>) -> String {
    let mut text = String::from("\n");
    let rows = finding.faults.iter().enumerate().map(|(at, found)| row(at + 1, found));
    write_table(&mut text, HEADINGS, &rows.collect::<Vec<_>>());
    text.push_str("\nTop metrics of each alarm in the faulty service (✓ belongs to the fault)\n");
    for (at, found) in finding.faults.iter().enumerate() {
        write_metrics(&mut text, at + 1, found);
    }
    traces::write(&mut text, record, finding, page);
    if let Some(talkers) = record.talkers.summary() {
        let _ = writeln!(text, "\nWho visits the frontend ({WHEN})");
        write_table(&mut text, ["", "now", "usually"], &talkers.rows());
    }
    text.push('\n');
    for line in numbers(record, finding) {
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    for bar in &finding.bars {
        let (mark, short) = (bar.outcome.mark(), caveat(bar));
        let _ = writeln!(text, "{mark} {}: {} (asked: {}{short})", bar.name, bar.reached, bar.asked);
    }
    text
}

/// Remark on a bar that the run is too short for; empty for others.
pub(crate) fn caveat(bar: &Bar) -> &'static str {
    if bar.outcome == Outcome::TooShort { "; the run is too short to tell" } else { "" }
}

/// Lines on false alarms, cost and ticks.
pub(crate) fn numbers(record: &Record, finding: &Finding) -> Vec<String> {
    let cost = &record.cost;
    let mut lines = vec![
        format!(
            "false alarms: {} in {:.1} service-minutes outside faults and 10 s of grace",
            finding.false_alarms.len(),
            finding.service_minutes
        ),
        format!(
            "CPU, of one core: host agent {}, NIC agent {}, instrumentation {} ({:.0} ns per request), shop {} (its threads of OpenTelemetry's SDK {}), load {}",
            percent(cost.host_agent),
            percent(cost.nic_agent),
            percent(cost.instrumentation),
            cost.writes_per_request_ns,
            percent(cost.shop),
            percent(cost.sdk_threads),
            percent(cost.load)
        ),
        format!(
            "ticks: {}, missed {}; verdicts that did not arrive: {}",
            record.ticks, record.missed_ticks, record.lost_verdicts
        ),
    ];
    lines.extend(noisy(record));
    if record.link {
        lines.push(format!(
            "the relay between {} and {}: {} of one core",
            Target::CALLER,
            Target::CALLED,
            percent(cost.relay)
        ));
    }
    lines.extend(record.skipped.iter().map(|why| messages::skipped(Kind::SlowLink, why).trim().to_owned()));
    for alarm in &finding.false_alarms {
        let why = alarm.top.first().map(|first| format!(", {}", messages::reason(first))).unwrap_or_default();
        let at = since_start(alarm.began);
        lines.push(format!("  false: {} at {at}, {:.1} times γ{why}", alarm.service, alarm.peak));
    }
    lines
}

/// A warning if thresholds were learnt from noisy rows.
fn noisy(record: &Record) -> Option<String> {
    let noisy = record.noise.iter().filter(|(_, noise)| **noise > NOISY_THRESHOLD);
    let services: Vec<_> = noisy.map(|(service, noise)| format!("{service} {noise:.1}")).collect();
    (!services.is_empty()).then(|| {
        format!(
            "⚠ thresholds learnt in noise: γ is more than {NOISY_THRESHOLD} times the usual score ({}); the machine was busy, \
             or the LMAP learnt again during faults; small ones may pass",
            services.join(", ")
        )
    })
}

fn row(number: usize, found: &FaultFinding) -> [String; 7] {
    let noticed = found.noticed.map_or_else(|| "never".to_owned(), millis);
    let late = if found.in_time() { "" } else { " ✗" };
    [
        number.to_string(),
        found.fault.kind.to_string(),
        found.fault.service.to_string(),
        since_start(found.fault.started),
        format!("{noticed}{late}"),
        found.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        found.flagged.iter().map(flagged).collect::<Vec<_>>().join(", "),
    ]
}

/// A flagged service with its delay and score.
pub(crate) fn flagged(flagged: &FlaggedService) -> String {
    let FlaggedService { service, delay, peak, silent, on_path, .. } = flagged;
    let what = if *silent { "silent".to_owned() } else { format!("{peak:.1} γ") };
    let beside = if *on_path { "" } else { ", off the path" };
    format!("{service} ({}, {what}{beside})", millis(*delay))
}

fn write_table<const N: usize>(text: &mut String, headings: [&str; N], rows: &[[String; N]]) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(headings.get(column).map(|heading| heading.chars().count())).max().unwrap_or(0)
    };
    let mut line = |cells: &[String; N]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column)));
        let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(&headings.map(str::to_owned));
    rows.iter().for_each(line);
}

fn write_metrics(text: &mut String, number: usize, found: &FaultFinding) {
    let mut mark = number.to_string();
    if found.by_silence {
        let _ = writeln!(text, "{mark:<3}✓ silent: the heartbeat stood still");
        mark.clear();
    }
    for metric in &found.top {
        let belongs = if metric.belongs { '✓' } else { ' ' };
        let share = percent(metric.reason.share);
        let _ = writeln!(text, "{mark:<3}{belongs} {} ({share} of the score)", messages::reason(&metric.reason));
        mark.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Service;
    use crate::judge::example::{event, reason, run};
    use crate::judge::judge;
    use crate::record::Episode;

    #[test]
    fn thresholds_that_were_learnt_in_noise_are_named() {
        let mut record = run();
        record.noise = [(Target::Service(Service::Cart), 6.25), (Target::Service(Service::Store), 2.5)].into();

        let text = closing(&record, &judge(&record), None);

        assert!(text.contains("more than 5 times the usual score (cart 6.2); the machine was busy"), "{text}");
        record.noise.clear();
        assert!(!closing(&record, &judge(&record), None).contains("learnt in noise"));
    }

    #[test]
    fn the_table_says_what_was_flagged_when_and_why_and_which_bars_were_met() {
        let mut record = run();
        record.events = vec![
            event(Service::Cart, 30_000, 1.4, Episode::Began),
            event(Service::Store, 60_231, 6.3, Episode::Began),
            event(Service::Cart, 60_400, 1.1, Episode::On),
        ];
        record.events[1].reasons = vec![reason("queue.depth", 0.6, 12.0)];

        let text = closing(&record, &judge(&record), None);

        assert!(text.contains("1  latency  store    +60.0 s  231 ms   1     store (231 ms, 6.3 γ)\n"), "{text}");
        assert!(text.contains("1  ✓ queue.depth expected 1, seen 12 (60.0 % of the score)\n"), "{text}");
        assert!(text.contains("  false: cart at +30.0 s, 1.4 times γ\n"), "{text}");
        assert!(text.contains("✓ own service ranked first: 1 of 1 (asked: 4 of 5)\n"), "{text}");
        assert!(!text.contains("Who visits the frontend"), "no packet was captured: {text}");
    }

    #[test]
    fn who_visits_the_frontend_stands_before_the_numbers_where_packets_were_captured() {
        let record = Record { talkers: crate::talkers::example::talkers(), ..run() };

        let text = closing(&record, &judge(&record), None);

        let table = "                      now                          usually\n\
                     top talker            127.0.0.12 (38 of 99 bytes)  127.0.0.11\n\
                     its share             38.7 %                       39.9 %\n\
                     distinct clients      7                            6\n\
                     distinct connections  10                           9\n\n\
                     false alarms: ";
        assert!(text.contains(table), "{text}");
        assert!(text.contains("\nWho visits the frontend (now: the run's last second;"), "{text}");
    }
}
