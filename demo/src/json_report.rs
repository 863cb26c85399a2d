//! The report as JSON. Fields may be added, but are never renamed or removed.

mod traces;

use serde::Serialize;

use crate::fault::Kind;
use crate::graph::Target;
use crate::judge::{Bar, FaultFinding, Finding};
use crate::load::LoadReport;
use crate::reason::Reason;
use crate::record::{Cost, Record};
use crate::talkers::TalkersSummary;

/// The report of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JsonReport {
    seed: u64,
    /// Wall-clock time at the demo's start.
    started_unix_ms: u64,
    interval_ms: u64,
    faults: Vec<Fault>,
    /// Faults that were not injected, and why.
    skipped: Vec<SkippedFault>,
    false_alarms: Vec<FalseAlarm>,
    false_alarms_per_service_minute: f64,
    service_minutes: f64,
    /// Both agents together, as a share of one core.
    agent_cpu_share: f64,
    cpu_shares: Cost,
    ticks: u64,
    missed_ticks: u64,
    lost_verdicts: u64,
    load: Option<LoadReport>,
    bars: Vec<BarJson>,
    /// Ignores bars that the run is too short for.
    all_bars_met: bool,
    traces: traces::Traces,
    /// Who visits the frontend; `None` where no packet was captured.
    talkers: Option<TalkersSummary>,
}

#[derive(Clone, Debug, Serialize)]
struct Fault {
    service: Target,
    kind: Kind,
    /// After the demo's start.
    started_ms: u64,
    lasted_ms: u64,
    /// After the fault's start.
    noticed_ms: Option<u64>,
    by_silence: bool,
    in_time: bool,
    /// A leak: when memory had doubled, after the fault's start.
    doubled_ms: Option<u64>,
    rank: Option<usize>,
    flagged: Vec<FlaggedJson>,
    top_metrics: Vec<TopMetricJson>,
    explained: bool,
    traces: Option<traces::FaultTraces>,
}

#[derive(Clone, Debug, Serialize)]
struct SkippedFault {
    kind: Kind,
    why: String,
}

#[derive(Clone, Debug, Serialize)]
struct FlaggedJson {
    service: Target,
    after_ms: u64,
    score_over_gamma: f64,
    silent: bool,
    points_at: Option<Target>,
    on_path: bool,
}

#[derive(Clone, Debug, Serialize)]
struct TopMetricJson {
    #[serde(flatten)]
    reason: Reason,
    belongs: bool,
}

#[derive(Clone, Debug, Serialize)]
struct FalseAlarm {
    service: Target,
    at_ms: u64,
    score_over_gamma: f64,
    top_metrics: Vec<Reason>,
}

#[derive(Clone, Debug, Serialize)]
struct BarJson {
    name: &'static str,
    reached: String,
    asked: String,
    /// `None` if the run is too short to tell.
    met: Option<bool>,
}

impl JsonReport {
    /// The report of a run and its evaluation.
    pub(crate) fn new(record: &Record, finding: &Finding) -> Self {
        let false_alarm = |alarm: &crate::judge::Alarm| FalseAlarm {
            service: alarm.service,
            at_ms: alarm.began.as_millis(),
            score_over_gamma: alarm.peak,
            top_metrics: alarm.top.clone(),
        };
        let bar = |bar: &Bar| BarJson {
            name: bar.name,
            reached: bar.reached.clone(),
            asked: bar.asked.clone(),
            met: bar.outcome.met(),
        };
        Self {
            seed: record.seed,
            started_unix_ms: record.started_unix_ms,
            interval_ms: record.interval.as_millis(),
            faults: finding.faults.iter().enumerate().map(|(at, found)| fault(found, finding, at)).collect(),
            skipped: record.skipped.iter().map(|why| SkippedFault { kind: Kind::SlowLink, why: why.clone() }).collect(),
            false_alarms: finding.false_alarms.iter().map(false_alarm).collect(),
            false_alarms_per_service_minute: finding.false_alarm_rate(),
            service_minutes: finding.service_minutes,
            agent_cpu_share: record.cost.host_agent + record.cost.nic_agent,
            cpu_shares: record.cost,
            ticks: record.ticks,
            missed_ticks: record.missed_ticks,
            lost_verdicts: record.lost_verdicts,
            load: record.load.clone(),
            bars: finding.bars.iter().map(bar).collect(),
            all_bars_met: finding.none_missed(),
            traces: traces::all(record, &finding.traces),
            talkers: record.talkers.summary(),
        }
    }
}

