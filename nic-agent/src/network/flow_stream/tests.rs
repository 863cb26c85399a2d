use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use packets::{Frame, Link, parse};

use super::*;
use crate::config::Config;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const WHOLE: FrameInfo = FrameInfo { merged: false };
/// The server of the usual clients.
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 443);

/// A stream with all synopses, whose first interval begins at [`START`]. Metrics are written without a host agent, too.
fn stream(more: &str) -> FlowStream {
    let text = format!(
        "network:\n  streams: [{{name: a, interface: lo, synopses: {{reordering: {{}}, heavy_hitters: {{}}, cardinality: {{}}}}{more}}}]\n"
    );
    let config = Config::parse(&text).unwrap().network.streams.remove(0);
    let synopses = config.synopses.as_ref().unwrap();
    let mut stream = FlowStream::new(&config, synopses, Path::new("/nowhere/services.sock"), 7 << 64 | 5).unwrap();
    stream.end_interval(UnixNanos(START));
    stream
}

/// An Ethernet frame with a TCP segment of 100 bytes.
fn frame(from: SocketAddrV4, to: SocketAddrV4, sequence: u32) -> Vec<u8> {
    const PAYLOAD: usize = 100;
    let length = (40 + PAYLOAD) as u16;
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    bytes.extend(from.ip().octets());
    bytes.extend(to.ip().octets());
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 0x50, 0x10, 16, 0, 0, 0, 0, 0]);
    bytes.extend([7; PAYLOAD]);
    bytes
}

/// Second `second` of the usual traffic: 20 clients of `network` send 20 segments each. Then `more`: source,
/// destination and sequence number of further segments. Returns values and what they are about.
fn interval(
    stream: &mut FlowStream,
    second: u64,
    network: u8,
    more: impl IntoIterator<Item = (SocketAddrV4, SocketAddrV4, u32)>,
) -> BTreeMap<&'static str, (f64, String)> {
    let client = |number: u32| SocketAddrV4::new(Ipv4Addr::new(10, network, number as u8, 7), 40_000);
    let usual = (0..400_u32).map(|number| (client(number % 20), SERVER, second as u32 * 2_000 + number / 20 * 100));
    let all: Vec<_> = usual.chain(more).collect();
    let apart_ns = 900_000_000 / all.len() as u64;
    for (place, (from, to, sequence)) in (0..).zip(all) {
        let (bytes, time_ns) = (frame(from, to, sequence), START + second * SECOND + place * apart_ns);
        let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns, link: Link::Ethernet };
        stream.insert(&parse(&frame, stream.view()), WHOLE);
    }
    assert!(stream.is_due(UnixNanos(START + (second + 1) * SECOND)));
    stream.end_interval(UnixNanos(START + (second + 1) * SECOND));
    let about = |metric| stream.metrics.subject(metric).unwrap_or_default();
    stream.metrics.values().into_iter().map(|(metric, value)| (metric, (value, about(metric)))).collect()
}

/// What an intruder sends to the ports from 1,000 on.
fn scan() -> impl Iterator<Item = (SocketAddrV4, SocketAddrV4, u32)> {
    let intruder = SocketAddrV4::new(Ipv4Addr::new(10, 66, 0, 6), 5_555);
    (1_000..1_500).map(move |port| (intruder, SocketAddrV4::new(*SERVER.ip(), port), 0))
}

#[test]
fn usual_traffic_gives_the_same_values_each_second_and_names_nobody_for_reordering() {
    let mut stream = stream("");
    for second in 0..3 {
        let values = interval(&mut stream, second, 1, []);

        let of = |metric: &str| values[metric].0;
        assert_eq!(values.len(), 9, "{values:?}");
        let estimates = values.keys().filter(|metric| wire::metric::is_estimated(metric, true));
        assert_eq!(estimates.count(), 4, "detectors know them by their names: {values:?}");
        assert_eq!(["network.reordering.share", "network.reordering.prefixes"].map(of), [0.0; 2]);
        assert_eq!(of("network.reordering.prefix.share"), 0.0);
        assert!((of("network.top_talker.share") - 0.05).abs() < 1e-9, "{values:?}");
        for (metric, expected) in
            [("network.flows.distinct", 20.0), ("network.sources.distinct", 20.0), ("network.ports.distinct", 1.0)]
        {
            assert!((of(metric) / expected - 1.0).abs() < 0.05, "{values:?}");
        }
        assert_eq!((of("network.source.destinations"), of("network.destination.flows")), (1.0, 20.0));
        assert_eq!(values["network.reordering.share"].1, "");
    }
    assert_eq!(stream.metrics.counts(), [1_200, 0, 0]);
}

