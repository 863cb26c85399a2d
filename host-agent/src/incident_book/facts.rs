//! What /proc says about replicas: their programs, once, and their limits, again and again. Limits of cgroups are
//! changed while programs run, those of a process hardly ever.
//!
//! Values of arguments and variables become numbers here, so that nobody keeps or shows them.

use core::hash::Hasher as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::DefaultHasher;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use incidents::changes::{MAX_VARIABLES, Program, Replica};
use sources::cgroup::hierarchies::{Controller, Hierarchy, hierarchies};
use sources::limits;
use wire::quantity::quantity;

use crate::control_plane::ReplicaFacts;
use crate::kernel_file::read_whole;

/// Replicas that are new and whose files are read in one look.
const READ_AT_ONCE: usize = 128;
/// Replicas whose limits are read in one look, those that are new included. Each takes two or three files.
const LIMITS_AT_ONCE: usize = 32;
/// At one in so many turns of a replica limits of its own are read, too, and which its cgroups are: two files more.
const OWN_TURNS: u32 = 8;
/// Bytes of a file that are read.
const MAX_BYTES: usize = 64 << 10;
/// Replicas of this agent's own that nobody starts again: those of spans, and of what scraping costs.
const OWN: &str = "/scrape";
/// Variables that differ with each start, whatever was configured.
const VOLATILE: [&str; 12] = [
    "_",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "SYSTEMD_EXEC_PID",
    "WATCHDOG_PID",
    "WINDOWID",
];

type Limits = BTreeMap<&'static str, String>;

/// What was read of a replica.
#[derive(Clone, Debug)]
struct ReplicaReading {
    program: Option<Arc<Program>>,
    own: OwnLimits,
    /// Its own, and those of its cgroups.
    limits: Arc<Limits>,
    /// Turns since it was new.
    turns: u32,
}

/// Limits of a process itself, in words, and its cgroups as the kernel lists them.
#[derive(Clone, Debug)]
struct OwnLimits {
    limits: Limits,
    cgroups: String,
}

/// What is known of replicas, by their numbers.
#[derive(Debug)]
pub(super) struct ProcessFacts {
    proc: PathBuf,
    hierarchies: Vec<Hierarchy>,
    known: BTreeMap<u32, ReplicaReading>,
    /// The replica whose files were read last.
    last: u32,
}

impl ProcessFacts {
    /// Reads below `proc`, usually /proc.
    pub(super) fn new(proc: &Path) -> Self {
        let mounts = read_records(&proc.join("self/mountinfo")).unwrap_or_default();
        Self { proc: proc.to_owned(), hierarchies: hierarchies(&mounts), known: BTreeMap::new(), last: 0 }
    }

    /// The same replicas, without processes that somebody named who may not look at them.
    pub(super) fn confirmed(&self, mut facts: Vec<ReplicaFacts>) -> Vec<ReplicaFacts> {
        for of in &mut facts {
            let Some(user) = of.named_by.filter(|user| *user != 0) else { continue };
            let owner = fs::metadata(self.proc.join(of.process.to_string())).map(|process| process.uid());
            if owner.ok() != Some(user) {
                of.process = 0;
            }
        }
        facts
    }

    /// All replicas by service, with what is known of them. Files of those that are new are read, and of some others.
    pub(super) fn look(&mut self, facts: Vec<ReplicaFacts>) -> BTreeMap<String, Vec<Replica>> {
        let numbers: BTreeSet<u32> = facts.iter().map(|facts| facts.number).collect();
        self.known.retain(|number, _| numbers.contains(number));
        let readable = facts.iter().filter(|facts| facts.process != 0);
        let (new, old): (Vec<_>, Vec<_>) = readable.partition(|facts| !self.known.contains_key(&facts.number));
        for facts in new.iter().take(READ_AT_ONCE) {
            let process = self.proc.join(facts.process.to_string());
            self.known.insert(facts.number, ReplicaReading::new(&process, &self.hierarchies));
        }
        let left = LIMITS_AT_ONCE.saturating_sub(new.len());
        let (before, after): (Vec<_>, Vec<_>) = old.into_iter().partition(|facts| facts.number <= self.last);
        for facts in after.into_iter().chain(before).take(left) {
            self.last = facts.number;
            if let Some(known) = self.known.get_mut(&facts.number) {
                known.read_again(&self.proc.join(facts.process.to_string()), &self.hierarchies);
            }
        }
        let mut services: BTreeMap<String, Vec<Replica>> = BTreeMap::new();
        for ReplicaFacts { service, instance, number, process, .. } in facts {
            if instance.as_str() == crate::span_columns::INSTANCE || instance.as_str().ends_with(OWN) {
                continue;
            }
            let read = self.known.get(&number).map(|of| (of.program.clone(), Arc::clone(&of.limits)));
            let (program, limits) = read.unwrap_or_default();
            let replica = Replica { number, instance: instance.to_string(), process, program, limits };
            services.entry(service.to_string()).or_default().push(replica);
        }
        services
    }
}

