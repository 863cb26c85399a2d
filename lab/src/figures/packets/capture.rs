//! A capture of snap length 96, read from the page cache on one core: into the four synopses of delay and loss,
//! compared with tshark on the same file; into a fridge alone, compared with a hash table that does the same work; and
//! into all synopses there are, compared with a plain loop.

use std::fs::File;
use std::hint::black_box;
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use packets::file::{Capture, Writer};
use packets::generator::{Traffic, TrafficSettings};
use packets::source::read_all;
use packets::{Delays, Link, View, parse};
use procfs::process::Process;

use super::super::figure::{Figure, Goal};
use super::super::pair::{Pair, measure, per_second};
use super::all_synopses::{AllSynopses, fridge};
use super::flow_table::FlowTable;
use super::table::RoundTrips;
use crate::clock;
use crate::unavailable::Unavailable;

/// Bytes of a frame that the capture keeps.
const SNAP: u32 = 96;
/// Number of pieces in which the capture is generated, to save memory.
const PIECES: u64 = 4;
const SPAN_NS: u64 = 3_000_000_000;
/// Time between two pieces, in which the last connections end.
const APART_NS: u64 = 6_000_000_000;
const START_NS: u64 = 1_700_000_000_000_000_000;
const TURNS: usize = 5;
const MIN: f64 = 3e6;
/// The same where there are the synopses of flows, too.
const MIN_OF_ALL: f64 = 5e6;
/// By how much the fridge's number of delays may differ from the table's, as a share.
const MAX_ERROR: f64 = 0.1;

/// Processor time per packet in nanoseconds, uview's against tshark's.
pub fn file(name: &str) -> Result<Figure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("traffic.pcap");
    let frames = write(&path)?;
    let mut ours = vec![into_all_four(&path, frames)?];
    let mut pairs = Vec::new();
    for _ in 0..TURNS {
        let mine = into_all_four(&path, frames)?;
        ours.push(mine);
        match theirs(&path)? {
            Some(time) => pairs.push((mine, time.as_nanos() as f64 / frames as f64)),
            None => break,
        }
    }
    let best = ours.iter().copied().fold(f64::INFINITY, f64::min);
    let Some(pair) = Pair::of(&pairs) else {
        let alone =
            format!("tshark is not here to compare with; ours took {best:.0} ns a packet, {:.2} M/s", 1e3 / best);
        return Err(Unavailable(alone).into());
    };
    let peer =
        "tshark -n -q -z io,stat: count and mean of tcp.analysis.ack_rtt, no synopses; a dissector of all protocols";
    let figure = Figure::new(name, "ns of CPU per packet", peer, pair, Goal::Stated);
    let reached = per_second(figure.value);
    let note = format!(
        "{:.2} M packets/s on one core, the best turn {:.2}; {frames} frames of snap length {SNAP}, page cache → parse → fridge of TCP data, LDA, FineComb's \
         receiver and RDA's capture, intervals ended; tshark {:.2} M/s",
        reached / 1e6,
        1e3 / best,
        per_second(figure.peer_value) / 1e6
    );
    Ok(figure.judged("≥ 3 M packets/s", reached >= MIN, note))
}

/// Processor time per packet of a fridge of TCP data, against a hash table of the same segments.
pub fn delays(name: &str) -> Result<Figure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("traffic.pcap");
    let frames = write(&path)?;
    let (mut ours, mut peer) = (into_a_fridge(&path), RoundTrips::of(&path));
    let pair = measure(frames, |_| ours = into_a_fridge(&path), |_| peer = RoundTrips::of(&path));
    let (ours, peer) = (ours?, peer?);
    ensure!(peer.frames == frames, "the peer read {} of {frames} frames", peer.frames);
    let (estimate, known) = (ours.estimate(), peer.delays_ns.len() as f64);
    let (answered, quantiles) = estimate.answered.zip(estimate.quantiles).context("the fridge has no delays")?;
    ensure!((answered / known - 1.0).abs() < MAX_ERROR, "{answered} delays in the fridge, {known} in the table");
    let millis = |share: f64| peer.quantile(share).unwrap_or_default() as f64 / 1e6;
    let what = "a plain loop: pcap-parser, etherparse, std's HashMap from flow and expected acknowledgement to time \
                (pping's method), what is older than 1 s thrown away each second";
    let mut figure = Figure::new(name, "ns of CPU per packet", what, pair, Goal::Stated);
    figure.note = format!(
        "the same file and crates for reading and parsing on both sides; {frames} frames; the table finds {known} delays, median {:.2} ms and 99th \
         percentile {:.2}, in {} KiB at the end; the fridge estimates {answered:.0}, {:.2} and {:.2}, in {} KiB always",
        millis(0.5),
        millis(0.99),
        peer.table_bytes() / 1024,
        quantiles[0].delay_ns / 1e6,
        quantiles[2].delay_ns / 1e6,
        ours.memory_bytes() / 1024
    );
    println!("{name}: {:.1} ns against {:.1}; {}", figure.value, figure.peer_value, figure.note);
    Ok(figure)
}

