//! The controller's table of paths, valid for one epoch.

use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;

use thiserror::Error;

use super::fragment::Fragment;
use super::header::{Estimate, NoEstimate};
use super::path::Path;
use super::settings::Settings;
use crate::digest::Digest;

/// Paths by number. A node replaces its table only together with its epoch.
#[derive(Clone, Debug)]
pub struct PathTable {
    pub(super) version: u32,
    pub(super) paths: BTreeMap<u32, Path>,
}

impl PathTable {
    /// A table of paths over these fragments.
    ///
    /// # Errors
    ///
    /// [`TableError`] if fragments share an id or a seed, or a path has a fragment that is not among them. With a
    /// common seed flows would collide everywhere or nowhere, and the minimum would gain nothing.
    pub fn new(
        version: u32,
        fragments: &[Settings],
        paths: impl IntoIterator<Item = (u32, Path)>,
    ) -> Result<Self, TableError> {
        let (mut ids, mut seeds) = (BTreeSet::new(), BTreeMap::new());
        for Settings { id, seed, .. } in fragments {
            if !ids.insert(*id) {
                return Err(TableError::Id(*id));
            }
            if let Some(other) = seeds.insert(*seed, *id) {
                return Err(TableError::Seed { one: other, other: *id });
            }
        }
        let mut table = Self { version, paths: BTreeMap::new() };
        for (number, path) in paths {
            if let Some(fragment) = path.fragments().iter().find(|id| !ids.contains(id)) {
                return Err(TableError::Unknown { path: number, fragment: *fragment });
            }
            if table.paths.insert(number, path).is_some() {
                return Err(TableError::Path(number));
            }
        }
        Ok(table)
    }

    /// Number of the policy, which changes with each epoch's table.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The path with this number.
    #[must_use]
    pub fn path(&self, number: u32) -> Option<&Path> {
        self.paths.get(&number)
    }

    /// All paths by number.
    pub fn paths(&self) -> impl Iterator<Item = (u32, &Path)> {
        self.paths.iter().map(|(number, path)| (*number, path))
    }

    /// Number of paths on which more fragments were asked for than there are, and number of weights that were replaced.
    #[must_use]
    pub fn corrected(&self) -> (usize, usize) {
        let clamped = self.paths.values().filter(|path| path.clamped()).count();
        (clamped, self.paths.values().map(Path::replaced_weights).sum())
    }

    /// The size of a flow on this path, from fragments that were collected at the end of an epoch. Fragments that the
    /// flow did not choose are not looked at. O(K n) for n collected ones.
    ///
    /// # Errors
    ///
    /// [`NoEstimate`] if a chosen fragment is missing, epochs differ, or the path is unknown or empty.
    pub fn estimate(&self, path: u32, flow: Digest, collected: &[Fragment]) -> Result<Estimate, NoEstimate> {
        let path = self.path(path).ok_or(NoEstimate::Path(path))?;
        let (mut least, mut epoch) = (None, None);
        for id in path.select(flow).positions().filter_map(|position| path.fragments().get(position)) {
            let fragment = collected.iter().find(|fragment| fragment.settings().id == *id);
            let fragment = fragment.ok_or(NoEstimate::Missing(*id))?;
            let expected = *epoch.get_or_insert(fragment.epoch());
            if fragment.epoch() != expected {
                return Err(NoEstimate::Epoch { found: fragment.epoch(), expected });
            }
            let count = fragment.estimate(flow);
            least = Some(least.map_or(count, |least: u32| least.min(count)));
        }
        least.map(Estimate::of).ok_or(NoEstimate::Unmonitored)
    }

    /// Bytes of all paths, without the nodes of the map: 20 per fragment of a path.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.paths.values().map(|path| size_of::<Path>() + 20 * path.fragments().len()).sum()
    }
}

/// An impossible table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// Two fragments with one id.
    #[error("two fragments have the id {0}")]
    Id(u32),
    /// Two fragments with one seed.
    #[error("fragments {one} and {other} have the same seed; draw another one")]
    Seed {
        /// A fragment by itself.
        one: u32,
        /// The other fragment.
        other: u32,
    },
    /// Two paths with one number.
    #[error("two paths have the number {0}")]
    Path(u32),
    /// A path over a fragment that is not listed.
    #[error("fragment {fragment} of path {path} is not listed")]
    Unknown {
        /// Number of the path.
        path: u32,
        /// The fragment by itself.
        fragment: u32,
    },
}
