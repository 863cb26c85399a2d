//! Which fault was noticed how fast, by each way alone. Pure: a [`Record`] in, [`RunJudgement`] out.
//!
//! The rules are the demo's ([`demo::judge`]): an alarm belongs to the last fault that started before it, in whatever
//! program, if it began during it or within the grace after it; all others are false. A fault is noticed by an alarm of
//! a program that has it, which begins while it lasts. An alarm that was active before does not count, but another one
//! that begins while it is on does: it ends that one, and outside of faults it is false like any other. In addition:
//!
//! - A restart is no anomaly: an alarm of the program that restarts, during it or the grace after it, is a mistake.
//!   But it has to be told: by `uview watch`, which says so, and by the host agent, which counts it for its target.
//! - A program that ends at its memory limit is noticed by `uview watch` if it says so.

use core::ops::Range;
use std::collections::BTreeMap;

use demo::judge::{GRACE, cause, quiet_time};
use serde::{Deserialize, Serialize};
use wire::time::Nanos;

use super::probe::Felt;
use super::schedule::{Fault, Program};

/// What clients felt so long before an alarm may be its cause.
const BEFORE_ALARM: Nanos = Nanos::from_secs(3);

/// How a program is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The command `uview watch`.
    Watch,
    /// The host agent scrapes its exporter.
    Endpoint,
}

impl Way {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Watch, Self::Endpoint];
}

/// What a way said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    Armed,
    /// An alarm begins; with its first reason.
    Began(String),
    Ended,
    /// Another alarm begins while one may be on, which is over. Its reason follows.
    Another,
    /// The program has ended, or runs again.
    Down,
    Restarted,
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// When it arrived.
    pub at: Nanos,
    pub way: Way,
    pub program: Program,
    pub word: Word,
}

/// A fault that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    pub fault: Fault,
    pub programs: Vec<Program>,
    pub started: Nanos,
    pub ended: Nanos,
}

/// All of a run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub faults: Vec<InjectedFault>,
    /// In the order of arrival.
    pub heard: Vec<Statement>,
    /// Requests of clients, in the order of time.
    pub felt: Vec<Felt>,
    pub ended: Nanos,
}

/// An alarm of one way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alarm {
    began: Nanos,
    ended: Option<Nanos>,
    reason: String,
}

/// What became of a fault in one program by one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultJudgement {
    pub program: Program,
    pub fault: Fault,
    pub way: Way,
    /// Seconds from its start to the alarm; `None` without one. For a restart, an alarm is a mistake.
    pub noticed_s: Option<f64>,
    /// The first reason of that alarm.
    pub reason: String,
    /// Whether an alarm of the program was active when it started, so that only another one within it could begin.
    pub hidden: bool,
    /// What clients felt of it.
    pub effect: Effect,
    /// Whether it shows in what the way records: [`super::visible`]. Set afterwards.
    pub shows: bool,
    /// Whether it does already in the rows of the time in which it has to be noticed; `None` in runs in which this was
    /// not judged yet. Set afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows_in_time: Option<bool>,
    /// Of a restart: whether it was told; `None` in runs in which this was not judged yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<RestartNotice>,
    /// From when to when, since the begin of the run.
    #[serde(skip)]
    pub began: Nanos,
    #[serde(skip)]
    pub ended: Nanos,
}

/// Whether a way told a restart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestartNotice {
    /// Seconds from its start to the first word of it; `None` without one.
    pub said_s: Option<f64>,
}

/// What requests of a client say about a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// 90th percentile of the answer times outside of faults, in milliseconds.
    pub usual_ms: f64,
    /// The same during the fault. A request that failed has taken a second.
    pub during_ms: f64,
    /// Share of requests that failed during the fault.
    pub failed: f64,
}

impl Effect {
    /// Answers that take so many times as long, or so many failures, are felt. Both were set before the first run.
    const TIMES: f64 = 2.0;
    const FAILED: f64 = 0.05;

