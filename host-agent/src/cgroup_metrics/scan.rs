//! Finds the cgroups that patterns name, by listing folders: as many as the limits allow.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags};
use sources::cgroup::hierarchies::Hierarchy;
use sources::cgroup::pattern::Pattern;

use super::distinct_paths::DistinctPaths;
use super::others_names::OthersNames;

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundCgroups {
    /// Services by the path of their cgroup.
    pub(super) services: BTreeMap<String, String>,
    /// Cgroups beyond the limit.
    pub(super) beyond: DistinctPaths,
    /// Folders that were not looked at to their end, since so many entries are looked at.
    pub(super) unscanned: usize,
    /// Those that are not read, since their names belong to others: the first few, and how many.
    pub(super) others: OthersNames,
    pub(super) others_names: usize,
}

impl FoundCgroups {
    /// Whether there are more cgroups than are read, or more entries of folders than are looked at.
    pub(super) fn is_over_limit(&self) -> bool {
        self.beyond.len() > 0 || self.unscanned > 0
    }
}

/// The service of a path that a pattern matches; `None`: it is not read.
pub(super) type Naming<'a> = &'a dyn Fn(&Pattern, &str) -> Option<String>;

/// A scan in progress.
struct Scan<'a> {
    pattern: &'a Pattern,
    naming: Naming<'a>,
    root: &'a Path,
    limit: usize,
    known: &'a dyn Fn(&str) -> bool,
    /// Entries of folders that may still be looked at.
    entries: &'a mut usize,
    found: &'a mut FoundCgroups,
}

/// Finds at most `limit` cgroups of `patterns` in `hierarchies` that are not `known`; looks at `entries` entries of
/// folders at most. `naming` names the service, by the first pattern that matches.
pub(super) fn scan(
    hierarchies: &[Hierarchy],
    (patterns, naming): (&[Pattern], Naming<'_>),
    known: &dyn Fn(&str) -> bool,
    limit: usize,
    mut entries: usize,
) -> FoundCgroups {
    let mut found = FoundCgroups::default();
    for pattern in patterns {
        let mut roots: Vec<&Path> = Vec::new();
        for hierarchy in hierarchies {
            // Version 1 may have two controllers in one hierarchy.
            if !roots.contains(&hierarchy.root.as_path()) {
                roots.push(&hierarchy.root);
            }
        }
        for root in roots {
            Scan { pattern, naming, root, limit, known, entries: &mut entries, found: &mut found }.enter("", 0);
        }
    }
    found
}

impl Scan<'_> {
    /// Looks below `path` for the folder number `depth` of the pattern.
    fn enter(&mut self, path: &str, depth: usize) {
        let Some(folder) = self.pattern.folders().get(depth) else { return self.add(path) };
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        if let Some(name) = folder.literal() {
            let path = join(name);
            if self.root.join(&path).is_dir() {
                self.enter(&path, depth + 1);
            }
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::open(self.root.join(path), flags, Mode::empty()) else { return };
        let Ok(entries) = Dir::new(opened) else { return };
        for entry in entries.flatten() {
            let Some(left) = self.entries.checked_sub(1) else {
                self.found.unscanned += 1;
                return;
            };
            *self.entries = left;
            if entry.file_type() != FileType::Directory {
                continue;
            }
            // Names that are not UTF-8 match nothing.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." && folder.stars(name).is_some() {
                self.enter(&join(name), depth + 1);
            }
        }
    }

    fn add(&mut self, path: &str) {
        if self.found.services.contains_key(path) || (self.known)(path) {
            return;
        }
        let Some(service) = (self.naming)(self.pattern, path) else { return };
        if self.found.services.len() >= self.limit {
            self.found.beyond.add(path);
            return;
        }
        self.found.services.insert(path.to_owned(), service);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::create_dir_all;

    use sources::cgroup::hierarchies::Controller;

    use super::*;

    fn tree() -> (tempfile::TempDir, Vec<Hierarchy>) {
        let directory = tempfile::tempdir().unwrap();
        let root = |name: &str| directory.path().join(name);
        for path in ["v2/system.slice/redis.service/child", "v2/system.slice/sshd.service", "v2/system.slice/x.socket"]
        {
            create_dir_all(root(path)).unwrap();
        }
        for name in ["old", "sshd", "redis"] {
            create_dir_all(root("memory/system.slice").join(format!("{name}.service"))).unwrap();
        }
        std::fs::write(root("v2/system.slice/file.service"), "").unwrap();
        let hierarchies = [(Controller::Unified, "v2"), (Controller::Memory, "memory"), (Controller::Pids, "none")];
        let hierarchies =
            hierarchies.map(|(controller, name)| Hierarchy { controller, root: directory.path().join(name) }).into();
        (directory, hierarchies)
    }

    fn names(found: &FoundCgroups) -> Vec<(&str, &str)> {
        found.services.iter().map(|(path, service)| (path.as_str(), service.as_str())).collect()
    }

    #[test]
    fn folders_are_found_in_all_hierarchies_and_the_first_pattern_names_them() {
        let (_directory, hierarchies) = tree();
        let patterns = [
            Pattern::new("system.slice/redis.service", "cache").unwrap(),
            Pattern::new("system.slice/*.service", "{name}").unwrap(),
        ];

        let found = scan(&hierarchies, (&patterns, &Pattern::service), &|_| false, 10, 1000);

        let expected = [
            ("system.slice/old.service", "old"),
            ("system.slice/redis.service", "cache"),
            ("system.slice/sshd.service", "sshd"),
        ];
        assert_eq!(names(&found), expected);
        assert!(!found.is_over_limit());
    }

    #[test]
    fn limits_are_kept_and_reported() {
        let (_directory, hierarchies) = tree();
        let patterns = [Pattern::new("system.slice/*.service", "{name}").unwrap()];

        let few = scan(&hierarchies, (&patterns, &Pattern::service), &|_| false, 1, 1000);
        let rest = scan(&hierarchies, (&patterns, &Pattern::service), &|path| few.services.contains_key(path), 2, 1000);
        let short = scan(&hierarchies, (&patterns, &Pattern::service), &|_| false, 10, 1);

        // One of them is in two hierarchies.
        assert_eq!((few.services.len(), few.beyond.len(), few.unscanned), (1, 2, 0));
        assert_eq!((rest.services.len(), rest.is_over_limit()), (2, false), "known ones take no place");
        assert!(short.services.len() <= 1 && short.beyond.len() == 0 && short.unscanned > 0);
    }
}
