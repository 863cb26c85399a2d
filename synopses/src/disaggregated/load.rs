//! How busy fragments were, and the weights that follow.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::fragment::Fragment;

/// Weight of a fragment above the median.
const BUSY: f64 = 1e-6;

/// How load becomes weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// One over the load, which counts as this much at least.
    Soft {
        /// Least load, at least 1.
        floor: u64,
    },
    /// 1 up to the median of the path, a millionth above.
    Strict,
}

/// Loads of an epoch: the sums of all updates, by fragment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadTable {
    loads: BTreeMap<u32, u64>,
}

impl LoadTable {
    /// Notes the load of a fragment. The last note counts.
    pub fn insert(&mut self, fragment: u32, load: u64) {
        self.loads.insert(fragment, load);
    }

    /// The load of a fragment; `None` if nobody noted it.
    #[must_use]
    pub fn load(&self, fragment: u32) -> Option<u64> {
        self.loads.get(&fragment).copied()
    }

    /// Weights of the fragments of a path, for [`super::Path::weighted`]. A fragment whose load is unknown is taken as
    /// one at the median, so that it is neither avoided nor flooded.
    #[must_use]
    pub fn weights(&self, path: &[u32], weighting: Weighting) -> Vec<f64> {
        let mut known: Vec<u64> = path.iter().filter_map(|id| self.load(*id)).collect();
        known.sort_unstable();
        let median = known.get(known.len().saturating_sub(1) / 2).copied().unwrap_or(0);
        let loads = path.iter().map(|id| self.load(*id).unwrap_or(median));
        match weighting {
            Weighting::Soft { floor } => loads.map(|load| 1.0 / load.max(floor).max(1) as f64).collect(),
            Weighting::Strict => loads.map(|load| if load <= median { 1.0 } else { BUSY }).collect(),
        }
    }
}

impl<'a> FromIterator<&'a Fragment> for LoadTable {
    fn from_iter<I: IntoIterator<Item = &'a Fragment>>(fragments: I) -> Self {
        let loads = fragments.into_iter().map(|fragment| (fragment.settings().id, fragment.load()));
        Self { loads: loads.collect() }
    }
}

impl FromIterator<(u32, u64)> for LoadTable {
    fn from_iter<I: IntoIterator<Item = (u32, u64)>>(loads: I) -> Self {
        Self { loads: loads.into_iter().collect() }
    }
}
