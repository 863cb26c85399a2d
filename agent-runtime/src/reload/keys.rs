//! Which keys of a configuration file have changed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::config::{ConfigError, parse_any};

/// A value of any YAML document.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Tree {
    Map(BTreeMap<String, Tree>),
    List(Vec<Tree>),
    Bool(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    Nothing(()),
}

impl Tree {
    /// Adds its leaves to `keys`: full names and values. A list is one leaf.
    fn flatten(&self, prefix: &str, keys: &mut BTreeMap<String, String>) {
        match self {
            Self::Map(map) => {
                for (key, value) in map {
                    let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                    value.flatten(&name, keys);
                }
            }
            leaf => _ = keys.insert(prefix.to_owned(), format!("{leaf:?}")),
        }
    }
}

/// Changed keys, by what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Those that are taken over at once.
    pub live: Vec<String>,
    /// Those that wait for a start.
    pub at_restart: Vec<String>,
}

impl KeyChanges {
    /// Has changes in `section` wait for a start.
    pub fn postpone(&mut self, section: &str) {
        let (later, live) = core::mem::take(&mut self.live).into_iter().partition(|name| name.starts_with(section));
        self.live = live;
        self.at_restart.extend::<Vec<String>>(later);
    }

    /// Adds that `section` changed by the content of its files, unless a change in it is known already.
    pub fn add(&mut self, section: &str) {
        if !self.live.iter().any(|name| name.starts_with(section)) {
            self.live.push(section.to_owned());
        }
    }
}

/// The keys whose values differ between the texts of two configuration files. `live` are the keys, or the sections,
/// that are taken over at once. Values are not kept: they may be secret.
///
/// # Errors
///
/// [`ConfigError`] if a text is no YAML.
pub fn changed_keys(before: &str, after: &str, live: &[&str]) -> Result<KeyChanges, ConfigError> {
    let [before, after] = [before, after].map(|text| {
        let mut keys = BTreeMap::new();
        parse_any::<Tree>(text).map(|tree| {
            if let Some(tree) = tree {
                tree.flatten("", &mut keys);
            }
            keys
        })
    });
    let (before, after) = (before?, after?);
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|&name| before.get(name) != after.get(name)).cloned();
    let is_live = |name: &String| {
        live.iter().any(|live| name.strip_prefix(live).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    let (live, at_restart) = changed.partition(is_live);
    Ok(KeyChanges { live, at_restart })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_keys_are_named_in_full_and_told_apart() {
        let before =
            "access: {viewers: {users: [a]}}\nlog: {level: info}\ncontrol:\n  lease_ms: 5000\nlmap: {interval_ms: 1}\n";
        let after = "# a comment\naccess: {viewers: {users: [a, b]}}\nlog:\n  level: debug\n  format: json\nlmap: {interval_ms: 1}\n";

        let found = changed_keys(before, after, &["access", "log.level"]).unwrap();

        assert_eq!(found.live, ["access.viewers.users", "log.level"]);
        assert_eq!(found.at_restart, ["control.lease_ms", "log.format"]);
        assert_eq!(changed_keys("", "# nothing\n", &[]).unwrap(), KeyChanges::default());
        assert!(changed_keys("", "a: [", &[]).is_err());
    }
}
