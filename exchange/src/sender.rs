//! The end that asks: the agent where packets are sent.

mod starting;

use std::collections::VecDeque;

use synopses::rda::Cache;

use crate::clock::{ClockOffset, ClockState};
use crate::conclusions::Conclusions;
use crate::gathering::{Gathered, Packets};
use crate::message::{Answer, Ask, MOST_REPORTS, Question, Refusal, Say};
use crate::plan::{LEAST_ROTATES, Plan, Synopsis, soon_ns};
use crate::report::{Flags, Report};
use crate::round::{MOST_ROUNDS, Round, Step, Turn};
use crate::steering::Steering;
use crate::{Counts, Effect, Sampling};

/// The longest pause between two tries to begin.
const MOST_PAUSE_NS: u64 = 10_000_000_000;

/// How the sender's end of a stream runs.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderSettings {
    /// The stream, as the receiver knows it.
    pub stream: String,
    /// Nanoseconds of an interval.
    pub length_ns: u64,
    /// Which synopsis.
    pub synopsis: Synopsis,
    /// Every so many intervals packets are named with another key.
    pub rotates: u64,
    /// So long before its first interval a run is agreed on: longer than a question and its answer take.
    pub margin_ns: u64,
    /// So long after its end an interval's questions have to be answered, in nanoseconds; three intervals, mostly.
    pub deadline_ns: u64,
    /// A question without an answer for so long has none.
    pub answer_within_ns: u64,
    /// The ends' clocks are promised to differ by no more.
    pub clock_bound_ns: u64,
}

impl SenderSettings {
    /// With times that suit intervals of `length_ns`: a margin of two, a deadline of three, another key every hour, and clocks within a millisecond.
    #[must_use]
    pub const fn new(stream: String, length_ns: u64, synopsis: Synopsis) -> Self {
        let second = 1_000_000_000;
        let margin_ns = if 2 * length_ns > second { 2 * length_ns } else { second };
        let answer_within_ns = if length_ns / 2 > second { second } else { length_ns / 2 };
        let (deadline_ns, clock_bound_ns) = (3 * length_ns, 1_000_000);
        let rotates = match (3_600 * second).checked_div(length_ns) {
            Some(in_an_hour) if in_an_hour > LEAST_ROTATES => in_an_hour,
            _ => LEAST_ROTATES,
        };
        Self { stream, length_ns, synopsis, rotates, margin_ns, deadline_ns, answer_within_ns, clock_bound_ns }
    }
}

/// What there is to do.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Todo {
    /// To ask, and to give the answer to [`Sender::answered`] with the call's number, or that there was none.
    Ask {
        /// The call's number.
        call: u64,
        /// What to ask.
        question: Box<Question>,
    },
    /// Nothing before this time.
    Wait(u64),
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// No run, and none asked for before this time.
    Idle { again_ns: u64 },
    /// A run is asked for.
    Starting(Plan),
    /// It runs.
    Running(Plan),
}

/// A question that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Flight {
    call: u64,
    /// `None`: a start.
    interval: Option<u64>,
    sent_ns: u64,
    told: Told,
}

/// What goes with a question.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Reports of all intervals before this one.
    until: u64,
    sampling: Option<Sampling>,
}

impl Told {
    fn by(question: &Question) -> Self {
        match &question.ask {
            Ask::Finish { reports, sampling } => {
                Self { until: reports.last().map_or(0, |report| report.interval + 1), sampling: *sampling }
            }
            _ => Self::default(),
        }
    }
}

/// The sender's end of one stream.
#[derive(Debug)]
pub struct Sender {
    settings: SenderSettings,
    phase: Phase,
    epoch: u64,
    pause_ns: u64,
    /// How far the receiver's clock was ahead at the last start.
    ahead_ns: u64,
    /// The clocks, at the last answer.
    clock: Option<ClockOffset>,
    /// What the kernel says of this end's clock, and of the receiver's.
    kept: [ClockState; 2],
    rounds: VecDeque<Round>,
    /// The last interval that came.
    last: Option<u64>,
    conclusions: Conclusions,
    /// Reports that the receiver does not have yet.
    untold: VecDeque<Report>,
    flight: Option<Flight>,
    calls: u64,
    steering: Steering,
    effects: VecDeque<Effect>,
    counts: Counts,
    last_refusal: Option<String>,
}

