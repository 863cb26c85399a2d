//! The registers of a program, by blocks: what an agent reads of a switch once per interval.

use synopses::finecomb::StashedPacket;
use synopses::reordering::{Prefix, Report};
use thiserror::Error;

mod heavy;

pub use heavy::{HeavyBlock, HeavyEntry};

/// Reads the registers of a switch, with a function for each block that the programs have.
///
/// Whoever can only read one array after the other implements [`Self::array`]. Between two arrays the switch goes on;
/// each block says what that does to it.
pub trait SwitchRegisters {
    /// Why something was not read.
    type Error: From<BlockError>;

    /// All entries of an array. `name` is that of its control and its own: `Fridge.matched`.
    ///
    /// # Errors
    ///
    /// The switch has no such array, or does not answer.
    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, Self::Error>;

    /// What every program has (`p4/shared/frames.p4`).
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or the block is not what the program has.
    fn frames(&mut self) -> Result<FrameBlock, Self::Error> {
        let frames = self.count("Frames.frames")?;
        let refusals = entries("Frames.refusals", self.array("Frames.refusals")?)?;
        Ok(FrameBlock { frames, refusals, checksum: self.count("Frames.constants")? })
    }

    /// The fridge (`p4/shared/fridge.p4`), or several ones (`p4/fridges`), without pending requests, which stay in the
    /// switch.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or the block is not what the program has.
    fn fridge(&mut self) -> Result<FridgeBlock, Self::Error> {
        let counts = self.fridge_counts()?;
        let ticks = entries("Fridge.report_ticks", self.array("Fridge.report_ticks")?)?;
        let insertions = entries("Fridge.report_insertions", self.array("Fridge.report_insertions")?)?;
        // Again, since the switch may have taken samples meanwhile: those that they replaced are not read.
        let written = self.count("Fridge.matched")?;
        Ok(FridgeBlock { counts, ticks: Box::new(ticks), insertions: Box::new(insertions), written })
    }

    /// The fridge's counts, a part of [`Self::fridge`].
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or a count is not what the program has.
    fn fridge_counts(&mut self) -> Result<FridgeCounts, Self::Error> {
        Ok(FridgeCounts {
            requests: self.count("Fridge.requests")?,
            insertions: self.count("Fridge.insertions")?,
            duplicates: self.count("Fridge.duplicates")?,
            evicted: self.count("Fridge.evicted")?,
            responses: self.count("Fridge.responses")?,
            matched: self.count("Fridge.matched")?,
            unmatched: self.count("Fridge.unmatched")?,
            clock_anomaly: self.count("Fridge.clock_anomaly")?,
        })
    }

    /// Which interval of its own the switch is in (`p4/shared/begun.p4`). Another one may begin between the two:
    /// whoever reads `begun` again behind all that belongs to an interval knows.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or a register is not what the program has.
    fn begun(&mut self, names: &BucketNames) -> Result<BegunBlock, Self::Error> {
        Ok(BegunBlock { begun: self.count(names.begun)?, number: self.count(names.number)? })
    }

    /// The buckets of FineComb or LDA (`p4/shared/interval.p4`, `p4/lda`), `size` entries of each array: of two
    /// intervals, of which one goes on, and the other has ended.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or the block is not what the program has.
    fn buckets(&mut self, names: &BucketNames, size: usize) -> Result<BucketBlock, Self::Error> {
        let packets = entries(names.packets, self.array(names.packets)?)?;
        let counts = numbers(names.counts, self.array(names.counts)?, size)?;
        let sums = self.halves(names.sums, size)?;
        let values = match names.values {
            Some(values) => self.halves(values, size)?,
            None => vec![0; size],
        };
        Ok(BucketBlock { packets, counts, sums, values })
    }

    /// The stashes of FineComb's receiver (`p4/finecomb-receiver`), with room for `most` packets each.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or the block is not what the program has.
    fn stashes(&mut self, most: usize) -> Result<StashBlock, Self::Error> {
        Ok(StashBlock { before: self.stash(&BEFORE, most)?, after: self.stash(&AFTER, most)? })
    }

