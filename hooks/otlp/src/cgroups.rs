//! Paths of cgroups (v2) by their ids, as sockets have them: the inode number of a cgroup's directory is its id.
//!
//! Only directories in and below cgroups that rules name are looked at, when a socket has an id that is not known yet.
//! An id is never given to another cgroup, and no cgroup moves: what was found stays true, and so does that there is
//! none.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_runtime::access::is_below;
use wire::time::Nanos;

use crate::senders::SenderRules;

/// Bytes of paths that are kept, with what keeping them takes.
pub const CGROUP_BYTES: usize = 4 << 20;
/// Bytes of a known cgroup beside its path.
const COST: usize = 96;
/// Longest path that is kept.
const MAX_PATH: usize = 1_024;
/// Ids that are known to be in no cgroup of a rule.
const MAX_FOREIGN: usize = 4_096;
/// Walks in a row, and then one in each period: whoever makes cgroups must not keep the agent walking.
const MAX_WALKS: u32 = 8;
const WALK_PERIOD: Nanos = Nanos::from_secs(1);

/// Where cgroups (v2) are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// The cgroup at the mount point: `/`, but for a part that is mounted by itself.
    root: String,
}

/// What is known of ids.
#[derive(Debug, Default)]
struct CgroupTable {
    /// The cgroups that rules named when it was found out.
    named: Vec<String>,
    paths: HashMap<u64, Arc<str>>,
    foreign: HashSet<u64>,
    /// Walks that are left, and since when.
    walks: u32,
    since: Option<Nanos>,
}

/// What is known of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lookup {
    Path(Arc<str>),
    /// It is in no cgroup that a rule names.
    Foreign,
    /// Only a walk can tell.
    New,
}

/// Paths of cgroups by id.
#[derive(Debug)]
pub(crate) struct Cgroups {
    mount: Option<Mount>,
    known: Mutex<CgroupTable>,
    /// Held during a walk: others wait for what it finds.
    walking: tokio::sync::Mutex<()>,
}

impl Cgroups {
    /// Those of this machine, as this process sees them.
    pub(crate) fn of_this_machine() -> Self {
        Self::of(mount(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()))
    }

    fn of(mount: Option<Mount>) -> Self {
        Self { mount, known: Mutex::default(), walking: tokio::sync::Mutex::default() }
    }

    /// Whether cgroups (v2) are mounted.
    pub(crate) const fn is_mounted(&self) -> bool {
        self.mount.is_some()
    }

    /// The path of the cgroup `id`, if it is in or below one that `rules` name. `None` for now, too, after too many
    /// walks.
    pub(crate) async fn path(&self, id: u64, rules: &SenderRules, now: Nanos) -> Option<Arc<str>> {
        let mount = self.mount.as_ref()?;
        let named: Vec<String> = rules.cgroups().into_iter().map(str::to_owned).collect();
        match self.lock().find(id, &named) {
            Lookup::Path(path) => return Some(path),
            Lookup::Foreign => return None,
            Lookup::New => {}
        }
        let _walking = self.walking.lock().await;
        {
            let mut known = self.lock();
            match known.find(id, &named) {
                Lookup::Path(path) => return Some(path),
                Lookup::New if known.may_walk(now) => {}
                Lookup::New | Lookup::Foreign => return None,
            }
        }
        let (from, roots) = (mount.clone(), named.clone());
        // A task that does not panic has no error.
        let paths = tokio::task::spawn_blocking(move || walk(&from, &roots)).await.ok()?;
        let mut known = self.lock();
        known.take(named, paths);
        let found = known.paths.get(&id).cloned();
        if found.is_none() {
            known.add_foreign(id);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, CgroupTable> {
        // Nothing under this lock panics. If something did, the state would still be usable.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CgroupTable {
    /// What is known of `id` where `named` are the cgroups of rules.
    fn find(&self, id: u64, named: &[String]) -> Lookup {
        if self.named != named {
            return Lookup::New;
        }
        let foreign = || if self.foreign.contains(&id) { Lookup::Foreign } else { Lookup::New };
        self.paths.get(&id).map_or_else(foreign, |path| Lookup::Path(Arc::clone(path)))
    }

    /// Takes what a walk found for the cgroups `named`.
    fn take(&mut self, named: Vec<String>, paths: HashMap<u64, Arc<str>>) {
        if self.named != named {
            self.foreign.clear();
        }
        (self.named, self.paths) = (named, paths);
    }

    fn add_foreign(&mut self, id: u64) {
        if self.foreign.len() >= MAX_FOREIGN {
            self.foreign.clear();
        }
        self.foreign.insert(id);
    }

    /// Whether another walk may begin at `now`.
    fn may_walk(&mut self, now: Nanos) -> bool {
        let since = *self.since.get_or_insert_with(|| {
            self.walks = MAX_WALKS;
            now
        });
        let periods = now.since(since).unwrap_or_default().0 / WALK_PERIOD.0;
        if periods > 0 {
            self.walks = self.walks.saturating_add(u32::try_from(periods).unwrap_or(u32::MAX)).min(MAX_WALKS);
            self.since = Some(now);
        }
        let may = self.walks > 0;
        self.walks = self.walks.saturating_sub(1);
        may
    }
}

/// The mount of cgroups (v2) in `/proc/self/mountinfo` that shows most of them.
fn mount(mountinfo: &str) -> Option<Mount> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (of_mount, of_file_system) = line.split_once(" - ")?;
        of_file_system.starts_with("cgroup2 ").then_some(())?;
        let mut fields = of_mount.split(' ').skip(3);
        let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        // A root outside of this process's cgroup namespace has no path in it.
        (!root.split('/').any(|part| part == "..")).then(|| Mount { point: point.into(), root })
    });
    mounts.min_by_key(|mount| mount.root.len())
}

