//! One-way delay and loss, by FineComb at either end, and by LDA. A vector has one end only. What the other one has is
//! made up of the same packets: each took about a quarter of a millisecond, some were lost, and the last ones before a
//! marker were overtaken by it. It is the library's.
//!
//! Registers are sums of every other interval, and so are the library's buckets here: those of all even intervals, and
//! of all odd ones. The stashes are of the latest interval, so that only what was overtaken there is recovered.

use packets::identity;
use packets::switch::ConstantsError;
use packets::switch::registers::{BucketNames, ENDS, StashList, SwitchRegisters as _};
use synopses::digest::Digest;
use synopses::encoding::DecodeError;
use synopses::finecomb::{
    Bucket, Deviation, EndStash, Estimate, FineComb, Interval, Receiver, Rule, Settings, Solver, Stash, StashedPacket,
};

use super::{Case, Estimates, EstimatesError, KeptRegisters, figure, row};
use crate::begun::Begun;
use crate::frames::{Captured, Frames};
use crate::registers::Registers;
use crate::{finecomb, lda};

/// What a packet takes at least, in nanoseconds.
const DELAY_NS: u64 = 250_000;
/// One of so many packets is lost.
const LOST: u64 = 50;
/// Packets that are overtaken by a marker.
const OVERTAKEN: usize = 3;

/// An end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathEnd {
    Sends,
    Receives,
}

/// What passes an end.
#[derive(Clone, Copy, Debug)]
enum EndEvent {
    /// An interval begins.
    Marker,
    /// A packet passes at this time.
    Packet(Digest, u64),
}

/// What an end has of the intervals of either parity: sums, and these with what was stashed at both ends of the latest
/// interval.
struct Parities {
    sent: [FineComb; 2],
    received: [Interval; 2],
}

/// Of the library's buckets at the program's end.
pub(super) fn of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let (settings, events) = (settings(case), events(case));
    rows(case, &settings, &events, &of_library(&settings, &events)?)
}

/// Of the buckets of a switch.
pub(super) fn of_registers(case: &Case<'_>, registers: &Registers) -> Result<Estimates, EstimatesError> {
    let settings = settings(case);
    rows(case, &settings, &events(case), &of_switch(case, &settings, registers)?)
}

fn is_lda(case: &Case<'_>) -> bool {
    case.source() == "lda"
}

fn settings(case: &Case<'_>) -> Settings {
    let settings = if is_lda(case) { lda::settings() } else { finecomb::settings() };
    finecomb::of_kind(settings, case.kind())
}