impl Sender {
    /// An end that begins as soon as it is asked what to do.
    #[must_use]
    pub fn new(settings: SenderSettings) -> Self {
        Self {
            settings,
            phase: Phase::Idle { again_ns: 0 },
            epoch: 0,
            pause_ns: 0,
            ahead_ns: 0,
            clock: None,
            kept: [ClockState::Unknown; 2],
            rounds: VecDeque::new(),
            last: None,
            conclusions: Conclusions::default(),
            untold: VecDeque::new(),
            flight: None,
            calls: 0,
            steering: Steering::default(),
            effects: VecDeque::new(),
            counts: Counts::default(),
            last_refusal: None,
        }
    }

    /// What the kernel says of this end's clock, from now on.
    pub const fn clock_is(&mut self, kept: ClockState) {
        self.kept[0] = kept;
    }

    /// What there is to do at `now_ns`. To be asked again when that is done, an answer or an interval came, or the time has come.
    pub fn poll(&mut self, now_ns: u64, random: &mut dyn FnMut() -> u64) -> Todo {
        if let Some(flight) = self.flight
            && now_ns.saturating_sub(flight.sent_ns) >= self.settings.answer_within_ns
        {
            self.answered(flight.call, None, now_ns, random);
        }
        self.expire(now_ns);
        if self.flight.is_none()
            && let Some((interval, question)) = self.question(now_ns, random)
        {
            self.calls += 1;
            let told = Told::by(&question);
            self.flight = Some(Flight { call: self.calls, interval, sent_ns: now_ns, told });
            return Todo::Ask { call: self.calls, question: Box::new(question) };
        }
        Todo::Wait(self.next_ns())
    }

    fn next_ns(&self) -> u64 {
        let answer = self.flight.map(|flight| flight.sent_ns.saturating_add(self.settings.answer_within_ns));
        let start = match self.phase {
            Phase::Idle { again_ns } if self.flight.is_none() => Some(again_ns),
            _ => None,
        };
        let idle = self.flight.is_none();
        let rounds =
            self.rounds.iter().map(|round| if idle { round.due_ns.min(round.deadline_ns) } else { round.deadline_ns });
        rounds.chain(answer).chain(start).min().unwrap_or(u64::MAX)
    }

    fn question(&mut self, now_ns: u64, random: &mut dyn FnMut() -> u64) -> Option<(Option<u64>, Question)> {
        let (stream, kept) = (self.settings.stream.clone(), self.kept[0]);
        let question = move |epoch, interval, ask| Question { stream, epoch, interval, kept, ask };
        match &self.phase {
            Phase::Starting(_) => None,
            Phase::Idle { again_ns } if now_ns < *again_ns => None,
            Phase::Idle { .. } => {
                self.epoch = now_ns.max(self.epoch + 1);
                let plan = self.plan(now_ns, random);
                let asked = question(self.epoch, 0, Ask::Start(plan.clone()));
                self.phase = Phase::Starting(plan);
                Some((None, asked))
            }
            Phase::Running(plan) => {
                let due = self.rounds.iter().filter(|round| round.due_ns <= now_ns).min_by_key(|round| round.due_ns)?;
                let ask = match due.step {
                    Step::Finish => Ask::Finish {
                        reports: self.untold.iter().take(MOST_REPORTS).copied().collect(),
                        sampling: self.steering.untold(),
                    },
                    _ => due.ask(plan, due.clock.or(self.clock))?,
                };
                Some((Some(due.interval), question(self.epoch, due.interval, ask)))
            }
        }
    }

    /// The packets of an interval that is over.
    pub fn gathered(&mut self, gathered: Gathered, now_ns: u64, random: &mut dyn FnMut() -> u64) {
        let Gathered { interval, seen, packets, renamed } = gathered;
        let step = match packets {
            Packets::Each(cache) => Step::Cells { cache, attempt: 0, seed: random(), least_cells: 0 },
            Packets::Sent(comb) => Step::Buckets(comb),
            Packets::Received(_) => return,
        };
        let Phase::Running(plan) = &self.phase else {
            if let Step::Cells { cache: Some(cache), .. } = step {
                self.effects.push_back(Effect::GiveBack(cache));
            }
            return;
        };
        let ends_ns = plan.begin_of(interval + 1);
        let deadline_ns = ends_ns.saturating_add(self.settings.deadline_ns).max(now_ns);
        if self.rounds.len() == MOST_ROUNDS
            && let Some(mut oldest) = self.rounds.pop_front()
        {
            let turn = oldest.expire();
            self.turn(oldest, turn, now_ns);
        }
        self.last = Some(interval);
        self.steering.gathered(seen.refused);
        let (pause_ns, due_ns) = (0, now_ns);
        let (theirs, clock) = (None, None);
        self.rounds.push_back(Round {
            interval,
            deadline_ns,
            due_ns,
            pause_ns,
            ours: seen,
            renamed,
            theirs,
            clock,
            step,
        });
    }

