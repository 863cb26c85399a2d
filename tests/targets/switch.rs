//! What a switch answers, what it is asked, its registers, and the file of its constants.

use packets::switch::Constants;
use packets::switch::readout::{BucketReadout, CardinalityReadout, FridgeReadout, HeavyReadout, ReorderingReadout};
use packets::switch::registers::{BlockError, HeavyBlock, SwitchRegisters};
use packets::switch::thrift::{CallSubject, SwitchTime, answer, answer_time, ask, ask_time, call, reply, reply_time};

/// The number of the call that the answers of the corpus are to.
const SEQUENCE: u32 = 7;
/// Programs whose constants an agent reads.
const PROGRAMS: [&str; 10] = [
    "fridge",
    "fridges",
    "finecomb-sender",
    "finecomb-receiver",
    "lda",
    "precision",
    "reordering",
    "reordering-samples",
    "st-hll",
    "together",
];
/// Buckets of the largest switch that is read here, and registers of a sketch.
const MOST_BUCKETS: usize = 64;

/// An answer, a call, a file and registers: what is accepted survives a round trip.
///
/// # Panics
///
/// If it does not.
pub fn switch(bytes: &[u8]) {
    calls(bytes);
    if let Ok(text) = core::str::from_utf8(bytes) {
        for program in PROGRAMS {
            let Ok(constants) = Constants::written(program, text) else { continue };
            assert_eq!(Constants::written(program, &constants.text("")), Ok(constants.clone()));
            drop(FridgeReadout::new(&constants, 1));
            if let Ok(readout) = BucketReadout::new(&constants) {
                registers(readout, constants.checksum(), bytes);
            }
            if let Ok(readout) = CardinalityReadout::new(&constants, 1) {
                sketch(readout, constants.checksum(), bytes);
            }
            if let Ok(readout) = HeavyReadout::new(&constants, 1) {
                heavy_flows(readout, constants.checksum(), bytes);
            }
            if let Ok(readout) = ReorderingReadout::new(&constants, 1) {
                prefixes(readout, constants.checksum(), bytes);
            }
        }
    }
}

/// What is said over a connection.
fn calls(bytes: &[u8]) {
    let mut again = Vec::new();
    if let Ok(Some(asked)) = call(bytes) {
        let written = match &asked.subject {
            CallSubject::Registers(name) => ask(&mut again, name, asked.sequence),
            CallSubject::Time(time) => ask_time(&mut again, *time, asked.sequence),
        };
        written.expect("memory takes it");
        assert_eq!(call(&*again).ok().flatten(), Some(asked));
    }
    if let Ok(entries) = answer(bytes, "a", SEQUENCE) {
        again.clear();
        reply(&mut again, SEQUENCE, Some(&entries)).expect("memory takes it");
        assert_eq!(answer(&*again, "a", SEQUENCE).ok(), Some(entries));
    }
    for time in [SwitchTime::Elapsed, SwitchTime::Epoch] {
        if let Ok(time_us) = answer_time(bytes, time, SEQUENCE) {
            again.clear();
            reply_time(&mut again, SEQUENCE, time, time_us).expect("memory takes it");
            assert_eq!(answer_time(&*again, time, SEQUENCE).ok(), Some(time_us));
        }
    }
}

/// A switch whose registers have the words of an input, one after the other.
struct Words<'a> {
    left: core::iter::Cycle<core::slice::ChunksExact<'a, u8>>,
    /// Of FineComb or LDA, registers of ST-HLL, samples of flows, or entries of PRECISION.
    buckets: usize,
    /// Stashed packets, or rows of heavy flows.
    stash: usize,
    checksum: u32,
}

impl SwitchRegisters for Words<'_> {
    type Error = BlockError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, BlockError> {
        let entries = match name {
            "Frames.constants" => return Ok(vec![self.checksum.into()]),
            "Frames.refusals" => 16,
            "Frames.frames" | "Visits.reports" => 1,
            _ if name.starts_with("epoch") => 2,
            _ if name.starts_with("Visits") => 1024,
            _ if name.starts_with("HeavyFlows") => self.stash,
            _ if name.starts_with("Samples") => self.buckets,
            _ if name.ends_with("begun") || name.ends_with(".interval") => 1,
            _ if name.starts_with("StHll") && !name.ends_with("ranks") => 1,
            _ if name.ends_with("packets") => 2,
            _ if name.ends_with("_count") => 4,
            _ if name.starts_with("before") || name.starts_with("after") => 4 * self.stash,
            _ => self.buckets,
        };
        let mut word = || self.left.next().map_or(0, |word| u64::from(word[0]) | u64::from(word[1]) << 24);
        // Few values of the first ones, so that intervals follow each other.
        let most = if name.ends_with("begun") || name.ends_with(".interval") { 4 } else { u64::from(u32::MAX) };
        Ok((0..entries).map(|_| word() % most).collect())
    }
}

