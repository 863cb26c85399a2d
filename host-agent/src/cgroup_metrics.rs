//! Metrics of cgroups (containers, systemd units) that nobody changed: a thread finds those that the configuration
//! names and reads each into a region of the agent. Each is a replica of a service, as if it had registered itself.

mod distinct_paths;
mod measured_cgroup;
mod orders;
mod others_names;
mod replica;
mod scan;
mod series;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use agent_runtime::Count;
use region::CreateError;
use sources::cgroup::Values;
use sources::cgroup::hierarchies::{Hierarchy, hierarchies};
use sources::cgroup::pattern::{Pattern, allowed};
use wire::name::{InstanceName, ServiceName};
use wire::time::Nanos;

use crate::clock::Clock;
use crate::control_plane::{IdentityRule, may_measure};
use crate::node::Node;
use crate::pod_watch::PodWatch;
use crate::sampling_times::SamplingTimes;
use distinct_paths::DistinctPaths;
use measured_cgroup::processes_file;
pub use measured_cgroup::{FILE_BYTES, MAX_FILES, MeasuredCgroup, VanishedError};
use orders::CgroupOrder;
pub(crate) use orders::{PaceSender, PatternSender};
use others_names::OthersNames;
use replica::Replica;
use scan::{FoundCgroups, Naming};
pub(crate) use series::periods;

/// Entries of folders that one scan looks at, in all hierarchies: each cgroup of version 2 has about 70.
const SCANNED_ENTRIES: usize = 1 << 18;

/// What is read, and how often.
#[derive(Clone, Debug)]
pub(crate) struct CgroupSettings {
    pub(crate) patterns: Vec<Pattern>,
    /// Containers of this node's pods, which are read, too.
    pub(crate) containers: Option<ContainerSource>,
    /// Whose names services have: `services.identities`, as it is now.
    pub(crate) identities: Arc<[IdentityRule]>,
    /// Time between two samples.
    pub(crate) interval: Nanos,
    /// Time between two scans for new cgroups.
    pub(crate) scan_interval: Nanos,
    /// Most cgroups that are read.
    pub(crate) limit: usize,
}

/// Containers of pods.
#[derive(Clone, Debug)]
pub(crate) struct ContainerSource {
    /// Where their cgroups may be.
    pub(crate) patterns: Vec<Pattern>,
    /// Whose they are.
    pub(crate) pods: Arc<PodWatch>,
}

impl CgroupSettings {
    /// Whether anything may be read: by patterns, or as a container.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.patterns.is_empty() || self.containers.is_some()
    }

    /// The service of the cgroup `path` by the first pattern that gives it a name that it may have.
    fn by_pattern(&self, path: &str) -> Option<String> {
        self.patterns.iter().filter_map(|pattern| pattern.service(path)).find(|service| self.may_be(path, service))
    }

    /// Finds at most `room` cgroups that are not `known`: those of patterns, then containers of pods.
    fn find(&self, hierarchies: &[Hierarchy], known: &dyn Fn(&str) -> bool, room: usize) -> FoundCgroups {
        let others = RefCell::new((OthersNames::default(), DistinctPaths::default()));
        let own_name = |pattern: &Pattern, path: &str| {
            let service = pattern.service(path)?;
            if self.may_be(path, &service) {
                return Some(service);
            }
            let (named, all) = &mut *others.borrow_mut();
            all.add(path);
            named.add(path, service);
            None
        };
        let named = (&self.patterns[..], &own_name as Naming<'_>);
        let mut found = scan::scan(hierarchies, named, known, room, SCANNED_ENTRIES);
        let (others, all) = others.take();
        (found.others, found.others_names) = (others, all.len());
        if let Some(ContainerSource { patterns, pods }) = &self.containers {
            let naming = |_: &Pattern, path: &str| pods.member(path).map(|member| member.service);
            let is_known = |path: &str| known(path) || found.services.contains_key(path);
            let room = room.saturating_sub(found.services.len());
            let more = scan::scan(hierarchies, (patterns, &naming), &is_known, room, SCANNED_ENTRIES);
            found.beyond.extend(more.beyond);
            found.unscanned += more.unscanned;
            found.services.extend(more.services);
        }
        found
    }

    /// Whether the cgroup `path` may be `service`. What the API server says of a pod needs no rule.
    fn may_be(&self, path: &str, service: &str) -> bool {
        let of_pod = self.containers.as_ref().and_then(|containers| containers.pods.member(path));
        if of_pod.is_some_and(|member| member.service == service) {
            return true;
        }
        // Why it is no name is said where it is opened.
        let name = ServiceName::new(service);
        name.map_or(true, |name| may_measure(&self.identities, &format!("/{path}"), &name))
    }

    /// Descriptors that one cgroup takes: its files, and two of its region.
    pub(crate) const FILES: usize = MAX_FILES + 2;

    /// How many cgroups of this machine the patterns name now, without the limit; and what is wrong with others.
    pub(crate) fn matches(&self) -> std::io::Result<(usize, Option<String>)> {
        let hierarchies = of_this_machine()?;
        let found = self.find(&hierarchies, &|_| false, usize::MAX);
        Ok((found.services.len(), found.others.problem()))
    }
}

