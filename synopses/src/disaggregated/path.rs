//! Which fragments of its path a flow updates.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use thiserror::Error;

use crate::digest::{Digest, Mixer};

/// Maximum number of fragments on a path.
pub const MAX_PATH: usize = 32;
/// Keeps choices apart from the rows of fragments.
const CHOICE: u64 = 0x0063_686f_6963_6500;

/// The fragments along a path, and how many of them a flow updates.
#[derive(Clone, Debug)]
pub struct Path {
    pub(super) fragments: Box<[u32]>,
    pub(super) weights: Box<[f64]>,
    /// K', at most the length.
    pub(super) count: usize,
    pub(super) seed: u64,
    mixers: Box<[Mixer]>,
    clamped: bool,
    replaced: usize,
}

impl Path {
    /// All fragments count every flow: DISCO.
    ///
    /// # Errors
    ///
    /// [`PathError`] if there are more than [`MAX_PATH`] fragments, or one of them twice.
    pub fn all(fragments: &[u32]) -> Result<Self, PathError> {
        Self::random(fragments, fragments.len().max(1), 0)
    }

    /// Each flow updates `count` fragments at random. All nodes need the same seed; keep it secret.
    ///
    /// # Errors
    ///
    /// As for [`Self::weighted`].
    pub fn random(fragments: &[u32], count: usize, seed: u64) -> Result<Self, PathError> {
        Self::weighted(fragments, count, &[1.0; MAX_PATH][..fragments.len().min(MAX_PATH)], seed)
    }

    /// Each flow updates `count` fragments, the heavier ones more often. What is no positive finite weight becomes the
    /// least one that is. A count above the number of fragments is taken as all of them.
    ///
    /// # Errors
    ///
    /// [`PathError`] if `count` is 0, a weight is missing, a fragment comes twice, or more than [`MAX_PATH`] of them.
    pub fn weighted(fragments: &[u32], count: usize, weights: &[f64], seed: u64) -> Result<Self, PathError> {
        if count == 0 {
            return Err(PathError::Count);
        }
        if fragments.len() > MAX_PATH {
            return Err(PathError::Length(fragments.len()));
        }
        if weights.len() != fragments.len() {
            return Err(PathError::Weights { weights: weights.len(), fragments: fragments.len() });
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = fragments.iter().find(|id| !seen.insert(**id)) {
            return Err(PathError::Twice(*twice));
        }
        let usable = |weight: &f64| weight.is_finite() && *weight > 0.0;
        let least = weights.iter().copied().filter(usable).reduce(f64::min).unwrap_or(1.0);
        Ok(Self {
            fragments: fragments.into(),
            weights: weights.iter().map(|weight| if usable(weight) { *weight } else { least }).collect(),
            count: count.min(fragments.len()),
            seed,
            mixers: fragments.iter().map(|id| Mixer::new(seed, CHOICE ^ (u64::from(*id) << 32))).collect(),
            clamped: count > fragments.len(),
            replaced: weights.iter().filter(|weight| !usable(weight)).count(),
        })
    }

    /// The fragments in order of the path.
    #[must_use]
    pub const fn fragments(&self) -> &[u32] {
        &self.fragments
    }

    /// K', the number of fragments that a flow updates; 0 if there are none.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// What a data plane combines digests of flows with by XOR before it mixes them (`p4/`), for each fragment. With
    /// equal weights a flow updates those whose mixed digests are largest, by their upper 52 bits; of equal ones the
    /// first.
    pub fn mixers(&self) -> impl Iterator<Item = u64> {
        self.mixers.iter().map(|mixer| mixer.constant())
    }

    /// Whether a flow makes the same choice on both.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let bits = |path: &Self| path.weights.iter().map(|weight| weight.to_bits()).collect::<Box<[u64]>>();
        (&self.fragments, self.count, self.seed) == (&other.fragments, other.count, other.seed)
            && bits(self) == bits(other)
    }

    /// The seed of the choice.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether each fragment is as likely to be chosen as any other.
    #[must_use]
    pub fn has_equal_weights(&self) -> bool {
        self.weights.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Whether more fragments were asked for than the path has.
    #[must_use]
    pub const fn clamped(&self) -> bool {
        self.clamped
    }

    /// Number of weights that were no positive finite numbers.
    #[must_use]
    pub const fn replaced_weights(&self) -> usize {
        self.replaced
    }

    /// The fragments that this flow updates: those with the least −ln(u)/weight, u from flow and fragment. The same at
    /// every node and at every time. O(K |path|), without allocation.
    #[must_use]
    pub fn select(&self, flow: Digest) -> Selection {
        let length = self.fragments.len();
        if self.count == length {
            return Selection(((1_u64 << length) - 1) as u32);
        }
        let mut keys = [f64::INFINITY; MAX_PATH];
        for ((key, mixer), weight) in keys.iter_mut().zip(&self.mixers).zip(&self.weights) {
            // 53 bits, so that the sum is exact and below 1.
            let uniform = ((mixer.mix(flow) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            *key = -libm::log(uniform) / weight;
        }
        let mut chosen = Selection(0);
        for _ in 0..self.count {
            let free = (0..length).filter(|position| !chosen.contains(*position));
            if let Some(least) = free.min_by(|one, other| keys[*one].total_cmp(&keys[*other])) {
                chosen.0 |= 1 << least;
            }
        }
        chosen
    }
}

/// Positions on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection(u32);

impl Selection {
    /// Whether the fragment at this position, counted from 0, was chosen.
    #[must_use]
    pub const fn contains(self, position: usize) -> bool {
        position < MAX_PATH && self.0 >> position & 1 == 1
    }

    /// The chosen positions in ascending order.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..MAX_PATH).filter(move |position| self.contains(*position))
    }
}

/// An impossible path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// A flow would be counted nowhere.
    #[error("flows update 0 fragments, at least 1 is possible")]
    Count,
    /// Too many fragments.
    #[error("{0} fragments on a path, at most {MAX_PATH} are possible")]
    Length(usize),
    /// A fragment that is on the path twice.
    #[error("fragment {0} is on the path twice")]
    Twice(u32),
    /// Another number of weights than of fragments.
    #[error("{weights} weights for {fragments} fragments")]
    Weights {
        /// Number of weights.
        weights: usize,
        /// Number of fragments.
        fragments: usize,
    },
}