/// `field` of mountinfo with spaces and the like, which stand there as octal numbers.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code {
            plain.push(char::from(code));
            plain.push_str(part.get(3..).unwrap_or_default());
        } else {
            plain.push('\\');
            plain.push_str(part);
        }
    }
    plain
}

/// Ids and paths of the cgroups in and below `named`, the upper ones first, up to [`CGROUP_BYTES`].
fn walk(mount: &Mount, named: &[String]) -> HashMap<u64, Arc<str>> {
    let mut paths = HashMap::new();
    let mut left = CGROUP_BYTES;
    let mut directories: VecDeque<(PathBuf, String)> = named.iter().filter_map(|path| directory(mount, path)).collect();
    for (directory, path) in &directories {
        if let Ok(found) = std::fs::metadata(directory) {
            keep(&mut paths, &mut left, found.ino(), path);
        }
    }
    while let Some((directory, path)) = directories.pop_front() {
        // A cgroup may end meanwhile.
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let below = format!("{}/{name}", path.trim_end_matches('/'));
            let Ok(found) = entry.metadata() else { continue };
            if below.len() <= MAX_PATH && keep(&mut paths, &mut left, found.ino(), &below) {
                directories.push_back((directory.join(name), below));
            }
        }
    }
    paths
}

/// The directory of the cgroup `path`, and its path without a slash at the end; `None` if it is not visible there.
fn directory(mount: &Mount, path: &str) -> Option<(PathBuf, String)> {
    let path = if path.trim_end_matches('/').is_empty() { mount.root.as_str() } else { path.trim_end_matches('/') };
    if !is_below(path, &mount.root) || path.split('/').any(|part| part == "..") {
        return None;
    }
    let below = path.strip_prefix(mount.root.trim_end_matches('/'))?.trim_start_matches('/');
    let directory = if below.is_empty() { mount.point.clone() } else { mount.point.join(Path::new(below)) };
    Some((directory, path.to_owned()))
}

