//! Ends whose packets switches name, count and add up.

use core::num::NonZeroU64;

use one_way::collector::Packets;
use one_way::{
    Action, Effect, EndCounters, Flags, IntervalPackets, Plan, Receiver, ReceiverSettings, Report, Sender,
    SenderSettings, Synopsis,
};
use synopses::digest::Digest;
use synopses::finecomb::{FineComb, Interval};
use wire::time::{Nanos, UnixNanos};

use crate::world::{LENGTH, START, Scenario, World};

/// What both switches have in these tests.
const FINGERPRINT: Option<NonZeroU64> = NonZeroU64::new(7);

fn sender(fingerprint: Option<NonZeroU64>) -> Sender {
    let settings = SenderSettings::new("shop".to_owned(), Nanos(LENGTH), Synopsis::finecomb(64, 0));
    Sender::new(fingerprint.map_or(settings.clone(), |fingerprint| settings.of_switch(fingerprint)))
}

fn receiver(fingerprint: Option<NonZeroU64>, buckets: usize) -> Receiver {
    let settings = ReceiverSettings::new(Nanos(LENGTH), Synopsis::finecomb(buckets, 0));
    Receiver::new(ReceiverSettings { fingerprint, ..settings })
}

#[test]
fn ends_that_name_packets_differently_are_refused_with_what_each_is() {
    let other = NonZeroU64::new(8);
    for (sends, receives, why) in [
        (FINGERPRINT, None, "by a switch with constants 0x7, at the receiver by the agent"),
        (None, FINGERPRINT, "by the agent, at the receiver by a switch with constants 0x7"),
        (FINGERPRINT, other, "by a switch with constants 0x7, at the receiver by a switch with constants 0x8"),
    ] {
        let mut world = World::of(Scenario::with_seed(41), sender(sends), receiver(receives, 64));
        world.run(3_000);

        assert_eq!(world.refusals[0], [format!("packets are measured {why}")], "reported once");
        assert_eq!(world.runs, 0);
    }
}

#[test]
fn a_switch_does_not_reduce_its_buckets() {
    let mut world = World::of(Scenario::with_seed(42), sender(FINGERPRINT), receiver(FINGERPRINT, 32));
    world.run(3_000);

    assert_eq!(world.refusals[0], ["64 buckets, the receiver has 32"]);
}

/// Both ends of a run, whose intervals are read of switches.
struct Ends {
    sender: Sender,
    receiver: Receiver,
    plan: Plan,
}

/// Passes requests and responses until there are no more at `now`.
fn exchange(sender: &mut Sender, receiver: &mut Receiver, now: UnixNanos) {
    let mut random = || 5;
    while let Action::Send { call, request } = sender.poll(now, &mut random) {
        let response = receiver.respond(&request, now);
        sender.complete(call, Some(response), now, &mut random);
    }
}

impl Ends {
    fn start() -> Self {
        let (mut sender, mut receiver) = (sender(FINGERPRINT), receiver(FINGERPRINT, 64));
        exchange(&mut sender, &mut receiver, UnixNanos(START));
        let collected = sender.take_effects().find_map(|effect| match effect {
            Effect::Collect(plan) => Some(plan),
            _ => None,
        });
        let plan = collected.expect("the receiver accepts");
        assert_eq!((plan.fingerprint, plan.intervals_per_key), (FINGERPRINT, 0));
        Self { sender, receiver, plan }
    }

    /// Ends an interval in which 10 packets were under way for a microsecond each. `unread`: the ends that were not
    /// read.
    fn end(&mut self, interval: u64, unread: [bool; 2]) {
        let now = self.plan.begin_of(interval + 1);
        let buckets = |delay: u64| {
            let mut finecomb = FineComb::new(&self.plan.buckets()).expect("a plan's settings");
            (0..10).for_each(|number| finecomb.insert(Digest(number), START + number + delay));
            finecomb
        };
        let counters = EndCounters { packets: 10, ..EndCounters::default() };
        let of = |packets, is_unread| IntervalPackets {
            interval,
            counters: if is_unread { EndCounters::default() } else { counters },
            packets: if is_unread { Packets::Unread } else { packets },
            rekeyed: Vec::new(),
        };
        let arrived = Packets::Received(Box::new(Interval::without_stash(buckets(1_000))));
        let sent = Packets::Sent(buckets(0));
        self.receiver.add_interval(of(arrived, unread[1]), now);
        self.sender.add_interval(of(sent, unread[0]), now, &mut || 5);
        exchange(&mut self.sender, &mut self.receiver, now);
    }

    /// The reports of both ends since the last call.
    fn reports(&mut self) -> [Vec<Report>; 2] {
        let report = |effect| match effect {
            Effect::Report(report) => Some(report),
            _ => None,
        };
        let sent = self.sender.take_effects().filter_map(report).collect();
        [sent, self.receiver.take_effects().filter_map(report).collect()]
    }
}

#[test]
fn an_interval_that_is_not_read_or_of_the_run_before_costs_no_other_one() {
    let mut ends = Ends::start();
    let _ = ends.reports();
    // The agent that reads a switch has not heard yet that this run follows another one.
    let (counters, packets) = (EndCounters::default(), Packets::Unread);
    let of_before = IntervalPackets { interval: 5_000, counters, packets, rekeyed: Vec::new() };
    ends.receiver.add_interval(of_before, ends.plan.begin_of(1));
    ends.end(0, [false, true]);
    let flags = ends.reports().map(|reports| reports.iter().map(|report| report.flags).collect::<Vec<_>>());
    assert_eq!(flags, [[Flags::NO_PEER_DATA], [Flags::MISSED]]);

    ends.end(1, [true, false]);
    let [sent, received] = ends.reports();
    assert_eq!(sent, [Report::unknown(1, Flags::MISSED)]);
    assert!(received.is_empty(), "the sender may still come: {received:?}");

    ends.end(2, [false, false]);
    for reports in ends.reports() {
        let [report] = &reports[..] else { panic!("one report of one interval: {reports:?}") };
        assert_eq!((report.interval, report.flags), (2, Flags::NONE));
        assert_eq!((report.mean_ns, report.sent, report.lost), (Some(1_000.0), Some(10), 0));
    }
}
