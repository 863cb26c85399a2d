//! What both ends agree on at the start of a run.

use core::num::NonZeroU64;

use synopses::finecomb::{self, Bank, Rule, Sampling as Banks};
use synopses::rda::{self, Ids, Layout};
use thiserror::Error;
use wire::time::{Nanos, UnixNanos};

/// Minimum length of an interval: 10 ms.
pub const MIN_LENGTH: Nanos = Nanos::from_millis(10);
/// Maximum length of an interval: one hour.
pub const MAX_LENGTH: Nanos = Nanos::from_secs(3600);
/// Maximum number of intervals in a run: over three hundred years at 10 ms.
pub const MAX_INTERVALS: u64 = 1 << 40;

/// Minimum number of intervals per key: longer than the wait for an interval's late packets.
pub const MIN_INTERVALS_PER_KEY: u64 = 8;

/// What both ends agree on for a run.
#[derive(Clone, PartialEq)]
pub struct Plan {
    /// When interval 0 begins. It lies in the future on both clocks.
    pub begins: UnixNanos,
    /// Length of an interval, from [`MIN_LENGTH`] to [`MAX_LENGTH`].
    pub length: Nanos,
    /// Secret from which the digest keys are derived. With it, an attacker could craft packets that corrupt cells.
    pub key: u128,
    /// Seed for what is derived from digests, such as buckets and sampling.
    pub seed: u64,
    /// The synopsis and its size.
    pub synopsis: Synopsis,
    /// Number of intervals after which the digest key changes, at least [`MIN_INTERVALS_PER_KEY`]. With 0 the plan's
    /// own key is used for the whole run.
    pub intervals_per_key: u64,
    /// If switches measure at both ends: a fingerprint of the constants by which their programs name, sample and place
    /// packets, in place of `key` and `seed`.
    pub fingerprint: Option<NonZeroU64>,
}

// Leaves out the key, which is secret.
impl core::fmt::Debug for Plan {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { begins, length, synopsis, intervals_per_key, fingerprint, .. } = self;
        f.debug_struct("Plan")
            .field("begins", begins)
            .field("length", length)
            .field("synopsis", synopsis)
            .field("intervals_per_key", intervals_per_key)
            .field("fingerprint", fingerprint)
            .finish_non_exhaustive()
    }
}

/// A synopsis, and its size where that is fixed in advance.
#[derive(Clone, Debug, PartialEq)]
pub enum Synopsis {
    /// RDA. The number of cells is chosen for each interval, after its packets (late binding).
    Rda {
        /// k, number of banks of cells.
        banks: usize,
        /// How packet ids are made from digests.
        ids: Ids,
    },
    /// FineComb, or LDA, which is FineComb without digests.
    FineComb {
        /// True for FineComb, false for LDA.
        digests: bool,
        /// M, number of buckets in a bank.
        buckets: usize,
        /// Sampling probability and stash of each bank.
        banks: Vec<Bank>,
    },
}

impl Synopsis {
    /// RDA with the recommended settings: three banks of checked ids.
    pub const RDA: Self = Self::Rda { banks: 3, ids: Ids::Checked8 };

    /// FineComb with one bank that samples every packet and stores `stash` of them on either side of an interval's end.
    #[must_use]
    pub fn finecomb(buckets: usize, stash: usize) -> Self {
        Self::FineComb { digests: true, buckets, banks: vec![Bank { probability: 1.0, stash, loss: 0.0 }] }
    }

    /// LDA with one bank that samples every packet.
    #[must_use]
    pub fn lda(buckets: usize) -> Self {
        Self::FineComb { digests: false, buckets, banks: vec![Bank { probability: 1.0, stash: 0, loss: 0.0 }] }
    }

    /// Its name in configuration files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Rda { .. } => "rda",
            Self::FineComb { digests: true, .. } => "finecomb",
            Self::FineComb { digests: false, .. } => "lda",
        }
    }
}