/// Reads registers of a switch a few times. Whatever they have, an interval is one of the library, or refused.
fn registers(mut readout: BucketReadout, checksum: u32, bytes: &[u8]) {
    let settings = readout.settings().clone();
    if settings.buckets > MOST_BUCKETS || bytes.len() < 2 {
        return;
    }
    let stash = settings.banks.first().map_or(0, |bank| bank.stash);
    // LDA's programs have two banks, used or not.
    let banks = if readout.has_digests() { 1 } else { 2 };
    let (words, buckets) = (bytes.chunks_exact(2).cycle(), 2 * banks * settings.buckets);
    let mut switch = Words { left: words, buckets, stash, checksum };
    for _ in 0..8 {
        let Ok(Some(poll)) = readout.poll(&mut switch) else { continue };
        let reading = readout.read(&poll).expect("the checksum is its own");
        if let Some(interval) = reading.interval {
            drop(interval.received(&settings, u64::MAX));
        }
    }
}

/// Reads the sketch of a switch a few times. Whatever its registers have, a count is finite and not negative, or they
/// are refused.
fn sketch(mut readout: CardinalityReadout, checksum: u32, bytes: &[u8]) {
    let buckets = readout.registers();
    if buckets > MOST_BUCKETS || bytes.len() < 2 {
        return;
    }
    let mut switch = Words { left: bytes.chunks_exact(2).cycle(), buckets, stash: 0, checksum };
    for poll in 0..8 {
        let block = switch.cardinality(buckets).expect("as many as the program has");
        let frames = switch.frames().expect("as many as the program has");
        let word = switch.array("StHll.inserted").map_or(0, |words| words.first().copied().unwrap_or_default());
        // Any time, or one that agrees with the latest packet's.
        let latest_ns = block.slot.saturating_mul(2 * readout.window_ns() / buckets as u64);
        let switch_ns = if word & 1 == 1 { word << 28 } else { latest_ns.saturating_add(word << 14) };
        if let Ok(Some(interval)) = readout.read(&frames, &block, poll, switch_ns) {
            assert!(interval.flows.is_none_or(|flows| flows.is_finite() && flows >= 0.0), "{interval:?}");
        }
    }
}

/// Reads the heavy flows of a switch a few times. Whatever its registers have, none has more packets than there were.
fn heavy_flows(mut readout: HeavyReadout, checksum: u32, bytes: &[u8]) {
    let rows = readout.rows();
    if rows > MOST_BUCKETS || bytes.len() < 2 {
        return;
    }
    let mut switch = Words { left: bytes.chunks_exact(2).cycle(), buckets: 2 * rows, stash: 0, checksum };
    for poll in 0..8 {
        let block = HeavyBlock::read(&mut switch, rows).expect("as many as the program has");
        let frames = switch.frames().expect("as many as the program has");
        // Behind an epoch that is there, or any other.
        let switch_ns = block.epochs[poll % 2].wrapping_add(1 + poll as u64 / 6) << 21;
        // A time that is not the switch's is refused.
        let Ok(interval) = readout.read(&frames, &block, poll as u64, switch_ns) else { continue };
        if let Some(flows) = interval.and_then(|interval| interval.flows) {
            assert!(flows.heaviest <= flows.packets, "{flows:?}");
            assert!(flows.lasting_share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{flows:?}");
        }
    }
}

/// Reads the prefixes of a switch a few times. Whatever its registers have, no more packets are out of order than were
/// checked.
fn prefixes(mut readout: ReorderingReadout, checksum: u32, bytes: &[u8]) {
    let (buckets, stash) = readout.sizes();
    if buckets.max(stash) > MOST_BUCKETS || bytes.len() < 2 {
        return;
    }
    let mut switch = Words { left: bytes.chunks_exact(2).cycle(), buckets, stash, checksum };
    for poll in 0..4 {
        let block = switch.reordering(buckets, stash).expect("as many as the program has");
        let frames = switch.frames().expect("as many as the program has");
        let interval = readout.read(&frames, &block, poll, 5).expect("the checksum is its own");
        if let Some(found) = interval.and_then(|interval| interval.reordering) {
            assert!(found.out_of_order <= found.checked && found.worst.len() <= 5, "{found:?}");
        }
    }
}
