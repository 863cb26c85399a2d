//! Evaluates a run: which alarm belongs to which fault, how fast it came, how well it is explained, and which alarms
//! were false.
//!
//! Pure: a [`Record`] in, a [`Finding`] out. The rules:
//!
//! 1. An alarm belongs to the last fault that started before it, if it began during that fault or the [`GRACE`] period
//!    after it. It may be in any service, since faults propagate; the evaluation records whether that service is on a
//!    path with the faulty one. All other alarms are **false**.
//! 2. A fault is **noticed** when an alarm of the faulty service itself begins during the fault. An alarm that was
//!    active before does not count. Silence is an alarm.
//! 3. Flagged services are **ranked** by the rule of operators and hooks ([`hooks::suspects`]), from the data up to
//!    [`RANKED_AFTER`] after the first alarm of the fault in any service.
//! 4. A fault is **explained** if at least one of the top three metrics of the alarm that noticed it belongs to it
//!    ([`Kind::belongs`]), or if the service is silent because it was stopped. The report states this rule
//!    ([`EXPLAINED_IF`]).
//! 5. False alarms are counted per **service-minute**: the time for which a service was armed, outside all faults and
//!    their grace periods.

pub mod alarm;
#[cfg(test)]
pub(crate) mod example;
pub mod traces;

use wire::time::Nanos;

pub use alarm::Alarm;
pub use hooks::suspects::RANKED_AFTER;

use crate::fault::Kind;
use crate::graph::Target;
use crate::reason::Reason;
use crate::record::{Event, InjectedFault, Record};
use traces::TracesFinding;

/// Grace period after a fault, in which its effects may settle.
pub const GRACE: Nanos = Nanos::from_secs(10);

/// The rule by which a fault counts as explained, for the report.
pub const EXPLAINED_IF: &str = "A fault counts as explained if at least one of the three metrics that made most of the alarm's first second \
    belongs to it, or if a service that was stopped is silent, whatever its metrics say. That is a generous rule: two of the three may be \
    others.";

/// Limit for noticing an abrupt fault.
pub const NOTICED_WITHIN: Nanos = Nanos::from_secs(1);

/// Share of faults, 0 to 1, whose own service has to be ranked first.
pub const FIRST_RANKED: f64 = 0.8;

/// Service-minutes per allowed false alarm. A run with fewer may have one, too.
pub const MINUTES_PER_FALSE_ALARM: f64 = 10.0;

/// A service that was flagged because of a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct FlaggedService {
    /// The service, or the link.
    pub service: Target,
    /// Time of its alarm after the fault's start.
    pub delay: Nanos,
    /// The highest score of its alarm as a multiple of γ.
    pub peak: f64,
    /// The highest score before the ranking as a multiple of γ; 0 if there was none by then.
    pub strength: f64,
    /// Whether its heartbeat had stopped before the ranking.
    pub silent: bool,
    /// The flagged service that its top metrics point at.
    pub points_at: Option<Target>,
    /// Whether it is the faulty service, calls it, or is called by it, directly or not.
    pub on_path: bool,
}

/// A top metric of an alarm, and whether it belongs to the fault.
#[derive(Clone, Debug, PartialEq)]
pub struct TopMetric {
    /// The metric with its values.
    pub reason: Reason,
    /// Whether it belongs to the fault ([`Kind::belongs`]).
    pub belongs: bool,
}

/// Evaluation of one fault.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultFinding {
    /// The injected fault.
    pub fault: InjectedFault,
    /// Time from its start to the first alarm of its own service; `None` if there was none during the fault.
    pub noticed: Option<Nanos>,
    /// Whether that alarm was silence.
    pub by_silence: bool,
    /// Rank of its own service among the flagged ones, from 1; `None` if it was not flagged.
    pub rank: Option<usize>,
    /// All flagged services in the order of the ranking.
    pub flagged: Vec<FlaggedService>,
    /// Top metrics of the alarm of its own service.
    pub top: Vec<TopMetric>,
    /// Whether these explain the fault.
    pub explained: bool,
}

impl FaultFinding {
    /// Whether it was noticed in time: an abrupt fault within [`NOTICED_WITHIN`], a leak before memory had doubled.
    #[must_use]
    pub fn in_time(&self) -> bool {
        let limit = match self.fault.kind {
            Kind::Leak => self.fault.doubled.unwrap_or(self.fault.ended).since(self.fault.started).unwrap_or_default(),
            _ => NOTICED_WITHIN,
        };
        self.noticed.is_some_and(|noticed| noticed <= limit)
    }
}

/// A requirement on a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What is measured.
    pub name: &'static str,
    /// The measured value, as text.
    pub reached: String,
    /// The required value, as text.
    pub asked: String,
    /// Whether the run meets it.
    pub outcome: Outcome,
}

/// Whether a run meets a [`Bar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run meets it.
    Met,
    /// The run does not meet it.
    Missed,
    /// The run is too short to tell.
    TooShort,
}

