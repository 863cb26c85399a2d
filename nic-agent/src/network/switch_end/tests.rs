use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;

use equality::control::Switch;
use equality::frames::Captured;
use equality::interpreter::Machine;
use equality::programs::Subject;
use equality::traffic::Traffic;
use one_way::Synopsis;
use tokio::sync::mpsc::Receiver;

use super::*;
use crate::config::Config;

/// When the first interval of the plan begins.
const BEGIN: UnixNanos = UnixNanos::from_secs(1_700_000_000);
const SECOND: Nanos = Nanos::from_secs(1);
/// When the switch's time began.
const BEGAN: u64 = 1_600_000_000_000_000_000;

/// An end whose switch is the interpreter of a program, with the settings in `more`.
struct World {
    switch: Switch,
    end: SwitchEnd,
    intervals: Receiver<IntervalPackets>,
    commands: mpsc::Sender<Command>,
    traffic: Traffic,
    config: Config,
}

/// An agent that has just started with the only stream of its configuration.
fn agent(config: &Config) -> (SwitchEnd, Receiver<IntervalPackets>, mpsc::Sender<Command>) {
    let stream = &config.network.streams[0];
    let (source, one_way) = (stream.switch.as_ref().unwrap(), stream.one_way.as_ref().unwrap());
    let readout = stream.switch_end(source, one_way).unwrap();
    let (commands, command_receiver) = mpsc::channel();
    let (interval_sender, intervals) = tokio::sync::mpsc::channel(64);
    let queues = Queues { intervals: interval_sender, commands: command_receiver };
    let socket = Path::new("/nowhere/services.sock");
    let metrics = Arc::new(OneWayMetrics::new("network.a", socket, stream.interval_ms));
    (SwitchEnd::new(stream, (source, readout), one_way, queues, metrics), intervals, commands)
}

impl World {
    fn new(program: &str, peer: &str, more: &str) -> Self {
        let subject = Subject::of_name(program).unwrap();
        let machine = Machine::new(subject.load().unwrap().into());
        let switch = Switch::start_at(machine, TcpListener::bind("127.0.0.1:0").unwrap(), BEGAN).unwrap();
        let (control, constants) = (switch.address(), subject.folder().join("constants.p4"));
        let source = format!("switch: {{control: '{control}', constants: {}{more}}}", constants.display());
        let peers = "peers: {listen: '127.0.0.1:0', insecure: true, peers_insecure: true}";
        let stream = format!("{{name: a, {source}, one_way: {{synopsis: finecomb{peer}}}}}");
        let config = Config::parse(&format!("network: {{{peers}, streams: [{stream}]}}\n")).unwrap();
        let (end, intervals, commands) = agent(&config);
        Self { switch, end, intervals, commands, traffic: Traffic::new(5, 0.0), config }
    }

    /// The agent ends, and another one starts.
    fn start_agent_again(&mut self) {
        (self.end, self.intervals, self.commands) = agent(&self.config);
    }

    /// Begins a run.
    fn collect(&self, banks: Vec<synopses::finecomb::Bank>) {
        self.collect_from(BEGIN, banks);
    }

    /// Begins one that begins at `begins`.
    fn collect_from(&self, begins: UnixNanos, banks: Vec<synopses::finecomb::Bank>) {
        let synopsis = Synopsis::FineComb { digests: true, buckets: 64, banks };
        let (key, fingerprint) = (1, Some(self.end.readout.fingerprint()));
        let plan = Plan { begins, length: SECOND, key, seed: 2, synopsis, intervals_per_key: 0, fingerprint };
        self.commands.send(Command::Collect(Box::new(plan))).unwrap();
    }

    /// Sends the marker of the interval that begins at `at`.
    fn mark(&self, at: UnixNanos) {
        for number in markers::numbers(interval_number(at, SECOND)) {
            let captured = Captured { time_ns: at.0, bytes: markers::frame(number).to_vec() };
            self.switch.process(&captured).unwrap();
        }
    }

    /// Sends so many frames at `at`.
    fn pass(&mut self, frames: usize, at: UnixNanos) {
        let is_marker = |captured: &Captured| captured.bytes.get(12..14) == Some(&markers::KIND[..]);
        let frames: Vec<_> = self.traffic.by_ref().filter(|captured| !is_marker(captured)).take(frames).collect();
        for captured in frames {
            self.switch.process(&Captured { time_ns: at.0, ..captured }).unwrap();
        }
    }

    /// Packets since the switch started.
    fn passed(&self) -> u64 {
        self.switch.registers("number")[0]
    }

    /// What became known since the last call: numbers of intervals, and their packets.
    fn known(&mut self) -> Vec<(u64, u64)> {
        let all = core::iter::from_fn(|| self.intervals.try_recv().ok());
        let known = all.filter(|interval| !matches!(interval.packets, Packets::Unread));
        known.map(|interval| (interval.interval, interval.counters.packets)).collect()
    }