/// Keeps `path`, unless it is known or there is no room. Returns whether it was kept.
fn keep(paths: &mut HashMap<u64, Arc<str>>, left: &mut usize, id: u64, path: &str) -> bool {
    let rest = left.checked_sub(path.len() + COST);
    let (Some(rest), false) = (rest, paths.contains_key(&id)) else { return false };
    *left = rest;
    paths.insert(id, path.into());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::senders::SenderRule;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                          32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                          50 23 0:38 /pods /mnt/a\\040b rw shared:7 master:1 - cgroup2 cgroup2 rw\n\
                          41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn fixture(folder: &Path) -> Mount {
        for name in ["pods/payment/7", "pods/cart", "system.slice/payment.service"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        std::fs::write(folder.join("pods/cgroup.procs"), "").unwrap();
        std::os::unix::fs::symlink("/", folder.join("pods/link")).unwrap();
        Mount { point: folder.to_owned(), root: "/".to_owned() }
    }

    fn ids(folder: &Path, names: &[&str]) -> Vec<u64> {
        names.iter().map(|name| std::fs::metadata(folder.join(name)).unwrap().ino()).collect()
    }

    fn rules(cgroups: &[&str]) -> SenderRules {
        let rule = |cgroup: &&str| SenderRule {
            cgroup: Some((*cgroup).to_owned()),
            services: Some(vec!["payment".to_owned()]),
            ..SenderRule::default()
        };
        SenderRules::new(&cgroups.iter().map(rule).collect::<Vec<_>>())
    }

    #[test]
    fn the_mount_that_shows_most_is_taken() {
        let [whole, part] = [("/sys/fs/cgroup/unified", "/"), ("/mnt/a b", "/pods")]
            .map(|(point, root)| Some(Mount { point: point.into(), root: root.to_owned() }));

        assert_eq!(mount(HYBRID), whole);
        let lines: Vec<_> = HYBRID.lines().collect();
        assert_eq!(mount(lines[2]), part);
        assert_eq!(mount(&lines[..2].join("\n")), None, "version 1 only");
        assert_eq!(mount("41 31 0:38 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw"), None, "of another namespace");
        for torn in ["", " - cgroup2 ", "41 31 0:38 / - cgroup2 x", "a b c\\04 d - cgroup2 x"] {
            _ = mount(torn);
        }
    }

    #[test]
    fn a_walk_finds_what_is_in_and_below_the_cgroups_of_rules_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mount = fixture(folder.path());
        let names = |named: &[&str], mount: &Mount| {
            let named: Vec<_> = named.iter().map(|path| (*path).to_owned()).collect();
            let mut found: Vec<_> = walk(mount, &named).values().map(ToString::to_string).collect();
            found.sort();
            found
        };

        assert_eq!(names(&["/pods/payment/"], &mount), ["/pods/payment", "/pods/payment/7"]);
        let below = ["/pods", "/pods/cart", "/pods/payment", "/pods/payment/7"];
        assert_eq!(names(&["/pods/payment", "/pods"], &mount), below);
        assert_eq!(names(&["/"], &mount).len(), 7);
        assert_eq!(names(&["/../pods", "/none", "pods"], &mount), [""; 0]);
        // A part that is mounted by itself.
        let part = Mount { point: folder.path().join("pods"), root: "/pods".to_owned() };
        assert_eq!(names(&["/pods/payment"], &part), ["/pods/payment", "/pods/payment/7"]);
        assert_eq!(names(&["/"], &part), below);
        assert_eq!(names(&["/system.slice"], &part), [""; 0]);
        let [id] = ids(folder.path(), &["pods/payment/7"])[..] else { panic!("one id") };
        assert_eq!(walk(&mount, &["/pods".to_owned()]).get(&id).map(|path| &**path), Some("/pods/payment/7"));
    }

    #[test]
    fn paths_are_kept_up_to_a_number_of_bytes() {
        let (mut paths, mut left) = (HashMap::new(), 2 * (COST + 2) + 1);

        assert!(keep(&mut paths, &mut left, 1, "/a") && !keep(&mut paths, &mut left, 1, "/a"));
        assert!(keep(&mut paths, &mut left, 2, "/b") && !keep(&mut paths, &mut left, 3, "/c"));
        assert_eq!((paths.len(), left), (2, 1));
    }

    #[tokio::test]
    async fn what_is_known_costs_no_walk_and_unknown_ids_only_some() {
        let folder = tempfile::tempdir().unwrap();
        let cgroups = Cgroups::of(Some(fixture(folder.path())));
        let (rules, now) = (rules(&["/pods"]), Nanos::from_secs(100));
        let found = async |id, now| cgroups.path(id, &rules, now).await.map(|path| path.to_string());
        let [payment, service] = ids(folder.path(), &["pods/payment", "system.slice"])[..] else { panic!("two ids") };

        assert_eq!(found(payment, now).await.as_deref(), Some("/pods/payment"));
        assert_eq!(found(service, now).await, None);
        assert_eq!(cgroups.lock().walks, MAX_WALKS - 2);
        for _ in 0..100 {
            assert_eq!(found(payment, now).await.as_deref(), Some("/pods/payment"));
            assert_eq!(found(service, now).await, None);
        }
        assert_eq!(cgroups.lock().walks, MAX_WALKS - 2, "both are known");

        // A cgroup that comes later is found by the next walk, which there has to be.
        for foreign in 1..=u64::from(MAX_WALKS) {
            assert_eq!(found(u64::MAX - foreign, now).await, None);
        }
        std::fs::create_dir(folder.path().join("pods/later")).unwrap();
        let later = ids(folder.path(), &["pods/later"])[0];
        assert_eq!(found(later, now).await, None, "no walk is left");
        let now = now.plus(WALK_PERIOD);
        assert_eq!(found(later, now).await.as_deref(), Some("/pods/later"));
        assert_eq!(found(u64::MAX - 100, now).await, None);
        assert_eq!(cgroups.lock().walks, 0, "one in each period");
    }

    #[tokio::test]
    async fn other_rules_are_looked_up_anew() {
        let folder = tempfile::tempdir().unwrap();
        let cgroups = Cgroups::of(Some(fixture(folder.path())));
        let [cart] = ids(folder.path(), &["pods/cart"])[..] else { panic!("one id") };

        assert_eq!(cgroups.path(cart, &rules(&["/system.slice"]), Nanos::ZERO).await, None);
        let found = cgroups.path(cart, &rules(&["/pods"]), Nanos::ZERO).await;
        assert_eq!(found.as_deref(), Some("/pods/cart"));
        assert_eq!(Cgroups::of(None).path(cart, &rules(&["/pods"]), Nanos::ZERO).await, None);
    }
}