    /// One of the two lists of each end, a part of [`Self::stashes`]. Counts are read first: packets that come
    /// meanwhile are behind those that they count, or in the list of an interval that goes on.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or an array is not what the program has.
    fn stash(&mut self, names: &StashNames, most: usize) -> Result<StashList, Self::Error> {
        let counts = entries(names.count, self.array(names.count)?)?;
        let (digests, times) = (self.halves(names.values, ENDS * most)?, self.halves(names.times, ENDS * most)?);
        let rows = numbers(names.rows, self.array(names.rows)?, ENDS * most)?;
        let arrivals = numbers(names.numbers, self.array(names.numbers)?, ENDS * most)?;
        let packets = digests.into_iter().zip(times).zip(rows.into_iter().zip(arrivals));
        let packet = |((digest, time_ns), (row, number)): ((u64, u64), (u32, u32))| StashedPacket {
            digest,
            time_ns,
            row,
            number: number.into(),
        };
        Ok(StashList { counts, packets: packets.map(packet).collect() })
    }

    /// ST-HLL (`p4/shared/st-hll.p4`) with so many registers. The slot is read behind them, so that those whose turn to
    /// be reset came meanwhile are empty.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or the block is not what the program has.
    fn cardinality(&mut self, registers: usize) -> Result<CardinalityBlock, Self::Error> {
        let [name, low, high] = ["StHll.laps_and_ranks", "StHll.slot_low", "StHll.slot_high"];
        let laps_and_ranks = numbers(name, self.array(name)?, registers)?;
        let (before, mut lower, upper) = (self.count(high)?, self.count(low)?, self.count(high)?);
        if upper != before {
            // It may be of either upper half. The next one is far away.
            lower = self.count(low)?;
        }
        Ok(CardinalityBlock {
            laps_and_ranks,
            slot: u64::from(upper) << 32 | u64::from(lower),
            inserted: self.count("StHll.inserted")?,
            late: self.count("StHll.late")?,
            dropped: self.count("StHll.dropped")?,
        })
    }

    /// Reordering by prefix (`p4/shared/visits.p4`), with so many records of samples, and rows of heavy flows in each
    /// of two stages, or none. A record that is given up meanwhile is in neither list, and its report comes later.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or the block is not what the program has.
    fn reordering(&mut self, samples: usize, rows: usize) -> Result<ReorderingBlock, Self::Error> {
        let reports = self.count("Visits.reports")?;
        let ring = self.records(&RecordNames::REPORTS, RING)?;
        // Again, since the switch may have replaced some meanwhile.
        let written = self.count("Visits.reports")?;
        let mut records = self.records(&RecordNames::SAMPLES, samples)?;
        if rows > 0 {
            for stage in &RecordNames::HEAVY {
                records.extend(self.records(stage, rows)?);
            }
        }
        Ok(ReorderingBlock { reports, ring, written, records })
    }

    /// Records of reordering, a part of [`Self::reordering`]. Packets are read last: there are more than events.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or an array is not what the program has.
    fn records(&mut self, names: &RecordNames, size: usize) -> Result<Vec<Report>, Self::Error> {
        let prefixes = self.halves(names.prefixes, size)?;
        let events = numbers(names.events, self.array(names.events)?, size)?;
        let packets = numbers(names.packets, self.array(names.packets)?, size)?;
        let all = prefixes.into_iter().zip(packets.into_iter().zip(events));
        let record = |(prefix, (packets, out_of_order))| Report { prefix: Prefix(prefix), packets, out_of_order };
        Ok(all.map(record).collect())
    }

    /// Numbers of 64 bits in two arrays: the lower halves, and the upper ones.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or an array is not what the program has.
    fn halves(&mut self, [low, high]: [&'static str; 2], size: usize) -> Result<Vec<u64>, Self::Error> {
        let lower = numbers(low, self.array(low)?, size)?;
        let upper = numbers(high, self.array(high)?, size)?;
        Ok(lower.into_iter().zip(upper).map(|(low, high)| u64::from(high) << 32 | u64::from(low)).collect())
    }

    /// A register of one entry.
    ///
    /// # Errors
    ///
    /// As [`Self::array`], or it has another size.
    fn count(&mut self, name: &'static str) -> Result<u32, Self::Error> {
        let [count] = entries(name, self.array(name)?)?;
        Ok(count)
    }
}

/// The main control of a program, which stands in front of the names of its registers.
#[must_use]
pub fn main_control(program: &str) -> Option<&'static str> {
    Some(match super::folder(program) {
        "fridge" | "fridges" => "Handshakes",
        "finecomb-sender" => "Sender",
        "finecomb-receiver" => "Receiver",
        "lda" => "Lda",
        "precision" => "Precision",
        "st-hll" => "Cardinality",
        "reordering" | "reordering-samples" => "Reordering",
        "together" => "Together",
        _ => return None,
    })
}

