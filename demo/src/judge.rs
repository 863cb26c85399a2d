//! Says what a run is worth: which alarm belongs to which fault, how fast, how well explained, and which were false.
//!
//! Pure: a [`Record`] in, a [`Finding`] out. The rules:
//!
//! 1. An alarm belongs to the last fault that started before it, if it began during that fault or the [`GRACE`] after it; in whichever
//!    service, since faults propagate. Whether there is a path to the faulty service is reported. All other alarms are **false**.
//! 2. A fault is **noticed** when an alarm of the faulty service itself begins during the fault; an alarm that was on before does not
//!    count. Silence is an alarm.
//! 3. Flagged services are **ranked** by the rule of operators and hooks ([`ranking`]), by what is known [`RANKED_AFTER`] the first alarm of
//!    the fault, in whichever service.
//! 4. A fault is **explained** if one of the top metrics of the alarm that noticed it belongs to it ([`Kind::belongs`]), one of three being
//!    enough, or the service is silent because it was stopped. The report says so ([`EXPLAINED_IF`]).
//! 5. False alarms are counted per **service-minute**: the time that a service was armed, outside all faults and their grace.

pub mod alarm;
#[cfg(test)]
pub(crate) mod example;
pub mod traces;

use wire::time::Nanos;

pub use alarm::Alarm;
pub use ranking::RANKED_AFTER;

use crate::fault::Kind;
use crate::graph::Watched;
use crate::record::{Event, Injected, Reason, Record};
use traces::TracesFinding;

/// What a fault stirs up may take so long to settle.
pub const GRACE: Nanos = Nanos::from_secs(10);

/// When a fault counts as explained, for whoever reads the report.
pub const EXPLAINED_IF: &str = "A fault counts as explained if at least one of the three metrics that made most of the alarm's first second \
    belongs to it, or if a service that was stopped is silent, whatever its metrics say. That is a generous rule: two of the three may be \
    others.";

/// An abrupt fault has to be noticed within so long.
pub const NOTICED_WITHIN: Nanos = Nanos::from_secs(1);

/// Of the faults, so many have to have their own service ranked first.
pub const FIRST_RANKED: f64 = 0.8;

/// One false alarm is allowed in so many service-minutes; one also if the run has fewer.
pub const MINUTES_PER_FALSE_ALARM: f64 = 10.0;

/// A service that was flagged because of a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Flagged {
    /// Who.
    pub service: Watched,
    /// How long after the fault's start.
    pub delay: Nanos,
    /// The highest score of its alarm as a multiple of γ.
    pub peak: f64,
    /// The same until the ranking; 0 if there was none by then.
    pub strength: f64,
    /// Its heartbeat stood still by then.
    pub silent: bool,
    /// The flagged service that its top metrics point at.
    pub points_at: Option<Watched>,
    /// Whether it calls the faulty service or is called by it, directly or not, or is it.
    pub on_path: bool,
}

/// A metric that explains, and whether it belongs to the fault.
#[derive(Clone, Debug, PartialEq)]
pub struct TopMetric {
    /// The metric.
    pub reason: Reason,
    /// Whether it belongs.
    pub belongs: bool,
}

/// What became of one fault.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultFinding {
    /// The fault.
    pub fault: Injected,
    /// How long after its start its own service was in alarm; `None`: never during the fault.
    pub noticed: Option<Nanos>,
    /// Whether it was noticed by silence.
    pub by_silence: bool,
    /// The place of its own service among the flagged ones, from 1; `None` if it was not flagged.
    pub rank: Option<usize>,
    /// Everyone who was flagged, in the order of the ranking.
    pub flagged: Vec<Flagged>,
    /// What explains the alarm of its own service.
    pub top: Vec<TopMetric>,
    /// Whether that belongs to the fault.
    pub explained: bool,
}

impl FaultFinding {
    /// Whether it was noticed in time: an abrupt one within [`NOTICED_WITHIN`], a leak before the memory had doubled.
    #[must_use]
    pub fn in_time(&self) -> bool {
        let limit = match self.fault.kind {
            Kind::Leak => self.fault.doubled.unwrap_or(self.fault.ended).since(self.fault.started).unwrap_or_default(),
            _ => NOTICED_WITHIN,
        };
        self.noticed.is_some_and(|noticed| noticed <= limit)
    }
}

/// Something that a run has to reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What.
    pub name: &'static str,
    /// What was reached, in words.
    pub reached: String,
    /// What is asked for, in words.
    pub asked: String,
    /// Whether it was.
    pub outcome: Outcome,
}

/// What became of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Reached.
    Met,
    /// Not reached.
    Missed,
    /// The run is too short to tell.
    TooShort,
}

impl Outcome {
    const fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::Missed }
    }

    /// Whether it was reached, if that can be told.
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

