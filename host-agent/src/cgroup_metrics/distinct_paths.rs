//! How many different cgroups something was said of. Version 1 has the same one in several hierarchies.

use core::hash::{Hash as _, Hasher as _};
use std::collections::BTreeSet;
use std::hash::DefaultHasher;

/// Paths that are told apart: with more, the number stays.
const TOLD_APART: usize = 10_000;

/// Different paths, of which only the number is wanted: a hash of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DistinctPaths(BTreeSet<u64>);

impl DistinctPaths {
    /// Adds one, which may be known.
    pub(super) fn add(&mut self, path: &str) {
        if self.0.len() < TOLD_APART {
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            self.0.insert(hasher.finish());
        }
    }

    /// Adds those of `other`.
    pub(super) fn extend(&mut self, other: Self) {
        let room = TOLD_APART.saturating_sub(self.0.len());
        self.0.extend(other.0.into_iter().take(room));
    }

    /// How many there are, 10,000 at most.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_counts_once_and_so_many_are_told_apart() {
        let (mut some, mut others) = (DistinctPaths::default(), DistinctPaths::default());
        for path in ["/a", "/b", "/a"] {
            some.add(path);
        }
        for path in ["/b", "/c"] {
            others.add(path);
        }

        some.extend(others);
        assert_eq!(some.len(), 3);

        for number in 0..2 * TOLD_APART {
            some.add(&format!("/{number}"));
        }
        assert_eq!(some.len(), TOLD_APART);
    }
}