impl ReplicaReading {
    fn new(process: &Path, hierarchies: &[Hierarchy]) -> Self {
        let own = OwnLimits::read(process);
        let mut limits = own.limits.clone();
        limits.extend(of_cgroups(&own.cgroups, hierarchies));
        Self { program: program(process).map(Arc::new), own, limits: Arc::new(limits), turns: 0 }
    }

    /// Reads its limits again. What is known stays if it has ended.
    fn read_again(&mut self, process: &Path, hierarchies: &[Hierarchy]) {
        self.turns = self.turns.wrapping_add(1);
        let are_due = self.turns.is_multiple_of(OWN_TURNS);
        let mut shared = if are_due { Limits::new() } else { of_cgroups(&self.own.cgroups, hierarchies) };
        // Without any it may be in other cgroups by now.
        if shared.is_empty() {
            let own = OwnLimits::read(process);
            shared = of_cgroups(&own.cgroups, hierarchies);
            if own.limits.is_empty() && shared.is_empty() {
                return;
            }
            self.own = own;
        }
        let mut limits = self.own.limits.clone();
        limits.extend(shared);
        if *self.limits != limits {
            self.limits = Arc::new(limits);
        }
    }
}

impl OwnLimits {
    fn read(process: &Path) -> Self {
        let text = read(&process.join("limits")).unwrap_or_default();
        let limits = limits::of_process(&text).map(|(name, limit)| {
            let unit = if name.contains("memory") || name.contains("address") { "By" } else { "" };
            (name, in_words(limit.map(|limit| quantity(limit as f64, unit))))
        });
        let cgroups = read(&process.join("cgroup")).unwrap_or_default();
        Self { limits: limits.collect(), cgroups: String::from_utf8_lossy(&cgroups).into_owned() }
    }
}

/// Limits of `cgroups`, as /proc/PID/cgroup lists them, in words.
fn of_cgroups(cgroups: &str, hierarchies: &[Hierarchy]) -> Limits {
    let mut all = Limits::new();
    for Hierarchy { controller, root } in hierarchies {
        let name = match controller {
            Controller::Unified => "",
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
            _ => continue,
        };
        let Some(path) = limits::cgroup(cgroups, name) else { continue };
        let file = |name: &str| read(&root.join(path).join(name)).unwrap_or_default();
        let (cpus, memory) = match controller {
            Controller::Unified => (limits::cpus(&file("cpu.max")), limits::memory(&file("memory.max"))),
            Controller::Cpu => (limits::cpus_of_version_1(&file("cpu.cfs_quota_us"), &file("cpu.cfs_period_us")), None),
            _ => (None, limits::memory(&file("memory.limit_in_bytes"))),
        };
        if let Some(cpus) = cpus {
            all.insert("CPU limit", in_words(cpus.most().map(|cpus| format!("{} CPUs", quantity(cpus, "")))));
        }
        if let Some(memory) = memory {
            all.insert("memory limit", in_words(memory.most().map(|bytes| quantity(bytes as f64, "By"))));
        }
    }
    all
}

fn in_words(limit: Option<String>) -> String {
    limit.unwrap_or_else(|| "unlimited".to_owned())
}

fn read(path: &Path) -> Option<Vec<u8>> {
    read_whole(&File::open(path).ok()?, MAX_BYTES)
}

