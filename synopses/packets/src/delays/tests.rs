use super::*;
use crate::generator::{Traffic, TrafficSettings};
use crate::packet::{View, parse};
use crate::source::{Source as _, read_all};

fn settings(pair: Pair, fridge: Settings) -> DelaysSettings {
    let histogram = HistogramShape { tick_shift: fridge.tick_shift, fineness: 3 };
    DelaysSettings { pair, filter: Filter::default(), fridge, histogram, tuned: false, secret: 5 }
}

fn large() -> Settings {
    Settings { slots: 1 << 16, tick_shift: 0, ..Settings::default() }
}

fn calm() -> TrafficSettings {
    TrafficSettings { loss: 0.0, spurious: 0.0, late: 0.0, ..TrafficSettings::default() }
}

/// All delays that come out.
fn run(delays: &mut Delays, mut traffic: Traffic) -> Vec<u64> {
    let mut found = Vec::new();
    let mut take = |frame: &crate::Frame<'_>| {
        let packet = parse(frame, View::Outer).expect("traffic is made of packets");
        found.extend(delays.insert(&packet).map(|report| report.delay_ns));
    };
    read_all(&mut traffic, &mut take).expect("traffic does not fail");
    assert!(traffic.counts().frames > 0);
    found.sort_unstable();
    found
}

#[test]
fn with_a_slot_for_each_request_every_handshake_is_found_as_long_as_it_was() {
    let traffic = Traffic::new(&calm());
    let mut truth = traffic.handshakes_ns().to_vec();
    truth.sort_unstable();
    let mut delays = Delays::new(settings(Pair::Handshake, large())).expect("possible");

    assert_eq!(run(&mut delays, traffic), truth);
    let found = delays.estimate();
    assert_eq!((found.tally.requests, found.tally.matched, found.tally.unmatched), (100, 100, 0));
    assert!(found.answered.is_some_and(|answered| (answered - 100.0).abs() < 0.2), "{found:?}");
    let median = found.quantiles.expect("samples")[0];
    assert!((median.delay_ns / truth[50] as f64 - 1.0).abs() < 0.13, "{median:?}, {}", truth[50]);
}

#[test]
fn queries_are_answered_nine_times_of_ten() {
    for pair in [Pair::Dns, Pair::Ntp] {
        let mut delays = Delays::new(settings(pair, large())).expect("possible");
        let found = run(&mut delays, Traffic::new(&calm()));
        assert_eq!((found.len(), delays.estimate().tally.requests), (90, 100), "{pair:?}");
    }
}

#[test]
fn a_filter_leaves_out_what_is_of_other_streams() {
    let filter = "net 172.16.0.3/32".parse().expect("a filter");
    let mut delays = Delays::new(DelaysSettings { filter, ..settings(Pair::Handshake, large()) }).expect("possible");

    // Every seventh server.
    assert_eq!(run(&mut delays, Traffic::new(&calm())).len(), 14);
}

#[test]
fn a_filter_with_a_side_says_whose_requests_count() {
    let found = |filter: &str, pair| {
        let filter = filter.parse().expect("a filter");
        let mut delays = Delays::new(DelaysSettings { filter, ..settings(pair, large()) }).expect("possible");
        run(&mut delays, Traffic::new(&calm()))
    };

    // Only clients ask, and send data.
    for (pair, port) in
        [(Pair::Data, 443), (Pair::Handshake, 443), (Pair::Flow, 443), (Pair::Dns, 53), (Pair::Ntp, 123)]
    {
        let all = found("", pair);
        assert!(!all.is_empty() && found(&format!("dst port {port}"), pair) == all, "{pair:?}");
        assert!(found(&format!("src port {port}"), pair).is_empty(), "{pair:?}");
    }
}