/// The ends that a program may be.
fn path_ends(case: &Case<'_>) -> &'static [PathEnd] {
    match case.source() {
        "lda" => &[PathEnd::Sends, PathEnd::Receives],
        "finecomb-receiver" => &[PathEnd::Receives],
        _ => &[PathEnd::Sends],
    }
}

/// What passes the program's end.
fn events(case: &Case<'_>) -> Vec<EndEvent> {
    let (mut frames, mut begun, key) = (Frames::new(&case.constants), Begun::default(), case.key());
    let event = |captured: &Captured| {
        let packet = frames.count(captured);
        if begun.take(captured) {
            return Some(EndEvent::Marker);
        }
        packet.map(|packet| EndEvent::Packet(identity::digest(&packet, &key), captured.time_ns))
    };
    case.frames.iter().filter_map(event).collect()
}

/// What passes the other end if this one is `end`.
fn others(events: &[EndEvent], end: PathEnd) -> Vec<EndEvent> {
    let mut others = Vec::new();
    for (number, event) in (0_u64..).zip(events) {
        let EndEvent::Packet(digest, time_ns) = *event else {
            let is_packet = |event: &&EndEvent| matches!(event, EndEvent::Packet(..));
            let overtaken = others.iter().rev().take(OVERTAKEN).take_while(is_packet).count();
            others.insert(others.len() - overtaken, EndEvent::Marker);
            continue;
        };
        let (delay_ns, is_lost) = (DELAY_NS + number % 7 * 10_000, number % LOST == LOST - 1);
        match end {
            PathEnd::Sends if is_lost => {}
            PathEnd::Sends => others.push(EndEvent::Packet(digest, time_ns.wrapping_add(delay_ns))),
            PathEnd::Receives => {
                let sent_ns = time_ns.wrapping_sub(delay_ns);
                others.push(EndEvent::Packet(digest, sent_ns));
                if is_lost {
                    // One that never came here.
                    others.push(EndEvent::Packet(Digest(!digest.0), sent_ns));
                }
            }
        }
    }
    others
}

/// The library at an end.
fn of_library(settings: &Settings, events: &[EndEvent]) -> Result<Parities, EstimatesError> {
    let empty = FineComb::new(settings).map_err(ConstantsError::from)?;
    let mut sent = [empty.clone(), empty];
    let mut receiver = Receiver::new(settings).map_err(ConstantsError::from)?;
    let mut begun = 0_usize;
    for event in events {
        match *event {
            EndEvent::Marker => {
                begun += 1;
                let _ = receiver.sync();
            }
            EndEvent::Packet(digest, time_ns) => {
                sent[begun % 2].insert(digest, time_ns);
                receiver.insert(digest, time_ns);
            }
        }
    }
    // As if the latest interval ended now.
    let mut current = receiver.clone();
    let _ = current.sync();
    let (current, ended) = (current.take(), receiver.take());
    let [even, odd] = if begun.is_multiple_of(2) { [current, ended] } else { [ended, current] };
    let received = [with_stashes(&sent[0], even.as_ref())?, with_stashes(&sent[1], odd.as_ref())?];
    Ok(Parities { sent, received })
}

/// Sums, with the stashes of an interval if there is one.
fn with_stashes(sums: &FineComb, interval: Option<&Interval>) -> Result<Interval, DecodeError> {
    let Some(interval) = interval else { return Ok(Interval::without_stash(sums.clone())) };
    let (start, end) = (interval.start().map(owned).collect(), interval.end().map(owned).collect());
    Interval::of_stashes(sums.clone(), [start, end])
}

fn owned(stash: Stash<'_>) -> EndStash {
    EndStash { before: stash.before.to_vec(), after: stash.after.to_vec() }
}

/// A switch at an end.
fn of_switch(case: &Case<'_>, settings: &Settings, registers: &Registers) -> Result<Parities, EstimatesError> {
    let names = if is_lda(case) { BucketNames::LDA } else { BucketNames::FINECOMB };
    let mut kept = KeptRegisters(registers);
    let begun = kept.begun(&names)?.begun as usize;
    let size = settings.banks.len() * settings.buckets;
    let block = kept.buckets(&names, 2 * size)?;
    let sums = |parity: usize| {
        let all = block.counts.iter().zip(&block.sums).zip(&block.values);
        let bucket = |((count, sum), digest): ((&u32, &u64), &u64)| Bucket {
            sum: *sum,
            count: (*count).into(),
            digest: *digest,
        };
        let buckets: Vec<Bucket> = all.map(bucket).skip(parity * size).take(size).collect();
        FineComb::of_buckets(settings, block.packets[parity].into(), &buckets)
    };
    let sent = [sums(0)?, sums(1)?];
    let most = settings.banks.first().map_or(0, |bank| bank.stash);
    let stashes = if case.source() == "finecomb-receiver" { Some(kept.stashes(most)?) } else { None };
    let received = |parity: usize| {
        let sums = sent[parity].clone();
        // The latest interval of this parity.
        let latest = begun.checked_sub((begun + parity) % 2);
        let (Some(stashes), Some(latest)) = (&stashes, latest) else { return Ok(Interval::without_stash(sums)) };
        let end = |end: usize| {
            let (before, after) = (stashed(&stashes.before, end), stashed(&stashes.after, end));
            vec![EndStash { before, after }]
        };
        Interval::of_stashes(sums, [end(latest), end(latest + 1)])
    };
    let received = [received(0)?, received(1)?];
    Ok(Parities { sent, received })
}

/// The packets of a list at an end of an interval.
fn stashed(list: &StashList, end: usize) -> Vec<StashedPacket> {
    let (end, most) = (end % ENDS, list.packets.len() / ENDS);
    list.packets.iter().copied().skip(end * most).take(most.min(list.counts[end] as usize)).collect()
}

fn rows(
    case: &Case<'_>,
    settings: &Settings,
    events: &[EndEvent],
    here: &Parities,
) -> Result<Estimates, EstimatesError> {
    let rule = if is_lda(case) { Rule::Lda } else { Rule::FineComb };
    let mut rows = Estimates::new();
    for end in path_ends(case) {
        let there = of_library(settings, &others(events, *end))?;
        let (name, sent, received) = match end {
            PathEnd::Sends => ("sends", &here.sent, &there.received),
            PathEnd::Receives => ("receives", &there.sent, &here.received),
        };
        for ((sent, received), parity) in sent.iter().zip(received).zip(["even", "odd"]) {
            let estimate = received.estimate(sent, rule, Solver::Elimination, Deviation::PerBucket)?;
            add_rows(&format!("{name}.{parity}"), &estimate, &mut rows);
        }
    }
    Ok(rows)
}

fn add_rows(of: &str, estimate: &Estimate, rows: &mut Estimates) {
    let Estimate { mean_ns, deviation_ns, loss, loss_in_all, packets, health, .. } = *estimate;
    for (name, value) in
        [("mean_ns", mean_ns), ("deviation_ns", deviation_ns), ("loss", loss), ("loss_in_all", loss_in_all)]
    {
        rows.push(row(format!("{of}.{name}"), figure(value)));
    }
    let buckets = format!(
        "{packets} packets in {} useful and {} recovered ones, {} useless",
        health.useful, health.recovered, health.useless
    );
    rows.push(row(format!("{of}.buckets"), buckets));
}
