//! The account as JSON, for programs. Fields are only ever added.

mod traces;

use serde::Serialize;

use crate::fault::Kind;
use crate::graph::Watched;
use crate::judge::{Bar, FaultFinding, Finding};
use crate::load::LoadReport;
use crate::record::{Cost, Reason, Record};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    seed: u64,
    /// When the demo's clock was zero.
    started_unix_ms: u64,
    interval_ms: u64,
    faults: Vec<Fault>,
    /// Faults that were left out, and why.
    skipped: Vec<Skipped>,
    false_alarms: Vec<FalseAlarm>,
    false_alarms_per_service_minute: f64,
    service_minutes: f64,
    /// Of one core, both agents together.
    agent_cpu_share: f64,
    cpu_shares: Cost,
    ticks: u64,
    missed_ticks: u64,
    lost_verdicts: u64,
    load: Option<LoadReport>,
    bars: Vec<BarFact>,
    /// Of those that the run is long enough for.
    all_bars_met: bool,
    traces: traces::Traces,
}

#[derive(Clone, Debug, Serialize)]
struct Fault {
    service: Watched,
    kind: Kind,
    /// After the demo's start.
    started_ms: u64,
    lasted_ms: u64,
    /// After the fault's start.
    noticed_ms: Option<u64>,
    by_silence: bool,
    in_time: bool,
    /// A leak: after the fault's start.
    doubled_ms: Option<u64>,
    rank: Option<usize>,
    flagged: Vec<FlaggedFact>,
    top_metrics: Vec<TopMetricFact>,
    explained: bool,
    traces: Option<traces::FaultTraces>,
}

#[derive(Clone, Debug, Serialize)]
struct Skipped {
    kind: Kind,
    why: String,
}

#[derive(Clone, Debug, Serialize)]
struct FlaggedFact {
    service: Watched,
    after_ms: u64,
    score_over_gamma: f64,
    silent: bool,
    points_at: Option<Watched>,
    on_path: bool,
}

#[derive(Clone, Debug, Serialize)]
struct TopMetricFact {
    #[serde(flatten)]
    reason: Reason,
    belongs: bool,
}

#[derive(Clone, Debug, Serialize)]
struct FalseAlarm {
    service: Watched,
    at_ms: u64,
    score_over_gamma: f64,
    top_metrics: Vec<Reason>,
}

#[derive(Clone, Debug, Serialize)]
struct BarFact {
    name: &'static str,
    reached: String,
    asked: String,
    /// `None`: the run is too short to tell.
    met: Option<bool>,
}

impl Facts {
    /// What is worth keeping of a run.
    pub(crate) fn new(record: &Record, finding: &Finding) -> Self {
        let false_alarm = |alarm: &crate::judge::Alarm| FalseAlarm {
            service: alarm.service,
            at_ms: alarm.began.as_millis(),
            score_over_gamma: alarm.peak,
            top_metrics: alarm.top.clone(),
        };
        let bar = |bar: &Bar| BarFact {
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
            skipped: record.skipped.iter().map(|why| Skipped { kind: Kind::SlowWay, why: why.clone() }).collect(),
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
        }
    }
}

fn fault(found: &FaultFinding, finding: &Finding, at: usize) -> Fault {
    let fault = &found.fault;
    let after = |at: wire::time::Nanos| at.since(fault.started).unwrap_or_default().as_millis();
    let flagged = found.flagged.iter().map(|flagged| FlaggedFact {
        service: flagged.service,
        after_ms: flagged.delay.as_millis(),
        score_over_gamma: flagged.peak,
        silent: flagged.silent,
        points_at: flagged.points_at,
        on_path: flagged.on_path,
    });
    let top = found.top.iter().map(|top| TopMetricFact { reason: top.reason.clone(), belongs: top.belongs });
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
    use super::*;
    use crate::graph::Service;
    use crate::judge::example::{event, reason, run};
    use crate::judge::judge;
    use crate::record::Episode;

    #[test]
    fn a_program_finds_the_fields_that_were_promised() {
        let mut record = run();
        record.events = vec![event(Service::Store, 60_231, 6.3, Episode::Began)];
        record.events[0].reasons = vec![reason("queue.depth", 0.6, 12.0)];
        record.cost = Cost { host_agent: 0.01, nic_agent: 0.02, ..Cost::default() };
        record.missed_ticks = 3;

        let facts = serde_json::to_value(Facts::new(&record, &judge(&record))).unwrap();

        assert_eq!(facts["seed"], 7);
        assert_eq!(facts["faults"][0]["service"], "store");
        assert_eq!(facts["faults"][0]["kind"], "latency");
        assert_eq!(facts["faults"][0]["started_ms"], 60_000);
        assert_eq!(facts["faults"][0]["noticed_ms"], 231);
        assert_eq!(facts["faults"][0]["flagged"][0]["service"], "store");
        assert_eq!(facts["faults"][0]["top_metrics"][0]["column"], "queue.depth");
        assert_eq!(facts["faults"][0]["explained"], true);
        assert_eq!(facts["false_alarms_per_service_minute"], 0.0);
        assert_eq!(facts["agent_cpu_share"], 0.03);
        assert_eq!(facts["missed_ticks"], 3);
    }

    #[test]
    fn a_fault_that_was_never_noticed_has_null_for_its_delay() {
        let record = run();

        let facts = serde_json::to_value(Facts::new(&record, &judge(&record))).unwrap();

        assert_eq!(facts["faults"][0]["noticed_ms"], serde_json::Value::Null);
    }
}
