//! The requesting end: the agent where packets are sent.

mod settings;
mod start;

use std::collections::VecDeque;

use synopses::rda::Cache;
use wire::backoff::Pauses;
use wire::time::{Nanos, UnixNanos};

use crate::clock::{ClockOffset, ClockState};
use crate::collector::{IntervalPackets, Packets};
use crate::conclusions::Conclusions;
use crate::message::{MAX_REPORTS, Refusal, Request, RequestBody, Response, ResponseBody};
use crate::plan::{Plan, Synopsis, soon};
use crate::report::{Flags, Report};
use crate::round::{MAX_ROUNDS, Outcome, Round, Step};
use crate::sampling_controller::SamplingController;
use crate::{Counts, Effect, Sampling};

pub use settings::SenderSettings;

/// Maximum back-off between two attempts to start a run.
const MAX_PAUSE: Nanos = Nanos::from_secs(10);
/// Nobody else asks the same receiver at the same time.
const NO_JITTER: f64 = 0.0;

/// What the caller has to do.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Action {
    /// Send the request, then pass its response, or `None` without one, to [`Sender::complete`].
    Send {
        /// Number of the call, for [`Sender::complete`].
        call: u64,
        /// The request, to be sent to the peer.
        request: Box<Request>,
    },
    /// Nothing until this time.
    Wait(UnixNanos),
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// No run. The next attempt to start one is at this time.
    Idle { retry: UnixNanos },
    /// The start request is in flight.
    Starting(Plan),
    /// The run goes on.
    Running(Plan),
}

/// A request without a response so far.
#[derive(Clone, Copy, Debug)]
struct InFlightRequest {
    call: u64,
    /// `None` for a start.
    interval: Option<u64>,
    sent: UnixNanos,
    delivery: Delivery,
}

/// What a finish request delivers to the receiver.
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    /// Reports of all intervals before this one.
    reports_before: u64,
    sampling: Option<Sampling>,
}

