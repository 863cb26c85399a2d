//! Two ends of a stream in virtual time, packets that are delayed, lost and overtake each other, and messages to which anything may happen.

use std::collections::BTreeMap;

use exchange::gathering::GatheringSettings;
use exchange::{
    Answer, ClockState, Effect, End, Gathering, Question, Receiver, ReceiverSettings, Report, Sender, SenderSettings,
    Synopsis, Todo,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use synopses::digest::{Digest, DigestKey};

pub const MS: u64 = 1_000_000;
/// Of an interval.
pub const LENGTH: u64 = 200 * MS;
/// When the world begins: not 0, since times are since 1970.
pub const DAWN: u64 = 1_700_000_000_000 * MS;

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    Lost,
}

type Hook<T> = Box<dyn FnMut(&mut T, u64) -> Fate>;

/// What the world is like.
pub struct Nature {
    pub synopsis: Synopsis,
    /// Packets in a millisecond.
    pub rate: u64,
    /// Of packets: least and most, in nanoseconds.
    pub delay: (u64, u64),
    pub loss: f64,
    /// Of messages: the share that is lost, doubled, said again later.
    pub message_loss: f64,
    pub doubled: f64,
    pub replayed: f64,
    /// Of messages, in nanoseconds.
    pub message_delay: (u64, u64),
    /// How far each end's clock is ahead.
    pub clocks: [i64; 2],
    /// Packets of an interval that each end has room for.
    pub room: [usize; 2],
    pub seed: u64,
}

impl Nature {
    pub fn kind(seed: u64) -> Self {
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
            room: [20_000; 2],
            seed,
        }
    }
}

/// What became of the packets that were sent in an interval, by each end's own clock.
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
    Question { call: u64, question: Question },
    Answer { call: u64, answer: Answer },
}

pub struct World {
    pub nature: Nature,
    pub now: u64,
    pub sender: Sender,
    pub receiver: Receiver,
    gathering: [Option<Gathering>; 2],
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    random: ChaCha8Rng,
    pub reports: [Vec<Report>; 2],
    /// Of runs before.
    pub before: [Vec<Report>; 2],
    /// From the first interval of the run that goes on.
    pub truth: BTreeMap<u64, Truth>,
    begins: u64,
    old: Vec<(u64, Question)>,
    pub on_question: Hook<Question>,
    pub on_answer: Hook<Answer>,
    pub refusals: [Vec<String>; 2],
    pub runs: u64,
    /// Questions by their kind.
    pub asked: BTreeMap<&'static str, u64>,
    /// A packet that one end does not get to see: its kernel drops so many of a thousand.
    pub dropped: [u64; 2],
    pub oversized: bool,
    /// In this interval of an end's, one packet of a thousand is handed over when the next interval ends.
    pub dawdles: Option<(usize, u64)>,
    held: Vec<(u64, usize, u64, u64)>,
    /// What each end's kernel says of its clock.
    pub kept: [ClockState; 2],
    /// Packets pass, that is, not before the traffic begins and not after it ends.
    pub silent: [bool; 2],
}

pub fn kind_of(question: &Question) -> &'static str {
    match question.ask {
        exchange::Ask::Start(_) => "start",
        exchange::Ask::Request { .. } => "request",
        exchange::Ask::Missing(_) => "missing",
        exchange::Ask::Buckets { .. } => "buckets",
        exchange::Ask::Finish { .. } => "finish",
    }
}

/// By a key.
fn named(id: u64) -> impl Fn(&DigestKey) -> Digest {
    move |key| key.digest(&id.to_le_bytes())
}

impl World {
    pub fn new(nature: Nature) -> Self {
        let sender = Sender::new(SenderSettings::new("shop".to_owned(), LENGTH, nature.synopsis.clone()));
        let receiver = Receiver::new(ReceiverSettings::new(LENGTH, nature.synopsis.clone()));
        Self::of(nature, sender, receiver)
    }

