//! The registers of a program, by blocks: what an agent reads of a switch once per interval.

use thiserror::Error;

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

    /// The fridge (`p4/shared/fridge.p4`) without its pending requests, which stay in the switch.
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

/// Samples in a fridge's ring.
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

/// Counts of a fridge. All wrap at 2³².
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

/// A fridge: its counts, and a ring of the latest samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FridgeBlock {
    /// Counts, read before the ring.
    pub counts: FridgeCounts,
    /// Delay of sample n at n mod 1024, in ticks.
    pub ticks: Box<[u32; RING]>,
    /// Insertions that the request of sample n survived, at n mod 1024.
    pub insertions: Box<[u32; RING]>,
    /// `matched` after the ring was read.
    pub written: u32,
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
    let found = all.len();
    let all: [u64; N] = all.try_into().map_err(|_| BlockError::Entries { name, found, expected: N })?;
    if let Some(found) = all.into_iter().find(|value| *value > u64::from(u32::MAX)) {
        return Err(BlockError::Value { name, found });
    }
    Ok(all.map(|value| value as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrays of these entries, each with the same value.
    struct Constant(usize, u64);

    impl SwitchRegisters for Constant {
        type Error = BlockError;

        fn array(&mut self, _: &'static str) -> Result<Vec<u64>, BlockError> {
            Ok(vec![self.1; self.0])
        }
    }

    #[test]
    fn a_block_of_another_size_or_width_is_refused_by_its_name() {
        assert_eq!(Constant(1, 7).count("Fridge.matched"), Ok(7));
        let error = Constant(2, 7).frames().expect_err("two entries").to_string();
        assert_eq!(error, "the registers Frames.frames have 2 entries, the program's have 1");
        let error = Constant(1, 1 << 32).fridge().expect_err("33 bits").to_string();
        assert_eq!(error, "0x100000000 in the registers Fridge.requests, which have 32 bits");
        let ring = BlockError::Entries { name: "Fridge.report_ticks", found: 1, expected: RING };
        assert_eq!(Constant(1, 1).fridge(), Err(ring));
    }
}
