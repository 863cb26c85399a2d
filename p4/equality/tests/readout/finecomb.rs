//! FineComb and LDA: both ends, from marker to marker.

use std::error::Error;
use std::net::{TcpListener, TcpStream};

use equality::begun::{Begun, begins};
use equality::control::{Local, Switch};
use equality::finecomb::{of_kind, put_buckets, settings};
use equality::frames::{AGENT_PORT, Captured, Frames};
use equality::interpreter::Machine;
use equality::lda;
use equality::model::key;
use equality::registers::Registers;
use equality::traffic::{START_NS, Streams, Traffic};
use equality::vectors::Vector;
use packets::identity;
use packets::switch::clock::SwitchClock;
use packets::switch::readout::{BucketInterval, BucketReadout};
use packets::switch::registers::{SwitchRegisters, main_control};
use packets::switch::thrift::{SwitchTime, answer, answer_time, ask, ask_time};
use packets::switch::{Constants, folder, markers};
use synopses::digest::{DigestKey, DigestKind};
use synopses::finecomb::{Deviation, FineComb, Interval, Receiver, Rule, Settings, Solver};

use crate::{constants, machine, subject};

/// An interval of the clock whose number in markers is an early one to a switch that has just started.
const EARLY: u64 = 17_000_000_000;
/// One that is later than all numbers of the traffic's own markers.
const LATE: u64 = 1_700_000_000;

