//! Fridges: alone in a switch, several by intervals, and beside other synopses.

use equality::control::Local;
use equality::frames::{AGENT_PORT, Captured, Frames};
use equality::interpreter::Machine;
use equality::traffic::Traffic;
use equality::vectors::Vector;
use equality::{fridge, fridges};
use packets::delays::Interval;
use packets::switch::Constants;
use packets::switch::readout::{FridgeReadout, Reading, SwitchInterval};
use packets::switch::registers::SwitchRegisters;
use packets::{Delays, DelaysSettings, Filter, Pair};
use synopses::fridge::{Histogram, HistogramShape, Sample, Tally};

use crate::{constants, machine, subject};

/// Programs with a fridge, or with several.
const PROGRAMS: [&str; 4] = ["fridge", "fridges", "fridges-hardware", "together"];
/// Time between two polls, of the agent's clock.
const SECOND: u64 = 1_000_000_000;
/// The key of the compiled programs (`model.rs`).
const SECRET: u128 = 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978;
const SHAPE: HistogramShape = HistogramShape { tick_shift: 10, fineness: 3 };

/// What measures the same packets on a host.
trait Host {
    fn insert(&mut self, captured: &Captured);
    fn end_interval(&mut self, now_ns: u64) -> Interval;
}

/// The agent's own path, with the fridge that the program has.
struct OwnPath {
    counts: Frames,
    delays: Delays,
}

impl OwnPath {
    fn new(constants: &Constants) -> Self {
        let delays = Delays::new(DelaysSettings {
            pair: Pair::Handshake,
            filter: Filter::default(),
            fridge: fridge::settings(),
            histogram: SHAPE,
            tuned: false,
            secret: SECRET,
        });
        Self { counts: Frames::new(constants), delays: delays.expect("settings of the tested program") }
    }
}

impl Host for OwnPath {
    fn insert(&mut self, captured: &Captured) {
        if let Some(packet) = self.counts.count(captured) {
            let _ = self.delays.insert(&packet);
        }
    }

    fn end_interval(&mut self, now_ns: u64) -> Interval {
        self.delays.end_interval(now_ns)
    }
}

/// The library's fridges, with the histogram that the agent's own path has.
struct SeveralFridges {
    counts: Frames,
    reference: fridges::Reference,
    histogram: Histogram,
    packets: u64,
    before: Tally,
}

impl SeveralFridges {
    fn new(constants: &Constants) -> Self {
        Self {
            counts: Frames::new(constants),
            reference: fridges::Reference::new(constants).expect("settings of the tested program"),
            histogram: Histogram::new(SHAPE).expect("a shape"),
            packets: 0,
            before: Tally::default(),
        }
    }
}

impl Host for SeveralFridges {
    fn insert(&mut self, captured: &Captured) {
        self.packets += u64::from(self.counts.count(captured).is_some());
        if let Some(report) = self.reference.insert(captured) {
            self.histogram.insert(Sample { delay_ns: report.delay_ns, weight: report.total_weight() });
        }
    }

    fn end_interval(&mut self, _: u64) -> Interval {
        let fridges = self.reference.fridges();
        let tally = since(&fridges.tally(), &core::mem::replace(&mut self.before, fridges.tally()));
        let packets = core::mem::take(&mut self.packets);
        let interval = Interval::of(&self.histogram, tally, packets, 0, fridges.probabilities().sum());
        self.histogram.clear();
        interval
    }
}

/// What was counted from one tally to the other.
fn since(now: &Tally, before: &Tally) -> Tally {
    Tally {
        requests: now.requests - before.requests,
        admitted: now.admitted - before.admitted,
        duplicate_requests: now.duplicate_requests - before.duplicate_requests,
        evicted: now.evicted - before.evicted,
        responses: now.responses - before.responses,
        matched: now.matched - before.matched,
        unmatched: now.unmatched - before.unmatched,
        clock_anomaly: now.clock_anomaly - before.clock_anomaly,
        ..Tally::default()
    }
}

fn host(constants: &Constants) -> Box<dyn Host> {
    if constants.folder() == "fridges" {
        Box::new(SeveralFridges::new(constants))
    } else {
        Box::new(OwnPath::new(constants))
    }
}

/// What differs between two intervals of the same packets: nothing but their length, which is of the agent's clock with
/// a switch, and of the packets' with the host.
fn without_length(interval: &Interval) -> Interval {
    Interval { length_ns: 0, ..*interval }
}

/// Polls a switch after every `every` frames, and compares each interval with the host's. Returns how many there were,
/// and their samples.
fn compare(program: &'static str, frames: impl Iterator<Item = Captured>, every: usize) -> (u64, u64) {
    let constants = constants(program);
    let mut readout = FridgeReadout::new(&constants, SECOND).expect("constants of a fridge");
    let (mut machine, mut host) = (machine(program), host(&constants));
    let mut poll = |machine: &Machine, host: &mut dyn Host, number: u64| {
        let mut switch = Local(machine, program);
        let (fridge, frames) = (switch.fridge().expect("a fridge"), switch.frames().expect("frames"));
        let reading = readout.read(&frames, &fridge, number * SECOND).expect("its own constants");
        (reading, host.end_interval(number * SECOND))
    };
    assert_eq!(poll(&machine, &mut *host, 1).0, Reading::Begun);
    let (mut number, mut samples) = (1, 0);
    let mut frames = frames.peekable();
    let mut since = 0;
    while let Some(captured) = frames.next() {
        machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
        host.insert(&captured);
        since += 1;
        if since == every || frames.peek().is_none() {
            (since, number) = (0, number + 1);
            let (reading, expected) = poll(&machine, &mut *host, number);
            assert!(matches!(reading, Reading::Interval(_)), "interval {number} is none");
            let Reading::Interval(interval) = reading else { break };
            assert_eq!((interval.overrun, interval.lost_polls), (0, 0));
            assert_eq!(without_length(&interval.delays), without_length(&expected), "interval {number}");
            samples += interval.delays.tally.matched;
        }
    }
    (number - 1, samples)
}

