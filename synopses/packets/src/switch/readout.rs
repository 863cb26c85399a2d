//! From the registers of a switch to the intervals of the host's own path.
//!
//! Nothing in a switch is cleared: an interval is the difference of two polls. So another reader disturbs nobody, a
//! poll that is lost costs no packet of later intervals, and an agent that starts again goes on with the next interval.
//!
//! | module | what | which interval |
//! | --- | --- | --- |
//! | `fridge` | delays | the agent's: from poll to poll |
//! | `finecomb` | sums of FineComb and LDA | the switch's: from marker to marker ([`markers`](super::markers)) |

mod finecomb;
mod fridge;

pub use finecomb::{BucketInterval, BucketPoll, BucketReading, BucketReadout, BucketsError};
pub use fridge::{FridgeError, FridgeReadout, Reading, SwitchInterval};

use thiserror::Error;

use super::registers::{FrameBlock, REASONS};
use crate::packet::ParseError;

/// A difference of counters that is no count: the counter went back.
const BACK: u32 = 1 << 31;

/// Why registers are not those of the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadoutError {
    /// Another program, other constants or another secret.
    #[error(
        "the switch runs a program with the checksum {found:#x}, {program} with the agent's constants has {expected:#x}: \
         another program, other constants or another secret"
    )]
    Checksum {
        /// The program of the agent's constants.
        program: &'static str,
        /// What the switch says.
        found: u32,
        /// That of the agent's constants.
        expected: u32,
    },
}

/// What a program says of itself if it has the agent's constants.
#[derive(Clone, Copy, Debug)]
struct ProgramCheck {
    program: &'static str,
    checksum: u32,
}

impl ProgramCheck {
    /// Refuses a switch that runs something else.
    fn check(self, frames: &FrameBlock) -> Result<(), ReadoutError> {
        let Self { program, checksum: expected } = self;
        let found = frames.checksum;
        // Before its first frame a program has not said which one it is, and all registers are 0.
        if found == expected || (found, frames.frames) == (0, 0) {
            Ok(())
        } else {
            Err(ReadoutError::Checksum { program, found, expected })
        }
    }
}

/// Refused frames between two polls.
#[derive(Clone, Copy, Debug)]
struct RefusedFrames {
    all: u64,
    /// Those that should have been parsed.
    broken: u64,
}

impl RefusedFrames {
    fn between(before: &FrameBlock, now: &FrameBlock) -> Self {
        let refused: [u64; REASONS] =
            core::array::from_fn(|reason| now.refusals[reason].wrapping_sub(before.refusals[reason]).into());
        let all: u64 = refused.iter().sum();
        let harmless = ParseError::ALL.into_iter().filter(|reason| reason.is_harmless());
        let harmless: u64 = harmless.map(|reason| refused[reason as usize]).sum();
        Self { all, broken: all - harmless }
    }
}
