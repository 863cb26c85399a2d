//! Captures that are kept in the repository, and published ones, counted exactly beside the synopses: what
//! `sort -u | wc -l` and `sort | uniq -c | sort -n` say of the same window. `tshark.rs` asks these programs themselves.

mod published;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use packets::file::Capture;
use packets::flows::{FlowsInterval, HEAVY_ENTRIES, Key, Party, REGISTERS, Weight};
use packets::identity::FlowKey;
use packets::source::read_all;
use packets::{Filter, Flows, FlowsSettings, Packet, Transport, View, parse};
use synopses::digest::DigestKey;
use synopses::disaggregated::{Fragment, Settings};

/// Captures of `p4/vectors`. Their frames are of random traffic, partly damaged, and partly late.
const OWN: [&str; 5] = ["whole", "damaged", "broken", "edges", "streams"];
/// Longer than every capture: each has one window.
const WINDOW_NS: u64 = 3_600_000_000_000;
const SEEDS: u128 = 20;

/// Our own, and `published` ones.
fn captures(published: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let own = OWN.map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../p4/vectors/{name}.pcap")));
    own.into_iter().chain(published).collect()
}

/// Does something with each packet of a capture. Returns the latest time.
fn each(path: &Path, mut take: impl FnMut(&Packet<'_>)) -> u64 {
    let mut capture = Capture::new(File::open(path).expect("it is kept")).expect("a capture");
    let mut latest_ns = 0;
    read_all(&mut capture, &mut |frame| {
        if let Ok(packet) = parse(frame, View::Outer) {
            latest_ns = latest_ns.max(packet.time_ns);
            take(&packet);
        }
    })
    .expect("it is whole");
    latest_ns
}

/// Who a packet counts for.
fn party(key: Key, packet: &Packet<'_>) -> Party {
    match key {
        Key::Source => Party::Address(packet.source.address),
        Key::Destination => Party::Address(packet.destination.address),
        Key::Flow => Party::Flow(packet.source, packet.destination),
        Key::Port => Party::Port(packet.destination.port),
    }
}

fn bytes(packet: &Packet<'_>) -> u64 {
    let payload = match packet.transport {
        Transport::Tcp(tcp) => tcp.payload,
        Transport::Udp(udp) => udp.length,
    };
    packet.header_bytes as u64 + u64::from(payload)
}

/// The flows of a capture, measured.
fn measured(path: &Path, heavy: Option<(Key, Weight)>, secret: u128) -> FlowsInterval {
    let window_ns = heavy.is_none().then_some(WINDOW_NS);
    let settings = FlowsSettings { filter: Filter::default(), reordering: None, heavy, window_ns, secret };
    let mut flows = Flows::new(&settings).expect("possible");
    let latest_ns = each(path, |packet| assert!(flows.insert(packet)));
    flows.end_interval(latest_ns, HEAVY_ENTRIES)
}

#[test]
fn distinct_flows_sources_and_ports_are_those_of_the_capture() {
    for path in captures(published::captures()) {
        let name = path.display();
        let mut exact = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        each(&path, |packet| {
            exact.0.insert(*FlowKey::of(packet).bytes());
            exact.1.insert(packet.source.address);
            exact.2.insert(packet.destination.port);
        });
        let exact = [exact.0.len(), exact.1.len(), exact.2.len()].map(|count| count as f64);
        assert!(exact[0] > 5.0, "{name} has {} flows", exact[0]);

        let mut errors = [0.0; 3];
        for secret in 1..=SEEDS {
            let found = measured(&path, None, secret << 64 | 5).distinct.expect("on");
            for ((error, found), exact) in errors.iter_mut().zip([found.flows, found.sources, found.ports]).zip(exact) {
                *error += (found - exact) / deviation(exact);
                // Of a few items, two in one register are one.
                let most = (5.0 * deviation(exact)).max(2.2);
                assert!((found - exact).abs() <= most, "{name}, {secret}: {found} of {exact}");
            }
        }
        // No bias: the mean of so many has a fifth of the deviation.
        let means = errors.map(|error| error / SEEDS as f64);
        assert!(means.iter().all(|mean| mean.abs() < 1.0), "{name}: {means:?}");
    }
}

/// The standard error of linear counting by as many registers as there are, and what rounding takes.
fn deviation(items: f64) -> f64 {
    let registers = REGISTERS as f64;
    let load = items / registers;
    (registers * (load.exp() - load - 1.0)).sqrt() + 0.05
}

#[test]
fn the_heaviest_of_every_kind_are_exact_where_each_has_an_entry() {
    for path in captures(published::captures()) {
        let (name, mut exact_lists) = (path.display(), 0);
        for key in Key::ALL {
            for weight in [Weight::Packets, Weight::Bytes] {
                // Flows of two protocols may have one name.
                let mut exact = BTreeMap::<(String, bool), u64>::new();
                each(&path, |packet| {
                    let is_tcp = key == Key::Flow && matches!(packet.transport, Transport::Tcp(_));
                    let more = if weight == Weight::Bytes { bytes(packet) } else { 1 };
                    *exact.entry((party(key, packet).to_string(), is_tcp)).or_default() += more;
                });

                let found = measured(&path, Some((key, weight)), 3).heavy.expect("on");

                assert_eq!(found.total, exact.values().sum::<u64>(), "{name}, {key:?}");
                if exact.len() > HEAVY_ENTRIES {
                    continue;
                }
                exact_lists += 1;
                let mut truth: Vec<(String, u64)> = exact.into_iter().map(|((name, _), sum)| (name, sum)).collect();
                let mut top: Vec<_> = found.top.iter().map(|top| (top.party.to_string(), top.count)).collect();
                assert!(top.is_sorted_by(|one, other| one.1 >= other.1), "{name}, {key:?}: heaviest first");
                assert!(found.top.iter().all(|top| top.least == top.count && !top.low_confidence), "{name}, {key:?}");
                truth.sort_unstable();
                top.sort_unstable();
                assert_eq!(top, truth, "{name}, {key:?}");
            }
        }
        assert!(exact_lists >= 2, "{name} has {exact_lists} lists of few parties");
    }
}

#[test]
fn no_flow_of_a_capture_has_too_small_a_count_in_a_fragment() {
    // Of the short ones, one more collision may be more than the mean.
    for path in captures(published::captures().into_iter().take(1)) {
        let (name, key) = (path.display(), DigestKey::new(9));
        let settings = Settings { id: 1, counters: 64, rows: 2, seed: 4 };
        let (mut fragment, mut exact) = (Fragment::new(settings).expect("possible"), BTreeMap::<FlowKey, u32>::new());
        each(&path, |packet| {
            let flow = FlowKey::of(packet);
            fragment.insert(flow.digest(&key), 1);
            *exact.entry(flow).or_default() += 1;
        });

        assert_eq!(fragment.load(), exact.values().map(|count| u64::from(*count)).sum::<u64>());
        let excess = exact.iter().map(|(flow, count)| fragment.estimate(flow.digest(&key)).checked_sub(*count));
        let excess: Vec<u32> = excess.collect::<Option<_>>().expect("no count is below the truth");
        // On average a counter has this many packets of others, and the least of two has less.
        let mean = f64::from(excess.iter().sum::<u32>()) / excess.len() as f64;
        assert!(mean < fragment.load() as f64 / 64.0, "{name}: {mean}");
    }
}
