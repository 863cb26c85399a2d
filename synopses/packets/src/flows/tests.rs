use super::*;
use crate::frame::{Frame, Link};
use crate::packet::{End, ParseError, Tcp, Transport, View, parse};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

fn all(filter: &str) -> Flows {
    let settings = FlowsSettings {
        filter: filter.parse().expect("a filter"),
        reordering: Some(PrefixLengths::default()),
        heavy: Some((Key::Source, Weight::Bytes)),
        window_ns: Some(SECOND),
        secret: 7 << 64 | 9,
    };
    Flows::new(&settings).expect("possible")
}

/// The end 10.a.b.c.
fn end(number: u32, port: u16) -> End {
    let [_, a, b, c] = number.to_be_bytes();
    End { address: core::net::Ipv4Addr::new(10, a, b, c).to_ipv6_mapped().octets(), port }
}

fn packet(time_ns: u64, source: End, destination: End, sequence: u32, payload: u32) -> Packet<'static> {
    let tcp = Tcp { sequence, acknowledgement: 0, flags: Tcp::ACK, payload };
    Packet {
        time_ns,
        source,
        destination,
        transport: Transport::Tcp(tcp),
        vlan: None,
        network: None,
        identification: 0,
        first_fragment: false,
        segment: &[],
        header_bytes: 20,
    }
}

/// 20 clients send 50 segments of 100 bytes each to port 443 of one server, within 0.9 s.
fn usual(flows: &mut Flows, start_ns: u64) {
    replaced(flows, start_ns, u64::MAX);
}

/// The same, but from `at_ns` on each client is replaced by one with another address.
fn replaced(flows: &mut Flows, start_ns: u64, at_ns: u64) {
    for number in 0..1_000_u32 {
        let time_ns = start_ns + u64::from(number) * 900_000;
        let network = if time_ns < at_ns { 0 } else { 1 << 21 };
        let client = end(network | (number % 20) << 8, 40_000);
        flows.insert(&packet(time_ns, client, end(1 << 20, 443), number / 20 * 100, 100));
    }
}

#[test]
fn usual_traffic_is_counted_and_nothing_of_it_stands_out() {
    let mut flows = all("dst port 443");
    usual(&mut flows, START);
    assert!(!flows.insert(&packet(START, end(1, 443), end(2, 9), 0, 1)), "it is of another stream");

    let interval = flows.end_interval(START + SECOND, 3);

    let (heavy, distinct) = (interval.heavy.expect("on"), interval.distinct.expect("on"));
    assert_eq!((interval.packets, heavy.total, heavy.top.len()), (1_000, 120_000, 3));
    assert_eq!(heavy.top_share(), Some(0.05));
    let counts = [distinct.flows / 20.0, distinct.sources / 20.0, distinct.ports];
    assert!(counts.iter().all(|count| (count - 1.0).abs() < 0.1), "{distinct:?}");
    assert_eq!(distinct.fan_out.map(|widest| widest.destinations), Some(1));
    let target = FanIn { destination: Party::End(end(1 << 20, 443)), flows: 20 };
    assert_eq!(distinct.fan_in, Some(target));
    let reordering = interval.reordering.expect("on");
    assert!(reordering.checked > 100 && reordering.out_of_order == 0, "{reordering:?}");
    assert_eq!(reordering.worst.first().map(|worst| worst.least_share), Some(0.0));

    // The next interval begins with nothing.
    let empty = flows.end_interval(START + 3 * SECOND, 3);
    assert_eq!((empty.packets, empty.heavy.and_then(|heavy| heavy.top_share())), (0, None));
    let distinct = empty.distinct.expect("on");
    assert_eq!((distinct.flows, distinct.fan_out, distinct.fan_in), (0.0, None, None));
}

