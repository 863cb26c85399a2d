//! Limits of a tail buffer: memory, and how long traces are buffered.

use std::collections::TryReserveError;

use wire::time::Nanos;

use crate::tracing::record;

/// Memory and ages of a tail buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory budget in bytes, for everything but the reasons of kept traces. 256 MiB by default.
    pub bytes: usize,
    /// How long a trace is buffered, from its first span on. It has to cover the longest request, the batch delay of
    /// the SDK, detection, and gossip. 60 s by default.
    pub age: Nanos,
    /// Largest trace in bytes, indexes included. 4 MiB by default.
    pub trace_bytes: usize,
    /// Decisions that fit into each of two generations. Decisions about buffered traces are always recorded, refusals
    /// only while half of the table is free. 2^19 by default: 8 MiB.
    pub decisions: usize,
    /// How long a decision is remembered at least, unless there are too many. 120 s by default.
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

/// Limits with which no buffer can be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// The memory budget is too small.
    #[error(
        "{bytes} bytes are too few: decisions take {decisions} of them, and four traces of {trace_bytes} bytes must fit into the rest"
    )]
    TooSmall {
        /// Configured memory budget.
        bytes: usize,
        /// Bytes taken by decisions and by the table of traces.
        decisions: usize,
        /// Configured largest trace.
        trace_bytes: usize,
    },
    /// More than the numbers of blocks and decisions can address.
    #[error("{bytes} bytes and {decisions} decisions: at most 64 GiB and 2^30 decisions are possible")]
    TooLarge {
        /// Configured memory budget.
        bytes: usize,
        /// Configured number of decisions.
        decisions: usize,
    },
    /// The largest trace does not fit into an index.
    #[error("a trace of {0} bytes is more than 256 MiB")]
    TraceTooLong(usize),
    /// A late span would begin a new trace.
    #[error("decisions are remembered for {hold}, which is shorter than traces wait: {age}")]
    HoldTooShort {
        /// Configured hold of decisions.
        hold: Nanos,
        /// Configured age of traces.
        age: Nanos,
    },
    /// The address space is too small.
    #[error("the memory cannot be reserved")]
    Memory(#[from] TryReserveError),
}

impl Limits {
    const MAX_BYTES: usize = 64 << 30;
    const MAX_DECISIONS: usize = 1 << 30;

    /// Checks everything that needs no memory.
    pub(super) fn check(&self) -> Result<(), LimitsError> {
        let Self { bytes, decisions, trace_bytes, hold, age } = *self;
        if bytes > Self::MAX_BYTES || decisions > Self::MAX_DECISIONS {
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
