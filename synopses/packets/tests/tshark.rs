//! Comparison with Wireshark's dissector on the same capture, packet by packet.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use packets::file::{Capture, Writer};
use packets::generator::{Traffic, TrafficSettings};
use packets::packet::End;
use packets::source::{Source as _, read_all};
use packets::{Delays, DelaysSettings, Filter, Link, Packet, Pair, Tcp, Transport, View, parse};
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
        println!("NOT RUN: tshark is not installed");
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