    /// What was given since the last call: numbers of intervals, and whether they are known.
    fn given(&mut self) -> Vec<(u64, bool)> {
        let all = core::iter::from_fn(|| self.intervals.try_recv().ok());
        all.map(|interval| (interval.interval, !matches!(interval.packets, Packets::Unread))).collect()
    }
}

/// So many milliseconds after the first interval begins.
fn after(millis: u64) -> UnixNanos {
    BEGIN.plus(Nanos::from_millis(millis))
}

#[test]
fn each_interval_of_the_clock_is_given_once_known_or_missing() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.collect(world.end.readout.settings().banks.clone());
    let mut given = Vec::new();
    for second in 0..10 {
        let begins = after(1_000 * second);
        // One marker is lost.
        if second != 5 {
            world.mark(begins);
        }
        world.pass(20, begins.plus(Nanos::from_millis(10)));
        for millis in [61, 81, 500, 999] {
            world.end.poll(begins.plus(Nanos::from_millis(millis)));
        }
        given.extend(world.given());
    }

    // What the first one began with is unknown; number 4 lasted until the end of number 5.
    let missing = [0, 4, 5];
    let expected: Vec<_> = (0..9).map(|interval| (interval, !missing.contains(&interval))).collect();
    assert_eq!(given, expected);
}

#[test]
fn a_sending_end_gives_buckets_of_its_time_and_a_receiving_end_stashes_too() {
    for (program, peer) in [("finecomb-sender", ", peer: 'b:1'"), ("finecomb-receiver", "")] {
        let mut world = World::new(program, peer, "");
        world.collect(world.end.readout.settings().banks.clone());
        for second in 0..4 {
            let begins = after(1_000 * second);
            world.mark(begins);
            world.pass(30, begins.plus(Nanos::from_millis(10)));
            world.end.poll(begins.plus(Nanos::from_millis(61)));
        }

        let all: Vec<_> = core::iter::from_fn(|| world.intervals.try_recv().ok()).collect();
        let last = all.last().unwrap();
        assert_eq!((last.interval, last.counters.missed), (2, 0));
        let finecomb = match &last.packets {
            Packets::Sent(finecomb) => finecomb,
            Packets::Received(interval) => {
                let stash = interval.start().next().unwrap();
                let at = after(2_010).0;
                assert!(stash.after.len() == 8 && stash.after.iter().all(|packet| packet.time_ns == at));
                interval.finecomb()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(finecomb.packets(), last.counters.packets);
        assert!(finecomb.packets() > 20, "some frames are no packets: {}", finecomb.packets());
    }
}

#[test]
fn a_configured_offset_is_taken_in_place_of_the_switchs() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", ", clock_offset_ns: -7");
    world.mark(after(0));

    world.end.poll(after(61));

    assert_eq!(world.end.connection.as_ref().unwrap().offset_ns, 7_u64.wrapping_neg());
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.mark(after(0));
    world.end.poll(after(61));
    assert_eq!(world.end.connection.as_ref().unwrap().offset_ns, BEGAN);
}

#[test]
fn a_configured_offset_is_refused_once_the_switch_has_started_again() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", ", clock_offset_ns: -7");
    for second in 0..2 {
        world.mark(after(1_000 * second));
        world.end.poll(after(1_000 * second + 61));
    }
    assert_eq!(world.end.failed, 0);

    world.switch.start_again();
    world.mark(after(2_000));
    world.end.poll(after(2_061));

    assert!(world.end.failed == 1 && world.end.connection.is_none());
    world.mark(after(3_000));
    let error = world.end.read(after(3_061)).unwrap_err().to_string();
    assert!(error.starts_with("it has started again, so network.streams.switch.clock_offset_ns is not"), "{error}");
}

/// Eight intervals, each with another number of packets: `middle` happens in the middle of the fourth one. Returns
/// which intervals became known with how many packets, and how many each of the clock's had.
fn known_with(world: &mut World, middle: impl Fn(&mut World, UnixNanos)) -> (Vec<(u64, u64)>, Vec<u64>) {
    let (mut known, mut passed) = (Vec::new(), Vec::new());
    for second in 0..8 {
        let (begins, before) = (after(1_000 * second), world.passed());
        world.mark(begins);
        world.pass(10 + second as usize, begins.plus(Nanos::from_millis(10)));
        world.end.poll(begins.plus(Nanos::from_millis(61)));
        known.extend(world.known());
        if second == 3 {
            middle(world, begins.plus(Nanos::from_millis(500)));
        }
        world.pass(5, begins.plus(Nanos::from_millis(700)));
        passed.push(world.passed().saturating_sub(before));
    }
    (known, passed)
}

#[test]
fn an_agent_that_starts_again_gives_whole_intervals_from_the_next_marker_on_and_none_twice() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    let banks = world.end.readout.settings().banks.clone();
    world.collect(banks.clone());

    let (known, passed) = known_with(&mut world, |world, now| {
        world.start_agent_again();
        // Both agents agree on a run that begins with the next interval.
        world.collect_from(after(4_000), banks.clone());
        world.end.poll(now);
    });

    // Intervals 0 and 3 went on when an agent began to read.
    let expected = [(1, 1), (2, 2), (0, 4), (1, 5), (2, 6)].map(|(number, second)| (number, passed[second]));
    assert_eq!(known, expected);
}

