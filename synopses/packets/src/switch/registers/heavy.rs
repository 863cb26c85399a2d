//! The registers of PRECISION, of two epochs.

use synopses::digest::Digest;
use synopses::rap::HeavyHitter;

use super::{SwitchRegisters, entries, numbers};

/// Where an entry of a stage has its flow, its counts and its epoch.
#[derive(Clone, Copy, Debug)]
struct StageNames {
    flows: [&'static str; 2],
    counts: &'static str,
    since: &'static str,
    epochs: &'static str,
}

const STAGES: [StageNames; 2] = [
    StageNames {
        flows: ["stage0_flows_low", "stage0_flows_high"],
        counts: "stage0_counts",
        since: "stage0_since",
        epochs: "stage0_epochs",
    },
    StageNames {
        flows: ["stage1_flows_low", "stage1_flows_high"],
        counts: "stage1_counts",
        since: "stage1_since",
        epochs: "stage1_epochs",
    },
];

/// A flow of PRECISION, and when it was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeavyEntry {
    /// The epoch in which it was counted, modulo 2³². The entry is empty in any other.
    pub epoch: u32,
    /// The flow; with a count of 0 there was never one.
    pub flow: HeavyHitter,
}

/// What PRECISION has of even epochs, and of odd ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyBlock {
    /// The latest epoch of each set, read behind all else: a set whose epoch is still there was at rest, if that is
    /// over.
    pub epochs: [u64; 2],
    /// Packets of that epoch.
    pub inserted: [u32; 2],
    /// The entries of each set, of all stages.
    pub entries: [Vec<HeavyEntry>; 2],
}

impl HeavyBlock {
    /// Reads PRECISION (`p4/precision`) with so many rows of a stage in an epoch.
    ///
    /// # Errors
    ///
    /// As [`SwitchRegisters::array`], or the block is not what the program has.
    pub fn read<S: SwitchRegisters>(switch: &mut S, rows: usize) -> Result<Self, S::Error> {
        let mut sets = [Vec::new(), Vec::new()];
        for names in &STAGES {
            let stage = stage(switch, names, 2 * rows)?;
            for (set, half) in sets.iter_mut().zip(stage.chunks(rows.max(1))) {
                set.extend(half);
            }
        }
        let inserted = entries("epoch_inserted", switch.array("epoch_inserted")?)?;
        let [even, odd]: [u32; 2] = entries("epochs_low", switch.array("epochs_low")?)?;
        let upper: [u32; 2] = entries("epochs_high", switch.array("epochs_high")?)?;
        let epochs = [(upper[0], even), (upper[1], odd)].map(|(high, low)| u64::from(high) << 32 | u64::from(low));
        Ok(Self { epochs, inserted, entries: sets })
    }
}

/// The entries of a stage, those of even epochs first.
fn stage<S: SwitchRegisters>(switch: &mut S, names: &StageNames, size: usize) -> Result<Vec<HeavyEntry>, S::Error> {
    let flows = switch.halves(names.flows, size)?;
    let counts = numbers(names.counts, switch.array(names.counts)?, size)?;
    let since = numbers(names.since, switch.array(names.since)?, size)?;
    let epochs = numbers(names.epochs, switch.array(names.epochs)?, size)?;
    let all = flows.into_iter().zip(epochs).zip(counts.into_iter().zip(since));
    let entry = |((flow, epoch), (count, since)): ((u64, u32), (u32, u32))| HeavyEntry {
        epoch,
        flow: HeavyHitter { digest: Digest(flow), count: count.into(), since: since.into() },
    };
    Ok(all.map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::super::BlockError;
    use super::*;

    /// Arrays whose entries count up from a number that is told by the name.
    struct Counting(usize);

    impl SwitchRegisters for Counting {
        type Error = BlockError;

        fn array(&mut self, name: &'static str) -> Result<Vec<u64>, BlockError> {
            let entries = if name.starts_with("stage") { self.0 } else { 2 };
            let first = match name.rsplit('_').next() {
                Some("high") => 100,
                Some("counts") => 50,
                Some("since") => 20,
                Some("epochs") => 7,
                _ => 0,
            };
            let stage = if name.starts_with("stage1") { 1_000 } else { 0 };
            Ok((0..entries as u64).map(|at| first + stage + at).collect())
        }
    }

    #[test]
    fn each_set_has_the_entries_of_both_stages() {
        let block = HeavyBlock::read(&mut Counting(6), 3).expect("six entries of each stage");

        assert_eq!((block.epochs, block.inserted), ([100 << 32, 101 << 32 | 1], [0, 1]));
        let digests =
            block.entries.each_ref().map(|set| set.iter().map(|entry| entry.flow.digest.0).collect::<Vec<_>>());
        let digest = |at: u64| (100 + at) << 32 | at;
        assert_eq!(digests[0], [0, 1, 2, 1_000, 1_001, 1_002].map(digest));
        assert_eq!(digests[1], [3, 4, 5, 1_003, 1_004, 1_005].map(digest));
        let flow = HeavyHitter { digest: Digest(digest(4)), count: 54, since: 24 };
        assert_eq!(block.entries[1][1], HeavyEntry { epoch: 11, flow });
    }

    #[test]
    fn arrays_of_another_size_are_refused() {
        let other = BlockError::Entries { name: "stage0_flows_low", found: 6, expected: 8 };

        assert_eq!(HeavyBlock::read(&mut Counting(6), 4), Err(other));
    }
}
