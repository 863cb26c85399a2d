//! A fragment of a disaggregated sketch: the cost of an update.

use std::hint::black_box;

use anyhow::{Result, ensure};
use hashbrown::HashMap;
use synopses::digest::Digest;
use synopses::disaggregated::{Fragment, Settings};

use super::super::figure::{Figure, Goal};
use super::super::pair::{measure, per_second};
use super::keys::{KEYS, zipf_digests};

const PACKETS: u64 = 1 << 21;
/// 256 KiB, which every second-level cache holds.
const COUNTERS: u32 = 1 << 16;
const MIN: f64 = 100e6;

/// An update of a row of counters, against a table of all flows.
pub fn update(name: &str) -> Result<Figure> {
    let packets = zipf_digests(PACKETS);
    let mut ours = Fragment::new(Settings { id: 0, counters: COUNTERS, rows: 1, seed: 1 })?;
    let mut theirs = HashMap::<u64, u64>::with_capacity(KEYS as usize);
    let measured = measure(
        PACKETS,
        |_| {
            ours.rotate(0);
            for packet in black_box(&packets) {
                ours.insert(*packet, 1);
            }
        },
        |_| {
            theirs.clear();
            for packet in black_box(&packets) {
                *theirs.entry(packet.0).or_default() += 1;
            }
        },
    );
    let is_below = |flow: u64, count: u64| u64::from(ours.estimate(Digest(flow))) < count;
    let below = theirs.iter().filter(|(flow, count)| is_below(**flow, **count)).count();
    ensure!(below == 0 && ours.load() == PACKETS, "{below} estimates are below the truth");
    let reached = per_second(measured.ours);
    let peer = "a table of all flows (the crate hashbrown) with a count of 64 bits";
    let note = format!(
        "{:.0} M updates/s on one core; one row of {COUNTERS} counters, {} KiB; {KEYS} flows by Zipf's law with skew 1, of which the table holds {} in \
         {} KiB at least",
        reached / 1e6,
        ours.memory_bytes() / 1024,
        theirs.len(),
        theirs.capacity() * size_of::<(u64, u64)>() / 1024
    );
    let figure = Figure::new(name, "ns", peer, measured, Goal::Stated);
    Ok(figure.judged("≥ 100 M updates/s", reached >= MIN, note))
}