#[test]
fn a_port_scan_moves_ports_and_names_who_scans() {
    let mut stream = stream("");
    let before = interval(&mut stream, 0, 1, []);

    let scanned = interval(&mut stream, 1, 1, scan());

    let (ports, about) = &scanned["network.ports.distinct"];
    assert!(*ports > 400.0 && before["network.ports.distinct"].0 < 2.0, "{scanned:?}");
    assert!(about.starts_with("10.66.0.6 (") && about.ends_with("destinations)"), "{about}");
    assert_eq!(scanned["network.flows.distinct"].1, *about, "the new flows are the scan's");
    assert!(scanned["network.source.destinations"].0 > 490.0 && scanned["network.sources.distinct"].0 < 23.0);
    // Afterwards all is as before.
    assert!(interval(&mut stream, 3, 1, [])["network.ports.distinct"].0 < 2.0);
}

#[test]
fn a_flood_names_its_target_and_a_greedy_client_is_named_with_its_share() {
    let mut stream = stream("");
    let target = SocketAddrV4::new(*SERVER.ip(), 80);
    let flood = (0..3_000_u32)
        .map(|number| (SocketAddrV4::new(Ipv4Addr::from_bits(0x0b00_0000 | (number * 977)), 1_024), target, 0));

    let flooded = interval(&mut stream, 0, 1, flood);
    let (sources, about) = &flooded["network.sources.distinct"];
    assert!(*sources > 2_500.0 && about.starts_with("to 10.9.0.1:80 ("), "{flooded:?}");

    let greedy = SocketAddrV4::new(Ipv4Addr::new(10, 1, 3, 7), 40_001);
    let taken = interval(&mut stream, 2, 1, (0..400).map(|number| (greedy, SERVER, number * 100)));
    let (share, about) = &taken["network.top_talker.share"];
    assert!((*share - 0.525).abs() < 0.01 && about.starts_with("10.1.3.7 (50400 of 96000 bytes"), "{taken:?}");
}

#[test]
fn a_prefix_whose_packets_overtake_each_other_is_named() {
    let mut stream = stream("");
    let late = SocketAddrV4::new(Ipv4Addr::new(10, 50, 5, 5), 40_000);

    let values = interval(&mut stream, 0, 1, (0..200).map(|number| (late, SERVER, (number ^ 1) * 100)));

    let (share, about) = &values["network.reordering.prefix.share"];
    assert!(*share > 0.4 && about.starts_with("10.50.5.0/24 (100 of "), "{values:?}");
    assert_eq!(values["network.reordering.prefixes"].0, 1.0);
}

#[test]
fn clients_that_come_back_with_other_addresses_change_nothing_but_who_is_named() {
    let mut stream = stream("");
    let before = interval(&mut stream, 0, 1, []);
    let _ = interval(&mut stream, 1, 1, []);

    // From one second to the next, all clients have other addresses. In that row's window both are, since it does not
    // end sharply.
    let during = interval(&mut stream, 2, 2, []);
    let after = interval(&mut stream, 3, 2, []);

    for (metric, (value, _)) in &before {
        let [then, now] = [&during, &after].map(|values| values[metric].0);
        assert!([then, now].iter().all(|of| (of - value).abs() <= 0.1 * value), "{metric}: {value}, {then}, {now}");
    }
}

#[test]
fn of_few_packets_shares_are_missing_and_broken_packets_are_counted() {
    let mut stream = stream(", filter: dst port 9");
    let few = (0..10).map(|number| (SERVER, SocketAddrV4::new(*SERVER.ip(), 9), number * 100));
    stream.insert(&Err(ParseError::CutTcp), WHOLE);
    stream.insert(&Err(ParseError::OtherLink), WHOLE);
    stream.add_dropped(3);

    let values = interval(&mut stream, 0, 1, few);

    for metric in ["network.top_talker.share", "network.reordering.share", "network.reordering.prefix.share"] {
        assert!(values[metric].0.is_nan(), "{metric}: {values:?}");
    }
    assert_eq!((stream.metrics.counts(), values["network.destination.flows"].0), ([10, 1, 3], 1.0));
}