fn fault(found: &FaultFinding, finding: &Finding, at: usize) -> Fault {
    let fault = &found.fault;
    let after = |at: wire::time::Nanos| at.since(fault.started).unwrap_or_default().as_millis();
    let flagged = found.flagged.iter().map(|flagged| FlaggedJson {
        service: flagged.service,
        after_ms: flagged.delay.as_millis(),
        score_over_gamma: flagged.peak,
        silent: flagged.silent,
        points_at: flagged.points_at,
        on_path: flagged.on_path,
    });
    let top = found.top.iter().map(|top| TopMetricJson { reason: top.reason.clone(), belongs: top.belongs });
    Fault {
        service: fault.service,
        kind: fault.kind,
        started_ms: fault.started.as_millis(),
        lasted_ms: after(fault.ended),
        noticed_ms: found.noticed.map(wire::time::Nanos::as_millis),
        by_silence: found.by_silence,
        in_time: found.in_time(),
        doubled_ms: fault.doubled.map(after),
        rank: found.rank,
        flagged: flagged.collect(),
        top_metrics: top.collect(),
        explained: found.explained,
        traces: finding.traces.faults.get(at).map(traces::fault),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::graph::Service;
    use crate::judge::example::{event, labelled, reason, run};
    use crate::judge::judge;
    use crate::record::Episode;

    #[test]
    fn a_program_finds_the_fields_that_were_promised() {
        let mut record = run();
        record.events = vec![event(Service::Store, 60_231, 6.3, Episode::Began)];
        record.events[0].reasons = vec![labelled(reason("queue.depth", 0.6, 12.0), "shard", "7")];
        record.cost = Cost { host_agent: 0.01, nic_agent: 0.02, ..Cost::default() };
        record.missed_ticks = 3;
        record.talkers = crate::talkers::example::talkers();

        let facts = serde_json::to_value(JsonReport::new(&record, &judge(&record))).unwrap();

        assert_eq!(facts["seed"], 7);
        assert_eq!(facts["faults"][0]["service"], "store");
        assert_eq!(facts["faults"][0]["kind"], "latency");
        assert_eq!(facts["faults"][0]["started_ms"], 60_000);
        assert_eq!(facts["faults"][0]["noticed_ms"], 231);
        assert_eq!(facts["faults"][0]["flagged"][0]["service"], "store");
        let top = &facts["faults"][0]["top_metrics"][0];
        assert_eq!((&top["column"], &top["metric"]), (&json!("queue.depth{shard=\"7\"}"), &json!("queue.depth")));
        assert_eq!((&top["statistic"], &top["labels"]), (&json!(""), &json!({"shard": "7"})));
        assert_eq!(facts["faults"][0]["explained"], true);
        assert_eq!(facts["false_alarms_per_service_minute"], 0.0);
        assert_eq!(facts["agent_cpu_share"], 0.03);
        assert_eq!(facts["missed_ticks"], 3);
        let talkers = &facts["talkers"];
        assert_eq!(talkers["top_talker"], json!({"now": "127.0.0.12 (38 of 99 bytes)", "usual": "127.0.0.11"}));
        assert_eq!(talkers["share"], json!({"now": 0.387, "usual": 0.399}));
        assert_eq!((&talkers["clients"]["usual"], &talkers["connections"]["usual"]), (&json!(6.1), &json!(9.0)));
    }

    #[test]
    fn a_fault_that_was_never_noticed_has_null_for_its_delay() {
        let record = run();

        let facts = serde_json::to_value(JsonReport::new(&record, &judge(&record))).unwrap();

        assert_eq!(facts["faults"][0]["noticed_ms"], serde_json::Value::Null);
        assert_eq!(facts["talkers"], serde_json::Value::Null, "no packet was captured");
    }
}
