use super::*;
use crate::packet::{End, Tcp, Transport};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

fn all(filter: &str) -> Flows {
    let settings = FlowsSettings {
        filter: filter.parse().expect("a filter"),
        reordering: true,
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
        segment: &[],
        header_bytes: 20,
    }
}

/// 20 clients send 50 segments of 100 bytes each to port 443 of one server, within 0.9 s.
fn usual(flows: &mut Flows, start_ns: u64) {
    for number in 0..1_000_u32 {
        let client = number % 20;
        let time_ns = start_ns + u64::from(number) * 900_000;
        flows.insert(&packet(time_ns, end(client << 8, 40_000), end(1 << 20, 443), number / 20 * 100, 100));
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
fn memory_is_the_same_whatever_is_sent_and_what_is_left_out_takes_none() {
    let mut flows = all("");
    let before = flows.memory_bytes();
    for number in 0..100_000_u32 {
        flows.insert(&packet(START + u64::from(number), end(number, number as u16), end(number, 1), number, 1));
    }
    let _ = flows.end_interval(START + SECOND, 10);
    assert_eq!(flows.memory_bytes(), before);

    let none = FlowsSettings { filter: Filter::default(), reordering: false, heavy: None, window_ns: None, secret: 1 };
    assert_eq!(Flows::new(&none).map(|flows| flows.memory_bytes()), Ok(0));
    let short = FlowsSettings { window_ns: Some(1), ..none };
    assert!(matches!(Flows::new(&short), Err(FlowsError::Window(_))));
}

#[test]
fn a_clock_that_goes_back_breaks_nothing() {
    let mut flows = all("");
    usual(&mut flows, START);
    usual(&mut flows, START - 100 * SECOND);

    let interval = flows.end_interval(START - 99 * SECOND, 1);
    assert_eq!(interval.packets, 2_000);
    assert!(interval.distinct.is_some_and(|distinct| distinct.sources < 23.0));
}
