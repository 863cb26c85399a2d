//! Reordering by prefix, heavy flows apart.

use std::collections::BTreeMap;

use equality::control::Local;
use equality::frames::{AGENT_PORT, Captured, Frames};
use equality::interpreter::Machine;
use equality::model::key;
use equality::reordering::{hybrid, of_kind};
use equality::traffic::{Streams, Traffic};
use equality::vectors::Vector;
use packets::flows::{MIN_PACKETS, ReorderingInterval, segment};
use packets::switch::readout::{ReorderingReadout, SwitchReordering};
use packets::switch::registers::SwitchRegisters as _;
use synopses::digest::DigestKey;
use synopses::reordering::{Boundary, Prefix, PrefixTally, Reordering, Report};

use crate::{constants, machine, subject};

const PROGRAMS: [&str; 2] = ["reordering", "reordering-hardware"];
/// Time between two polls, of the agent's clock.
const SECOND: u64 = 1_000_000_000;

/// Packets checked of each prefix since the start, and those out of order.
type Sums = BTreeMap<Prefix, [u32; 2]>;

/// The library, and what it has reported.
struct Library {
    frames: Frames,
    key: DigestKey,
    synopsis: Reordering,
    reported: Sums,
    before: Sums,
}

fn add(sums: &mut Sums, report: Report) {
    let [packets, events] = sums.entry(report.prefix).or_default();
    (*packets, *events) = (*packets + report.packets, *events + report.out_of_order);
}

impl Library {
    fn process(&mut self, captured: &Captured) {
        let Some(packet) = self.frames.count(captured) else { return };
        let Some(segment) = segment(&packet, &self.key) else { return };
        if let Some(report) = self.synopsis.insert(&segment, captured.time_ns) {
            add(&mut self.reported, report);
        }
    }

    /// What it has of each prefix since the last call: what it has reported, and what it would at the end of an
    /// interval.
    fn interval(&mut self) -> PrefixTally {
        let mut all = self.reported.clone();
        self.synopsis.clone().close(Boundary::KeepFlows, |report| add(&mut all, report));
        let mut tally = PrefixTally::new(1_000, 1).expect("possible");
        for (prefix, [packets, events]) in &all {
            let [before, events_before] = self.before.get(prefix).copied().unwrap_or_default();
            if *packets > before {
                let (packets, out_of_order) = (packets - before, events - events_before);
                tally.insert(Report { prefix: *prefix, packets, out_of_order });
            }
        }
        self.before = all;
        tally
    }
}

/// Compares an interval with the library's.
fn compare_interval(found: &ReorderingInterval, expected: &PrefixTally, name: &str) {
    let sum = |part: fn((u64, u64)) -> u64| -> u64 {
        expected.iter().map(|estimate| part((estimate.packets, estimate.out_of_order))).sum()
    };
    assert_eq!([found.checked, found.out_of_order], [sum(|known| known.0), sum(|known| known.1)], "{name}");
    let mut worst: Vec<_> = found.worst.iter().map(|of| (of.checked, of.out_of_order, of.least_share)).collect();
    let judged = expected.iter().filter(|estimate| estimate.packets >= MIN_PACKETS);
    let mut judged: Vec<_> = judged.map(|of| (of.packets, of.out_of_order, of.interval.0)).collect();
    for list in [&mut worst, &mut judged] {
        list.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    }
    assert_eq!((worst, found.dropped), (judged, 0), "{name}");
}

/// Polls a switch after every `every` frames, and compares each interval with the library's of the same packets.
/// Returns how many there were, and the packets checked and out of order.
fn compare(program: &str, frames: &[Captured], every: usize) -> (usize, [u64; 2]) {
    let constants = constants(program);
    let mut readout = ReorderingReadout::new(&constants, SECOND).expect("constants of reordering");
    let mut machine = machine(program);
    let synopsis = Reordering::new(of_kind(hybrid(), constants.kind())).expect("settings of the tested program");
    let (key, reported, before) = (key(constants.kind()), Sums::new(), Sums::new());
    let mut library = Library { frames: Frames::new(&constants), key, synopsis, reported, before };
    let (samples, rows) = readout.sizes();
    let (mut intervals, mut checked, mut late) = (0, 0, 0);
    for (number, batch) in (1..).zip(core::iter::once(&frames[..0]).chain(frames.chunks(every))) {
        for captured in batch {
            machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
            library.process(captured);
        }
        let mut switch = Local(&machine, subject(program).name);
        let block = switch.reordering(samples, rows).expect("reordering");
        let read = switch.frames().expect("frames");
        let interval = readout.read(&read, &block, number * SECOND, 1_000).expect("its own constants");
        let expected = library.interval();
        let Some(SwitchReordering { reordering, overrun, .. }) = interval else {
            assert_eq!(number, 1, "it begins once");
            continue;
        };
        assert_eq!(overrun, 0, "{program}, interval {number}");
        let found = reordering.expect("no report was overwritten");
        compare_interval(&found, &expected, &format!("{program}, interval {number}"));
        (intervals, checked, late) = (intervals + 1, checked + found.checked, late + found.out_of_order);
    }
    (intervals, [checked, late])
}

