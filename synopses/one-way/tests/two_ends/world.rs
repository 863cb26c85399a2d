//! Simulation of a stream with two ends in virtual time: packets are delayed, lost and reordered, messages are delayed,
//! lost, duplicated and replayed.

use std::collections::BTreeMap;
use std::ops::Range;

use one_way::collector::CollectorSettings;
use one_way::{
    Action, ClockState, Collector, Effect, End, Receiver, ReceiverSettings, Report, Request, Response, Sender,
    SenderSettings, Synopsis,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use synopses::digest::{Digest, DigestKey};
use wire::time::{Nanos, UnixNanos};

pub const MS: u64 = 1_000_000;
/// Length of an interval.
pub const LENGTH: u64 = 200 * MS;
/// When the simulation begins: not 0, since times are since 1970.
pub const START: u64 = 1_700_000_000_000 * MS;

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    Lost,
}

type Hook<T> = Box<dyn FnMut(&mut T, u64) -> Fate>;

/// Traffic, network and clocks of a simulation.
pub struct Scenario {
    pub synopsis: Synopsis,
    /// Packets in a millisecond.
    pub rate: u64,
    /// Smallest and largest delay of packets in nanoseconds.
    pub delay: (u64, u64),
    pub loss: f64,
    /// Shares of messages that are lost, duplicated, and replayed later.
    pub message_loss: f64,
    pub doubled: f64,
    pub replayed: f64,
    /// Smallest and largest delay of messages in nanoseconds.
    pub message_delay: (u64, u64),
    /// How far each end's clock is ahead, in nanoseconds.
    pub clocks: [i64; 2],
    /// Memory budget of each end in packets per interval.
    pub budget: [usize; 2],
    pub seed: u64,
}

impl Scenario {
    pub fn with_seed(seed: u64) -> Self {
        Self {
            synopsis: Synopsis::RDA,
            rate: 20,
            delay: (MS, 4 * MS),
            loss: 0.005,
            message_loss: 0.0,
            doubled: 0.0,
            replayed: 0.0,
            message_delay: (MS / 10, 2 * MS),
            clocks: [0, 0],
            budget: [20_000; 2],
            seed,
        }
    }
}

/// Truth about the packets sent in an interval, by each end's own clock.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub sent: u64,
    pub lost: u64,
    pub delays: Vec<f64>,
}

impl Truth {
    pub fn mean(&self) -> f64 {
        self.delays.iter().sum::<f64>() / self.delays.len() as f64
    }

    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        (self.delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / self.delays.len() as f64).sqrt()
    }
}

enum Event {
    Packet { id: u64, flow: u64 },
    Request { call: u64, request: Request },
    Response { call: u64, response: Response },
}

pub struct World {
    pub scenario: Scenario,
    pub now: u64,
    pub sender: Sender,
    pub receiver: Receiver,
    collector: [Option<Collector>; 2],
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    random: ChaCha8Rng,
    pub reports: [Vec<Report>; 2],
    /// Reports of previous runs.
    pub before: [Vec<Report>; 2],
    /// By interval of the current run.
    pub truth: BTreeMap<u64, Truth>,
    begins: u64,
    old: Vec<(u64, Request)>,
    pub on_request: Hook<Request>,
    pub on_response: Hook<Response>,
    pub refusals: [Vec<String>; 2],
    pub runs: u64,
    /// Number of requests by kind.
    pub requests: BTreeMap<&'static str, u64>,
    /// Packets in a thousand that an end's kernel drops.
    pub dropped: [u64; 2],
    /// End and interval in which an end's kernel drops all packets of these milliseconds.
    pub dropped_at: Option<(usize, u64, Range<u64>)>,
    pub oversized: bool,
    /// End and interval in which one packet of a thousand is delivered only when the next interval ends.
    pub delayed_handover: Option<(usize, u64)>,
    undelivered: Vec<(u64, usize, u64, u64)>,
    /// State of each end's clock.
    pub clock_states: [ClockState; 2],
    /// No packets at an end: before the traffic begins, or after it ends.
    pub silent: [bool; 2],
}

pub fn kind_of(request: &Request) -> &'static str {
    match request.body {
        one_way::RequestBody::Start(_) => "start",
        one_way::RequestBody::Cells { .. } => "cells",
        one_way::RequestBody::Times(_) => "times",
        one_way::RequestBody::Buckets { .. } => "buckets",
        one_way::RequestBody::Finish { .. } => "finish",
    }
}

/// The digest of a packet under a key.
fn digest_of(id: u64) -> impl Fn(&DigestKey) -> Digest {
    move |key| key.digest(&id.to_le_bytes())
}

