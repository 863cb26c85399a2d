//! What both ends agree on at the start of a run.

use synopses::finecomb::{self, Bank, Rule, Sampling as Banks};
use synopses::rda::{self, Ids, Layout};
use thiserror::Error;

/// No interval is shorter.
pub const LEAST_LENGTH_NS: u64 = 10_000_000;
/// No interval is longer.
pub const MOST_LENGTH_NS: u64 = 3_600_000_000_000;
/// No run has more intervals: at 10 ms, some hundred years.
pub const MOST_INTERVALS: u64 = 1 << 40;

/// A key is used for so many intervals at least: longer than packets of an interval are waited for.
pub const LEAST_ROTATES: u64 = 8;

/// What both ends do.
#[derive(Clone, PartialEq)]
pub struct Plan {
    /// When interval 0 begins: a time that neither clock has reached.
    pub begins_ns: u64,
    /// How long each is, from [`LEAST_LENGTH_NS`] to [`MOST_LENGTH_NS`].
    pub length_ns: u64,
    /// From which the keys are derived with which packets are named. Secret: whoever knows it can craft packets that spoil cells.
    pub key: u128,
    /// Of what is derived from names.
    pub seed: u64,
    /// Which synopsis.
    pub synopsis: Synopsis,
    /// Every so many intervals packets are named with another key, at least [`LEAST_ROTATES`]; 0 for never, and with the plan's own key.
    pub rotates: u64,
}

// Without the key.
impl core::fmt::Debug for Plan {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { begins_ns, length_ns, synopsis, rotates, .. } = self;
        f.debug_struct("Plan")
            .field("begins_ns", begins_ns)
            .field("length_ns", length_ns)
            .field("synopsis", synopsis)
            .field("rotates", rotates)
            .finish_non_exhaustive()
    }
}

/// Which synopsis, and how large where that is decided before the packets come.
#[derive(Clone, Debug, PartialEq)]
pub enum Synopsis {
    /// RDA: the number of cells follows the packets.
    Rda {
        /// k, banks of cells.
        banks: usize,
        /// Which bits stand for a packet.
        ids: Ids,
    },
    /// FineComb, or without digests LDA.
    Comb {
        /// FineComb.
        digests: bool,
        /// M, buckets of a bank.
        buckets: usize,
        /// Its banks.
        banks: Vec<Bank>,
    },
}

impl Synopsis {
    /// RDA as it works best: three banks of checked ids.
    pub const RDA: Self = Self::Rda { banks: 3, ids: Ids::Checked8 };

    /// FineComb of one bank that samples every packet and keeps `stash` of them at either side of an interval's end.
    #[must_use]
    pub fn finecomb(buckets: usize, stash: usize) -> Self {
        Self::Comb { digests: true, buckets, banks: vec![Bank { probability: 1.0, stash, loss: 0.0 }] }
    }

    /// LDA of one bank that samples every packet.
    #[must_use]
    pub fn lda(buckets: usize) -> Self {
        Self::Comb { digests: false, buckets, banks: vec![Bank { probability: 1.0, stash: 0, loss: 0.0 }] }
    }

    /// Its name, as configurations have it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Rda { .. } => "rda",
            Self::Comb { digests: true, .. } => "finecomb",
            Self::Comb { digests: false, .. } => "lda",
        }
    }
}

/// After so long a question that came a little too early is asked again, in nanoseconds: the result waits for that.
pub(crate) const fn soon_ns(length_ns: u64) -> u64 {
    let part = length_ns / 256;
    if part > 1_000_000 { part } else { 1_000_000 }
}

/// A plan that cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Too short or too long.
    #[error("intervals of {0} ns, from {LEAST_LENGTH_NS} to {MOST_LENGTH_NS} are possible")]
    Length(u64),
    /// Later than any clock shows.
    #[error("a start at {0} ns since 1970")]
    Begins(u64),
    /// Turns of the key that come too soon.
    #[error("another key every {0} intervals, {LEAST_ROTATES} are possible, or 0 for one key")]
    Rotates(u64),
    /// Cells.
    #[error(transparent)]
    Rda(#[from] rda::SettingsError),
    /// Buckets.
    #[error(transparent)]
    Comb(#[from] finecomb::SettingsError),
}

impl Plan {
    /// Whether this can be done at all.
    ///
    /// # Errors
    ///
    /// [`PlanError`] says what cannot.
    pub fn check(&self) -> Result<(), PlanError> {
        if !(LEAST_LENGTH_NS..=MOST_LENGTH_NS).contains(&self.length_ns) {
            return Err(PlanError::Length(self.length_ns));
        }
        if self.begins_ns > u64::MAX / 4 {
            return Err(PlanError::Begins(self.begins_ns));
        }
        if (1..LEAST_ROTATES).contains(&self.rotates) {
            return Err(PlanError::Rotates(self.rotates));
        }
        match &self.synopsis {
            Synopsis::Rda { .. } => drop(rda::Rda::new(&self.cells(1, 0))?),
            // Also checks; as small as it gets, since the number of buckets may be the other end's.
            Synopsis::Comb { buckets, .. } => {
                let settings = self.buckets();
                if *buckets > finecomb::MOST_BUCKETS {
                    return Err(finecomb::SettingsError::Buckets(*buckets).into());
                }
                drop(finecomb::Comb::new(&finecomb::Settings { buckets: (*buckets).min(1), ..settings })?);
            }
        }
        Ok(())
    }

    /// When the interval begins, in nanoseconds since 1970; it ends where the next one begins.
    #[must_use]
    pub const fn begin_of(&self, interval: u64) -> u64 {
        self.begins_ns.saturating_add(interval.saturating_mul(self.length_ns))
    }

    /// The interval of a time; `None` before the start.
    #[must_use]
    pub const fn interval_of(&self, now_ns: u64) -> Option<u64> {
        match now_ns.checked_sub(self.begins_ns) {
            Some(since) => Some(since / self.length_ns),
            None => None,
        }
    }

    /// Settings of so many RDA cells in a bank; with one bank if this is no plan of RDA.
    #[must_use]
    pub const fn cells(&self, cells: usize, seed: u64) -> rda::Settings {
        let (banks, ids) = match self.synopsis {
            Synopsis::Rda { banks, ids } => (banks, ids),
            Synopsis::Comb { .. } => (1, Ids::Plain),
        };
        rda::Settings { banks, cells, layout: Layout::Banks, ids, seed }
    }

    /// Settings of the buckets; without banks, which is none that can be, if this is a plan of RDA.
    #[must_use]
    pub fn buckets(&self) -> finecomb::Settings {
        let (buckets, banks) = match &self.synopsis {
            Synopsis::Comb { buckets, banks, .. } => (*buckets, banks.clone()),
            Synopsis::Rda { .. } => (0, Vec::new()),
        };
        finecomb::Settings { buckets, banks, sampling: Banks::Nested, seed: self.seed }
    }

    /// When two buckets are taken to be of the same packets.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        if matches!(self.synopsis, Synopsis::Comb { digests: false, .. }) { Rule::Lda } else { Rule::FineComb }
    }
}