/// What a run is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Fault by fault.
    pub faults: Vec<FaultFinding>,
    /// All alarms.
    pub alarms: Vec<Alarm>,
    /// Alarms that no fault explains.
    pub false_alarms: Vec<Alarm>,
    /// The time in which an alarm would have been false, summed over services.
    pub service_minutes: f64,
    /// What the run had to reach.
    pub bars: Vec<Bar>,
    /// What became of the traces.
    pub traces: TracesFinding,
}

impl Finding {
    /// False alarms per service-minute; 0 if there was no time for any.
    #[must_use]
    pub fn false_alarm_rate(&self) -> f64 {
        if self.service_minutes > 0.0 { self.false_alarms.len() as f64 / self.service_minutes } else { 0.0 }
    }

    /// Whether no bar was missed.
    #[must_use]
    pub fn none_missed(&self) -> bool {
        self.bars.iter().all(|bar| bar.outcome != Outcome::Missed)
    }
}

/// Judges one run.
#[must_use]
pub fn judge(record: &Record) -> Finding {
    let alarms = alarm::alarms(&record.events);
    let cause = |alarm: &Alarm| {
        let last = record.faults.iter().rposition(|fault| fault.started <= alarm.began)?;
        record.faults.get(last).filter(|fault| alarm.began < fault.ended.plus(GRACE)).map(|_| last)
    };
    let causes: Vec<_> = alarms.iter().map(cause).collect();
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

fn fault_finding(record: &Record, fault: &Injected, alarms: &[&Alarm]) -> FaultFinding {
    let own = alarms.iter().find(|alarm| alarm.service == fault.service && alarm.began < fault.ended);
    let flagged = flagged(record, fault, alarms);
    let place = flagged.iter().position(|flagged| flagged.service == fault.service);
    let top: Vec<_> = own.map_or(&[][..], |alarm| &alarm.top).iter().map(|reason| top_metric(fault, reason)).collect();
    // A process that was stopped is best explained by its silence, also if its score was first.
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

fn top_metric(fault: &Injected, reason: &Reason) -> TopMetric {
    TopMetric { belongs: fault.kind.belongs(&reason.column, &reason.group), reason: reason.clone() }
}

/// Who was flagged because of `fault`, ranked.
fn flagged(record: &Record, fault: &Injected, alarms: &[&Alarm]) -> Vec<Flagged> {
    let alarms: Vec<_> = alarms.iter().filter(|alarm| flagged_in_time(fault, alarm)).collect();
    let until = alarms.iter().map(|alarm| alarm.began).min().unwrap_or(fault.started).plus(RANKED_AFTER);
    let mut flagged: Vec<Flagged> = Vec::new();
    for alarm in &alarms {
        let silent = alarm.silent && alarm.began <= until;
        if let Some(known) = flagged.iter_mut().find(|known| known.service == alarm.service) {
            known.silent |= silent;
            known.peak = known.peak.max(alarm.peak);
            continue;
        }
        let events = record.events.iter().filter(|event| event.service == alarm.service);
        let known = events.filter(|event| (fault.started..=until).contains(&event.at));
        flagged.push(Flagged {
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

/// In the order of suspicion. Whom a service points at is its peer before, and the peer if that is flagged as well afterwards.
fn ranked(flagged: &[Flagged]) -> Vec<Flagged> {
    let known = flagged.iter().map(|one| ranking::Flagged {
        service: one.service.name(),
        silent: one.silent,
        peer: one.points_at.map(Watched::name),
        answers: ranking::Answers::Unknown,
        strength: one.strength,
        began: one.delay,
    });
    let place = |place: ranking::Ranked| {
        let points_at = place.points_at.map(|at| flagged[at].service);
        Flagged { points_at, ..flagged[place.flagged].clone() }
    };
    ranking::rank(&known.collect::<Vec<_>>(), &ranking::Calls::default()).into_iter().map(place).collect()
}

/// What began in the grace is an echo and flags nobody.
fn flagged_in_time(fault: &Injected, alarm: &Alarm) -> bool {
    alarm.began < fault.ended
}

/// The time in which an alarm would be false.
fn service_minutes(record: &Record) -> f64 {
    let mut quiet = 0;
    for armed in record.armed.values() {
        let mut from = *armed;
        for fault in &record.faults {
            quiet += fault.started.since(from).unwrap_or_default().0;
            from = from.max(fault.ended.plus(GRACE));
        }
        quiet += record.ended.since(from).unwrap_or_default().0;
    }
    Nanos(quiet).as_secs_f64() / 60.0
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

/// In less time than one alarm is allowed in, none and one say nothing about a rate; two are too many.
fn false_alarms_in(number: usize, service_minutes: f64) -> Outcome {
    if number < 2 && service_minutes < MINUTES_PER_FALSE_ALARM {
        return Outcome::TooShort;
    }
    Outcome::of(number as f64 <= service_minutes / MINUTES_PER_FALSE_ALARM)
}

#[cfg(test)]
mod tests;