#[test]
fn a_prefix_that_is_reordered_is_named_and_one_packet_of_few_is_no_large_share() {
    let mut flows = all("");
    usual(&mut flows, START);
    // Of 10.1.2.0/24 every second packet overtakes the one before it; 10.3.3.0/24 has one in ten packets.
    let late = (0..200_u32).map(|number| (end(0x1_02_03, 1), number ^ 1));
    let few = [0, 1, 2, 4, 3, 5, 6, 7, 8, 9].map(|number| (end(0x3_03_03, 1), number));
    for (place, (source, sequence)) in (0..).zip(late.chain(few)) {
        flows.insert(&packet(START + place * 1_000_000, source, end(1 << 20, 443), sequence * 100, 100));
    }

    let found = flows.end_interval(START + SECOND, 1).reordering.expect("on");

    let worst = found.worst.first().expect("many were checked");
    assert_eq!((worst.prefix.to_string().as_str(), found.heavy_prefixes), ("10.1.2.0/24", 1));
    let share = worst.out_of_order as f64 / worst.checked as f64;
    assert!((share - 0.5).abs() < 0.05 && worst.least_share < share && worst.least_share > 0.4, "{worst:?}");
    assert!(found.share().is_some_and(|share| share > 0.02), "{found:?}");
}

#[test]
fn flows_are_followed_over_intervals_and_begin_anew_when_places_are_drawn_anew() {
    let reordering = Some(PrefixLengths::default());
    let settings = FlowsSettings { filter: Filter::default(), reordering, heavy: None, window_ns: None, secret: 3 };
    let mut flows = Flows::new(&settings).expect("possible");
    let seconds = reordering::RESEED_AFTER_NS / SECOND;
    for interval in 0..=2 * seconds + 1 {
        let start_ns = START + interval * SECOND;
        for number in 0..20_u32 {
            let sequence = interval as u32 * 2_000 + number * 100;
            let time_ns = start_ns + u64::from(number) * 1_000_000;
            flows.insert(&packet(time_ns, end(0x1_02_03, 1), end(1 << 20, 443), sequence, 100));
        }
        let found = flows.end_interval(start_ns + SECOND, 1).reordering.expect("on");
        // The first packet of a flow is compared with none. The first drawing is so long after the first end.
        let is_first = interval == 0 || interval > seconds && interval % seconds == 1;
        let first = u64::from(is_first);
        assert_eq!((found.checked, found.out_of_order), (20 - first, 0), "interval {interval}");
    }
}

#[test]
fn in_an_interval_of_an_hour_a_flow_that_has_ended_gives_its_record_to_the_next_one_whenever_that_comes() {
    let reordering = Some(PrefixLengths::default());
    let settings = FlowsSettings { filter: Filter::default(), reordering, heavy: None, window_ns: None, secret: 3 };
    // By its ticks of 32 bits, a record that idles for 37 to 73 minutes looks fresh.
    for minutes in [1, 20, 36, 38, 50, 72, 74] {
        let mut flows = Flows::new(&settings).expect("possible");
        let mut send = |begin_ns: u64, port: u16, packets: u32| {
            for number in 0..packets {
                let time_ns = begin_ns + u64::from(number);
                flows.insert(&packet(time_ns, end(0x1_02_03, port), end(1 << 20, 443), number * 100, 100));
            }
        };
        // Two flows that are watched for long, and one that is sampled, of one prefix.
        send(START, 1, 20_000);
        send(START, 2, 20_000);
        send(START, 3, 10);
        let later = START + minutes * 60 * SECOND;
        send(later, 4, 100);

        let found = flows.end_interval(later + SECOND, 1).reordering.expect("on");
        // The first packet of each is compared with none.
        assert_eq!((found.checked, found.out_of_order), (2 * 19_999 + 9 + 99, 0), "{minutes} minutes");
    }
}