/// Why a cgroup is not read: there are more than `sources.cgroup_limit`; its folder was not looked at, since too many
/// are; its name belongs to others; it has no file that can be read, or no name that a service may have.
pub(crate) const UNREAD: [&str; 4] = ["limit", "scan", "name", "unreadable"];

/// Counters of the thread.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Samples, each of one cgroup.
    pub(crate) samples: Count,
    /// Cgroups that are read now.
    pub(crate) cgroups: AtomicU64,
    /// Cgroups that have vanished.
    pub(crate) vanished: Count,
    /// Rounds skipped because the previous one took too long.
    pub(crate) late_rounds: Count,
    /// Cgroups that the last scan found and that are not read, in the order of [`UNREAD`].
    pub(crate) unread: [AtomicU64; UNREAD.len()],
    /// Cgroups whose names are those of others, at the last scan.
    others: Mutex<OthersNames>,
}

impl Counts {
    /// What an operator has to know, for the status.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        self.limit_problem().into_iter().chain(self.others().problem())
    }

    /// Remembers what a scan found. Logs what the one before did not.
    fn take_others(&self, found: OthersNames) {
        let mut others = self.others();
        for (path, service) in found.beyond(&others) {
            tracing::warn!(path, service, "cgroup is not read: services.identities gives its name to others");
        }
        *others = found;
    }

    /// Whether the last scan found more cgroups than are read, or more folders than are looked at.
    fn is_over_limit(&self) -> bool {
        let [limit, scan, ..] = &self.unread;
        [limit, scan].into_iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    fn others(&self) -> std::sync::MutexGuard<'_, OthersNames> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit_problem(&self) -> Option<String> {
        let read = self.cgroups.load(Ordering::Relaxed);
        self.is_over_limit().then(|| {
            format!(
                "sources.cgroups names more cgroups than are read ({read}): name fewer, or raise sources.cgroup_limit"
            )
        })
    }
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct CgroupThread {
    orders: Sender<CgroupOrder>,
    thread: JoinHandle<()>,
}

impl CgroupThread {
    /// Ends it and waits for that: at most for one round.
    pub(crate) fn end(self) {
        // One that has ended takes no orders.
        _ = self.orders.send(CgroupOrder::End);
        // It does not panic.
        let _ = self.thread.join();
    }

    /// What tells it later which cgroups to read.
    pub(crate) fn patterns(&self) -> PatternSender {
        PatternSender(self.orders.clone())
    }

    /// What tells it which services are fetched faster.
    pub(crate) fn paces(&self) -> PaceSender {
        PaceSender(self.orders.clone())
    }
}

