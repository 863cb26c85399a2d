//! How much may wait, and for how long.

use std::collections::TryReserveError;

use wire::time::Nanos;

use crate::tracing::record;

/// How much a buffer may take, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, for everything but the reasons of kept traces. 256 MiB by default.
    pub bytes: usize,
    /// How long a trace waits, from its first span on: longest duration, the SDK's batch delay, detection, and the way of a trigger to
    /// other nodes. 60 s by default.
    pub age: Nanos,
    /// Bytes that one trace may have, indexes included. 4 MiB by default.
    pub trace_bytes: usize,
    /// For how many decisions there is room, in each of two generations. What waited is always recorded, what was refused at once as long as
    /// half is free. 2^19 by default: 8 MiB.
    pub decisions: usize,
    /// How long a decision is remembered at the least, unless there are too many. 120 s by default.
    pub hold: Nanos,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            age: Nanos::from_secs(60),
            trace_bytes: 4 << 20,
            decisions: 1 << 19,
            hold: Nanos::from_secs(120),
        }
    }
}

/// Why a buffer was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// There is no room for what must have room.
    #[error(
        "{bytes} bytes are too few: decisions take {decisions} of them, and four traces of {trace_bytes} must fit beside them"
    )]
    TooSmall {
        /// As asked for.
        bytes: usize,
        /// Taken by decisions and by the table of traces.
        decisions: usize,
        /// As asked for.
        trace_bytes: usize,
    },
    /// More than the numbers of blocks and decisions can say.
    #[error("{bytes} bytes and {decisions} decisions: at most 64 GiB and a billion are possible")]
    TooLarge {
        /// As asked for.
        bytes: usize,
        /// As asked for.
        decisions: usize,
    },
    /// A length that an index cannot say.
    #[error("a trace of {0} bytes is more than 256 MiB")]
    TraceTooLong(usize),
    /// A late span would come back as a trace of its own.
    #[error("decisions are remembered for {hold}, which is shorter than traces wait: {age}")]
    HoldTooShort {
        /// As asked for.
        hold: Nanos,
        /// As asked for.
        age: Nanos,
    },
    /// More than the machine has addresses for.
    #[error("the memory cannot be reserved")]
    Memory(#[from] TryReserveError),
}

impl Limits {
    const MOST_BYTES: usize = 64 << 30;
    const MOST_DECISIONS: usize = 1 << 30;

    /// What can be said before any memory is asked for.
    pub(super) fn check(&self) -> Result<(), LimitsError> {
        let Self { bytes, decisions, trace_bytes, hold, age } = *self;
        if bytes > Self::MOST_BYTES || decisions > Self::MOST_DECISIONS {
            return Err(LimitsError::TooLarge { bytes, decisions });
        }
        if trace_bytes > record::LONGEST {
            return Err(LimitsError::TraceTooLong(trace_bytes));
        }
        if hold < age {
            return Err(LimitsError::HoldTooShort { hold, age });
        }
        Ok(())
    }
}
