//! Comparison with Wireshark's dissector on the same capture, packet by packet, and with what `sort` and `uniq` count
//! in its lines.

mod published;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use packets::file::{Capture, Writer};
use packets::flows::{FlowsInterval, Key, Weight};
use packets::generator::{Traffic, TrafficSettings};
use packets::packet::End;
use packets::source::{Source as _, read_all};
use packets::{Delays, DelaysSettings, Filter, Flows, FlowsSettings, Link, Packet, Pair, Tcp, Transport, View, parse};
use support::harness::not_run;
use synopses::fridge::{Duplicates, HistogramShape, MAX_SLOTS, Settings};

/// Delays by the number of the frame that ends them, from 1.
type FrameDelays = BTreeMap<u64, u64>;

fn written(settings: &TrafficSettings, path: &Path) {
    let mut writer =
        Writer::new(BufWriter::new(File::create(path).expect("a test has what it needs")), Link::Ethernet, 96)
            .expect("a test has what it needs");
    for frame in Traffic::new(settings).frames() {
        writer.write(&frame).expect("a test has what it needs");
    }
    writer.finish().expect("a test has what it needs");
}

/// Delays of a fridge with so many slots that it evicts no request that gets a response, to the nanosecond. Untouched
/// slots take no memory. `visit` gets each frame's number and packet.
fn ours(path: &Path, pair: Pair, duplicates: Duplicates, mut visit: impl FnMut(u64, &Packet<'_>)) -> FrameDelays {
    let fridge = Settings { slots: MAX_SLOTS, tick_shift: 0, duplicates, ..Settings::default() };
    let histogram = HistogramShape { tick_shift: 0, fineness: 3 };
    let settings = DelaysSettings { pair, filter: Filter::default(), fridge, histogram, tuned: false, secret: 3 };
    let mut delays = Delays::new(settings).expect("a test has what it needs");
    let (mut found, mut number) = (FrameDelays::new(), 0);
    let mut capture =
        Capture::new(File::open(path).expect("a test has what it needs")).expect("a test has what it needs");
    read_all(&mut capture, &mut |frame| {
        number += 1;
        let packet = parse(frame, View::Outer).expect("a test has what it needs");
        visit(number, &packet);
        found.extend(delays.insert(&packet).map(|report| (number, report.delay_ns)));
    })
    .expect("a test has what it needs");
    assert_eq!(capture.counts().frames, number);
    found
}

/// Delays of tshark for frames that match `filter`; `None` if it is not installed.
fn theirs(path: &Path, filter: &str) -> Option<FrameDelays> {
    let fields = ["-T", "fields", "-e", "frame.number", "-e", "tcp.analysis.ack_rtt"];
    let filter = format!("tcp.analysis.ack_rtt and {filter}");
    let output = Command::new("tshark").arg("-r").arg(path).args(["-Y", &filter]).args(fields).output();
    let Ok(output) = output else {
        not_run("packets beside tshark: it is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = |line: &str| {
        let (number, seconds) = line.split_once('\t').expect("a test has what it needs");
        // Nine digits after the point.
        (
            number.parse().expect("a test has what it needs"),
            seconds.replace('.', "").parse().expect("a test has what it needs"),
        )
    };
    Some(String::from_utf8(output.stdout).expect("a test has what it needs").lines().map(line).collect())
}

#[test]
fn handshakes_are_those_of_tshark_packet_by_packet() {
    let folder = tempfile::tempdir().expect("a test has what it needs");
    let path = folder.path().join("traffic.pcap");
    written(&TrafficSettings { connections: 500, segments: 3, ..TrafficSettings::default() }, &path);
    let Some(theirs) = theirs(&path, "tcp.flags.syn == 1") else { return };

    let ours = ours(&path, Pair::Handshake, Duplicates::KeepFirst, |_, _| {});

    assert_eq!(theirs.len(), 500);
    assert_eq!(ours, theirs);
}

/// Differences in definition that explain why an acknowledgement is in one list only.
#[derive(Default)]
struct Definitions {
    /// The highest number acknowledged so far, in each direction.
    acknowledged: HashMap<(End, End), u32>,
    /// Sequence numbers after a SYN+ACK or a FIN without payload, which acknowledgements refer to.
    empty: HashSet<(End, End, u32)>,
    /// Frames that acknowledge less than an earlier one. tshark has dropped the segments that they acknowledge, a
    /// fridge has not.
    reordered: BTreeSet<u64>,
    /// Frames that acknowledge a SYN or a FIN, which tshark counts as data.
    of_marks: BTreeSet<u64>,
}

impl Definitions {
    fn add(&mut self, number: u64, packet: &Packet<'_>) {
        let Transport::Tcp(tcp) = packet.transport else { return };
        let marks = u32::from(tcp.has(Tcp::SYN)) + u32::from(tcp.has(Tcp::FIN));
        if marks > 0 && tcp.payload == 0 {
            self.empty.insert((packet.source, packet.destination, tcp.sequence.wrapping_add(marks)));
        }
        if tcp.has(Tcp::ACK) {
            let highest = self.acknowledged.entry((packet.source, packet.destination)).or_insert(tcp.acknowledgement);
            let ahead = tcp.acknowledgement.wrapping_sub(*highest) as i32;
            if ahead < 0 {
                self.reordered.insert(number);
            } else {
                *highest = tcp.acknowledgement;
            }
            if self.empty.contains(&(packet.destination, packet.source, tcp.acknowledgement)) {
                self.of_marks.insert(number);
            }
        }
    }
}

/// Compares the acknowledgements of a capture with tshark's. Returns how many are the same, only ours, and only theirs.
/// Panics if a difference has no known reason.
fn compare(traffic: &TrafficSettings) -> Option<(usize, usize, usize)> {
    let folder = tempfile::tempdir().expect("a test has what it needs");
    let path = folder.path().join("traffic.pcap");
    written(traffic, &path);
    let theirs = theirs(&path, "tcp.flags.syn == 0")?;
    let mut definitions = Definitions::default();
    let ours = ours(&path, Pair::Data, Duplicates::KeepFirst, |number, packet| definitions.add(number, packet));

    let (mut same, mut only_ours, mut only_theirs) = (0, 0, 0);
    for (number, delay) in &ours {
        if let Some(their) = theirs.get(number) {
            assert_eq!(delay, their, "frame {number}");
            same += 1;
        } else {
            assert!(definitions.reordered.contains(number), "frame {number} is not in tshark's list: {delay} ns");
            only_ours += 1;
        }
    }
    for (number, delay) in theirs.iter().filter(|(number, _)| !ours.contains_key(number)) {
        assert!(definitions.of_marks.contains(number), "frame {number} is in tshark's list only: {delay} ns");
        only_theirs += 1;
    }
    println!("{same} the same to the nanosecond, {only_ours} reordered, {only_theirs} of a SYN or FIN");
    Some((same, only_ours, only_theirs))
}

#[test]
fn acknowledgements_are_those_of_tshark_packet_by_packet() {
    let calm = TrafficSettings { connections: 300, loss: 0.0, spurious: 0.0, late: 0.0, ..TrafficSettings::default() };
    let Some((same, _, of_marks)) = compare(&calm) else { return };

    assert!(same > 3_000 && of_marks == 300, "{same}, {of_marks}");
}

#[test]
fn acknowledgements_are_those_of_tshark_with_losses_retransmissions_and_reordering() {
    let rough =
        TrafficSettings { connections: 500, loss: 0.03, spurious: 0.01, late: 0.03, ..TrafficSettings::default() };
    let Some((same, reordered, _)) = compare(&rough) else { return };

    assert!(same > 3_000 && reordered > 100, "{same}, {reordered}");
}

const SECOND: u64 = 1_000_000_000;
/// Longer than every published capture, in seconds.
const WHOLE: u64 = 7_200;
/// Estimates of as many secrets are averaged.
const SECRETS: u64 = 20;

/// What awk prints of the fields of [`sorted`].
const FLOW: &str = r#"{ print ($1 == "" ? $2 : $1), ($3 == "" ? $4 : $3), $5 $6, $7 $8, ($5 == "") }"#;
const SOURCE: &str = r#"{ print ($1 == "" ? $2 : $1) }"#;
const PORT: &str = "{ print $7 $8 }";
/// As our own flows are named.
const NAMED_FLOW: &str = r#"{
    source = ($1 == "" ? "[" $2 "]" : $1)
    destination = ($3 == "" ? "[" $4 "]" : $3)
    print source ":" $5 $6 " to " destination ":" $7 $8
}"#;

/// A line for each TCP or UDP packet from one second of a capture to another, as `program` prints it, and what a shell
/// makes of all lines by `then`; `None` if tshark is not installed. Of tunnels the outer packet counts, of fragments
/// the first one, and not what an ICMP message quotes.
fn sorted(path: &Path, (from, to): (u64, u64), program: &str, then: &str) -> Option<String> {
    if Command::new("tshark").arg("--version").output().is_err() {
        not_run("packets beside tshark: it is not installed");
        return None;
    }
    let fields =
        "-e ip.src -e ipv6.src -e ip.dst -e ipv6.dst -e tcp.srcport -e udp.srcport -e tcp.dstport -e udp.dstport";
    let tshark =
        "tshark -n -r \"$0\" -Y \"$1\" -o ip.defragment:FALSE -o ipv6.defragment:FALSE -T fields -E occurrence=f";
    let filter = format!(
        "(tcp or udp) and not icmp and not icmpv6 and frame.time_relative >= {from} and frame.time_relative < {to}"
    );
    let script = format!("{tshark} {fields} | awk -F '\\t' \"$2\" | {then}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(path).arg(&filter).arg(program);
    let output = shell.output().expect("there is a shell");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    assert!(output.status.success() && !text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}

/// `sort -u | wc -l`.
fn distinct_by_sort(path: &Path, seconds: (u64, u64), program: &str) -> Option<f64> {
    sorted(path, seconds, program, "sort -u | wc -l").map(|text| text.trim().parse().expect("a number"))
}

/// `sort | uniq -c`.
fn counts_by_sort(path: &Path, program: &str) -> Option<BTreeMap<String, u64>> {
    let text = sorted(path, (0, WHOLE), program, "sort | uniq -c")?;
    let line = |line: &str| {
        let (count, name) = line.trim_start().split_once(' ').expect("a number and a name");
        (name.to_owned(), count.parse().expect("a number"))
    };
    Some(text.lines().map(line).collect())
}

/// The flows of a capture until a second of it.
fn measured(path: &Path, until: u64, window: u64, heavy: Option<(Key, Weight)>, secret: u64) -> FlowsInterval {
    let window_ns = Some(window * SECOND);
    let secret = u128::from(secret) << 64 | 5;
    let settings = FlowsSettings { filter: Filter::default(), reordering: None, heavy, window_ns, secret };
    let (mut flows, mut end_ns) = (Flows::new(&settings).expect("possible"), None);
    let mut capture = Capture::new(File::open(path).expect("it is here")).expect("a capture");
    read_all(&mut capture, &mut |frame| {
        let end_ns = *end_ns.get_or_insert(frame.time_ns + until * SECOND);
        if let Ok(packet) = parse(frame, View::Outer)
            && packet.time_ns < end_ns
        {
            assert!(flows.insert(&packet));
        }
    })
    .expect("it is whole");
    flows.end_interval(end_ns.expect("it has frames"), 16)
}

/// Distinct flows, sources and ports of the `window` seconds until a second of a capture: means over the secrets.
fn distinct(path: &Path, until: u64, window: u64) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for secret in 1..=SECRETS {
        let found = measured(path, until, window, None, secret).distinct.expect("on");
        for (sum, found) in sums.iter_mut().zip([found.flows, found.sources, found.ports]) {
            *sum += found;
        }
    }
    sums.map(|sum| sum / SECRETS as f64)
}

/// A mean of estimates that are each off by 5 %, and of few items by half an item.
fn tolerance(exact: f64) -> f64 {
    0.05 * exact + 0.5
}

#[test]
fn distinct_items_of_published_captures_are_as_many_as_sort_finds() {
    for path in published::captures() {
        let found = distinct(&path, WHOLE / 2, WHOLE);
        for (found, program) in found.into_iter().zip([FLOW, SOURCE, PORT]) {
            let Some(exact) = distinct_by_sort(&path, (0, WHOLE), program) else { return };
            assert!((found - exact).abs() < tolerance(exact), "{}, {program}: {found} of {exact}", path.display());
        }
    }
}

#[test]
fn distinct_items_of_a_window_are_at_least_those_that_sort_finds_in_it_and_at_most_those_of_two_slots_more() {
    let captures = published::captures();
    let (path, window) = (&captures[0], 300);
    for until in [400, 800, 1_200, 1_600] {
        let found = distinct(path, until, window);
        for (found, program) in found.into_iter().zip([FLOW, SOURCE, PORT]) {
            let of = |window| distinct_by_sort(path, (until - window, until), program);
            // A slot is an eighth of the window.
            let Some((least, most)) = of(window).zip(of(window * 5 / 4)) else { return };
            let is_between = found > least - tolerance(least) && found < most + tolerance(most);
            assert!(is_between, "{program} at {until} s: {found}, and not {least} to {most}");
        }
    }
}

#[test]
fn the_heaviest_parties_of_published_captures_are_those_of_sort_and_uniq() {
    for path in published::captures() {
        let name = path.display();
        let top = |key, secret| {
            let heavy = measured(&path, WHOLE / 2, WHOLE, Some((key, Weight::Packets)), secret).heavy.expect("on");
            heavy.top.into_iter().map(|top| (top.party.to_string(), top)).collect::<BTreeMap<_, _>>()
        };
        for (key, program) in [(Key::Source, SOURCE), (Key::Flow, NAMED_FLOW)] {
            let Some(exact) = counts_by_sort(&path, program) else { return };
            let mut heaviest: Vec<(u64, &String)> = exact.iter().map(|(name, count)| (*count, name)).collect();
            heaviest.sort_unstable();
            for secret in 1..=SECRETS {
                let found = top(key, secret);
                // Sixteen are listed; of equal ones that come last in both lists, others may be.
                for (count, party) in heaviest.iter().rev().take(8).filter(|(count, _)| *count > 2) {
                    let top =
                        found.get(*party).unwrap_or_else(|| panic!("{name}: {party} ({count}) is not in {found:?}"));
                    assert!(
                        top.least <= *count && top.count.abs_diff(*count) * 10 <= *count,
                        "{name}: {top:?}, {count}"
                    );
                }
            }
        }
    }
}