impl World {
    pub fn new(scenario: Scenario) -> Self {
        let sender = Sender::new(SenderSettings::new("shop".to_owned(), Nanos(LENGTH), scenario.synopsis.clone()));
        let receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), scenario.synopsis.clone()));
        Self::of(scenario, sender, receiver)
    }

    pub fn of(scenario: Scenario, sender: Sender, receiver: Receiver) -> Self {
        Self {
            now: START,
            sender,
            receiver,
            collector: [None, None],
            events: BTreeMap::new(),
            number: 0,
            random: ChaCha8Rng::seed_from_u64(scenario.seed),
            reports: [Vec::new(), Vec::new()],
            before: [Vec::new(), Vec::new()],
            truth: BTreeMap::new(),
            begins: u64::MAX,
            old: Vec::new(),
            on_request: Box::new(|_, _| Fate::Passes),
            on_response: Box::new(|_, _| Fate::Passes),
            refusals: [Vec::new(), Vec::new()],
            runs: 0,
            requests: BTreeMap::new(),
            dropped: [0; 2],
            dropped_at: None,
            oversized: false,
            delayed_handover: None,
            undelivered: Vec::new(),
            clock_states: [ClockState::Unknown; 2],
            silent: [false; 2],
            scenario,
        }
    }

    fn clock(&self, end: usize) -> u64 {
        self.now.wrapping_add_signed(self.scenario.clocks[end])
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.number += 1;
        self.events.insert((self.now + delay, self.number), event);
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random::<f64>() < share
    }

    /// Runs the simulation for this many milliseconds.
    pub fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.traffic();
            let now = self.now;
            for (_, end, id, at) in self.undelivered.extract_if(.., |(due, ..)| *due <= now) {
                let collector = self.collector[end].as_mut().expect("it was there");
                collector.insert(UnixNanos(at), digest_of(id), |_| Digest(0));
            }
            let until = self.now + MS;
            while let Some((&(at, number), _)) = self.events.first_key_value()
                && at <= until
            {
                self.now = self.now.max(at);
                let event = self.events.remove(&(at, number)).expect("it was there");
                self.handle(event);
                self.turn();
            }
            self.now = until;
            self.turn();
        }
    }

    fn drops_at(&self, end: usize, at: u64) -> bool {
        self.dropped_at.as_ref().is_some_and(|(drops, interval, milliseconds)| {
            let since = at.wrapping_sub(self.begins).wrapping_sub(interval * LENGTH);
            *drops == end && milliseconds.contains(&(since / MS))
        })
    }

    fn traffic(&mut self) {
        for step in 0..self.scenario.rate {
            let sent = self.now + step * (MS / self.scenario.rate);
            let at = sent.wrapping_add_signed(self.scenario.clocks[0]);
            let (id, flow) = (self.random.random(), self.random.random_range(0..500));
            if self.silent[0] {
                continue;
            }
            let seen = self.random.random_range(0..1000) >= self.dropped[0] && !self.drops_at(0, at);
            if let Some(collector) = &mut self.collector[0] {
                if !seen {
                    collector.missed(1, UnixNanos(at));
                } else if self.delayed_handover.is_some_and(|late| late == (0, at.wrapping_sub(self.begins) / LENGTH))
                    && id % 1_000 == 0
                {
                    self.undelivered.push((at + LENGTH, 0, id, at));
                } else {
                    collector.insert(UnixNanos(at), digest_of(id), |_| Digest(flow));
                }
                if self.oversized {
                    collector.oversized(UnixNanos(at));
                }
            }
            let lost = self.chance(self.scenario.loss) || self.silent[1];
            let delay = self.random.random_range(self.scenario.delay.0..=self.scenario.delay.1);
            if at >= self.begins {
                let truth = self.truth.entry((at - self.begins) / LENGTH).or_default();
                truth.sent += 1;
                truth.lost += u64::from(lost);
                if !lost {
                    truth.delays.push(delay as f64 + (self.scenario.clocks[1] - self.scenario.clocks[0]) as f64);
                }
            }
            if !lost {
                self.number += 1;
                self.events.insert((sent + delay, self.number), Event::Packet { id, flow });
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Packet { id, flow } => {
                let now = self.clock(1);
                let seen = self.random.random_range(0..1000) >= self.dropped[1] && !self.drops_at(1, now);
                if let Some(collector) = &mut self.collector[1] {
                    if !seen {
                        collector.missed(1, UnixNanos(now));
                    } else if self
                        .delayed_handover
                        .is_some_and(|late| late == (1, now.wrapping_sub(self.begins) / LENGTH))
                        && id % 1_000 == 0
                    {
                        self.undelivered.push((now + LENGTH, 1, id, now));
                    } else {
                        collector.insert(UnixNanos(now), digest_of(id), |_| Digest(flow));
                    }
                }
            }
            Event::Request { call, request } => {
                let now = self.clock(1);
                // Through its encoding.
                let request = Request::decode(request.encode()).expect("what was encoded");
                self.receiver.set_clock_state(self.clock_states[1]);
                let response = self.receiver.respond(&request, UnixNanos(now));
                let mut response = Response::decode(response.encode()).expect("what was encoded");
                if (self.on_response)(&mut response, self.now) == Fate::Lost || self.chance(self.scenario.message_loss)
                {
                    return;
                }
                let delay = self.message_delay();
                self.after(delay, Event::Response { call, response });
            }
            Event::Response { call, response } => {
                let now = self.clock(0);
                let random = &mut self.random;
                self.sender.complete(call, Some(response), UnixNanos(now), &mut || random.random());
            }
        }
    }

    fn message_delay(&mut self) -> u64 {
        self.random.random_range(self.scenario.message_delay.0..=self.scenario.message_delay.1)
    }

    fn send(&mut self, call: u64, mut request: Request) {
        *self.requests.entry(kind_of(&request)).or_default() += 1;
        if (self.on_request)(&mut request, self.now) == Fate::Lost || self.chance(self.scenario.message_loss) {
            return;
        }
        if self.chance(self.scenario.doubled) {
            let delay = self.message_delay() * 3;
            self.after(delay, Event::Request { call, request: request.clone() });
        }
        if self.chance(self.scenario.replayed)
            && let Some((call, old)) = self.old.get(self.random.random_range(0..self.old.len().max(1))).cloned()
        {
            let delay = self.message_delay();
            self.after(delay, Event::Request { call, request: old });
        }
        if self.scenario.replayed > 0.0 {
            self.old.push((call, request.clone()));
        }
        let delay = self.message_delay();
        self.after(delay, Event::Request { call, request });
    }

    fn turn(&mut self) {
        for end in [0, 1] {
            let now = self.clock(end);
            let interval = self.collector[end].as_mut().and_then(|collector| collector.poll(UnixNanos(now)));
            let random = &mut self.random;
            match (interval, end) {
                (Some(interval), 0) => self.sender.add_interval(interval, UnixNanos(now), &mut || random.random()),
                (Some(interval), _) => self.receiver.add_interval(interval, UnixNanos(now)),
                (None, _) => {}
            }
        }
        self.sender.set_clock_state(self.clock_states[0]);
        loop {
            let now = self.clock(0);
            let random = &mut self.random;
            match self.sender.poll(UnixNanos(now), &mut || random.random()) {
                Action::Send { call, request } => self.send(call, *request),
                Action::Wait(UnixNanos(until)) => {
                    assert!(
                        until > now || until == u64::MAX,
                        "the sender waits for a time in the past: {until} at {now}"
                    );
                    break;
                }
            }
        }
        let now = self.clock(1);
        self.receiver.poll(UnixNanos(now));
        let effects: Vec<_> = self.sender.take_effects().map(|effect| (0, effect)).collect();
        let more: Vec<_> = self.receiver.take_effects().map(|effect| (1, effect)).collect();
        for (end, effect) in effects.into_iter().chain(more) {
            self.follow(end, effect);
        }
    }

    fn follow(&mut self, end: usize, effect: Effect) {
        match effect {
            Effect::Collect(plan) => {
                if end == 0 {
                    (self.begins, self.runs) = (plan.begins.0, self.runs + 1);
                    self.truth.clear();
                    for (before, reports) in self.before.iter_mut().zip(&mut self.reports) {
                        before.append(reports);
                    }
                }
                let of = [End::Sender, End::Receiver][end];
                let settings = CollectorSettings { end: of, packets: self.scenario.budget[end], grace: Nanos(5 * MS) };
                self.collector[end] = Some(Collector::new(plan, settings).expect("an accepted plan"));
            }
            Effect::Sample(sampling) => {
                if let Some(collector) = &mut self.collector[end] {
                    collector.sample(sampling);
                }
            }
            Effect::GiveBack(cache) => {
                if let Some(collector) = &mut self.collector[end] {
                    collector.give_back(cache);
                }
            }
            Effect::Report(report) => {
                let last = self.reports[end].last().map(|last| last.interval);
                assert!(last.is_none_or(|last| last < report.interval), "{last:?} before {report:?} at end {end}");
                self.reports[end].push(report);
            }
            Effect::Refused(why) => self.refusals[end].push(why),
        }
    }

    /// Checks all trusted figures against the truth. Returns the number of trusted means.
    pub fn check(&self, end: usize, exact: bool) -> usize {
        let mut trusted = 0;
        for report in &self.reports[end] {
            let Some(truth) = self.truth.get(&report.interval) else {
                // No packets, or the receiver is in a run whose start response the sender has not received.
                let why =
                    if end == 1 { one_way::Flags::NO_PEER_DATA | one_way::Flags::EMPTY } else { one_way::Flags::EMPTY };
                assert!(report.flags.any(why) && report.mean_ns.is_none(), "of no packets: {report:?}");
                continue;
            };
            if let Some(mean) = report.trusted_mean_ns() {
                let off = (mean / truth.mean() - 1.0).abs();
                let bound = if exact && report.flags.0 == 0 { 1e-9 } else { 0.02 };
                assert!(off < bound, "mean {mean} where it is {}: {report:?}", truth.mean());
                trusted += 1;
            }
            if let Some(deviation) = report.trusted_deviation_ns() {
                assert!((deviation / truth.deviation() - 1.0).abs() < 0.25, "{} {report:?}", truth.deviation());
            }
            if let (Some(loss), true) = (report.trusted_loss(), exact) {
                let all = report.flags.any(one_way::Flags::SAMPLED);
                assert!(
                    all || loss == truth.lost as f64 / truth.sent as f64,
                    "{truth:?} {report:?}",
                    truth = truth.lost
                );
            }
        }
        trusted
    }
}