impl Outcome {
    const fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::Missed }
    }

    /// Whether the run meets it; `None` if the run is too short to tell.
    #[must_use]
    pub const fn met(self) -> Option<bool> {
        match self {
            Self::Met => Some(true),
            Self::Missed => Some(false),
            Self::TooShort => None,
        }
    }

    /// One character for it.
    #[must_use]
    pub const fn mark(self) -> char {
        match self {
            Self::Met => '✓',
            Self::Missed => '✗',
            Self::TooShort => '–',
        }
    }
}

/// Evaluation of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Evaluation of each fault, in their order.
    pub faults: Vec<FaultFinding>,
    /// All alarms of the run.
    pub alarms: Vec<Alarm>,
    /// Alarms that belong to no fault.
    pub false_alarms: Vec<Alarm>,
    /// Armed time outside faults and grace periods, in minutes, summed over services.
    pub service_minutes: f64,
    /// The requirements, and whether the run meets them.
    pub bars: Vec<Bar>,
    /// Evaluation of the kept traces.
    pub traces: TracesFinding,
}

impl Finding {
    /// False alarms per service-minute; 0 without any service-minutes.
    #[must_use]
    pub fn false_alarm_rate(&self) -> f64 {
        if self.service_minutes > 0.0 { self.false_alarms.len() as f64 / self.service_minutes } else { 0.0 }
    }

    /// Whether the run misses no bar.
    #[must_use]
    pub fn none_missed(&self) -> bool {
        self.bars.iter().all(|bar| bar.outcome != Outcome::Missed)
    }
}

/// Evaluates one run.
#[must_use]
pub fn judge(record: &Record) -> Finding {
    let alarms = alarm::alarms(&record.events);
    let spans = spans(record);
    let causes: Vec<_> = alarms.iter().map(|alarm| cause(&spans, alarm.began)).collect();
    let of_fault = |number: usize| {
        let caused = alarms.iter().zip(&causes).filter(move |(_, cause)| **cause == Some(number));
        caused.map(|(alarm, _)| alarm).collect::<Vec<_>>()
    };
    let faults = record.faults.iter().enumerate();
    let faults = faults.map(|(number, fault)| fault_finding(record, fault, &of_fault(number))).collect();
    let unexplained = alarms.iter().zip(&causes).filter(|(_, cause)| cause.is_none());
    let false_alarms = unexplained.map(|(alarm, _)| alarm.clone()).collect();
    let service_minutes = service_minutes(record);
    let traces = traces::judge(record);
    let mut finding = Finding { faults, alarms, false_alarms, service_minutes, bars: Vec::new(), traces };
    finding.bars = bars(&finding);
    finding
}

fn fault_finding(record: &Record, fault: &InjectedFault, alarms: &[&Alarm]) -> FaultFinding {
    let own = alarms.iter().find(|alarm| alarm.service == fault.service && alarm.began < fault.ended);
    let flagged = flagged(record, fault, alarms);
    let place = flagged.iter().position(|flagged| flagged.service == fault.service);
    let top: Vec<_> = own.map_or(&[][..], |alarm| &alarm.top).iter().map(|reason| top_metric(fault, reason)).collect();
    // Silence is the best explanation of a stopped process, even if the score's alarm came first.
    let silence = |alarm: &&Alarm| alarm.silent && alarm.service == fault.service && alarm.began < fault.ended;
    let stopped = fault.kind == Kind::Hang && alarms.iter().copied().any(|alarm| silence(&alarm));
    FaultFinding {
        fault: fault.clone(),
        noticed: own.and_then(|alarm| alarm.began.since(fault.started)),
        by_silence: own.is_some_and(|alarm| alarm.silent),
        rank: place.map(|place| place + 1),
        explained: stopped || top.iter().any(|metric| metric.belongs),
        flagged,
        top,
    }
}

fn top_metric(fault: &InjectedFault, reason: &Reason) -> TopMetric {
    TopMetric { belongs: fault.kind.belongs(reason), reason: reason.clone() }
}

/// The services flagged because of `fault`, ranked.
fn flagged(record: &Record, fault: &InjectedFault, alarms: &[&Alarm]) -> Vec<FlaggedService> {
    let alarms: Vec<_> = alarms.iter().filter(|alarm| flagged_in_time(fault, alarm)).collect();
    let until = alarms.iter().map(|alarm| alarm.began).min().unwrap_or(fault.started).plus(RANKED_AFTER);
    let mut flagged: Vec<FlaggedService> = Vec::new();
    for alarm in &alarms {
        let silent = alarm.silent && alarm.began <= until;
        if let Some(known) = flagged.iter_mut().find(|known| known.service == alarm.service) {
            known.silent |= silent;
            known.peak = known.peak.max(alarm.peak);
            continue;
        }
        let events = record.events.iter().filter(|event| event.service == alarm.service);
        let known = events.filter(|event| (fault.started..=until).contains(&event.at));
        flagged.push(FlaggedService {
            service: alarm.service,
            delay: alarm.began.since(fault.started).unwrap_or_default(),
            peak: alarm.peak,
            strength: known.map(Event::ratio).fold(0.0, f64::max),
            silent,
            points_at: alarm.peer,
            on_path: alarm.service.is_on_a_path_with(fault.service),
        });
    }
    ranked(&flagged)
}