#[test]
fn shares_of_prefixes_of_each_golden_vector_are_those_of_the_library() {
    for program in PROGRAMS {
        for vector in Vector::read_all(subject(program)).expect("vectors of the program") {
            let (intervals, _) = compare(program, &vector.frames, 100);

            assert!(intervals > 0, "{program}, {}", vector.name);
        }
    }
}

#[test]
fn shares_of_prefixes_of_random_frames_are_those_of_the_library() {
    for program in PROGRAMS {
        let streams: Vec<_> = Streams::new(51).take(10_000).collect();
        let (intervals, [checked, late]) = compare(program, &streams, 700);
        assert!(intervals == 15 && checked > 1_000 && late > 100, "{program}: {late} of {checked} are late");

        let damaged: Vec<_> = Traffic::new(52, 0.2).take(5_000).collect();
        let (intervals, _) = compare(program, &damaged, 600);
        assert_eq!(intervals, 9, "{program}");
    }
}

/// A switch, and the library with the same packets.
struct Watched {
    name: &'static str,
    machine: Machine,
    library: Library,
}

impl Watched {
    fn new(program: &str) -> Self {
        let constants = constants(program);
        let synopsis = Reordering::new(of_kind(hybrid(), constants.kind())).expect("settings of the tested program");
        let (key, reported, before) = (key(constants.kind()), Sums::new(), Sums::new());
        let library = Library { frames: Frames::new(&constants), key, synopsis, reported, before };
        Self { name: subject(program).name, machine: machine(program), library }
    }

    /// Passes these frames at their times since `began_ns`.
    fn pass(&mut self, frames: &[Captured], began_ns: u64) {
        for captured in frames {
            self.machine.process(AGENT_PORT, 0, &captured.replayed_since(began_ns)).expect("a frame");
            let time_ns = captured.time_ns.saturating_sub(began_ns);
            self.library.process(&Captured { time_ns, bytes: captured.bytes.clone() });
        }
    }

    /// Polls the switch in this second, and compares the interval with the library's if there is one. Returns whether
    /// there is, and its packets checked.
    fn poll(&mut self, agent: &mut ReorderingReadout, second: u64) -> Option<u64> {
        let ((samples, rows), mut switch) = (agent.sizes(), Local(&self.machine, self.name));
        let block = switch.reordering(samples, rows).expect("reordering");
        let frames = switch.frames().expect("frames");
        let interval = agent.read(&frames, &block, second * SECOND, 1_000).expect("its own constants");
        let expected = self.library.interval();
        let found = interval?.reordering.expect("no report was overwritten");
        compare_interval(&found, &expected, &format!("{}, second {second}", self.name));
        Some(found.checked)
    }
}

fn agent(program: &str) -> ReorderingReadout {
    ReorderingReadout::new(&constants(program), SECOND).expect("constants of reordering")
}

#[test]
fn an_agent_that_starts_again_counts_what_is_checked_from_then_on_and_nothing_twice() {
    for program in PROGRAMS {
        let frames: Vec<_> = Streams::new(65).take(3_000).collect();
        let (mut switch, mut first) = (Watched::new(program), agent(program));
        assert_eq!(switch.poll(&mut first, 1), None);
        switch.pass(&frames[..1_000], 0);
        let before = switch.poll(&mut first, 2).expect("an interval");
        switch.pass(&frames[1_000..1_700], 0);

        let mut again = agent(program);
        assert_eq!(switch.poll(&mut again, 2), None);
        switch.pass(&frames[1_700..2_000], 0);
        let part = switch.poll(&mut again, 3).expect("an interval");
        switch.pass(&frames[2_000..], 0);
        let whole = switch.poll(&mut again, 4).expect("an interval");
        assert!(part > 10 && part < before && before > 100 && whole > 100, "{program}: {before}, {part}, {whole}");
    }
}

#[test]
fn a_switch_that_starts_again_costs_the_interval_in_which_it_does() {
    for program in PROGRAMS {
        let frames: Vec<_> = Streams::new(66).take(3_000).collect();
        let (mut switch, mut agent) = (Watched::new(program), agent(program));
        assert_eq!(switch.poll(&mut agent, 1), None);
        switch.pass(&frames[..1_500], 0);
        assert!(switch.poll(&mut agent, 2).is_some());

        // Registers are 0, and its time begins anew.
        let began_ns = frames[1_500].time_ns - SECOND;
        let mut switch = Watched::new(program);
        switch.pass(&frames[1_500..2_000], began_ns);
        assert_eq!(switch.poll(&mut agent, 3), None);
        switch.pass(&frames[2_000..], began_ns);
        let whole = switch.poll(&mut agent, 4).expect("an interval");
        assert!(whole > 100, "{program}: {whole}");
    }
}
