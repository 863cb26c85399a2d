//! What the program of a switch measures for a stream, and how it is read.

use packets::switch::readout::ReadoutError;
use thiserror::Error;
use wire::time::UnixNanos;

use super::switch_registers::{RemoteSwitch, SwitchError};

/// Why a poll gave nothing.
#[derive(Debug, Error)]
pub(super) enum PollError {
    /// The switch was not read.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// It runs another program, or its registers contradict each other.
    #[error(transparent)]
    Readout(#[from] ReadoutError),
    /// The configured offset was that of the time before.
    #[error(
        "it has started again, so network.streams.switch.clock_offset_ns is not that of its time any more: correct it, \
         and start the agent again"
    )]
    StartedAgain,
    /// The configured offset is that of another time.
    #[error("network.streams.switch.clock_offset_ns is not that of its time: correct it, and start the agent again")]
    Offset(#[source] ReadoutError),
}

impl PollError {
    /// Of a poll whose time is by a configured offset, or not.
    pub(super) fn of_readout(error: ReadoutError, has_offset: bool) -> Self {
        match error {
            ReadoutError::Time { .. } if has_offset => Self::Offset(error),
            other => Self::Readout(other),
        }
    }
}

/// What a poll gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollOutcome {
    /// The first poll, or the first one after the switch has started again. The next interval begins.
    Begun,
    /// An interval was written. So many samples of it were overwritten before they were read.
    Written {
        /// Samples that were overwritten.
        overrun: u64,
    },
}

/// What the program of a switch measures, and its metrics.
pub(super) trait Measurement: core::fmt::Debug + Send {
    /// The program that is read.
    fn program(&self) -> &'static str;

    /// Reads the switch at `now`, and writes what came of it.
    ///
    /// # Errors
    ///
    /// [`PollError`] if there is nothing to write.
    fn poll(&mut self, switch: &mut RemoteSwitch, now: UnixNanos) -> Result<PollOutcome, PollError>;

    /// An interval has ended, and nothing was read.
    fn write_lost(&self);
}