#[test]
fn an_interval_begins_with_nothing_but_what_waits() {
    let mut delays = Delays::new(settings(Pair::Dns, large())).expect("possible");
    let traffic = Traffic::new(&calm());
    let middle = traffic.frames().nth(2_500).expect("there are more").time_ns;
    let (mut first, mut answered) = (None, 0.0);
    for frame in traffic.frames() {
        if first.is_none() && frame.time_ns >= middle {
            first = Some(delays.end_interval(middle));
        }
        let _ = delays.insert(&parse(&frame, View::Outer).expect("a packet"));
    }
    let (first, second) = (first.expect("it ended"), delays.estimate());
    for interval in [first, second] {
        assert!(interval.tally.matched > 0 && interval.packets > 0 && interval.length_ns > 0);
        answered += interval.answered.unwrap_or_default();
    }

    assert_eq!(first.tally.matched + second.tally.matched, 90);
    assert!((answered - 90.0).abs() < 0.2, "{answered}");
    assert_eq!(delays.end_interval(u64::MAX).tally.matched, second.tally.matched);
    let nothing = delays.estimate();
    assert_eq!((nothing.answered, nothing.quantiles, nothing.repeated), (None, None, None));
}

#[test]
fn after_a_clock_that_was_set_back_an_interval_is_as_long_as_it_was() {
    let mut delays = Delays::new(settings(Pair::Handshake, large())).expect("possible");
    let _ = run(&mut delays, Traffic::new(&calm()));
    let back = delays.last_ns() - 3_600_000_000_000;
    let _ = delays.end_interval(back);
    delays.set_back();

    let found = run(&mut delays, Traffic::new(&TrafficSettings { start_ns: back, ..calm() }));
    let ended = delays.last_ns();
    let interval = delays.end_interval(ended);
    assert_eq!((found.len(), interval.tally.requests, interval.length_ns), (100, 100, ended - back));
}

#[test]
fn a_request_from_before_a_step_of_the_clock_has_no_delay() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    // Such ticks come round after 73 minutes, so that an hour back is 13 minutes ahead.
    let fridge = || settings(Pair::Handshake, Settings { tick_shift: 10, ..large() });
    let traffic = Traffic::new(&calm());
    let frames: Vec<_> = traffic.frames().collect();
    let packet = |frame| parse(frame, View::Outer).expect("a packet");
    let mut probe = Delays::new(fridge()).expect("possible");
    let answer = frames.iter().position(|frame| probe.insert(&packet(frame)).is_some()).expect("an answer");

    for (is_known, finds) in [(true, false), (false, true)] {
        let mut delays = Delays::new(fridge()).expect("possible");
        for frame in &frames[..answer] {
            let _ = delays.insert(&packet(frame));
        }
        let response = packet(&frames[answer]);
        let now_ns = response.time_ns - HOUR_NS;
        let _ = delays.end_interval(now_ns);
        if is_known {
            delays.set_back();
        }
        let found = delays.insert(&Packet { time_ns: now_ns, ..response });
        assert_eq!(found.is_some(), finds, "{found:?}");
    }
}

#[test]
fn retransmissions_are_said_as_a_share() {
    let lossy = TrafficSettings { connections: 300, loss: 0.05, spurious: 0.0, late: 0.0, ..calm() };
    let fridge = Settings { duplicates: synopses::fridge::Duplicates::KeepFirst, ..large() };
    let mut delays = Delays::new(settings(Pair::Data, fridge)).expect("possible");
    let _ = run(&mut delays, Traffic::new(&lossy));

    // What was lost is sent again; of what was acknowledged together with others, the fridge still knows.
    let repeated = delays.estimate().repeated.expect("requests");
    assert!((repeated - 0.05).abs() < 0.01, "{repeated}");
}

