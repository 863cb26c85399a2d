//! The call graph, as seen in traces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Callers with their callees, by name.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    callees: BTreeMap<String, BTreeSet<String>>,
    /// All direct and indirect callees of each caller; computed on first use.
    below: OnceLock<BTreeMap<String, BTreeSet<String>>>,
}

impl PartialEq for Calls {
    fn eq(&self, other: &Self) -> bool {
        self.callees == other.callees
    }
}

impl Calls {
    /// The graph of these pairs of caller and callee.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut callees: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (caller, callee) in pairs {
            callees.entry(caller.to_owned()).or_default().insert(callee.to_owned());
        }
        Self { callees, below: OnceLock::new() }
    }

    /// Whether `service` is a direct or indirect callee of `caller`. No service is below itself. O(log callers);
    /// O(callers × calls) on first use.
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