    pub fn of(nature: Nature, sender: Sender, receiver: Receiver) -> Self {
        Self {
            now: DAWN,
            sender,
            receiver,
            gathering: [None, None],
            events: BTreeMap::new(),
            number: 0,
            random: ChaCha8Rng::seed_from_u64(nature.seed),
            reports: [Vec::new(), Vec::new()],
            before: [Vec::new(), Vec::new()],
            truth: BTreeMap::new(),
            begins: u64::MAX,
            old: Vec::new(),
            on_question: Box::new(|_, _| Fate::Passes),
            on_answer: Box::new(|_, _| Fate::Passes),
            refusals: [Vec::new(), Vec::new()],
            runs: 0,
            asked: BTreeMap::new(),
            dropped: [0; 2],
            oversized: false,
            dawdles: None,
            held: Vec::new(),
            kept: [ClockState::Unknown; 2],
            silent: [false; 2],
            nature,
        }
    }

    fn clock(&self, end: usize) -> u64 {
        self.now.wrapping_add_signed(self.nature.clocks[end])
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.number += 1;
        self.events.insert((self.now + delay, self.number), event);
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random::<f64>() < share
    }

    /// Goes on for so many milliseconds.
    pub fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.traffic();
            let now = self.now;
            for (_, end, id, at) in self.held.extract_if(.., |(due, ..)| *due <= now) {
                let gathering = self.gathering[end].as_mut().expect("it was there");
                gathering.insert(at, named(id), |_| Digest(0));
            }
            let until = self.now + MS;
            while let Some((&(at, number), _)) = self.events.first_key_value()
                && at <= until
            {
                self.now = self.now.max(at);
                let event = self.events.remove(&(at, number)).expect("it was there");
                self.happen(event);
                self.turn();
            }
            self.now = until;
            self.turn();
        }
    }

    fn traffic(&mut self) {
        for step in 0..self.nature.rate {
            let sent = self.now + step * (MS / self.nature.rate);
            let at = sent.wrapping_add_signed(self.nature.clocks[0]);
            let (id, flow) = (self.random.random(), self.random.random_range(0..500));
            if self.silent[0] {
                continue;
            }
            let seen = self.random.random_range(0..1000) >= self.dropped[0];
            if let Some(gathering) = &mut self.gathering[0] {
                if !seen {
                    gathering.missed(1);
                } else if self.dawdles.is_some_and(|late| late == (0, at.wrapping_sub(self.begins) / LENGTH))
                    && id % 1_000 == 0
                {
                    self.held.push((at + LENGTH, 0, id, at));
                } else {
                    gathering.insert(at, named(id), |_| Digest(flow));
                }
                if self.oversized {
                    gathering.oversized();
                }
            }
            let lost = self.chance(self.nature.loss) || self.silent[1];
            let delay = self.random.random_range(self.nature.delay.0..=self.nature.delay.1);
            if at >= self.begins {
                let truth = self.truth.entry((at - self.begins) / LENGTH).or_default();
                truth.sent += 1;
                truth.lost += u64::from(lost);
                if !lost {
                    truth.delays.push(delay as f64 + (self.nature.clocks[1] - self.nature.clocks[0]) as f64);
                }
            }
            if !lost {
                self.number += 1;
                self.events.insert((sent + delay, self.number), Event::Packet { id, flow });
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Packet { id, flow } => {
                let now = self.clock(1);
                let seen = self.random.random_range(0..1000) >= self.dropped[1];
                if let Some(gathering) = &mut self.gathering[1] {
                    if !seen {
                        gathering.missed(1);
                    } else if self.dawdles.is_some_and(|late| late == (1, now.wrapping_sub(self.begins) / LENGTH))
                        && id % 1_000 == 0
                    {
                        self.held.push((now + LENGTH, 1, id, now));
                    } else {
                        gathering.insert(now, named(id), |_| Digest(flow));
                    }
                }
            }
            Event::Question { call, question } => {
                let now = self.clock(1);
                // By way of what travels.
                let question = Question::decode(question.encode()).expect("what was encoded");
                self.receiver.clock_is(self.kept[1]);
                let answer = self.receiver.answer(&question, now);
                let mut answer = Answer::decode(answer.encode()).expect("what was encoded");
                if (self.on_answer)(&mut answer, self.now) == Fate::Lost || self.chance(self.nature.message_loss) {
                    return;
                }
                let delay = self.message_delay();
                self.after(delay, Event::Answer { call, answer });
            }
            Event::Answer { call, answer } => {
                let now = self.clock(0);
                let random = &mut self.random;
                self.sender.answered(call, Some(answer), now, &mut || random.random());
            }
        }
    }

    fn message_delay(&mut self) -> u64 {
        self.random.random_range(self.nature.message_delay.0..=self.nature.message_delay.1)
    }

    fn ask(&mut self, call: u64, mut question: Question) {
        *self.asked.entry(kind_of(&question)).or_default() += 1;
        if (self.on_question)(&mut question, self.now) == Fate::Lost || self.chance(self.nature.message_loss) {
            return;
        }
        if self.chance(self.nature.doubled) {
            let delay = self.message_delay() * 3;
            self.after(delay, Event::Question { call, question: question.clone() });
        }
        if self.chance(self.nature.replayed)
            && let Some((call, old)) = self.old.get(self.random.random_range(0..self.old.len().max(1))).cloned()
        {
            let delay = self.message_delay();
            self.after(delay, Event::Question { call, question: old });
        }
        if self.nature.replayed > 0.0 {
            self.old.push((call, question.clone()));
        }
        let delay = self.message_delay();
        self.after(delay, Event::Question { call, question });
    }

    fn turn(&mut self) {
        for end in [0, 1] {
            let now = self.clock(end);
            let gathered = self.gathering[end].as_mut().and_then(|gathering| gathering.poll(now));
            let random = &mut self.random;
            match (gathered, end) {
                (Some(gathered), 0) => self.sender.gathered(gathered, now, &mut || random.random()),
                (Some(gathered), _) => self.receiver.gathered(gathered, now),
                (None, _) => {}
            }
        }
        self.sender.clock_is(self.kept[0]);
        loop {
            let now = self.clock(0);
            let random = &mut self.random;
            match self.sender.poll(now, &mut || random.random()) {
                Todo::Ask { call, question } => self.ask(call, *question),
                Todo::Wait(until) => {
                    assert!(until > now || until == u64::MAX, "the sender waits for what has come: {until} at {now}");
                    break;
                }
            }
        }
        let now = self.clock(1);
        self.receiver.poll(now);
        let effects: Vec<_> = self.sender.take_effects().map(|effect| (0, effect)).collect();
        let more: Vec<_> = self.receiver.take_effects().map(|effect| (1, effect)).collect();
        for (end, effect) in effects.into_iter().chain(more) {
            self.follow(end, effect);
        }
    }

    fn follow(&mut self, end: usize, effect: Effect) {
        match effect {
            Effect::Gather(plan) => {
                if end == 0 {
                    (self.begins, self.runs) = (plan.begins_ns, self.runs + 1);
                    self.truth.clear();
                    for (before, reports) in self.before.iter_mut().zip(&mut self.reports) {
                        before.append(reports);
                    }
                }
                let of = [End::Sender, End::Receiver][end];
                let settings = GatheringSettings { end: of, packets: self.nature.room[end], grace_ns: 5 * MS };
                self.gathering[end] = Some(Gathering::new(plan, settings).expect("a plan that was agreed on"));
            }
            Effect::Sample(sampling) => {
                if let Some(gathering) = &mut self.gathering[end] {
                    gathering.sample(sampling);
                }
            }
            Effect::GiveBack(cache) => {
                if let Some(gathering) = &mut self.gathering[end] {
                    gathering.give_back(cache);
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

    /// What must hold of whatever is trusted, whatever happened to messages.
    pub fn check(&self, end: usize, exact: bool) -> usize {
        let mut trusted = 0;
        for report in &self.reports[end] {
            let Some(truth) = self.truth.get(&report.interval) else {
                // No packets, or the receiver is in a run whose beginning the sender has not heard of.
                let why = if end == 1 {
                    exchange::Flags::NO_PEER_DATA | exchange::Flags::EMPTY
                } else {
                    exchange::Flags::EMPTY
                };
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
                let all = report.flags.any(exchange::Flags::SAMPLED);
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
