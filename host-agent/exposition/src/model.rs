//! What a replica of a service has decided: others that come later need not learn it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use crate::exclusion::Exclusion;
use crate::series::{Destination, Series};

/// The bits of a name's hash that say why its series are not watched.
const REASON: u64 = 0xf;

/// What another replica has decided.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Outputs of single series, by name and labels.
    outputs: HashMap<(Arc<str>, Box<str>), u32>,
    /// Names of which something was decided, and why a series of them is not watched: hashes, rising. A name itself
    /// would take thirty times as much, in each replica.
    names: Vec<u64>,
}

/// The hash of a name, without a reason.
fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() & !REASON
}

impl Model {
    /// This one with what was decided of `series`, for at most `most` names. `is_single` says whether an output is of
    /// one series.
    pub fn with<'s>(
        &self,
        series: impl Iterator<Item = &'s Series>,
        is_single: impl Fn(u32) -> bool,
        most: usize,
    ) -> Self {
        let mut outputs = self.outputs.clone();
        let mut names: BTreeMap<u64, u64> = self.names.iter().map(|name| (name & !REASON, name & REASON)).collect();
        let came_later = Exclusion::CameLater.place() as u64;
        for series in series {
            match &series.place {
                Destination::Undecided => {}
                Destination::Nowhere(why) => {
                    names.insert(hash(&series.name), why.place() as u64);
                }
                Destination::Output(output) => {
                    names.entry(hash(&series.name)).or_insert(came_later);
                    if let Some(labels) = series.labels.as_ref().filter(|_| is_single(*output)) {
                        outputs.insert((Arc::clone(&series.name), labels.to_string().into()), *output);
                    }
                }
            }
        }
        let names = names.into_iter().take(most).map(|(name, why)| name | why).collect();
        Self { outputs, names }
    }

    /// Bytes of its names.
    pub fn bytes(&self) -> usize {
        self.names.capacity() * size_of::<u64>()
    }

    /// The output that was chosen for a series of this name and these labels.
    pub fn output(&self, series: &Series) -> Option<u32> {
        let labels = series.labels.as_ref().filter(|_| !self.outputs.is_empty())?.to_string();
        self.outputs.get(&(Arc::clone(&series.name), labels.into_boxed_str())).copied()
    }

    /// Why another series of this name is not watched; `None`: nothing was decided about it.
    pub fn exclusion(&self, name: &str) -> Option<Exclusion> {
        let hash = hash(name);
        let at = self.names.partition_point(|known| *known < hash);
        let found = self.names.get(at).filter(|known| **known & !REASON == hash)?;
        Some(Exclusion::at((found & REASON) as usize))
    }

    /// Outputs are elsewhere: `to` says where, or that they are gone.
    pub fn move_outputs(&mut self, to: impl Fn(u32) -> Option<u32>) {
        self.outputs.retain(|_, output| to(*output).map(|to| *output = to).is_some());
    }
}