/// The programs with buckets, and their settings.
fn programs() -> [(&'static str, Settings); 6] {
    let hardware = of_kind(settings(), DigestKind::Hardware);
    [
        ("finecomb-sender", settings()),
        ("finecomb-receiver", settings()),
        ("lda", lda::settings()),
        ("together", settings()),
        ("finecomb-receiver-hardware", hardware.clone()),
        ("together-hardware", hardware),
    ]
}

/// The library at one end, whose intervals begin with those of the switch.
struct Host {
    frames: Frames,
    key: DigestKey,
    begun: Begun,
    receiver: Receiver,
}

impl Host {
    fn new(constants: &Constants, settings: &Settings) -> Self {
        let receiver = Receiver::new(settings).expect("settings of the tested program");
        Self { frames: Frames::new(constants), key: key(constants.kind()), begun: Begun::default(), receiver }
    }

    fn pass(&mut self, captured: &Captured) {
        let packet = self.frames.count(captured);
        if self.begun.take(captured) {
            let _ = self.receiver.sync();
        } else if let Some(packet) = packet {
            self.receiver.insert(identity::digest(&packet, &self.key), captured.time_ns);
        }
    }

    /// The interval that ended last, as if it were taken now.
    fn ended(&self) -> Interval {
        self.receiver.clone().take().expect("one has ended")
    }
}

/// Counts and sums, and digests where the program has them.
fn sums(finecomb: &FineComb, has_digests: bool) -> Registers {
    let mut registers = Registers::new();
    put_buckets(finecomb, &mut registers);
    registers.retain(|name, _| has_digests || !name.starts_with("values"));
    registers.insert("packets".to_owned(), vec![finecomb.packets()]);
    registers
}

/// Checks that a switch's interval is the host's.
#[track_caller]
fn assert_same(found: &Interval, expected: &Interval, program: &str) {
    let has_digests = program != "lda";
    assert_eq!(sums(found.finecomb(), has_digests), sums(expected.finecomb(), has_digests), "{program}");
    if folder(program) == "finecomb-receiver" {
        let stashes = |interval: &Interval| -> Vec<_> {
            let stashes = interval.start().chain(interval.end());
            stashes.map(|stash| (stash.before.to_vec(), stash.after.to_vec())).collect()
        };
        assert_eq!(stashes(found), stashes(expected), "{program}");
    }
}

/// Polls a switch after every `every` frames, and compares each interval with the host's. Returns how many there were.
fn compare(
    (program, settings): (&'static str, Settings),
    frames: impl Iterator<Item = Captured>,
    every: usize,
) -> usize {
    let constants = constants(program);
    let mut readout = BucketReadout::new(&constants).expect("an end");
    let (mut machine, mut host) = (machine(program), Host::new(&constants, &settings));
    let mut compared = 0;
    for (number, captured) in (1_usize..).zip(frames) {
        machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
        host.pass(&captured);
        if !number.is_multiple_of(every) {
            continue;
        }
        let Some(poll) = readout.poll(&mut Local(&machine, program)).expect("its registers") else { continue };
        let reading = readout.read(&poll).expect("its own constants");
        if let Some(interval) = reading.interval {
            let found = interval.received(&settings, 0).expect("its own settings");
            assert_same(&found, &host.ended(), program);
            compared += 1;
        }
    }
    compared
}

/// Frames with those in between that begin intervals from `first` on, as an agent sends them: after every `every`
/// frames.
fn with_markers(frames: impl Iterator<Item = Captured>, first: u64, every: u64) -> impl Iterator<Item = Captured> {
    (0_u64..).zip(frames).flat_map(move |(place, captured)| {
        let begins = place > 0 && place.is_multiple_of(every);
        let numbers = if begins { markers::numbers(first + place / every).to_vec() } else { Vec::new() };
        let time_ns = captured.time_ns;
        let markers =
            numbers.into_iter().map(move |number| Captured { time_ns, bytes: markers::frame(number).to_vec() });
        markers.chain([captured])
    })
}

#[test]
fn intervals_of_each_golden_vector_are_those_of_the_host() {
    for (program, settings) in programs() {
        for vector in Vector::read_all(subject(program)).expect("vectors of the program") {
            let frames = with_markers(vector.frames.iter().cloned(), EARLY, 40);
            let compared = compare((program, settings.clone()), frames, 20);

            assert!(compared > 0, "{program}, {}", vector.name);
        }
    }
}

#[test]
fn intervals_of_random_frames_are_those_of_the_host() {
    for (program, settings) in programs() {
        for (seed, damaged) in [(31, 0.0), (32, 0.2)] {
            let frames = Traffic::new(seed, damaged).take(5_000);
            let own = compare((program, settings.clone()), frames, 10);

            let frames = with_markers(Traffic::new(seed, damaged).take(5_000), LATE, 300);
            let sent = compare((program, settings.clone()), frames, 70);
            println!("{program}, seed {seed}: {own} and {sent} intervals");
            assert!((damaged > 0.0 || own > 10) && sent > 10, "{program}, seed {seed}: {own} and {sent} intervals");
        }
        let compared = compare((program, settings), with_markers(Streams::new(33).take(5_000), LATE, 300), 70);
        assert!(compared > 10, "{program}, streams: {compared} intervals");
    }
}

/// A switch that is asked over the network.
struct Remote {
    stream: TcpStream,
    program: &'static str,
    number: u32,
}

impl Remote {
    fn connect(switch: &Switch, program: &'static str) -> Self {
        Self { stream: TcpStream::connect(switch.address()).expect("it listens"), program, number: 0 }
    }

    fn clock(&mut self) -> SwitchClock {
        SwitchClock::measured([SwitchTime::Elapsed, SwitchTime::Epoch, SwitchTime::Elapsed].map(|time| {
            self.number += 1;
            ask_time(&self.stream, time, self.number).expect("it listens");
            answer_time(&self.stream, time, self.number).expect("it answers")
        }))
    }
}

impl SwitchRegisters for Remote {
    type Error = Box<dyn Error>;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, Self::Error> {
        let name = format!("{}.{name}", main_control(self.program).expect("it is read"));
        self.number += 1;
        ask(&self.stream, &name, self.number)?;
        Ok(answer(&self.stream, &name, self.number)?)
    }
}

/// An end in a switch whose time began at a time of its own.
struct End {
    switch: Switch,
    remote: Remote,
    readout: BucketReadout,
}

impl End {
    fn start(program: &'static str, began_ns: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let switch = Switch::start_at(machine(program), listener, began_ns).expect("a thread");
        let remote = Remote::connect(&switch, program);
        Self { switch, remote, readout: BucketReadout::new(&constants(program)).expect("an end") }
    }

    fn poll(&mut self) -> Option<BucketInterval> {
        let poll = self.readout.poll(&mut self.remote).expect("its registers")?;
        self.readout.read(&poll).expect("its own constants").interval.map(|interval| *interval)
    }
}

#[test]
fn two_switches_whose_times_began_apart_have_the_true_delay_by_their_offsets() {
    const DELAY_NS: u64 = 250_000;
    let (sender_began, receiver_began) = (START_NS - 77_000_000, START_NS - 3_600_000_000_000);
    let (mut sender, mut receiver) =
        (End::start("finecomb-sender", sender_began), End::start("finecomb-receiver", receiver_began));
    assert_eq!(sender.readout.fingerprint(), receiver.readout.fingerprint());
    let mut found = None;
    for (place, captured) in (0..).zip(with_markers(Traffic::new(34, 0.0).take(400), LATE, 100)) {
        sender.switch.process(&captured).expect("a frame");
        let arrived = Captured { time_ns: captured.time_ns + DELAY_NS, ..captured };
        receiver.switch.process(&arrived).expect("a frame");
        if place % 50 == 49
            && let (Some(sent), Some(received)) = (sender.poll(), receiver.poll())
        {
            found = Some((sent, received));
        }
    }
    let (sent, received) = found.expect("an interval of both");
    assert_eq!(sent.number, received.number);
    let [at_sender, at_receiver] = [&mut sender, &mut receiver].map(|end| end.remote.clock());
    assert_eq!([at_sender, at_receiver].map(|clock| clock.offset_ns), [sender_began, receiver_began]);

    let mean = |at_sender: u64, at_receiver: u64| {
        let sent = sent.finecomb(&settings(), at_sender).expect("its own settings");
        let received = received.received(&settings(), at_receiver).expect("its own settings");
        let estimate = received.estimate(&sent, Rule::FineComb, Solver::Elimination, Deviation::PerBucket);
        let estimate = estimate.expect("one kind");
        assert_eq!((estimate.loss_in_all, estimate.health.useless), (Some(0.0), 0));
        estimate.mean_ns
    };
    assert_eq!(mean(at_sender.offset_ns, at_receiver.offset_ns), Some(DELAY_NS as f64));
    let apart = (sender_began - receiver_began) as f64;
    let without = mean(0, 0).expect("packets came");
    assert!((without - DELAY_NS as f64 - apart).abs() < 1.0, "{without}");
}

/// A switch, an agent near it, and the host with the same packets.
struct Watched {
    program: &'static str,
    settings: Settings,
    machine: Machine,
    host: Host,
    agent: BucketReadout,
    /// Numbers of the intervals that became known, each of which was the host's.
    known: Vec<u32>,
}

impl Watched {
    fn new((program, settings): (&'static str, Settings)) -> Self {
        let host = Host::new(&constants(program), &settings);
        Self { program, settings, machine: machine(program), host, agent: agent(program), known: Vec::new() }
    }

    /// The switch starts again, and the host with it.
    fn start_again(&mut self) {
        self.machine = self.machine.empty();
        self.host = Host::new(&constants(self.program), &self.settings);
    }

    /// Passes these frames at their times since `began_ns`, and polls after every twenty of them.
    fn pass(&mut self, frames: &[Captured], began_ns: u64) {
        for some in frames.chunks(20) {
            for captured in some {
                self.machine.process(AGENT_PORT, 0, &captured.replayed_since(began_ns)).expect("a frame");
                let time_ns = captured.time_ns.saturating_sub(began_ns);
                self.host.pass(&Captured { time_ns, bytes: captured.bytes.clone() });
            }
            self.poll();
        }
    }

    fn poll(&mut self) {
        let poll = self.agent.poll(&mut Local(&self.machine, self.program)).expect("its registers");
        let Some(poll) = poll else { return };
        let reading = self.agent.read(&poll).expect("its own constants");
        if let Some(interval) = reading.interval {
            let found = interval.received(&self.settings, 0).expect("its own settings");
            assert_same(&found, &self.host.ended(), self.program);
            self.known.push(interval.number);
        }
    }

    /// Whether the known intervals are those of these numbers.
    #[track_caller]
    fn assert_known(&self, expected: &[u64]) {
        let numbers = expected.iter().map(|interval| markers::numbers(LATE + interval)[1]);
        assert_eq!(self.known, numbers.collect::<Vec<_>>(), "{}", self.program);
    }
}

fn agent(program: &str) -> BucketReadout {
    BucketReadout::new(&constants(program)).expect("an end")
}

/// Ten intervals of 200 frames, each behind the frames that begin it.
fn ten_intervals(seed: u64) -> Vec<Vec<Captured>> {
    let frames: Vec<_> = Traffic::new(seed, 0.0).filter(|captured| begins(captured).is_none()).take(2_000).collect();
    let with_markers = |(number, frames): (u64, &[Captured])| {
        let time_ns = frames[0].time_ns;
        let marker = |number| Captured { time_ns, bytes: markers::frame(number).to_vec() };
        markers::numbers(LATE + number).map(marker).into_iter().chain(frames.iter().cloned()).collect()
    };
    (0..).zip(frames.chunks(200)).map(with_markers).collect()
}

#[test]
fn an_agent_that_starts_again_knows_the_intervals_that_begin_from_then_on_and_none_twice() {
    for of in programs() {
        let mut watched = Watched::new(of);
        for (number, frames) in ten_intervals(67).iter().enumerate() {
            let (first, second) = frames.split_at(100);
            watched.pass(first, 0);
            if number == 4 {
                watched.agent = agent(watched.program);
                watched.poll();
            }
            watched.pass(second, 0);
        }

        // Intervals 0 and 4 had begun before an agent read the switch for the first time; the last one goes on.
        watched.assert_known(&[1, 2, 3, 5, 6, 7, 8]);
    }
}

#[test]
fn intervals_of_a_switch_that_starts_again_are_known_from_its_second_one_on() {
    for of in programs() {
        let (mut watched, mut began_ns) = (Watched::new(of), 0);
        for (number, frames) in ten_intervals(68).iter().enumerate() {
            let (first, second) = frames.split_at(100);
            watched.pass(first, began_ns);
            if number == 4 {
                watched.start_again();
                began_ns = second[0].time_ns - 1_000_000_000;
            }
            watched.pass(second, began_ns);
        }

        watched.assert_known(&[1, 2, 3, 6, 7, 8]);
    }
}