    /// What came of a call: its answer, or none.
    pub fn answered(&mut self, call: u64, answer: Option<Answer>, now_ns: u64, random: &mut dyn FnMut() -> u64) {
        let Some(flight) = self.flight.filter(|flight| flight.call == call) else {
            self.counts.stale += 1;
            return;
        };
        self.flight = None;
        let Some(answer) = answer else {
            self.counts.unanswered += 1;
            return self.later(flight, now_ns, None);
        };
        if answer.epoch != self.epoch || answer.interval != flight.interval.unwrap_or(0) {
            // The answer to another question: as if there were none.
            self.counts.stale += 1;
            return self.later(flight, now_ns, None);
        }
        let clock = ClockOffset::of(flight.sent_ns, now_ns, answer.clock_ns);
        self.clock = Some(clock);
        self.kept[1] = answer.kept;
        match flight.interval {
            None => self.started(&answer, clock, now_ns),
            Some(interval) => self.round_answered((interval, flight.told), answer.say, clock, now_ns, random),
        }
    }

    /// The question is asked again after a pause that grows.
    fn later(&mut self, flight: Flight, now_ns: u64, asked_for_ns: Option<u64>) {
        let length_ns = self.settings.length_ns;
        match flight.interval {
            None => {
                self.pause_ns = (2 * self.pause_ns).clamp(self.settings.margin_ns, MOST_PAUSE_NS);
                self.phase = Phase::Idle { again_ns: now_ns.saturating_add(self.pause_ns) };
            }
            Some(interval) => {
                if let Some(round) = self.rounds.iter_mut().find(|round| round.interval == interval) {
                    round.pause_ns = (2 * round.pause_ns).clamp(length_ns / 64, length_ns / 2);
                    let asked = |asked: u64| asked.clamp(soon_ns(length_ns).min(length_ns), length_ns);
                    let pause_ns = asked_for_ns.map_or(round.pause_ns, asked);
                    round.due_ns = now_ns.saturating_add(pause_ns);
                }
            }
        }
    }

    fn round_answered(
        &mut self,
        (interval, told): (u64, Told),
        say: Say,
        clock: ClockOffset,
        now_ns: u64,
        random: &mut dyn FnMut() -> u64,
    ) {
        let Phase::Running(plan) = &self.phase else { return };
        let Some(at) = self.rounds.iter().position(|round| round.interval == interval) else {
            self.counts.stale += 1;
            return;
        };
        if let Say::Refused(refusal) = &say {
            return self.run_refused(refusal, at, now_ns);
        }
        let Some(mut round) = self.rounds.remove(at) else { return };
        if round.clock.is_none_or(|best| clock.within_ns < best.within_ns) {
            round.clock = Some(clock);
        }
        let finished = matches!(say, Say::Finished);
        let turn = round.answered(say, plan, random);
        if finished && matches!(turn, Turn::Done) {
            // What has become final since the question was asked waits for the next one.
            self.untold.retain(|report| report.interval >= told.until);
            self.steering.told(told.sampling);
        }
        self.turn(round, turn, now_ns);
    }

    fn run_refused(&mut self, refusal: &Refusal, at: usize, now_ns: u64) {
        match refusal {
            // The receiver has begun anew, or another sender has taken its place.
            Refusal::Epoch(_) | Refusal::Stream(_) => {
                self.refused(refusal);
                self.begin_anew(now_ns);
            }
            _ => {
                self.counts.broken += 1;
                if let Some(round) = self.rounds.remove(at) {
                    self.turn(round, Turn::Failed(Flags::PARAMETER_MISMATCH), now_ns);
                }
            }
        }
    }