/// Where a program has its intervals, and the buckets of FineComb or LDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketNames {
    /// Number of the current interval, and intervals that began.
    number: &'static str,
    begun: &'static str,
    packets: &'static str,
    counts: &'static str,
    sums: [&'static str; 2],
    /// LDA has none.
    pub(super) values: Option<[&'static str; 2]>,
}

impl BucketNames {
    /// Those of FineComb.
    pub const FINECOMB: Self = Self {
        number: "Interval.Begun.interval",
        begun: "Interval.Begun.begun",
        packets: "Interval.packets",
        counts: "Interval.counts",
        sums: ["Interval.sums_low", "Interval.sums_high"],
        values: Some(["Interval.values_low", "Interval.values_high"]),
    };
    /// Those of LDA.
    pub const LDA: Self = Self {
        number: "Begun.interval",
        begun: "Begun.begun",
        packets: "packets",
        counts: "counts",
        sums: ["sums_low", "sums_high"],
        values: None,
    };
}

/// Where FineComb's receiver has one of the two lists of each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StashNames {
    count: &'static str,
    values: [&'static str; 2],
    times: [&'static str; 2],
    rows: &'static str,
    numbers: &'static str,
}

const BEFORE: StashNames = StashNames {
    count: "before_count",
    values: ["before_values_low", "before_values_high"],
    times: ["before_times_low", "before_times_high"],
    rows: "before_rows",
    numbers: "before_numbers",
};
const AFTER: StashNames = StashNames {
    count: "after_count",
    values: ["after_values_low", "after_values_high"],
    times: ["after_times_low", "after_times_high"],
    rows: "after_rows",
    numbers: "after_numbers",
};

/// Where a program has prefixes, and the packets of their flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordNames {
    prefixes: [&'static str; 2],
    packets: &'static str,
    events: &'static str,
}

impl RecordNames {
    /// The ring of reports.
    const REPORTS: Self = Self {
        prefixes: ["Visits.report_prefixes_low", "Visits.report_prefixes_high"],
        packets: "Visits.report_packets",
        events: "Visits.report_events",
    };
    /// Samples of flows.
    const SAMPLES: Self = Self {
        prefixes: ["Samples.sample_prefixes_low", "Samples.sample_prefixes_high"],
        packets: "Samples.sample_packets",
        events: "Samples.sample_events",
    };
    /// Heavy flows, by stage.
    const HEAVY: [Self; 2] = [
        Self {
            prefixes: ["HeavyFlows.heavy0_prefixes_low", "HeavyFlows.heavy0_prefixes_high"],
            packets: "HeavyFlows.heavy0_checked",
            events: "HeavyFlows.heavy0_events",
        },
        Self {
            prefixes: ["HeavyFlows.heavy1_prefixes_low", "HeavyFlows.heavy1_prefixes_high"],
            packets: "HeavyFlows.heavy1_checked",
            events: "HeavyFlows.heavy1_events",
        },
    ];
}

/// Samples in a fridge's ring, and reports in that of reordering.
pub const RING: usize = 1024;
/// Reasons for which a frame is refused, with room for more.
pub const REASONS: usize = 16;

/// Counts of frames. All wrap at 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameBlock {
    /// Frames, refused or not.
    pub frames: u32,
    /// Refused frames by reason, in the order of [`ParseError::ALL`](crate::ParseError::ALL).
    pub refusals: [u32; REASONS],
    /// Checksum of program and constants; 0 before the first frame.
    pub checksum: u32,
}

/// Counts of a fridge, or of several ones together. All wrap at 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FridgeCounts {
    /// Requests, including copies.
    pub requests: u32,
    /// Requests that entered.
    pub insertions: u32,
    /// Copies of pending requests.
    pub duplicates: u32,
    /// Pending requests that were evicted.
    pub evicted: u32,
    /// Responses of any kind.
    pub responses: u32,
    /// Responses that gave a sample.
    pub matched: u32,
    /// Responses without a pending request.
    pub unmatched: u32,
    /// Responses before their request.
    pub clock_anomaly: u32,
}