/// Sorts by suspicion. On input `points_at` is the peer of the top metrics; on output only if that peer is flagged,
/// too.
fn ranked(flagged: &[FlaggedService]) -> Vec<FlaggedService> {
    let known = flagged.iter().map(|one| hooks::suspects::ServiceInAlarm {
        service: one.service.name(),
        silent: one.silent,
        peer: one.points_at.map(Target::name),
        responses: hooks::suspects::ResponseChange::Unknown,
        slower: None,
        strength: one.strength,
        began: one.delay,
    });
    let place = |place: hooks::suspects::RankedService| {
        let points_at = place.points_at.map(|at| flagged[at].service);
        FlaggedService { points_at, ..flagged[place.flagged].clone() }
    };
    hooks::suspects::rank(&known.collect::<Vec<_>>(), &hooks::suspects::Calls::default())
        .into_iter()
        .map(place)
        .collect()
}

/// Alarms that begin in the grace period are after-effects and flag no service.
fn flagged_in_time(fault: &InjectedFault, alarm: &Alarm) -> bool {
    alarm.began < fault.ended
}

/// Start and end of each fault.
fn spans(record: &Record) -> Vec<(Nanos, Nanos)> {
    record.faults.iter().map(|fault| (fault.started, fault.ended)).collect()
}

/// The number of the fault to which an alarm belongs that began at `began`: the last one that started before it, if
/// that lasted, or had ended less than [`GRACE`] ago (rule 1). `faults` are starts and ends, in order.
#[must_use]
pub fn cause(faults: &[(Nanos, Nanos)], began: Nanos) -> Option<usize> {
    let last = faults.iter().rposition(|(started, _)| *started <= began)?;
    faults.get(last).filter(|(_, ended)| began < ended.plus(GRACE)).map(|_| last)
}

/// The time between `armed` and `ended` that is in no fault and no grace period (rule 5). `faults` are as in [`cause`].
#[must_use]
pub fn quiet_time(faults: &[(Nanos, Nanos)], armed: Nanos, ended: Nanos) -> Nanos {
    let (mut quiet, mut from) = (0, armed);
    for (fault_started, fault_ended) in faults {
        quiet += fault_started.since(from).unwrap_or_default().0;
        from = from.max(fault_ended.plus(GRACE));
    }
    Nanos(quiet + ended.since(from).unwrap_or_default().0)
}

/// The time in which an alarm counts as false, in minutes.
fn service_minutes(record: &Record) -> f64 {
    let spans = spans(record);
    let quiet = record.armed.values().map(|armed| quiet_time(&spans, *armed, record.ended).0);
    Nanos(quiet.sum()).as_secs_f64() / 60.0
}

fn bars(finding: &Finding) -> Vec<Bar> {
    let of = |met: usize, all: usize| format!("{met} of {all}");
    let share = |name, asked: &str, wanted: f64, faults: Vec<&FaultFinding>, test: fn(&FaultFinding) -> bool| {
        let met = faults.iter().filter(|fault| test(fault)).count();
        let enough = met as f64 >= wanted * faults.len() as f64 - 1e-9;
        Bar { name, reached: of(met, faults.len()), asked: asked.to_owned(), outcome: Outcome::of(enough) }
    };
    let (abrupt, slow): (Vec<_>, Vec<_>) = finding.faults.iter().partition(|found| found.fault.kind.is_abrupt());
    vec![
        share("abrupt faults noticed in their own service within 1 s", "all", 1.0, abrupt, FaultFinding::in_time),
        share("leak noticed before memory has doubled", "all", 1.0, slow, FaultFinding::in_time),
        share("own service ranked first", "4 of 5", FIRST_RANKED, finding.faults.iter().collect(), |found| {
            found.rank == Some(1)
        }),
        Bar {
            name: "false alarms",
            reached: format!("{} in {:.1} service-minutes", finding.false_alarms.len(), finding.service_minutes),
            asked: "at most 1 in 10 service-minutes".to_owned(),
            outcome: false_alarms_in(finding.false_alarms.len(), finding.service_minutes),
        },
    ]
}

/// In less time than [`MINUTES_PER_FALSE_ALARM`], zero or one false alarm say nothing about the rate; two are too many.
#[must_use]
pub fn false_alarms_in(number: usize, service_minutes: f64) -> Outcome {
    if number < 2 && service_minutes < MINUTES_PER_FALSE_ALARM {
        return Outcome::TooShort;
    }
    Outcome::of(number as f64 <= service_minutes / MINUTES_PER_FALSE_ALARM)
}

#[cfg(test)]
mod tests;