#[test]
fn merged_frames_flag_shares_and_weights_and_no_distinct_items() {
    for (synopses, flagged) in [
        ("reordering: {}", true),
        ("heavy_hitters: {weight: packets}", true),
        ("heavy_hitters: {weight: bytes}", true),
        ("cardinality: {}", false),
    ] {
        let text = format!(
            "network:\n  streams: [{{name: a, interface: lo, filter: dst port 443, synopses: {{{synopses}}}}}]\n"
        );
        let config = Config::parse(&text).unwrap().network.streams.remove(0);
        let settings = config.synopses.as_ref().unwrap();
        let mut stream = FlowStream::new(&config, settings, Path::new("/nowhere/services.sock"), 7).unwrap();
        stream.end_interval(UnixNanos(START));
        let elsewhere = SocketAddrV4::new(*SERVER.ip(), 80);
        // The second one of another stream.
        for (to, merged) in [(SERVER, true), (elsewhere, true), (SERVER, false)] {
            let bytes = frame(SERVER, to, 0);
            let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns: START, link: Link::Ethernet };
            stream.insert(&parse(&frame, stream.view()), FrameInfo { merged });
        }
        stream.end_interval(UnixNanos(START + SECOND));

        let merged = u64::from(flagged);
        assert_eq!(stream.metrics.merged(), (merged as f64, merged), "{synopses}");
        // The next interval has none.
        stream.end_interval(UnixNanos(START + 2 * SECOND));
        assert_eq!(stream.metrics.merged(), (0.0, merged), "{synopses}");
    }
}

/// So many clients of `network` send a segment each, all at one time.
fn send(stream: &mut FlowStream, at: UnixNanos, network: u8, clients: u8) {
    for number in 0..clients {
        let client = SocketAddrV4::new(Ipv4Addr::new(10, network, number, 7), 40_000);
        let bytes = frame(client, SERVER, 0);
        let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns: at.0, link: Link::Ethernet };
        stream.insert(&parse(&frame, stream.view()), WHOLE);
    }
}

#[test]
fn after_a_step_of_the_clock_by_an_hour_the_next_interval_ends_in_time_and_counts_what_came_since() {
    let (second, half, hour) = (Nanos::from_secs(1), Nanos::from_millis(500), Nanos::from_secs(3_600));
    let begin = UnixNanos(START);
    for (stepped, steps) in [(begin.minus(hour), 1), (begin.plus(hour), 0)] {
        let mut stream = stream("");
        send(&mut stream, begin, 1, 40);
        let now = stepped.plus(half);
        assert!(!stream.is_due(begin.plus(half)) && stream.is_due(now));
        stream.end_interval(now);
        let sources = |stream: &FlowStream| stream.metrics.values()["network.sources.distinct"];
        assert_eq!((stream.metrics.clock_steps.get(), sources(&stream).is_nan()), (steps, steps == 1));
        assert_eq!(stream.counts()[0], 40);

        // What was in the ring has the time from before.
        send(&mut stream, begin.plus(half), 1, 1);
        send(&mut stream, now, 2, 10);
        let ends = stepped.plus(second);
        assert!(!stream.is_due(now) && !stream.is_due(ends.minus(Nanos(1))) && stream.is_due(ends));
        stream.end_interval(ends);
        assert!((8.0..12.5).contains(&sources(&stream)), "{}", sources(&stream));
        assert_eq!(stream.counts()[0], 51);

        // From then on, intervals are as long as ever: none is empty and over at once.
        assert!(!stream.is_due(ends) && !stream.is_due(ends.plus(half)) && stream.is_due(ends.plus(second)));
        stream.end_interval(ends.plus(second));
        assert_eq!((stream.metrics.clock_steps.get(), stream.counts()[0]), (steps, 51));
    }
}