impl Delivery {
    fn of(request: &Request) -> Self {
        match &request.body {
            RequestBody::Finish { reports, sampling } => {
                Self { reports_before: reports.last().map_or(0, |report| report.interval + 1), sampling: *sampling }
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
    /// Attempts to start a run that failed in a row.
    failures: u32,
    /// How far the receiver's clock was ahead at the last start.
    ahead: Nanos,
    /// Clock offset measured with the last response.
    clock: Option<ClockOffset>,
    /// States of this end's clock and of the receiver's.
    clock_states: [ClockState; 2],
    /// The latest time that this end's clock has shown since it was set back.
    latest: UnixNanos,
    rounds: VecDeque<Round>,
    /// The last interval that has ended.
    last: Option<u64>,
    conclusions: Conclusions,
    /// Reports that the receiver has not acknowledged.
    unacknowledged: VecDeque<Report>,
    in_flight: Option<InFlightRequest>,
    calls: u64,
    sampling: SamplingController,
    effects: VecDeque<Effect>,
    counts: Counts,
    last_refusal: Option<String>,
}

impl Sender {
    /// A sender that starts a run at the first [`Self::poll`].
    #[must_use]
    pub fn new(settings: SenderSettings) -> Self {
        Self {
            settings,
            phase: Phase::Idle { retry: UnixNanos(0) },
            epoch: 0,
            failures: 0,
            ahead: Nanos::ZERO,
            clock: None,
            clock_states: [ClockState::Unknown; 2],
            latest: UnixNanos(0),
            rounds: VecDeque::new(),
            last: None,
            conclusions: Conclusions::default(),
            unacknowledged: VecDeque::new(),
            in_flight: None,
            calls: 0,
            sampling: SamplingController::default(),
            effects: VecDeque::new(),
            counts: Counts::default(),
            last_refusal: None,
        }
    }

    /// Sets the state of this end's clock.
    pub const fn set_clock_state(&mut self, state: ClockState) {
        self.clock_states[0] = state;
    }

    /// The next action at `now`. Call it again after carrying out the action, after [`Self::complete`] or
    /// [`Self::add_interval`], and at the time of [`Action::Wait`].
    pub fn poll(&mut self, now: UnixNanos, random: &mut dyn FnMut() -> u64) -> Action {
        self.follow_clock(now);
        if let Some(request) = self.in_flight
            && now.since(request.sent) >= self.settings.response_timeout
        {
            self.complete(request.call, None, now, random);
        }
        self.expire(now);
        if self.in_flight.is_none()
            && let Some((interval, request)) = self.request(now, random)
        {
            self.calls += 1;
            let delivery = Delivery::of(&request);
            self.in_flight = Some(InFlightRequest { call: self.calls, interval, sent: now, delivery });
            return Action::Send { call: self.calls, request: Box::new(request) };
        }
        Action::Wait(self.next())
    }

    fn next(&self) -> UnixNanos {
        let timeout = self.in_flight.map(|request| request.sent.plus(self.settings.response_timeout));
        let start = match self.phase {
            Phase::Idle { retry } if self.in_flight.is_none() => Some(retry),
            _ => None,
        };
        let idle = self.in_flight.is_none();
        let rounds = self.rounds.iter().map(|round| if idle { round.due.min(round.deadline) } else { round.deadline });
        rounds.chain(timeout).chain(start).min().unwrap_or(UnixNanos(u64::MAX))
    }

    fn request(&mut self, now: UnixNanos, random: &mut dyn FnMut() -> u64) -> Option<(Option<u64>, Request)> {
        let (stream, clock_state) = (self.settings.stream.clone(), self.clock_states[0]);
        let request = move |epoch, interval, body| Request { stream, epoch, interval, clock_state, body };
        match &self.phase {
            Phase::Starting(_) => None,
            Phase::Idle { retry } if now < *retry => None,
            Phase::Idle { .. } => {
                self.epoch = now.0.max(self.epoch + 1);
                let plan = self.plan(now, random);
                let start = request(self.epoch, 0, RequestBody::Start(plan.clone()));
                self.phase = Phase::Starting(plan);
                Some((None, start))
            }
            Phase::Running(plan) => {
                let due = self.rounds.iter().filter(|round| round.due <= now).min_by_key(|round| round.due)?;
                let body = match due.step {
                    Step::Finish => RequestBody::Finish {
                        reports: self.unacknowledged.iter().take(MAX_REPORTS).copied().collect(),
                        sampling: self.sampling.unacknowledged(),
                    },
                    _ => due.request(plan, due.clock.or(self.clock))?,
                };
                Some((Some(due.interval), request(self.epoch, due.interval, body)))
            }
        }
    }

    /// Adds the packets of an interval that has ended.
    pub fn add_interval(&mut self, interval: IntervalPackets, now: UnixNanos, random: &mut dyn FnMut() -> u64) {
        let IntervalPackets { interval, counters, packets, rekeyed } = interval;
        let step = match packets {
            Packets::Each(cache) => Step::Cells { cache, attempt: 0, seed: random(), least_cells: 0 },
            Packets::Sent(finecomb) => Step::Buckets(finecomb),
            Packets::Unread => {
                if self.runs() {
                    self.last = Some(interval);
                    self.conclusions.add_final(Report::unknown(interval, Flags::MISSED));
                    self.conclude();
                }
                return;
            }
            Packets::Received(_) => return,
        };
        let Phase::Running(plan) = &self.phase else {
            if let Step::Cells { cache: Some(cache), .. } = step {
                self.effects.push_back(Effect::GiveBack(cache));
            }
            return;
        };
        let ends = plan.begin_of(interval + 1);
        let deadline = ends.plus(self.settings.deadline).max(now);
        if self.rounds.len() == MAX_ROUNDS
            && let Some(mut oldest) = self.rounds.pop_front()
        {
            let outcome = oldest.expire();
            self.follow(oldest, outcome, now);
        }
        self.last = Some(interval);
        self.sampling.interval_ended(counters.overflowed);
        let (failures, due) = (0, now);
        let (theirs, clock) = (None, None);
        self.rounds.push_back(Round {
            interval,
            deadline,
            due,
            failures,
            ours: counters,
            rekeyed,
            theirs,
            clock,
            step,
        });
    }

    /// Completes a call with its response, or with `None` if there was none.
    pub fn complete(&mut self, call: u64, response: Option<Response>, now: UnixNanos, random: &mut dyn FnMut() -> u64) {
        let Some(request) = self.in_flight.filter(|request| request.call == call) else {
            self.counts.stale += 1;
            return;
        };
        self.in_flight = None;
        let Some(response) = response else {
            self.counts.timeouts += 1;
            return self.retry(request.interval, now, None);
        };
        if response.epoch != self.epoch || response.interval != request.interval.unwrap_or(0) {
            // The response to another request. Ignored.
            self.counts.stale += 1;
            return self.retry(request.interval, now, None);
        }
        let clock = ClockOffset::measured(request.sent, now, response.clock);
        self.clock = Some(clock);
        self.clock_states[1] = response.clock_state;
        match request.interval {
            None => self.started(&response, clock, now),
            Some(interval) => {
                self.round_response((interval, request.delivery), response.body, clock, now, random);
            }
        }
    }

    /// Schedules the request of an interval, or of a start, again: after the time that the receiver asked for, or else
    /// with exponential back-off.
    fn retry(&mut self, interval: Option<u64>, now: UnixNanos, retry_after: Option<Nanos>) {
        let length = self.settings.length;
        match interval {
            None => {
                self.failures = self.failures.saturating_add(1);
                let pauses = Pauses::new(self.settings.start_margin, MAX_PAUSE);
                let pause = pauses.after(self.failures, NO_JITTER);
                self.phase = Phase::Idle { retry: now.plus(pause) };
            }
            Some(interval) => {
                if let Some(round) = self.rounds.iter_mut().find(|round| round.interval == interval) {
                    round.failures = round.failures.saturating_add(1);
                    let pauses = Pauses::new(Nanos(length.0 / 64), Nanos(length.0 / 2));
                    let bounded = |after: Nanos| after.clamp(soon(length).min(length), length);
                    let pause = retry_after.map_or(pauses.after(round.failures, NO_JITTER), bounded);
                    round.due = now.plus(pause);
                }
            }
        }
    }

    fn round_response(
        &mut self,
        (interval, delivery): (u64, Delivery),
        body: ResponseBody,
        clock: ClockOffset,
        now: UnixNanos,
        random: &mut dyn FnMut() -> u64,
    ) {
        let Phase::Running(plan) = &self.phase else { return };
        let Some(at) = self.rounds.iter().position(|round| round.interval == interval) else {
            self.counts.stale += 1;
            return;
        };
        if let ResponseBody::Refused(refusal) = &body {
            return self.run_refused(refusal, at, now);
        }
        let Some(mut round) = self.rounds.remove(at) else { return };
        if round.clock.is_none_or(|best| clock.uncertainty_ns < best.uncertainty_ns) {
            round.clock = Some(clock);
        }
        let finished = matches!(body, ResponseBody::Finished);
        let outcome = round.receive(body, plan, random);
        if finished && matches!(outcome, Outcome::Done) {
            // Reports that have become final since the request was sent are in the next one.
            self.unacknowledged.retain(|report| report.interval >= delivery.reports_before);
            self.sampling.acknowledge(delivery.sampling);
        }
        self.follow(round, outcome, now);
    }

    fn run_refused(&mut self, refusal: &Refusal, at: usize, now: UnixNanos) {
        match refusal {
            // The receiver has restarted, or another sender has started a run.
            Refusal::Epoch(_) | Refusal::UnknownStream(_) => {
                self.refused(refusal);
                self.restart(now);
            }
            _ => {
                self.counts.invalid += 1;
                if let Some(round) = self.rounds.remove(at) {
                    self.follow(round, Outcome::Failed(Flags::PARAMETER_MISMATCH), now);
                }
            }
        }
    }

    /// Ends this run and all intervals in progress, and starts another run.
    fn restart(&mut self, now: UnixNanos) {
        for mut round in core::mem::take(&mut self.rounds) {
            let outcome = round.expire();
            self.follow(round, outcome, now);
        }
        self.rounds.clear();
        while let Some(report) = self.conclusions.drain() {
            self.effects.push_back(Effect::Report(report));
        }
        self.unacknowledged.clear();
        self.in_flight = None;
        self.phase = Phase::Idle { retry: now };
    }

    /// Acts on the outcome of a round.
    fn follow(&mut self, mut round: Round, outcome: Outcome, now: UnixNanos) {
        let interval = round.interval;
        match outcome {
            Outcome::Next => {
                (round.due, round.failures) = (now, 0);
                return self.insert(round);
            }
            Outcome::RetryAfter(retry_after) => {
                self.insert(round);
                return self.retry(Some(interval), now, Some(retry_after));
            }
            Outcome::Invalid => {
                self.counts.invalid += 1;
                self.insert(round);
                return self.retry(Some(interval), now, None);
            }
            Outcome::Compared(mut comparison, cache) => {
                self.effects.extend(cache.map(Effect::GiveBack));
                round.flag(&mut comparison.report, self.settings.clock_bound, self.clock_state());
                let theirs = round.theirs.unwrap_or_default();
                comparison.before = Flags::of_previous(&round.ours, &theirs);
                let sampling = self.sampling.update(&round.ours, &theirs, self.last.unwrap_or(0));
                self.effects.extend(sampling.map(Effect::Sample));
                self.conclusions.add_comparison(*comparison);
                round.step = Step::Finish;
                (round.due, round.failures) = (now, 0);
                if now < round.deadline {
                    self.insert(round);
                }
            }
            Outcome::Report(mut report) => {
                round.theirs = None;
                let clock = report.clock;
                round.flag(&mut report, self.settings.clock_bound, self.clock_state());
                report.clock = round.clock.or(clock);
                self.conclusions.add_final(report);
            }
            Outcome::Failed(flags) => {
                let mut report = Report { sent: Some(round.ours.packets), ..Report::unknown(interval, flags) };
                round.flag(&mut report, self.settings.clock_bound, self.clock_state());
                self.conclusions.add_final(report);
                self.effects.extend(round.into_cache().map(Effect::GiveBack));
            }
            Outcome::Done => {}
        }
        self.conclude();
    }

    /// State of both clocks together.
    const fn clock_state(&self) -> ClockState {
        self.clock_states[0].and(self.clock_states[1])
    }

    fn insert(&mut self, round: Round) {
        let at = self.rounds.partition_point(|other| other.interval < round.interval);
        self.rounds.insert(at, round);
    }

    /// Takes the reports that have become final.
    fn conclude(&mut self) {
        let rounds = &self.rounds;
        let in_progress = |interval: u64| {
            rounds.iter().any(|round| round.interval == interval && !matches!(round.step, Step::Finish | Step::Done))
        };
        while let Some(report) = self.conclusions.next(in_progress, self.last) {
            self.effects.push_back(Effect::Report(report));
            // With FineComb and LDA the receiver has computed the report.
            if matches!(self.settings.synopsis, Synopsis::Rda { .. }) {
                self.unacknowledged.push_back(report);
            }
        }
        while self.unacknowledged.len() > MAX_REPORTS {
            self.unacknowledged.pop_front();
        }
    }

    fn expire(&mut self, now: UnixNanos) {
        while let Some(at) = self.rounds.iter().position(|round| round.deadline <= now) {
            let Some(mut round) = self.rounds.remove(at) else { return };
            if self.in_flight.is_some_and(|request| request.interval == Some(round.interval)) {
                self.in_flight = None;
                self.counts.timeouts += 1;
            }
            let outcome = round.expire();
            self.follow(round, outcome, now);
        }
    }

    /// Effects since the last call, to be carried out in this order.
    pub fn take_effects(&mut self) -> impl Iterator<Item = Effect> {
        core::mem::take(&mut self.effects).into_iter()
    }

    /// Whether a run is going on.
    #[must_use]
    pub const fn runs(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// Ignored messages and timeouts.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of the caches of the intervals in progress.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |round: &Round| match &round.step {
            Step::Cells { cache: Some(cache), .. } => cache.memory_bytes(),
            _ => 0,
        };
        self.rounds.iter().map(of).sum()
    }
}

/// Adds the effect that returns a cache's memory.
pub(crate) fn give_back(cache: Option<Cache>, effects: &mut VecDeque<Effect>) {
    effects.extend(cache.map(Effect::GiveBack));
}
