//! Cost of a packet from the bytes of a capture (snap length 96, in memory) to the synopses, step by step.
//! `cargo bench -p packets`.

use std::io::Cursor;

use divan::Bencher;
use divan::counter::ItemsCount;
use packets::file::{Capture, Writer};
use packets::flows::{reordering_settings, segment};
use packets::generator::{Traffic, TrafficSettings};
use packets::source::read_all;
use packets::{Delays, DelaysSettings, Filter, Frame, Link, Pair, View, identity, parse};
use synopses::cardinality::{Cardinality as _, StHll, StHllSettings, TsPcsa, TsPcsaSettings};
use synopses::digest::DigestKey;
use synopses::disaggregated::{Fragment, Settings as Counters};
use synopses::finecomb::{FineComb, Receiver, Settings as CombSettings};
use synopses::fridge::{HistogramShape, Settings};
use synopses::rap::{HeavyHitters as _, Rap, Settings as Entries};
use synopses::rda::{Cache, Ids};
use synopses::reordering::Reordering;

fn main() {
    divan::main();
}

/// A capture, and how many frames it has.
fn capture() -> (Vec<u8>, u64) {
    let settings = TrafficSettings { connections: 2_000, segments: 100, ..TrafficSettings::default() };
    let (mut writer, mut frames) = (Writer::new(Vec::new(), Link::Ethernet, 96).expect("memory takes all"), 0);
    for frame in Traffic::new(&settings).frames() {
        writer.write(&frame).expect("memory takes all");
        frames += 1;
    }
    (writer.finish().expect("memory takes all"), frames)
}

fn delays(pair: Pair) -> Delays {
    let (fridge, histogram) = (Settings { slots: 4_096, ..Settings::default() }, HistogramShape::default());
    let settings = DelaysSettings { pair, filter: Filter::default(), fridge, histogram, tuned: false, secret: 1 };
    Delays::new(settings).expect("possible")
}

/// Does something with each frame of a capture.
fn each(bencher: Bencher<'_, '_>, mut work: impl FnMut(&Frame<'_>)) {
    let (bytes, frames) = capture();
    bencher.counter(ItemsCount::new(frames)).with_inputs(|| Cursor::new(bytes.clone())).bench_local_values(|file| {
        let mut capture = Capture::new(file).expect("a capture");
        read_all(&mut capture, &mut |frame| work(frame)).expect("it is whole");
    });
}

/// The file alone.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn read(bencher: Bencher<'_, '_>) {
    each(bencher, |frame| {
        divan::black_box(frame.bytes);
    });
}

/// The file, parsed.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn read_and_parse(bencher: Bencher<'_, '_>) {
    each(bencher, |frame| {
        let _ = divan::black_box(parse(frame, View::Outer));
    });
}

/// Into a fridge of TCP data, with two digests per packet.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn to_a_fridge(bencher: Bencher<'_, '_>) {
    let mut data = delays(Pair::Data);
    each(bencher, |frame| {
        if let Ok(packet) = parse(frame, View::Outer) {
            let _ = data.insert(&packet);
        }
    });
}

/// Into fridges of data and handshakes, and into FineComb, whose digest an LDA would share.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn to_two_fridges_and_a_comb(bencher: Bencher<'_, '_>) {
    let (mut data, mut handshakes) = (delays(Pair::Data), delays(Pair::Handshake));
    let (key, mut comb) =
        (DigestKey::new(1), FineComb::new(&CombSettings::one_bank(1_000, 1.0, 0, 1)).expect("possible"));
    each(bencher, |frame| {
        if let Ok(packet) = parse(frame, View::Outer) {
            let _ = data.insert(&packet);
            let _ = handshakes.insert(&packet);
            comb.insert(identity::digest(&packet, &key), packet.time_ns);
        }
    });
}

/// Into all four synopses: fridge, LDA, FineComb's receiver and RDA, with one parse and one digest.
/// `cargo lab figures packets-file` measures it beside tshark.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn to_all_four(bencher: Bencher<'_, '_>) {
    let (key, mut data) = (DigestKey::new(1), delays(Pair::Data));
    let settings = |stash| CombSettings::one_bank(1_000, 1.0, stash, 1);
    let mut lda = FineComb::new(&settings(0)).expect("possible");
    let mut finecomb = Receiver::new(&settings(64)).expect("possible");
    let (mut rda, mut last_ns) = (Cache::new(1 << 19, Ids::Checked8).expect("possible"), 0);
    each(bencher, |frame| {
        if let Ok(packet) = parse(frame, View::Outer) {
            // The capture begins again: packets that are remembered would be told from new ones.
            if packet.time_ns < last_ns {
                rda.clear();
            }
            last_ns = packet.time_ns;
            let _ = data.insert(&packet);
            let digest = identity::digest(&packet, &key);
            lda.insert(digest, packet.time_ns);
            finecomb.insert(digest, packet.time_ns);
            rda.insert(digest, packet.time_ns);
        }
    });
}

/// Into all synopses of flows: reordering, RAP, ST-HLL+, TS-PCSA+ and a fragment, with one parse and the digest of the
/// flow. `cargo lab figures packets-file-all` measures these and the four of delay and loss together.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn to_all_of_flows(bencher: Bencher<'_, '_>) {
    let key = DigestKey::new(1);
    let mut reordering = Reordering::new(reordering_settings(1)).expect("possible");
    let mut heavy = Rap::new(Entries::default()).expect("possible");
    let mut staggered = StHll::new(StHllSettings::default()).expect("possible");
    let mut stamped = TsPcsa::new(TsPcsaSettings::default()).expect("possible");
    let mut fragment = Fragment::new(Counters::default()).expect("possible");
    let mut last_ns = 0;
    each(bencher, |frame| {
        let Ok(packet) = parse(frame, View::Outer) else { return };
        // The capture begins again: what comes before the latest time would be dropped.
        if packet.time_ns < last_ns {
            staggered.reset(packet.time_ns);
            stamped.reset(packet.time_ns);
        }
        last_ns = packet.time_ns;
        let segment = segment(&packet, &key);
        let flow = segment.map_or_else(|| identity::flow(&packet, &key), |segment| segment.flow);
        if let Some(segment) = segment {
            divan::black_box(reordering.insert(&segment, packet.time_ns));
        }
        heavy.insert(flow);
        staggered.insert(flow, packet.time_ns);
        stamped.insert(flow, packet.time_ns);
        fragment.insert(flow, 1);
    });
}