/// Processor time per packet of all synopses there are, against a plain loop with one hash table.
pub fn everything(name: &str) -> Result<Figure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("traffic.pcap");
    let frames = write(&path)?;
    let (mut ours, mut peer) = (into_everything(&path), FlowTable::of(&path));
    let pair = measure(frames, |_| ours = into_everything(&path), |_| peer = FlowTable::of(&path));
    let (ours, peer) = (ours?, peer?);
    let (taken, flows) = (ours.whole()?, peer.flows.len());
    let counted: u64 = peer.flows.values().map(|flow| flow.packets).sum();
    ensure!(taken == frames && counted == frames, "{taken} and {counted} of {frames} frames were packets");
    let what =
        "a plain loop in place of libpcap's: pcap-parser, etherparse, std's HashMap from flow to its packets and bytes";
    let reached = per_second(pair.ours);
    let (parsed, four) = (only_parsed(&path, frames)?, into_all_four(&path, frames)?);
    let [of_four, of_flows] = ours.memory_bytes();
    let note = format!(
        "{:.2} M packets/s on one core; {frames} frames, {flows} flows; page cache → parse → what `packets-file` has, then reordering (samples and \
         heavy flows), RAP of flows, ST-HLL+ and TS-PCSA+ of flows, and a fragment, intervals ended, in {} KiB for the four of delay and loss and {} KiB \
         for those of flows; in one turn reading and parsing took {parsed:.0} ns, with the four {four:.0}: what is left of {:.0} is for flows; the loop {:.2} \
         M/s, with a table of {} KiB at least",
        reached / 1e6,
        of_four / 1024,
        of_flows / 1024,
        pair.ours,
        per_second(pair.peer) / 1e6,
        peer.table_bytes() / 1024
    );
    let figure = Figure::new(name, "ns of CPU per packet", what, pair, Goal::Stated);
    Ok(figure.judged("≥ 5 M packets/s", reached >= MIN_OF_ALL, note))
}

/// All synopses with what is in the capture.
fn into_everything(path: &Path) -> Result<AllSynopses> {
    let mut all = AllSynopses::new(START_NS)?.with_flows()?;
    let mut capture = Capture::new(File::open(path)?)?;
    read_all(&mut capture, &mut |frame| all.insert(frame))?;
    Ok(all)
}

/// The delays of TCP data in the capture, its only interval not ended.
fn into_a_fridge(path: &Path) -> Result<Delays> {
    let mut delays = fridge()?;
    let mut capture = Capture::new(File::open(path)?)?;
    read_all(&mut capture, &mut |frame| {
        if let Ok(packet) = parse(frame, View::Outer) {
            let _ = delays.insert(&packet);
        }
    })?;
    Ok(delays)
}

/// Writes the capture. Returns its number of frames.
fn write(path: &Path) -> Result<u64> {
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), Link::Ethernet, SNAP)?;
    let mut frames = 0;
    for piece in 0..PIECES {
        let settings = TrafficSettings {
            connections: 2_500,
            segments: 60,
            queries: 500,
            span_ns: SPAN_NS,
            start_ns: START_NS + piece * APART_NS,
            seed: piece,
            ..TrafficSettings::default()
        };
        for frame in Traffic::new(&settings).frames() {
            writer.write(&frame)?;
            frames += 1;
        }
    }
    writer.finish()?;
    Ok(frames)
}

/// Processor time per frame of reading and parsing alone.
fn only_parsed(path: &Path, frames: u64) -> Result<f64> {
    let (mut taken, mut outcome) = (0_u64, Ok(()));
    let time = clock::processor_time(&mut || {
        outcome = File::open(path).map_err(anyhow::Error::from).and_then(|file| {
            let mut capture = Capture::new(file)?;
            Ok(read_all(&mut capture, &mut |frame| taken += u64::from(black_box(parse(frame, View::Outer)).is_ok()))?)
        });
    });
    outcome?;
    ensure!(taken == frames, "{taken} of {frames} frames were packets");
    Ok(time.as_nanos() as f64 / frames as f64)
}

/// Processor time per frame in nanoseconds, including the kernel's for reading the file.
fn into_all_four(path: &Path, frames: u64) -> Result<f64> {
    let mut four = AllSynopses::new(START_NS)?;
    let mut outcome = Ok(());
    let time = clock::processor_time(&mut || {
        outcome = File::open(path).map_err(anyhow::Error::from).and_then(|file| {
            let mut capture = Capture::new(file)?;
            Ok(read_all(&mut capture, &mut |frame| four.insert(frame))?)
        });
    });
    outcome?;
    let taken = four.whole()?;
    ensure!(taken == frames, "{taken} of {frames} frames were packets");
    Ok(time.as_nanos() as f64 / frames as f64)
}

/// Processor time that tshark uses for the file; `None` where it is not installed.
fn theirs(path: &Path) -> Result<Option<Duration>> {
    let statistics =
        "io,stat,0,COUNT(tcp.analysis.ack_rtt)tcp.analysis.ack_rtt,AVG(tcp.analysis.ack_rtt)tcp.analysis.ack_rtt";
    let before = of_children()?;
    let Ok(output) = Command::new("tshark").arg("-r").arg(path).args(["-n", "-q", "-z", statistics]).output() else {
        return Ok(None);
    };
    ensure!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(of_children()?.saturating_sub(before)))
}

/// Processor time of all child processes that have ended.
fn of_children() -> Result<Duration> {
    let stat = Process::myself()?.stat()?;
    let ticks = u64::try_from(stat.cutime + stat.cstime).context("no time is below 0")?;
    Ok(Duration::from_millis(ticks * 1_000 / procfs::ticks_per_second()))
}