#[test]
fn a_switch_that_starts_again_is_read_by_its_new_time_from_its_second_interval_on() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.collect(world.end.readout.settings().banks.clone());

    let (known, passed) = known_with(&mut world, |world, now| world.switch.start_again_at(now.0));

    let expected = [(1, 1), (2, 2), (5, 5), (6, 6)].map(|(number, second)| (number, passed[second]));
    assert_eq!(known, expected);
    assert_eq!(world.end.connection.as_ref().unwrap().offset_ns, after(3_500).0);
    assert_eq!(world.end.failed, 0);
}

#[test]
fn an_interval_of_a_run_that_ended_while_the_switch_was_read_is_not_given() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.collect(world.end.readout.settings().banks.clone());
    for second in 0..3 {
        world.mark(after(1_000 * second));
        world.end.poll(after(1_000 * second + 61));
    }
    assert_eq!(world.given(), [(0, false), (1, true)]);

    // It comes after the commands were looked at.
    world.collect_from(after(10_000), world.end.readout.settings().banks.clone());
    world.mark(after(3_000));
    assert!(world.end.read(after(3_061)).is_ok_and(|found| found.is_some()));

    assert!(world.given().is_empty());
}

#[test]
fn markers_that_come_an_interval_late_are_the_reason() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.collect(world.end.readout.settings().banks.clone());
    for second in 1..4 {
        world.end.poll(after(1_000 * second + 10));
        world.mark(after(1_000 * second - 1_000));
        world.end.poll(after(1_000 * second + 61));
    }

    let late = interval_number(after(2_000), SECOND);
    assert_eq!((world.end.failed, world.end.behind), (3, Some(late)));
    assert_eq!(world.given(), [(0, false), (1, false)]);
}

#[test]
fn a_marker_that_comes_with_the_next_one_does_not_make_later_ones_late() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.mark(after(0));
    world.end.poll(after(61));
    world.end.poll(after(1_500));
    world.mark(after(2_000));
    // Shortly before the end nothing is read: a marker might be early.
    world.end.poll(after(1_990));
    assert_eq!(world.end.settled, None);

    world.end.poll(after(2_010));
    assert_eq!(world.end.settled, Some(interval_number(after(2_000), SECOND)));
    for millis in [2_061, 2_500, 3_010] {
        world.end.poll(after(millis));
        assert_eq!((world.end.awaited, world.end.failed), (None, 0), "{millis}");
    }
}

#[test]
fn intervals_for_which_the_queue_has_no_room_are_counted() {
    let world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.collect(Vec::new());
    let World { switch: _switch, mut end, intervals, .. } = world;
    drop(intervals);

    end.poll(after(5_061));

    assert_eq!(end.lost_intervals, 4);
}

#[test]
fn without_markers_or_with_those_of_another_clock_intervals_are_missing_and_the_reason_is_known() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.collect(Vec::new());
    for second in 0..4 {
        world.pass(5, after(1_000 * second));
        world.end.poll(after(1_000 * second + 61));
        world.end.poll(after(1_000 * second + 500));
    }
    // The first second has nothing to compare with.
    assert_eq!((world.end.failed, world.given()), (3, vec![(0, false), (1, false)]));

    // An hour ahead.
    world.mark(after(3_600_000));
    let error = world.end.read(after(4_061)).unwrap_err().to_string();
    assert!(error.starts_with("its markers are of interval 1700003600, by this clock it is 1700000004"), "{error}");
}

#[test]
fn a_switch_that_is_away_is_tried_again_once_per_interval() {
    let mut world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.collect(Vec::new());
    world.mark(after(0));
    world.end.poll(after(61));
    assert_eq!(world.end.failed, 0);
    let World { switch, mut end, mut intervals, .. } = world;
    drop(switch);

    for millis in [1_061, 1_081, 1_500, 2_061, 2_100, 5_061] {
        end.poll(after(millis));
    }

    assert_eq!(end.failed, 3, "in the first, the second and the fifth second");
    let given: Vec<_> = core::iter::from_fn(|| intervals.try_recv().ok()).map(|interval| interval.interval).collect();
    assert_eq!(given, [0, 1, 2, 3]);
}

#[test]
fn another_secret_is_refused_with_both_checksums() {
    let world = World::new("finecomb-sender", ", peer: 'b:1'", "");
    world.mark(after(0));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("constants.p4");
    let key = synopses::digest::DigestKey::new(5);
    let settings = equality::finecomb::settings();
    let other = packets::switch::programs::finecomb(&settings, false, &key).unwrap();
    fs::write(&file, other.text("")).unwrap();
    let readout = BucketReadout::new(&other).unwrap();

    let mut end = SwitchEnd { readout, ..world.end };
    let error = end.read(after(61)).unwrap_err().to_string();
    assert!(error.contains("finecomb-sender with the agent's constants has 0x"), "{error}");
}