    fn new(record: &Record, spans: &[(Nanos, Nanos)], time: Range<Nanos>, program: Program) -> Self {
        let of = |felt: &&Felt| felt.program == program;
        let during: Vec<_> = record.felt.iter().filter(of).filter(|felt| time.contains(&felt.at)).collect();
        let quiet = record.felt.iter().filter(of).filter(|felt| cause(spans, felt.at).is_none());
        let failed = during.iter().filter(|felt| felt.took.is_none()).count();
        Self {
            usual_ms: percentile(quiet),
            during_ms: percentile(during.iter().copied()),
            failed: failed as f64 / during.len().max(1) as f64,
        }
    }

    /// Whether clients felt it.
    pub fn is_felt(self) -> bool {
        self.during_ms >= Self::TIMES * self.usual_ms || self.failed >= Self::FAILED
    }
}

/// The 90th percentile of answer times, in milliseconds.
fn percentile<'a>(felt: impl Iterator<Item = &'a Felt>) -> f64 {
    let mut took: Vec<f64> = felt.map(|felt| felt.took.map_or(1000.0, |took| took.as_secs_f64() * 1e3)).collect();
    took.sort_by(f64::total_cmp);
    took.get(took.len() * 9 / 10).copied().unwrap_or_default()
}

impl FaultJudgement {
    /// Whether it is as it should be: noticed within `limit`, or for a restart not taken for an anomaly.
    pub fn is_right(&self, limit: Nanos) -> bool {
        match self.fault {
            Fault::Restart => self.noticed_s.is_none(),
            _ => self.is_noticed(limit),
        }
    }

    /// Whether an alarm began within `limit`.
    pub fn is_noticed(&self, limit: Nanos) -> bool {
        self.noticed_s.is_some_and(|after| after <= limit.as_secs_f64())
    }
}

/// An alarm that belongs to no fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FalseAlarm {
    pub way: Way,
    pub program: Program,
    pub at_s: f64,
    pub reason: String,
    /// What clients felt in the seconds before it: others than this command may take the machine.
    pub effect: Effect,
}

/// Evaluation of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunJudgement {
    pub faults: Vec<FaultJudgement>,
    pub false_alarms: Vec<FalseAlarm>,
    /// Minutes for which programs were armed outside of faults and their grace, by way.
    pub service_minutes: BTreeMap<Way, f64>,
}

/// Alarms of `program` by `way`, and when it was armed.
fn alarms(heard: &[Statement], program: Program, way: Way) -> (Vec<Alarm>, Option<Nanos>) {
    let (mut alarms, mut armed) = (Vec::<Alarm>::new(), None);
    for Statement { at, word, .. } in heard.iter().filter(|heard| heard.program == program && heard.way == way) {
        let open = alarms.iter_mut().rfind(|alarm| alarm.ended.is_none());
        match (word, open) {
            (Word::Armed, _) => _ = armed.get_or_insert(*at),
            (Word::Began(reason), None) => {
                alarms.push(Alarm { began: *at, ended: None, reason: reason.clone() });
            }
            (Word::Ended | Word::Another, Some(alarm)) => alarm.ended = Some(*at),
            _ => {}
        }
    }
    (alarms, armed)
}

/// Evaluates a run.
pub fn judge(record: &Record, programs: &[Program]) -> RunJudgement {
    let spans: Vec<_> = record.faults.iter().map(|fault| (fault.started, fault.ended)).collect();
    let mut judged = RunJudgement::default();
    for (&program, way) in programs.iter().flat_map(|program| Way::ALL.map(|way| (program, way))) {
        let (alarms, armed) = alarms(&record.heard, program, way);
        for (number, fault) in record.faults.iter().enumerate().filter(|(_, fault)| fault.programs.contains(&program)) {
            let own: Vec<_> = alarms.iter().filter(|alarm| cause(&spans, alarm.began) == Some(number)).collect();
            let effect = Effect::new(record, &spans, fault.started..fault.ended, program);
            judged
                .faults
                .push(FaultJudgement { effect, ..fault_judgement(record, fault, (program, way), &alarms, &own) });
        }
        let is_false = |alarm: &&Alarm| armed.is_some() && cause(&spans, alarm.began).is_none();
        judged.false_alarms.extend(alarms.iter().filter(is_false).map(|alarm| FalseAlarm {
            way,
            program,
            at_s: alarm.began.as_secs_f64(),
            reason: alarm.reason.clone(),
            effect: Effect::new(
                record,
                &spans,
                Nanos(alarm.began.0.saturating_sub(BEFORE_ALARM.0))..alarm.began,
                program,
            ),
        }));
        let quiet = armed.map_or(Nanos::ZERO, |armed| quiet_time(&spans, armed, record.ended));
        *judged.service_minutes.entry(way).or_default() += quiet.as_secs_f64() / 60.0;
    }
    judged
}