impl FridgeCounts {
    /// All counts, in the order of their declaration.
    #[must_use]
    pub const fn all(&self) -> [u32; 8] {
        let Self { requests, insertions, duplicates, evicted, responses, matched, unmatched, clock_anomaly } = *self;
        [requests, insertions, duplicates, evicted, responses, matched, unmatched, clock_anomaly]
    }
}

/// A fridge, or several ones: its counts, and a ring of the latest samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FridgeBlock {
    /// Counts, read before the ring.
    pub counts: FridgeCounts,
    /// Delay of sample n at n mod 1024, in ticks.
    pub ticks: Box<[u32; RING]>,
    /// Insertions that the request of sample n survived, at n mod 1024; in several fridges, requests of any kind.
    pub insertions: Box<[u32; RING]>,
    /// `matched` after the ring was read.
    pub written: u32,
}

/// An ST-HLL: its registers, the latest slot, and counts that wrap at 2³².
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardinalityBlock {
    /// The lap in which an item came last, and its largest rank where the register's number would be.
    pub laps_and_ranks: Vec<u32>,
    /// The slot of the latest packet.
    pub slot: u64,
    /// Items inserted, late ones included.
    pub inserted: u32,
    /// Items of the slot before.
    pub late: u32,
    /// Items of earlier slots, which were dropped.
    pub dropped: u32,
}

/// Flows that are or were checked for their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReorderingBlock {
    /// Reports, read before the ring; wraps at 2³².
    pub reports: u32,
    /// Report n at n mod 1024, of a record that was given up.
    pub ring: Vec<Report>,
    /// `reports` after the ring was read.
    pub written: u32,
    /// The records that there are, used or not, with what was counted since each was admitted.
    pub records: Vec<Report>,
}

/// Ends of intervals whose stashes there are.
pub const ENDS: usize = 4;

/// Which interval a switch is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BegunBlock {
    /// Intervals that began.
    pub begun: u32,
    /// Number of the current one, by its marker.
    pub number: u32,
}

/// Buckets of two intervals, in the order of their parity, then of banks, then of rows. All of it only ever grows,
/// modulo 2³² and 2⁶⁴, or by XOR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketBlock {
    /// Packets of the intervals of each parity.
    pub packets: [u32; 2],
    /// Number of sampled packets.
    pub counts: Vec<u32>,
    /// Sums of their timestamps.
    pub sums: Vec<u64>,
    /// XORs of their values; 0 without any.
    pub values: Vec<u64>,
}

/// Stashes of four ends of intervals. That at which the interval of `begun` n begins is at n mod 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StashBlock {
    /// The last packets before each end.
    pub before: StashList,
    /// The first packets after each end.
    pub after: StashList,
}

/// One of the two lists of each end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StashList {
    /// Packets that were stashed. If there are more than have room, the last ones are there.
    pub counts: [u32; ENDS],
    /// Room of each end, one after the other.
    pub packets: Vec<StashedPacket>,
}

/// A block that is not what the programs have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// Another number of entries.
    #[error("the registers {name} have {found} entries, the program's have {expected}")]
    Entries {
        /// Name of the array.
        name: &'static str,
        /// Entries in the switch.
        found: usize,
        /// Entries of the program's array.
        expected: usize,
    },
    /// A value of more bits than the program's registers have.
    #[error("{found:#x} in the registers {name}, which have 32 bits")]
    Value {
        /// Name of the array.
        name: &'static str,
        /// The value that was read.
        found: u64,
    },
}

/// Entries of 32 bits, as many as the program has.
fn entries<const N: usize>(name: &'static str, all: Vec<u64>) -> Result<[u32; N], BlockError> {
    let other = |all: Vec<u32>| BlockError::Entries { name, found: all.len(), expected: N };
    numbers(name, all, N)?.try_into().map_err(other)
}

/// Numbers of 32 bits, as many as are `expected`.
fn numbers(name: &'static str, all: Vec<u64>, expected: usize) -> Result<Vec<u32>, BlockError> {
    let found = all.len();
    if found != expected {
        return Err(BlockError::Entries { name, found, expected });
    }
    let number = |found: u64| u32::try_from(found).map_err(|_| BlockError::Value { name, found });
    all.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests;
