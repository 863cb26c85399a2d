//! Who calls whom, as traces tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Callers with their callees, by name.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    callees: BTreeMap<String, BTreeSet<String>>,
    /// Whom each caller calls, itself or through others; found when it is first asked for.
    below: OnceLock<BTreeMap<String, BTreeSet<String>>>,
}

impl PartialEq for Calls {
    fn eq(&self, other: &Self) -> bool {
        self.callees == other.callees
    }
}

impl Calls {
    /// Pairs of caller and callee.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut callees: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (caller, callee) in pairs {
            callees.entry(caller.to_owned()).or_default().insert(callee.to_owned());
        }
        Self { callees, below: OnceLock::new() }
    }

    /// Whether `service` is called by `caller`, itself or through others. Nobody is below itself. O(log callers); the first time O(callers × calls).
    #[must_use]
    pub fn is_below(&self, service: &str, caller: &str) -> bool {
        let below =
            self.below.get_or_init(|| self.callees.keys().map(|name| (name.clone(), self.below(name))).collect());
        below.get(caller).is_some_and(|below| below.contains(service))
    }

    fn below(&self, caller: &str) -> BTreeSet<String> {
        let (mut met, mut open) = (BTreeSet::from([caller]), vec![caller]);
        while let Some(next) = open.pop() {
            let callees = self.callees.get(next).into_iter().flatten().map(String::as_str);
            open.extend(callees.filter(|callee| met.insert(callee)));
        }
        met.remove(caller);
        met.into_iter().map(str::to_owned).collect()
    }
}