#[test]
fn a_small_fridge_follows_the_traffic_and_estimates_what_a_large_one_sees() {
    let busy = TrafficSettings {
        connections: 20_000,
        segments: 1,
        queries: 0,
        span_ns: 10_000_000_000,
        median_ns: 200_000_000,
        ..calm()
    };
    let traffic = Traffic::new(&busy);
    let mut truth = traffic.handshakes_ns().to_vec();
    truth.sort_unstable();
    let fridge = Settings { slots: 128, tick_shift: 10, ..Settings::default() };
    let mut delays =
        Delays::new(DelaysSettings { tuned: true, ..settings(Pair::Handshake, fridge) }).expect("possible");
    let start = busy.start_ns;
    let (mut ends, mut last) = (1, None);
    for frame in traffic.frames() {
        if frame.time_ns >= start + ends * 1_000_000_000 && ends < 10 {
            let interval = delays.end_interval(start + ends * 1_000_000_000);
            last = interval.quantiles.or(last);
            ends += 1;
        }
        let _ = delays.insert(&parse(&frame, View::Outer).expect("a packet"));
    }

    // 2,000 requests a second, half a second: 1,000 wait at a time.
    let probability = delays.estimate().probability;
    assert!(probability < 0.3, "{probability}");
    let median = last.expect("samples")[0];
    assert!((median.delay_ns / truth[10_000] as f64 - 1.0).abs() < 0.35, "{median:?}, {}", truth[10_000]);
}

/// The interval that so many shards saw together, each with its share of the flows and so many slots.
fn shared(traffic: &Traffic, shards: u64, slots: usize) -> Interval {
    let key = DigestKey::new(9);
    let fridge = |number| Settings { slots, seed: number, ..large() };
    let mut shards: Vec<_> =
        (0..shards).map(|number| Delays::new(settings(Pair::Handshake, fridge(number))).expect("possible")).collect();
    let number = shards.len() as u64;
    for frame in traffic.frames() {
        let packet = parse(&frame, View::Outer).expect("traffic is made of packets");
        let (one, other) = (packet.source.min(packet.destination), packet.source.max(packet.destination));
        let name = format!("{one:?}{other:?}");
        let shard = key.digest(name.as_bytes()).0 % number;
        let _ = shards[shard as usize].insert(&packet);
    }
    let end_ns = traffic.frames().last().expect("there is traffic").time_ns + 1;
    let mut parts = shards.iter_mut().map(|shard| shard.end_shard(end_ns));
    let mut all = parts.next().expect("one at least");
    parts.for_each(|part| all.add(&part).expect("of one shape"));
    all.interval()
}

#[test]
fn shards_with_room_for_all_say_together_what_one_says() {
    let traffic = Traffic::new(&TrafficSettings { connections: 500, ..TrafficSettings::default() });
    let (one, three) = (shared(&traffic, 1, 1 << 16), shared(&traffic, 3, 1 << 16));

    assert_eq!((one.packets, one.tally, one.repeated), (three.packets, three.tally, three.repeated));
    // Weights are 1 / (1 − 1/M)^x, of which x is of the shard: they differ in the last digits.
    let [answered, also] = [one, three].map(|interval| interval.answered.expect("some were"));
    assert!((answered / also - 1.0).abs() < 1e-2, "{answered} {also}");
    for (one, three) in one.quantiles.expect("samples").iter().zip(three.quantiles.expect("samples")) {
        assert!((one.delay_ns / three.delay_ns - 1.0).abs() < 1e-3, "{one:?} {three:?}");
    }
    assert!(one.tally.matched > 450);
}

#[test]
fn small_shards_weigh_by_their_own_size_and_have_no_bias_together() {
    // Connections that overlap: of 5,000 handshakes in two seconds about 50 wait at a time.
    let traffic = Traffic::new(&TrafficSettings { connections: 5_000, segments: 1, queries: 0, ..calm() });
    let mut truth = traffic.handshakes_ns().to_vec();
    truth.sort_unstable();
    for shards in [2, 4] {
        let found = shared(&traffic, shards, 16);
        assert!(found.tally.matched < 4_500, "slots are few: {found:?}");
        let answered = found.answered.expect("some were");
        assert!((answered / 5_000.0 - 1.0).abs() < 0.1, "{shards} shards: {answered}");
        let [median, p95, _] = found.quantiles.expect("samples").map(|quantile| quantile.delay_ns);
        assert!((median / truth[2_500] as f64 - 1.0).abs() < 0.1, "{shards}: {median} {}", truth[2_500]);
        assert!((p95 / truth[4_750] as f64 - 1.0).abs() < 0.15, "{shards}: {p95} {}", truth[4_750]);
    }
}