/// Delay before a request that was a little too early is retried. It delays the result, so it is short.
pub(crate) fn soon(length: Nanos) -> Nanos {
    Nanos(length.0 / 256).max(Nanos::from_millis(1))
}

/// An invalid plan.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The interval is too short or too long.
    #[error("intervals of {} ns, {} to {} are possible", .0.0, MIN_LENGTH.0, MAX_LENGTH.0)]
    Length(Nanos),
    /// The start time is out of range.
    #[error("a start at {} ns since 1970, which is out of range", .0.0)]
    Begins(UnixNanos),
    /// The key changes too often.
    #[error("{0} intervals per key, at least {MIN_INTERVALS_PER_KEY} are possible, or 0 for one key")]
    IntervalsPerKey(u64),
    /// Invalid settings of RDA.
    #[error(transparent)]
    Rda(#[from] rda::SettingsError),
    /// Invalid settings of FineComb or LDA.
    #[error(transparent)]
    FineComb(#[from] finecomb::SettingsError),
}

impl Plan {
    /// Checks all values.
    ///
    /// # Errors
    ///
    /// [`PlanError`] names the first invalid one.
    pub fn check(&self) -> Result<(), PlanError> {
        if !(MIN_LENGTH..=MAX_LENGTH).contains(&self.length) {
            return Err(PlanError::Length(self.length));
        }
        if self.begins.0 > u64::MAX / 4 {
            return Err(PlanError::Begins(self.begins));
        }
        if (1..MIN_INTERVALS_PER_KEY).contains(&self.intervals_per_key) {
            return Err(PlanError::IntervalsPerKey(self.intervals_per_key));
        }
        match &self.synopsis {
            Synopsis::Rda { .. } => drop(rda::Rda::new(&self.cells(1, 0))?),
            // A small instance checks the settings: the number of buckets may come from the other end.
            Synopsis::FineComb { buckets, .. } => {
                let settings = self.buckets();
                if *buckets > finecomb::MAX_BUCKETS {
                    return Err(finecomb::SettingsError::Buckets(*buckets).into());
                }
                drop(finecomb::FineComb::new(&finecomb::Settings { buckets: (*buckets).min(1), ..settings })?);
            }
        }
        Ok(())
    }

    /// When the interval begins. It ends when the next one begins.
    #[must_use]
    pub const fn begin_of(&self, interval: u64) -> UnixNanos {
        self.begins.plus(Nanos(interval.saturating_mul(self.length.0)))
    }

    /// The interval that contains a time; `None` before the start.
    #[must_use]
    pub const fn interval_of(&self, at: UnixNanos) -> Option<u64> {
        match at.0.checked_sub(self.begins.0) {
            Some(since) => Some(since / self.length.0),
            None => None,
        }
    }

    /// Settings for `cells` RDA cells in a bank. One bank if the plan's synopsis is not RDA.
    #[must_use]
    pub const fn cells(&self, cells: usize, seed: u64) -> rda::Settings {
        let (banks, ids) = match self.synopsis {
            Synopsis::Rda { banks, ids } => (banks, ids),
            Synopsis::FineComb { .. } => (1, Ids::Plain),
        };
        rda::Settings { banks, cells, layout: Layout::Banks, ids, seed }
    }

    /// Settings of the buckets. Without banks, which is invalid, if the plan's synopsis is RDA.
    #[must_use]
    pub fn buckets(&self) -> finecomb::Settings {
        let (buckets, banks) = match &self.synopsis {
            Synopsis::FineComb { buckets, banks, .. } => (*buckets, banks.clone()),
            Synopsis::Rda { .. } => (0, Vec::new()),
        };
        finecomb::Settings { buckets, banks, sampling: Banks::Nested, seed: self.seed }
    }

    /// The rule that decides whether two buckets hold the same packets.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        if matches!(self.synopsis, Synopsis::FineComb { digests: false, .. }) { Rule::Lda } else { Rule::FineComb }
    }
}