#[test]
fn prefixes_are_as_long_as_was_asked_for() {
    let flows = |v4, v6| {
        let reordering = Some(PrefixLengths { v4, v6 });
        Flows::new(&FlowsSettings { filter: Filter::default(), reordering, heavy: None, window_ns: None, secret: 3 })
    };
    let named = |v4| {
        let mut flows = flows(v4, 48).expect("possible");
        for number in 0..200_u32 {
            let time_ns = START + u64::from(number) * 1_000_000;
            flows.insert(&packet(time_ns, end(0x1_02_03, 1), end(1 << 20, 443), (number ^ 1) * 100, 100));
        }
        let found = flows.end_interval(START + SECOND, 1).reordering.expect("on");
        found.worst.first().expect("many were checked").prefix.to_string()
    };

    assert_eq!([8, 16, 24, 32].map(named), ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32"]);
    for (v4, v6) in [(0, 48), (33, 48), (24, 0), (24, 57)] {
        assert_eq!(flows(v4, v6).err(), Some(FlowsError::Prefixes(PrefixLengths { v4, v6 })));
    }
}

/// A segment with this sequence number: over IPv4, or over IPv6 with a fragment header. `cut` is the offset of the
/// fragment in units of eight bytes, and whether there are further ones.
fn cut_segment(sequence: u32, is_v6: bool, cut: (u8, bool)) -> Vec<u8> {
    let mut bytes = crate::generator::segment(&[7; 100]);
    bytes[38..42].copy_from_slice(&sequence.to_be_bytes());
    if !is_v6 {
        (bytes[20], bytes[21]) = (u8::from(cut.1) << 5, cut.0);
        return bytes;
    }
    let segment = bytes.split_off(34);
    let length = (8 + segment.len()) as u16;
    bytes.truncate(12);
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend(length.to_be_bytes());
    bytes.extend([44, 64]);
    bytes.extend([0xfd; 16]);
    bytes.extend([0xfc; 16]);
    let [offset, more] = (u16::from(cut.0) << 3 | u16::from(cut.1)).to_be_bytes();
    bytes.extend([6, 0, offset, more, 0, 0, 0, 9]);
    bytes.extend(segment);
    bytes
}

#[test]
fn fragments_are_not_checked_for_their_order_and_counted_and_the_segments_around_them_are_checked() {
    let (first, later, last, whole) = ((0, true), (64, true), (128, false), (0, false));
    for is_v6 in [false, true] {
        let mut flows = all("");
        let mut refused = 0;
        // A first fragment from the future, and one from the past: neither it nor the one behind it is out of order.
        let sent =
            [(1, whole), (9_000, first), (0, later), (0, last), (101, whole), (1, first), (201, whole), (1, whole)];
        for (place, (sequence, cut)) in (0..).zip(sent) {
            let bytes = cut_segment(sequence, is_v6, cut);
            let (length, time_ns) = (bytes.len() as u32, START + place);
            match parse(&Frame { bytes: &bytes, length, time_ns, link: Link::Ethernet }, View::Outer) {
                Ok(packet) => assert!(flows.insert(&packet)),
                Err(reason) => {
                    assert_eq!(reason, ParseError::Fragment);
                    refused += 1;
                }
            }
        }

        let interval = flows.end_interval(START + SECOND, 1);
        let found = interval.reordering.expect("on");
        assert_eq!((interval.packets, refused, found.fragments), (6, 2, 2), "IPv6: {is_v6}");
        // The first packet of a flow is compared with none; the last one was sent again.
        assert_eq!((found.checked, found.out_of_order), (3, 1), "IPv6: {is_v6}");
        let next = flows.end_interval(START + 2 * SECOND, 1).reordering.expect("on");
        assert_eq!(next.fragments, 0);
    }
}

#[test]
fn one_client_that_takes_half_of_the_bytes_is_named() {
    let mut flows = all("");
    usual(&mut flows, START);
    (0..80_u32).for_each(|number| {
        flows.insert(&packet(START + SECOND / 2, end(77, 1), end(1 << 20, 443), number * 1_480, 1_480));
    });

    let heavy = flows.end_interval(START + SECOND, 1).heavy.expect("on");

    assert_eq!((heavy.top[0].party.to_string().as_str(), heavy.top_share()), ("10.0.0.77", Some(0.5)));
}

#[test]
fn a_port_scan_names_who_scans_and_a_flood_names_its_target() {
    let mut flows = all("");
    usual(&mut flows, START);
    for port in 0..2_000_u16 {
        flows.insert(&packet(START + SECOND / 2, end(66, 5_555), end(1 << 20, port), 0, 0));
    }
    let scan = flows.end_interval(START + SECOND, 1).distinct.expect("on");
    let widest = scan.fan_out.expect("there are packets");
    assert_eq!(widest.source.to_string(), "10.0.0.66");
    // A bit of the 65,536 that is set already hides an item now and then.
    assert!((1_900..=2_000).contains(&widest.destinations) && (scan.ports / 2_000.0 - 1.0).abs() < 0.15, "{scan:?}");
    assert!(scan.sources < 23.0, "{scan:?}");

    usual(&mut flows, START + SECOND);
    for number in 0..30_000_u32 {
        let at = START + SECOND + u64::from(number) * 20_000;
        flows.insert(&packet(at, end(1 << 21 | number, 1_024), end(1 << 20, 80), 0, 0));
    }
    let flood = flows.end_interval(START + 2 * SECOND, 1).distinct.expect("on");
    let target = flood.fan_in.expect("there are packets");
    assert_eq!(target.destination.to_string(), "10.16.0.0:80");
    assert!(target.flows > 20_000 && (flood.sources / 30_020.0 - 1.0).abs() < 0.15, "{flood:?}");
    assert!(flood.fan_out.is_some_and(|widest| widest.destinations < 10), "{flood:?}");
}

#[test]
fn clients_that_all_change_their_addresses_at_once_become_no_more_whenever_they_do() {
    let mut doubled = [0; 8];
    for (eighth, doubled) in (0..).zip(&mut doubled) {
        let mut flows = all("");
        let at_ns = START + 3 * SECOND + eighth * SECOND / 8;
        for second in 0..7 {
            replaced(&mut flows, START + second * SECOND, at_ns);
            let interval = flows.end_interval(START + (second + 1) * SECOND, 1);

            let (heavy, distinct) = (interval.heavy.expect("on"), interval.distinct.expect("on"));
            *doubled += u32::from(distinct.sources > 30.0);
            let LastingInterval { flows: among, sources, fan_in } = distinct.lasting;
            let is_usual = |count: f64| (count / 20.0 - 1.0).abs() < 0.15;
            assert!([among, sources, fan_in].into_iter().all(is_usual), "{eighth} eighths, {second} s: {distinct:?}");
            let share = heavy.lasting_share.expect("of many packets");
            assert!((share - 0.05).abs() < 0.002, "{eighth} eighths, {second} s: {share}");
        }
    }
    // Both addresses of a client are in one window, but where they change between two of them.
    assert!(doubled.iter().all(|intervals| *intervals <= 2), "{doubled:?}");
    assert!(doubled.iter().filter(|intervals| **intervals > 0).count() >= 6, "{doubled:?}");
}

/// Three seconds of usual traffic, and `seconds` more with `extra` beside it, which sends the packets of a second.
/// Returns what is known of each of these.
fn attacked(seconds: u64, extra: impl Fn(&mut Flows, u64)) -> Vec<DistinctInterval> {
    let mut flows = all("");
    let mut intervals = Vec::new();
    for second in 0..3 + seconds {
        let start_ns = START + second * SECOND;
        usual(&mut flows, start_ns);
        if second >= 3 {
            extra(&mut flows, start_ns + SECOND * 9 / 10);
        }
        intervals.extend(flows.end_interval(start_ns + SECOND, 1).distinct);
    }
    intervals.split_off(3)
}

#[test]
fn a_scan_a_worm_and_a_flood_count_in_the_interval_in_which_they_begin() {
    let (intruder, server) = (end(66, 5_555), end(1 << 20, 443));
    let scan = attacked(1, |flows, at_ns| {
        for port in 1_000..1_100 {
            flows.insert(&packet(at_ns, intruder, End { port, ..server }, 0, 0));
        }
    });
    assert!(scan[0].ports > 85.0 && scan[0].lasting.flows > 100.0, "{scan:?}");
    assert!(scan[0].fan_out.is_some_and(|of| of.source.to_string() == "10.0.0.66" && of.destinations >= 98));

    // One of the usual clients looks for peers.
    let worm = attacked(1, |flows, at_ns| {
        for peer in 0..100 {
            flows.insert(&packet(at_ns, end(7 << 8, 50_000), end(1 << 22 | peer, 445), 0, 0));
        }
    });
    assert!(worm[0].fan_out.is_some_and(|of| of.source.to_string() == "10.0.7.0" && of.destinations >= 98));
    assert!(worm[0].lasting.flows > 100.0 && worm[0].lasting.sources < 23.0, "{worm:?}");

    let flood = attacked(1, |flows, at_ns| {
        for source in 0..100 {
            flows.insert(&packet(at_ns, end(1 << 22 | source, 1_024), server, 0, 0));
        }
    });
    let LastingInterval { flows, sources, fan_in } = flood[0].lasting;
    assert!(flows > 100.0 && sources > 100.0 && fan_in > 115.0, "{flood:?}");
}

#[test]
fn a_flood_by_no_more_sources_than_there_are_clients_counts_once_it_lasts() {
    let flood = attacked(4, |flows, at_ns| {
        for source in 0..15 {
            flows.insert(&packet(at_ns, end(1 << 22 | source, 1_024), end(1 << 20, 443), 0, 0));
        }
    });

    let sources: Vec<bool> = flood.iter().map(|interval| interval.lasting.sources > 30.0).collect();
    let targets: Vec<bool> = flood.iter().map(|interval| interval.lasting.fan_in > 30.0).collect();
    assert_eq!((sources, targets), (vec![false, false, true, true], vec![false, true, true, true]), "{flood:?}");
}

#[test]
fn memory_is_the_same_whatever_is_sent_and_what_is_left_out_takes_none() {
    let mut flows = all("");
    let before = flows.memory_bytes();
    for number in 0..100_000_u32 {
        flows.insert(&packet(START + u64::from(number), end(number, number as u16), end(number, 1), number, 1));
    }
    let _ = flows.end_interval(START + SECOND, 10);
    assert_eq!(flows.memory_bytes(), before);

    let none = FlowsSettings { filter: Filter::default(), reordering: None, heavy: None, window_ns: None, secret: 1 };
    assert_eq!(Flows::new(&none).map(|flows| flows.memory_bytes()), Ok(0));
    let short = FlowsSettings { window_ns: Some(1), ..none };
    assert!(matches!(Flows::new(&short), Err(FlowsError::Window(_))));
}

/// Five clients that are none of the usual ones send a packet each.
fn others(flows: &mut Flows, start_ns: u64) {
    for number in 0..5_u32 {
        flows.insert(&packet(start_ns + u64::from(number), end(1 << 21 | number << 8, 1), end(1 << 20, 80), 0, 100));
    }
}

#[test]
fn after_a_clock_that_goes_back_the_window_has_what_came_since() {
    let after = START - 3_600 * SECOND;
    // Whether the stream knows of it, or has only the packets' times.
    for is_known in [true, false] {
        let mut flows = all("");
        usual(&mut flows, START);
        if is_known {
            assert_eq!(flows.end_interval(START + SECOND, 1).packets, 1_000);
            flows.set_back(after);
            // What was in the ring has the time from before.
            flows.insert(&packet(START + SECOND, end(77, 1), end(1 << 20, 443), 0, 100));
        }
        others(&mut flows, after + SECOND / 2);

        let interval = flows.end_interval(after + SECOND, 1);
        assert_eq!(interval.packets, if is_known { 6 } else { 1_005 });
        let distinct = interval.distinct.expect("on");
        assert!((3.5..6.5).contains(&distinct.sources) && (3.5..6.5).contains(&distinct.flows), "{distinct:?}");
    }
}

#[test]
fn a_clock_that_goes_back_leaves_no_count_of_before_in_silence() {
    let mut flows = all("");
    usual(&mut flows, START);
    let _ = flows.end_interval(START + SECOND, 1);
    flows.set_back(START - 3_600 * SECOND);

    let silent = flows.end_interval(START - 3_599 * SECOND, 1);
    assert_eq!(silent.distinct.map(|distinct| (distinct.flows, distinct.sources)), Some((0.0, 0.0)));
}