/// The same of a file of several records, of which a read has those that fit.
fn read_records(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES as u64).read_to_end(&mut text).ok()?;
    Some(text)
}

fn hash(value: impl core::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The program of a process; `None` if this agent may not read it, or the process has ended.
fn program(process: &Path) -> Option<Program> {
    let exe = process.join("exe");
    let path = fs::read_link(&exe).ok()?.display().to_string();
    let file = fs::metadata(&exe).ok()?;
    let file = hash((file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.len()));
    let variables = read(&process.join("environ")).unwrap_or_default();
    let pairs = variables.split(|byte| *byte == 0).filter_map(|pair| {
        let (name, value) = pair.split_at_checked(pair.iter().position(|byte| *byte == b'=')?)?;
        let name = core::str::from_utf8(name).ok().filter(|name| name.len() <= 120 && !VOLATILE.contains(name))?;
        Some((name.to_owned(), hash(value)))
    });
    let variables = pairs.take(MAX_VARIABLES).collect();
    Some(Program { path, file, arguments: hash(read(&process.join("cmdline"))?), variables })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use wire::name::{InstanceName, ServiceName};

    use super::*;

    fn facts(instance: &str, number: u32, process: u32) -> ReplicaFacts {
        let (service, instance) = (ServiceName::new("cart").unwrap(), InstanceName::new(instance).unwrap());
        ReplicaFacts { service, instance, number, process, named_by: None }
    }

    /// A folder as /proc, with one process, and cgroups of version 2.
    fn proc() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["self", "17", "groups/a.slice"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let mount = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", path("groups").display());
        fs::write(path("self/mountinfo"), mount).unwrap();
        fs::write(path("cart"), "program").unwrap();
        symlink(path("cart"), path("17/exe")).unwrap();
        fs::write(path("17/cmdline"), b"cart\0--token\0secret\0").unwrap();
        fs::write(path("17/environ"), b"TOKEN=secret\0INVOCATION_ID=7\0").unwrap();
        fs::write(path("17/cgroup"), "0::/a.slice\n").unwrap();
        fs::write(path("17/limits"), "Max open files            1024                 4096                 files\n")
            .unwrap();
        fs::write(path("groups/a.slice/cpu.max"), "150000 100000\n").unwrap();
        fs::write(path("groups/a.slice/memory.max"), "max\n").unwrap();
        folder
    }

    #[test]
    fn a_replica_has_its_program_and_its_limits_and_no_secret() {
        let folder = proc();
        let mut known = ProcessFacts::new(folder.path());

        let found = known.look(vec![facts("cart-1", 1, 17), facts("spans", 2, 0), facts("cart-1/scrape", 3, 0)]);

        let replica = &found["cart"][0];
        let limits: Vec<_> = replica.limits.iter().map(|(name, limit)| (*name, limit.as_str())).collect();
        let expected = [("CPU limit", "1.5 CPUs"), ("limit of open files", "1024"), ("memory limit", "unlimited")];
        assert_eq!((limits, found["cart"].len()), (expected.to_vec(), 1));
        let program = replica.program.clone().unwrap();
        assert_eq!(program.variables.keys().collect::<Vec<_>>(), ["TOKEN"]);
        assert!(program.path.ends_with("/cart") && !format!("{known:?}").contains("secret"));
    }

    #[test]
    fn bytes_that_are_no_utf_8_in_what_a_process_says_are_text_and_bounded() {
        let folder = proc();
        let path = |name: &str| folder.path().join(name);
        let program = folder.path().join(OsStr::from_bytes(b"ca\xffrt"));
        fs::write(&program, "program").unwrap();
        fs::remove_file(path("17/exe")).unwrap();
        symlink(&program, path("17/exe")).unwrap();
        let mut environ = b"GOOD=1\0\xff\xfe=2\0VALUE=\xff\xc0\0without\0=\0".to_vec();
        environ.extend((0..100_000).flat_map(|number| format!("V{number}=\u{20ac}\0").into_bytes()));
        fs::write(path("17/environ"), environ).unwrap();
        fs::write(path("17/cmdline"), b"cart\0\xff\xff\0").unwrap();
        fs::write(path("17/cgroup"), b"0::/\xff\xfe\n").unwrap();
        fs::write(path("17/limits"), b"Max open files \xff 1024 \xfe files\n").unwrap();
        let mut known = ProcessFacts::new(folder.path());

        let found = known.look(vec![facts("cart-1", 1, 17)]);

        let program = found["cart"][0].program.clone().unwrap();
        let Program { path, variables, .. } = &*program;
        assert!(path.ends_with("/ca\u{fffd}rt"), "{path}");
        assert!(variables.contains_key("GOOD") && variables.contains_key("VALUE"), "{variables:?}");
        assert!(variables.len() <= MAX_VARIABLES, "{}", variables.len());
    }

    #[test]
    fn who_names_a_process_of_somebody_else_is_not_believed() {
        let folder = proc();
        let known = ProcessFacts::new(folder.path());
        let owner = fs::metadata(folder.path().join("17")).unwrap().uid();
        let named = |process, by| ReplicaFacts { named_by: by, ..facts("cart-1", 1, process) };

        let all = [
            named(17, None),
            named(17, Some(0)),
            named(17, Some(owner)),
            named(17, Some(owner + 1)),
            named(9, Some(7)),
        ];
        let processes: Vec<u32> = known.confirmed(all.to_vec()).iter().map(|of| of.process).collect();

        assert_eq!(processes, [17, 17, 17, 0, 0]);
    }

    #[test]
    fn limits_are_read_again_and_programs_are_not() {
        let folder = proc();
        let mut known = ProcessFacts::new(folder.path());
        let first = known.look(vec![facts("cart-1", 1, 17)]);
        fs::write(folder.path().join("groups/a.slice/memory.max"), "268435456\n").unwrap();
        fs::write(folder.path().join("17/cmdline"), b"other").unwrap();

        let second = known.look(vec![facts("cart-1", 1, 17)]);

        assert_eq!(second["cart"][0].limits["memory limit"], "268.4 MB");
        assert_eq!(first["cart"][0].program, second["cart"][0].program);
        fs::remove_dir_all(folder.path().join("17")).unwrap();
        let third = known.look(vec![facts("cart-1", 1, 17)]);
        assert_eq!(third["cart"][0].limits, second["cart"][0].limits, "what has ended keeps what is known");
        assert!(known.look(Vec::new()).is_empty() && known.known.is_empty());
    }

    #[test]
    fn limits_of_its_own_have_one_turn_in_eight_and_a_cgroup_that_is_gone_is_looked_for() {
        let folder = proc();
        let path = |name: &str| folder.path().join(name);
        let mut known = ProcessFacts::new(folder.path());
        let mut look = || known.look(vec![facts("cart-1", 1, 17)])["cart"][0].limits.clone();
        look();
        fs::write(path("17/limits"), "Max open files            1025                 4096                 files\n")
            .unwrap();

        let files: Vec<_> = (0..8).map(|_| look()["limit of open files"].clone()).collect();
        fs::remove_dir_all(path("groups/a.slice")).unwrap();
        fs::create_dir(path("groups/b.slice")).unwrap();
        fs::write(path("groups/b.slice/memory.max"), "268435456\n").unwrap();
        fs::write(path("17/cgroup"), "0::/b.slice\n").unwrap();
        let moved = look();

        assert!(files[..7].iter().all(|files| files == "1024") && files[7] == "1025", "{files:?}");
        assert_eq!(moved["memory limit"], "268.4 MB");
        assert_eq!(moved.get("CPU limit"), None, "it is not known of the new one");
    }

    #[test]
    fn not_all_are_read_at_once_and_each_has_its_turn() {
        let folder = proc();
        let mut known = ProcessFacts::new(folder.path());
        let all = || (1..=300).map(|number| facts("cart-1", number, 17)).collect::<Vec<_>>();

        let numbers: Vec<_> = (0..3)
            .map(|_| {
                known.look(all());
                known.known.len()
            })
            .collect();

        assert_eq!(numbers, [128, 256, 300]);
        let turns: Vec<_> = (0..11)
            .map(|_| {
                known.look(all());
                known.last
            })
            .collect();
        assert_eq!(turns[..3], [32, 64, 96]);
        assert_eq!(turns[9..], [20, 52], "behind the last one comes the first one again");
    }
}