#[test]
fn intervals_of_each_golden_vector_are_those_of_the_host() {
    for program in PROGRAMS {
        for vector in Vector::read_all(subject(program)).expect("vectors of the program") {
            let (intervals, _) = compare(program, vector.frames.iter().cloned(), 100);

            assert!(intervals > 0, "{program}, {}", vector.name);
        }
    }
}

#[test]
fn intervals_of_random_frames_are_those_of_the_host() {
    for (program, seed, damaged) in [
        ("fridge", 21, 0.0),
        ("fridge", 22, 0.2),
        ("together", 23, 0.1),
        ("fridges", 24, 0.0),
        ("fridges", 25, 0.2),
        ("fridges-hardware", 26, 0.1),
    ] {
        let (intervals, samples) = compare(program, Traffic::new(seed, damaged).take(10_000), 700);

        assert!(intervals == 15 && samples > 500, "{program}, seed {seed}: {samples} samples");
    }
}

/// A switch, an agent near it, and the host with the same packets.
struct Watched {
    program: &'static str,
    machine: Machine,
    agent: FridgeReadout,
    host: Box<dyn Host>,
}

impl Watched {
    fn new(program: &'static str) -> Self {
        Self { program, machine: machine(program), agent: agent(program), host: host(&constants(program)) }
    }

    fn pass(&mut self, frames: &[Captured]) {
        for captured in frames {
            self.machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
            self.host.insert(captured);
        }
    }

    /// Polls the switch at a tenth of a second, and ends the host's interval.
    fn poll(&mut self, tenths: u64) -> (Option<SwitchInterval>, Interval) {
        let mut switch = Local(&self.machine, self.program);
        let (fridge, frames) = (switch.fridge().expect("a fridge"), switch.frames().expect("frames"));
        let reading = self.agent.read(&frames, &fridge, tenths * SECOND / 10).expect("its own constants");
        let interval = if let Reading::Interval(interval) = reading { Some(*interval) } else { None };
        (interval, self.host.end_interval(tenths * SECOND / 10))
    }

    /// Likewise, where there is an interval between two tenths: that of the host, without flags. Returns its requests.
    fn interval(&mut self, from: u64, to: u64) -> u64 {
        let (interval, expected) = self.poll(to);
        let SwitchInterval { delays, overrun, lost_polls, .. } = interval.expect("an interval");
        assert_eq!(without_length(&delays), without_length(&expected), "{}, {to}", self.program);
        assert_eq!((delays.length_ns, overrun, lost_polls), ((to - from) * SECOND / 10, 0, 0), "{}", self.program);
        delays.tally.requests
    }
}

fn agent(program: &str) -> FridgeReadout {
    FridgeReadout::new(&constants(program), SECOND).expect("constants of a fridge")
}

#[test]
fn an_agent_that_starts_again_has_what_comes_from_then_on_and_nothing_twice() {
    for program in PROGRAMS {
        let frames: Vec<_> = Traffic::new(61, 0.0).take(3_000).collect();
        let mut watched = Watched::new(program);
        assert_eq!(watched.poll(10).0, None);
        watched.pass(&frames[..1_000]);
        let before = watched.interval(10, 20);

        // It ends in the middle of an interval, of which the next one has the last three tenths.
        watched.pass(&frames[1_000..1_700]);
        watched.agent = agent(program);
        let (none, nobody) = watched.poll(27);
        assert_eq!(none, None);
        watched.pass(&frames[1_700..2_000]);
        let part = watched.interval(27, 30);
        watched.pass(&frames[2_000..]);
        let whole = watched.interval(30, 40);

        let all = Local(&watched.machine, program).fridge_counts().expect("a fridge").requests;
        assert_eq!(before + nobody.tally.requests + part + whole, u64::from(all), "{program}");
    }
}

#[test]
fn a_switch_that_starts_again_costs_the_interval_in_which_it_does() {
    for program in PROGRAMS {
        let frames: Vec<_> = Traffic::new(62, 0.0).take(3_000).collect();
        let mut watched = Watched::new(program);
        assert_eq!(watched.poll(10).0, None);
        watched.pass(&frames[..1_000]);
        let before = watched.interval(10, 20);
        watched.pass(&frames[1_000..1_500]);

        // Registers are 0, and its time begins anew.
        let began_ns = frames[1_500].time_ns - SECOND;
        let since = |captured: &Captured| {
            let (time_ns, bytes) = (captured.time_ns - began_ns, captured.bytes.clone());
            Captured { time_ns, bytes }
        };
        let later: Vec<_> = frames[1_500..].iter().map(since).collect();
        watched = Watched { agent: watched.agent, ..Watched::new(program) };
        watched.pass(&later[..500]);
        let (none, nobody) = watched.poll(30);
        assert_eq!(none, None, "its counts went back");
        watched.pass(&later[500..]);
        let whole = watched.interval(30, 40);

        let all = Local(&watched.machine, program).fridge_counts().expect("a fridge").requests;
        assert!(before > 100, "{before}");
        assert_eq!(nobody.tally.requests + whole, u64::from(all), "{program}");
    }
}
