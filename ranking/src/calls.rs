//! Who calls whom, as traces tell.

use std::collections::{BTreeMap, BTreeSet};

/// Callers with their callees, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls(BTreeMap<String, BTreeSet<String>>);

impl Calls {
    /// Pairs of caller and callee.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut calls: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (caller, callee) in pairs {
            calls.entry(caller.to_owned()).or_default().insert(callee.to_owned());
        }
        Self(calls)
    }

    /// Whether `service` is called by `caller`, itself or through others. Nobody is below itself. O(calls that are known).
    #[must_use]
    pub fn is_below(&self, service: &str, caller: &str) -> bool {
        let (mut met, mut open) = (BTreeSet::from([caller]), vec![caller]);
        while let Some(next) = open.pop() {
            let callees = self.0.get(next).into_iter().flatten().map(String::as_str);
            open.extend(callees.filter(|callee| met.insert(callee)));
        }
        service != caller && met.contains(service)
    }
}