/// Starts the thread, which reads cgroups of this machine for `node`. As long as there is nothing to read, it rests.
///
/// # Errors
///
/// The error of the operating system if there are no cgroups, or it starts no thread.
pub(crate) fn start(settings: CgroupSettings, node: &Arc<Node>, counts: Arc<Counts>) -> std::io::Result<CgroupThread> {
    let hierarchies = of_this_machine()?;
    let (orders, inbox) = channel();
    let (node, clock) = (Arc::downgrade(node), node.clock());
    let mut cgroups = Cgroups::new(settings, hierarchies, counts);
    let thread = std::thread::Builder::new().name("cgroup-metrics".to_owned());
    let thread = thread.spawn(move || cgroups.run(&node, clock, &inbox))?;
    Ok(CgroupThread { orders, thread })
}

fn of_this_machine() -> std::io::Result<Vec<Hierarchy>> {
    let found = hierarchies(&std::fs::read("/proc/self/mountinfo")?);
    if found.is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, "no hierarchy is mounted"));
    }
    Ok(found)
}

/// Why a cgroup is not read.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("it has no file that can be read")]
    NoFile,
    #[error(transparent)]
    Vanished(#[from] VanishedError),
    #[error("its service or folder has no name that a service may have")]
    Name(#[from] wire::name::NameError),
    #[error("there is no memory for its values")]
    Region(#[from] CreateError),
}

struct Cgroups {
    settings: CgroupSettings,
    hierarchies: Vec<Hierarchy>,
    counts: Arc<Counts>,
    /// Those that are read, by path.
    replicas: BTreeMap<String, Replica>,
    /// Cgroups that could not be read, so that the log names each once.
    unreadable: BTreeSet<String>,
    times: SamplingTimes,
    next_scan: Nanos,
    /// Version of the table of pods at the last scan.
    pods: u64,
    buffer: Vec<u8>,
    values: Values,
}

impl Cgroups {
    fn new(settings: CgroupSettings, hierarchies: Vec<Hierarchy>, counts: Arc<Counts>) -> Self {
        Self {
            times: SamplingTimes::new(settings.interval),
            settings,
            hierarchies,
            counts,
            replicas: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            next_scan: Nanos::ZERO,
            pods: 0,
            buffer: vec![0; FILE_BYTES],
            values: Values::default(),
        }
    }

    fn run(&mut self, node: &Weak<Node>, clock: Clock, orders: &Receiver<CgroupOrder>) {
        let interval = self.settings.interval;
        let time = || clock.now();
        let mut next = time();
        loop {
            let order = if self.settings.is_wanted() {
                let due = self.replicas.values().map(|replica| self.times.due(&replica.service, replica.last)).min();
                let due = due.map_or(next, |due| due.min(next));
                orders.recv_timeout(due.since(time()).unwrap_or(Nanos::ZERO).into())
            } else {
                orders.recv().map_err(RecvTimeoutError::from)
            };
            let Some(node) = node.upgrade() else { return };
            match order {
                Ok(CgroupOrder::Read(patterns)) => {
                    self.follow(patterns, &node, &time);
                    // While there was nothing to read, no round was missed.
                    next = next.max(time());
                    continue;
                }
                Ok(CgroupOrder::Follow(paces)) => {
                    self.times.follow(paces);
                    continue;
                }
                Ok(CgroupOrder::End) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if time() < next {
                self.sample(&node, &time);
                continue;
            }
            self.round(&node, &time);
            let late = time().0.saturating_sub(next.0) / interval.0.max(1);
            self.counts.late_rounds.add(late);
            next = next.plus(Nanos(interval.0.saturating_mul(late + 1)));
        }
    }

    /// Reads the cgroups that are due, which are all of them as a rule, and looks for new ones if it is time. Asks
    /// `time` for each: reading many takes a while.
    fn round(&mut self, node: &Node, time: &dyn Fn() -> Nanos) {
        let now = time();
        self.take_identities(node);
        self.sample(node, time);
        let pods = self.settings.containers.as_ref().map_or(0, |containers| containers.pods.version());
        if now >= self.next_scan || pods != self.pods {
            self.pods = pods;
            self.next_scan = now.plus(self.settings.scan_interval);
            self.scan(node, now, time);
        }
        self.counts.cgroups.store(self.replicas.len() as u64, Ordering::Relaxed);
    }

    /// Reads what `patterns` name, in place of what others named. A cgroup that has the service that it had stays as it
    /// is.
    fn follow(&mut self, patterns: Vec<Pattern>, node: &Node, time: &dyn Fn() -> Nanos) {
        let now = time();
        self.settings.patterns = patterns;
        self.take_identities(node);
        let Self { settings, replicas, .. } = self;
        let is_another = |path: &String, replica: &mut Replica| match settings.by_pattern(path) {
            Some(service) => service != replica.service.as_str(),
            None => replica.of_pattern,
        };
        for (path, replica) in replicas.extract_if(.., is_another) {
            let service = replica.service.as_str();
            tracing::info!(path, service, "cgroup not read as this service any more: no pattern says so");
            node.service_gone(replica.connection);
            node.cgroup_files.remove(&path);
        }
        self.next_scan = now.plus(self.settings.scan_interval);
        self.scan(node, now, time);
        self.counts.cgroups.store(self.replicas.len() as u64, Ordering::Relaxed);
    }

    /// Takes over the rules of now, if they are others.
    fn take_identities(&mut self, node: &Node) {
        let identities = node.inspect(|plane, _| plane.identities());
        if !Arc::ptr_eq(&identities, &self.settings.identities) {
            self.settings.identities = identities;
            self.leave_others_names(node);
            self.next_scan = Nanos::ZERO;
        }
    }

    /// Ends the replicas whose names belong to others by the rules of now.
    fn leave_others_names(&mut self, node: &Node) {
        let Self { settings, replicas, .. } = self;
        let is_others = |path: &String, replica: &mut Replica| !settings.may_be(path, replica.service.as_str());
        for (path, replica) in replicas.extract_if(.., is_others) {
            let service = replica.service.as_str();
            tracing::info!(path, service, "cgroup not read any more: its name belongs to others now");
            node.service_gone(replica.connection);
            node.cgroup_files.remove(&path);
        }
    }

    /// Reads the cgroups that are due, and those that are in a moment. The turn is one for the times from which next
    /// samples count, so that they stay together; each sample says when it was taken itself.
    fn sample(&mut self, node: &Node, time: &dyn Fn() -> Nanos) {
        let Self { settings, replicas, times, buffer, values, counts, .. } = self;
        let pods = settings.containers.as_ref().map(|containers| &*containers.pods);
        let (mut vanished, mut extra, mut all) = (false, 0, 0);
        let began = time();
        replicas.retain(|path, replica| {
            if !times.is_due(&replica.service, replica.last, began) {
                return true;
            }
            let taken = times.taken(&replica.service, replica.last, began);
            replica.last = taken.last;
            (extra, all) = (extra + usize::from(taken.is_extra), all + 1);
            let was_running = replica.measured.is_some();
            if let Err(error) = replica.sample(time(), (node, pods), buffer, values) {
                tracing::info!(path, %error, "cgroup not read any more");
                node.service_gone(replica.connection);
                node.cgroup_files.remove(path);
                counts.vanished.one_more();
                vanished = true;
                return false;
            }
            if was_running && replica.measured.is_none() {
                tracing::info!(path, "a container has ended, and its pod wants it to run");
                vanished = true;
            }
            counts.samples.one_more();
            true
        });
        let ended = time();
        times.rest(ended, ended.since(began).unwrap_or(Nanos::ZERO), (extra, all));
        if vanished {
            // A unit that restarts has a new cgroup at once, of the same name.
            self.next_scan = Nanos::ZERO;
        }
    }

    /// Looks for new cgroups in the turn of `now`.
    fn scan(&mut self, node: &Node, now: Nanos, time: &dyn Fn() -> Nanos) {
        let limit = self.settings.limit;
        let known = |path: &str| self.replicas.contains_key(path);
        let room = limit.saturating_sub(self.replicas.len());
        let found = self.settings.find(&self.hierarchies, &known, room);
        if found.is_over_limit() && !self.counts.is_over_limit() {
            tracing::warn!(limit, "sources.cgroups names more cgroups than sources.cgroup_limit allows");
        }
        let unread = [found.beyond.len(), found.unscanned, found.others_names];
        self.counts.take_others(found.others);
        for replica in self.replicas.values_mut() {
            if let Some(measured) = &mut replica.measured {
                measured.find_network(&mut self.buffer);
            }
        }
        self.unreadable.retain(|path| found.services.contains_key(path));
        for (path, service) in found.services {
            match self.open(node, (&path, &service), now, time) {
                Ok(replica) => {
                    let files = replica.measured.as_ref().map_or(0, MeasuredCgroup::files);
                    tracing::info!(path, service, files, "cgroup is read");
                    self.unreadable.remove(&path);
                    self.replace(&replica, node);
                    self.replicas.insert(path, replica);
                }
                Err(error) if !self.unreadable.contains(&path) => {
                    tracing::warn!(path, service, error = &error as &dyn core::error::Error, "cgroup is not read");
                    self.unreadable.insert(path);
                }
                Err(_) => {}
            }
        }
        let unread = unread.into_iter().chain([self.unreadable.len()]);
        for (count, unread) in self.counts.unread.iter().zip(unread) {
            count.store(unread as u64, Ordering::Relaxed);
        }
    }

    /// Ends the replica of a container that `replica` is once more.
    fn replace(&mut self, replica: &Replica, node: &Node) {
        let Self { replicas, counts, .. } = self;
        let is_same = |other: &Replica| other.measured.is_none() && other.container == replica.container;
        for (path, ended) in replicas.extract_if(.., |_, other| is_same(other)) {
            node.service_gone(ended.connection);
            node.cgroup_files.remove(&path);
            counts.vanished.one_more();
        }
    }

    /// Opens a cgroup that was found in the turn of `now`, and takes its first sample.
    fn open(
        &mut self,
        node: &Node,
        (path, service): (&str, &str),
        now: Nanos,
        time: &dyn Fn() -> Nanos,
    ) -> Result<Replica, OpenError> {
        let of_pattern = self.settings.by_pattern(path).is_some_and(|name| name == service);
        let folder = path.rsplit('/').next().unwrap_or(path);
        let member = self.settings.containers.as_ref().and_then(|containers| containers.pods.member(path));
        let instance = member.map_or_else(|| allowed(folder).unwrap_or_default(), |member| member.instance);
        let (service, instance) = (ServiceName::new(service)?, InstanceName::new(&instance)?);
        let mut measured = MeasuredCgroup::open(&self.hierarchies, path).ok_or(OpenError::NoFile)?;
        measured.find_network(&mut self.buffer);
        let first = time();
        measured.read(&mut self.buffer, &mut self.values)?;
        let container = self.settings.containers.as_ref().and_then(|containers| containers.pods.container(path));
        let names = (service.clone(), instance.clone());
        let mut replica = Replica::new(measured, container, (service, instance), &mut self.values, (node, first))?;
        replica.of_pattern = of_pattern;
        // In one turn with the others.
        replica.last = now;
        let mut files = self.hierarchies.iter().map(|hierarchy| processes_file(&hierarchy.root.join(path)));
        if let Some(file) = files.find(|file| file.exists()) {
            node.cgroup_files.add(path, names, file);
        }
        Ok(replica)
    }
}

#[cfg(test)]
mod tests;