/// `own` are those of `alarms` that belong to `fault`.
fn fault_judgement(
    record: &Record,
    fault: &InjectedFault,
    (program, way): (Program, Way),
    alarms: &[Alarm],
    own: &[&Alarm],
) -> FaultJudgement {
    let until = if fault.fault == Fault::Restart { fault.ended.plus(GRACE) } else { fault.ended };
    let mut first = own.iter().find(|alarm| alarm.began < until).map(|alarm| (alarm.began, alarm.reason.clone()));
    if fault.fault == Fault::MemoryLimit {
        let down = record.heard.iter().find(|heard| {
            (heard.program, heard.way, &heard.word) == (program, way, &Word::Down)
                && (fault.started..until).contains(&heard.at)
        });
        let down = down.map(|heard| (heard.at, "has ended".to_owned()));
        first = first.into_iter().chain(down).min_by_key(|(at, _)| *at);
    }
    let after = |at: Nanos| at.since(fault.started).unwrap_or_default().as_secs_f64();
    let (noticed_s, reason) = match first {
        Some((at, reason)) => (Some(after(at)), reason),
        None => (None, String::new()),
    };
    let told = (fault.fault == Fault::Restart).then(|| {
        let tells = |heard: &&Statement| {
            (heard.program, heard.way) == (program, way)
                && matches!(heard.word, Word::Down | Word::Restarted)
                && (fault.started..until).contains(&heard.at)
        };
        RestartNotice { said_s: record.heard.iter().find(tells).map(|heard| after(heard.at)) }
    });
    let covers = |alarm: &Alarm| alarm.began < fault.started && alarm.ended.is_none_or(|at| fault.started < at);
    FaultJudgement {
        program,
        fault: fault.fault,
        way,
        noticed_s,
        reason,
        hidden: alarms.iter().any(covers),
        effect: Effect::default(),
        shows: true,
        shows_in_time: None,
        told,
        began: fault.started,
        ended: fault.ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(at_s: u64, way: Way, word: Word) -> Statement {
        Statement { at: Nanos::from_secs(at_s), way, program: Program::Redis, word }
    }

    fn began(at_s: u64, way: Way) -> Statement {
        heard(at_s, way, Word::Began("why".to_owned()))
    }

    fn fault(fault: Fault, started_s: u64) -> InjectedFault {
        let (started, ended) = (Nanos::from_secs(started_s), Nanos::from_secs(started_s + 10));
        InjectedFault { fault, programs: vec![Program::Redis], started, ended }
    }

    fn judged(faults: Vec<InjectedFault>, heard: Vec<Statement>) -> RunJudgement {
        judge(&Record { faults, heard, felt: felt(), ended: Nanos::from_secs(160) }, &[Program::Redis])
    }

    const LIMIT: Nanos = Nanos::from_secs(5);

    /// Ten requests a second: 2 ms, from 100 to 105 s 3 ms, and then none is answered for a second.
    fn felt() -> Vec<Felt> {
        let took = |tenth: u64| match tenth {
            1000..1050 => Some(Nanos::from_millis(3)),
            1050..1060 => None,
            _ => Some(Nanos::from_millis(2)),
        };
        let of = |tenth| Felt { program: Program::Redis, at: Nanos::from_millis(100 * tenth), took: took(tenth) };
        (0..1600).map(of).collect()
    }

    #[test]
    fn clients_feel_what_takes_twice_as_long_or_fails() {
        let of = |from_s: u64, to_s: u64| {
            let (started, ended) = (Nanos::from_secs(from_s), Nanos::from_secs(to_s));
            let faults = vec![InjectedFault { started, ended, ..fault(Fault::CpuHog, 0) }];
            judged(faults, Vec::new()).faults[0].effect
        };
        let slow = of(100, 105);
        assert_eq!((slow.usual_ms, slow.during_ms, slow.failed, slow.is_felt()), (2.0, 3.0, 0.0, false));
        let failing = of(100, 110);
        assert_eq!((failing.during_ms, failing.failed, failing.is_felt()), (1000.0, 0.1, true));
        assert!(!of(20, 30).is_felt());
    }

    #[test]
    fn each_way_is_judged_by_its_own_alarms() {
        let run = judged(
            vec![fault(Fault::Hang, 100)],
            vec![heard(40, Way::Watch, Word::Armed), heard(40, Way::Endpoint, Word::Armed), began(103, Way::Watch)],
        );

        let by: Vec<_> = run.faults.iter().map(|one| (one.way, one.noticed_s, one.is_right(LIMIT))).collect();
        assert_eq!(by, [(Way::Watch, Some(3.0), true), (Way::Endpoint, None, false)]);
        assert!(run.false_alarms.is_empty());
        // From 40 s to 100 s, and from the end of the grace at 120 s to 160 s.
        assert!((run.service_minutes[&Way::Watch] - 100.0 / 60.0).abs() < 1e-9);
    }

    #[test]
    fn a_late_alarm_is_no_success_and_one_outside_of_faults_is_false() {
        let run = judged(
            vec![fault(Fault::Flood, 100)],
            vec![
                heard(40, Way::Watch, Word::Armed),
                began(60, Way::Watch),
                heard(61, Way::Watch, Word::Ended),
                began(107, Way::Watch),
                heard(109, Way::Watch, Word::Ended),
                began(119, Way::Watch),
            ],
        );

        assert_eq!((run.faults[0].noticed_s, run.faults[0].is_right(LIMIT)), (Some(7.0), false));
        let at: Vec<_> = run.false_alarms.iter().map(|alarm| alarm.at_s).collect();
        assert_eq!(at, [60.0], "what begins in the grace belongs to the fault");
    }

    #[test]
    fn an_alarm_that_lasts_from_before_hides_a_fault_and_does_not_count() {
        let run =
            judged(vec![fault(Fault::Flood, 100)], vec![heard(40, Way::Watch, Word::Armed), began(90, Way::Watch)]);

        assert_eq!((run.faults[0].noticed_s, run.faults[0].hidden), (None, true));
    }

    #[test]
    fn another_alarm_that_begins_during_a_fault_counts_and_one_outside_is_false() {
        let another = |at_s| [heard(at_s, Way::Watch, Word::Another), began(at_s, Way::Watch)];
        let before = vec![heard(40, Way::Watch, Word::Armed), began(90, Way::Watch)];

        let run = judged(vec![fault(Fault::Flood, 100)], [before.clone(), another(102).to_vec()].concat());
        let run_false = judged(vec![fault(Fault::Flood, 100)], [before, another(95).to_vec()].concat());

        assert_eq!((run.faults[0].noticed_s, run.faults[0].hidden), (Some(2.0), true));
        assert_eq!(run.false_alarms.len(), 1, "the one of before");
        assert_eq!((run_false.faults[0].noticed_s, run_false.false_alarms.len()), (None, 2));
    }

    #[test]
    fn a_restart_is_right_without_an_alarm_until_its_grace_is_over() {
        let quiet = judged(vec![fault(Fault::Restart, 100)], vec![heard(101, Way::Watch, Word::Restarted)]);
        let late = judged(vec![fault(Fault::Restart, 100)], vec![began(118, Way::Watch)]);

        assert!(quiet.faults.iter().all(|one| one.is_right(LIMIT)));
        let said: Vec<_> = quiet.faults.iter().map(|one| one.told.map(|told| told.said_s)).collect();
        assert_eq!(said, [Some(Some(1.0)), Some(None)], "by `uview watch`, and not by the endpoint");
        assert!(!late.faults[0].is_right(LIMIT), "{:?}", late.faults[0]);
    }

    #[test]
    fn a_program_that_ends_at_its_memory_limit_is_noticed_if_that_is_said() {
        let down = heard(102, Way::Watch, Word::Down);
        let run = judged(vec![fault(Fault::MemoryLimit, 100)], vec![down.clone()]);
        let hang = judged(vec![fault(Fault::Hang, 100)], vec![down]);

        assert_eq!((run.faults[0].noticed_s, &*run.faults[0].reason), (Some(2.0), "has ended"));
        assert_eq!((hang.faults[0].noticed_s, hang.faults[0].told), (None, None));
    }
}
