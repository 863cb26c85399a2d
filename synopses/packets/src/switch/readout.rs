//! From the registers of a switch to the intervals of the host's own path.
//!
//! Nothing in a switch is cleared: an interval is the difference of two polls. So another reader disturbs nobody, a
//! poll that is lost costs no packet of later intervals, and an agent that starts again goes on with the next interval.
//!
//! | module | what | which interval |
//! | --- | --- | --- |
//! | `fridge` | delays | the agent's: from poll to poll |
//! | `cardinality` | distinct flows of ST-HLL's window | the agent's |
//! | `reordering` | packets out of order by prefix | the agent's |
//! | `heavy` | the heaviest flows of PRECISION | the switch's: its latest epoch that is over |
//! | `finecomb` | sums of FineComb and LDA | the switch's: from marker to marker ([`markers`](super::markers)) |

mod cardinality;
mod finecomb;
mod fridge;
mod heavy;
mod reordering;

pub use cardinality::{CardinalityError, CardinalityInterval, CardinalityReadout};
pub use finecomb::{BucketInterval, BucketPoll, BucketReading, BucketReadout, BucketsError};
pub use fridge::{FridgeError, FridgeReadout, Reading, SwitchInterval};
pub use heavy::{HeavyError, HeavyFlows, HeavyReadout, SwitchHeavyFlows};
pub use reordering::{ReorderingError, ReorderingReadout, SwitchReordering};

use synopses::encoding::DecodeError;
use thiserror::Error;

use super::registers::{FrameBlock, REASONS};
use crate::packet::ParseError;

/// A difference of counters that is no count: the counter went back.
const BACK: u32 = 1 << 31;

/// Why registers are not those of the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadoutError {
    /// Another program, other constants or another secret, or keys without the checksum that belongs to them.
    #[error(
        "the switch runs a program with the checksum {found:#x}, {program} with the agent's constants has \
         {expected:#x}: another program, other constants or another secret, or keys that were set in the switch \
         without their CHECKSUM"
    )]
    Checksum {
        /// The program of the agent's constants.
        program: &'static str,
        /// What the switch says.
        found: u32,
        /// That of the agent's constants.
        expected: u32,
    },
    /// Its packets did not come when the agent takes its time to have been: another clock, or it has started again.
    #[error(
        "packets came since the poll before, the latest at {latest_ns} ns of the switch's time, which was taken to be \
         {before_ns} ns at that poll and {now_ns} ns at this one"
    )]
    Time {
        /// The begin of the latest packet's slot.
        latest_ns: u64,
        /// What was taken for its time at the poll before.
        before_ns: u64,
        /// What is taken for its time at this one.
        now_ns: u64,
    },
    /// No program has such registers.
    #[error("the registers of the switch")]
    Registers(#[from] DecodeError),
}

/// A poll takes as long at most. So much later its time may be known, or packets still come.
const MAX_POLL_NS: u64 = 1_000_000_000;

/// What was taken for a switch's time at two polls, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct TakenTimes {
    before_ns: u64,
    now_ns: u64,
}

impl TakenTimes {
    /// Refuses them if the latest packet, which came since the poll before, came long before that by them, or is still
    /// to come: by more than `allowed_ns` and what a poll takes. It came in the slot of `slot_ns` that began at
    /// `latest_ns`.
    fn check(self, latest_ns: u64, slot_ns: u64, allowed_ns: u64) -> Result<(), ReadoutError> {
        let Self { before_ns, now_ns } = self;
        let allowed_ns = allowed_ns.saturating_add(MAX_POLL_NS);
        let is_earlier = latest_ns.saturating_add(slot_ns).saturating_add(allowed_ns) < before_ns;
        let is_later = latest_ns > now_ns.saturating_add(allowed_ns);
        if is_earlier || is_later { Err(ReadoutError::Time { latest_ns, before_ns, now_ns }) } else { Ok(()) }
    }
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

/// Frames of a switch from poll to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInterval {
    /// Packets that the program looked at.
    pub packets: u64,
    /// Frames that could not be parsed, although they should.
    pub refused: u64,
    /// Ends of intervals at which nothing was read: the interval is so many intervals longer.
    pub lost_polls: u64,
}

/// The frames of a switch at the latest poll.
#[derive(Clone, Copy, Debug)]
struct FramePolls {
    program: ProgramCheck,
    interval_ns: u64,
    /// What was read, and when.
    latest: Option<(FrameBlock, u64)>,
}

impl FramePolls {
    /// Before the first poll. Intervals end at multiples of `interval_ns`.
    fn new(program: ProgramCheck, interval_ns: u64) -> Self {
        Self { program, interval_ns: interval_ns.max(1), latest: None }
    }

    /// Takes what was read at `now_ns`. `None`: this is the first poll, or the first one after the switch has started
    /// again, as another counter of it `went_back`, or that of frames.
    fn take(
        &mut self,
        frames: &FrameBlock,
        now_ns: u64,
        went_back: bool,
    ) -> Result<Option<FrameInterval>, ReadoutError> {
        let before = self.latest.take();
        self.program.check(frames)?;
        self.latest = Some((*frames, now_ns));
        let Some((before, before_ns)) = before.filter(|_| !went_back) else { return Ok(None) };
        let all = frames.frames.wrapping_sub(before.frames);
        if all >= BACK {
            return Ok(None);
        }
        let refused = RefusedFrames::between(&before, frames);
        let ends = (now_ns / self.interval_ns).saturating_sub(before_ns / self.interval_ns);
        Ok(Some(FrameInterval {
            packets: u64::from(all).saturating_sub(refused.all),
            refused: refused.broken,
            lost_polls: ends.saturating_sub(1),
        }))
    }
}