    /// Ends this run, and whatever is under way.
    fn begin_anew(&mut self, now_ns: u64) {
        for mut round in core::mem::take(&mut self.rounds) {
            let turn = round.expire();
            self.turn(round, turn, now_ns);
        }
        self.rounds.clear();
        while let Some(report) = self.conclusions.rest() {
            self.effects.push_back(Effect::Report(report));
        }
        self.untold.clear();
        self.flight = None;
        self.phase = Phase::Idle { again_ns: now_ns };
    }

    /// What follows from a turn of a round.
    fn turn(&mut self, mut round: Round, turn: Turn, now_ns: u64) {
        let interval = round.interval;
        let flight = Flight { call: 0, interval: Some(interval), sent_ns: now_ns, told: Told::default() };
        match turn {
            Turn::Next => {
                (round.due_ns, round.pause_ns) = (now_ns, 0);
                return self.keep(round);
            }
            Turn::Later(later_ns) => {
                self.keep(round);
                return self.later(flight, now_ns, Some(later_ns));
            }
            Turn::Broken => {
                self.counts.broken += 1;
                self.keep(round);
                return self.later(flight, now_ns, None);
            }
            Turn::Found(mut found, cache) => {
                self.effects.extend(cache.map(Effect::GiveBack));
                round.judge(&mut found.report, self.settings.clock_bound_ns, self.kept[0].and(self.kept[1]));
                found.late = round.ours.late > 0 || round.theirs.is_some_and(|theirs| theirs.late > 0);
                let sampling =
                    self.steering.steer(&round.ours, &round.theirs.unwrap_or_default(), self.last.unwrap_or(0));
                self.effects.extend(sampling.map(Effect::Sample));
                self.conclusions.found(*found);
                round.step = Step::Finish;
                (round.due_ns, round.pause_ns) = (now_ns, 0);
                if now_ns < round.deadline_ns {
                    self.keep(round);
                }
            }
            Turn::Report(mut report) => {
                round.theirs = None;
                let clock = report.clock;
                round.judge(&mut report, self.settings.clock_bound_ns, self.kept[0].and(self.kept[1]));
                report.clock = round.clock.or(clock);
                self.conclusions.is_final(report);
            }
            Turn::Failed(flags) => {
                let mut report = Report { sent: Some(round.ours.packets), ..Report::unknown(interval, flags) };
                round.judge(&mut report, self.settings.clock_bound_ns, self.kept[0].and(self.kept[1]));
                self.conclusions.is_final(report);
                self.effects.extend(round.into_cache().map(Effect::GiveBack));
            }
            Turn::Done => {}
        }
        self.conclude();
    }

    fn keep(&mut self, round: Round) {
        let at = self.rounds.partition_point(|other| other.interval < round.interval);
        self.rounds.insert(at, round);
    }

    /// Reports that have become final.
    fn conclude(&mut self) {
        let rounds = &self.rounds;
        let open = |interval: u64| {
            rounds.iter().any(|round| round.interval == interval && !matches!(round.step, Step::Finish | Step::Over))
        };
        while let Some(report) = self.conclusions.next(open, self.last) {
            self.effects.push_back(Effect::Report(report));
            // What the receiver compared it knows.
            if matches!(self.settings.synopsis, Synopsis::Rda { .. }) {
                self.untold.push_back(report);
            }
        }
        while self.untold.len() > MOST_REPORTS {
            self.untold.pop_front();
        }
    }

    fn expire(&mut self, now_ns: u64) {
        while let Some(at) = self.rounds.iter().position(|round| round.deadline_ns <= now_ns) {
            let Some(mut round) = self.rounds.remove(at) else { return };
            if self.flight.is_some_and(|flight| flight.interval == Some(round.interval)) {
                self.flight = None;
                self.counts.unanswered += 1;
            }
            let turn = round.expire();
            self.turn(round, turn, now_ns);
        }
    }

    /// What follows, in this order.
    pub fn take_effects(&mut self) -> impl Iterator<Item = Effect> {
        core::mem::take(&mut self.effects).into_iter()
    }

    /// Whether a run goes on.
    #[must_use]
    pub const fn runs(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Memory that is with the intervals under way.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |round: &Round| match &round.step {
            Step::Cells { cache: Some(cache), .. } => cache.memory_bytes(),
            _ => 0,
        };
        self.rounds.iter().map(of).sum()
    }
}

/// Memory of a run's caches.
pub(crate) fn give_back(cache: Option<Cache>, effects: &mut VecDeque<Effect>) {
    effects.extend(cache.map(Effect::GiveBack));
}
