//! Incidents of this node: follows verdicts, scores, traces and changes, and stores records. [`incidents`] decides what
//! an incident is and what is kept.
//!
//! A task takes verdicts as they come. A thread that may block looks once a second, reads files and writes them. A disk
//! that is full is said in the status: records stay in memory, and are written when there is room.

mod facts;
mod profiling;
mod store;
mod streams;

pub(crate) use self::store::FURTHER_BYTES;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_runtime::lock;
use agent_runtime::ticks::every;
use incidents::recorder::{FindError, Phase, Recorder, Step, Verdict};
use page::dates::Dates;
use tokio::runtime::Handle;
use wire::control::Episode;
use wire::id::HookId;
use wire::incident::IncidentId;
use wire::proto::operators as proto;
use wire::time::{Timestamp, UnixNanos};

use self::facts::ProcessFacts;
use self::profiling::{ProfileRequest, Profiler};
use self::store::Store;
use crate::clock;
use crate::config::IncidentsConfig;
use crate::control_plane::{Event, ReplicaFacts};
use crate::dispatch::{Filter, TooManyHooks};
use crate::kept_logs::KeptLogs;
use crate::kept_traces::KeptTraces;
use crate::node::Node;
use crate::pod_watch::PodWatch;

/// Verdicts queued until the next look: 100 services for ten seconds.
const VERDICTS: usize = 1_024;
/// Where the kernel says what processes do.
const PROC: &str = "/proc";
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where evidence comes from.
#[derive(Debug)]
pub(crate) struct EvidenceSources {
    pub(crate) traces: Arc<KeptTraces>,
    pub(crate) logs: KeptLogs,
    pub(crate) pods: Option<Arc<PodWatch>>,
}

/// All incidents that are kept.
#[derive(Debug)]
pub(crate) struct IncidentBook {
    recorder: Mutex<Recorder>,
    node: String,
    sources: EvidenceSources,
    /// Locked while files are written, so that the last write is the newest.
    store: Option<Mutex<Store>>,
    facts: Mutex<ProcessFacts>,
    profiler: Profiler,
    /// Why the last write failed; `None` if it did not.
    failure: Mutex<Option<String>>,
    /// Changes of the configuration that are noted.
    reloads: Mutex<u64>,
    /// What the wall clock does.
    dates: Mutex<Dates>,
}

impl IncidentBook {
    /// The incidents of `node`, with those that an earlier run has stored if `config` names a directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be created or listed.
    pub(crate) fn open(config: &IncidentsConfig, node: String, sources: EvidenceSources) -> io::Result<Self> {
        let mut recorder = Recorder::new(&node, config.bytes);
        let store = config.dir.as_deref().map(Store::open).transpose()?;
        if let (Some(store), Some(dir)) = (&store, &config.dir) {
            store.restore(&mut recorder, config.bytes)?;
            tracing::info!(dir = %dir.display(), incidents = recorder.list().len(), "going on with stored incidents");
        }
        Ok(Self {
            recorder: Mutex::new(recorder),
            node,
            sources,
            store: store.map(Mutex::new),
            facts: Mutex::new(ProcessFacts::new(Path::new(PROC))),
            profiler: Profiler::new(config.profile, PathBuf::from(PROC)),
            failure: Mutex::default(),
            reloads: Mutex::default(),
            dates: Mutex::default(),
        })
    }

    /// Follows `node` until it drains, in the runtime of `threads`.
    ///
    /// # Errors
    ///
    /// [`TooManyHooks`] at the limit.
    pub(crate) fn start(self: &Arc<Self>, node: &Arc<Node>, threads: &Handle) -> Result<(), TooManyHooks> {
        // Verdicts above γ, and begins and ends of alarms.
        let filter = Filter { lmaps: [].into(), min_share: 1.0, ..Filter::default() };
        let (id, notified) = node.register_hook(filter, VERDICTS)?;
        let (book, node) = (Arc::clone(self), Arc::clone(node));
        threads.spawn(async move {
            let (of, at) = (Arc::clone(&book), Arc::clone(&node));
            let look = move || {
                of.look(&at, clock::steady_now());
                of.look_at_streams(&at);
                of.write(&at, false);
            };
            tokio::select! {
                () = every(LOOK_EVERY, node.drained(), look) => {}
                () = async {
                    loop {
                        book.take_verdicts(&node, id);
                        notified.notified().await;
                    }
                } => {}
            }
            node.unregister(id);
            book.profiler.end();
        });
        Ok(())
    }

    fn take_verdicts(&self, node: &Node, id: HookId) {
        while let Some(taken) = node.next_event(id) {
            self.take(&taken.item);
        }
    }

    fn take(&self, event: &Event) {
        let verdict = &event.verdict;
        let gamma = verdict.gamma.filter(|gamma| *gamma > 0.0);
        let silent: Vec<String> = event.silent.iter().map(ToString::to_string).collect();
        let metrics: Vec<proto::Reason> = event.reasons.iter().map(proto::Reason::from).collect();
        let incident = event.suspicion.as_ref().map(|suspicion| IncidentId::of(suspicion.incident));
        self.wish(incident, event);
        lock(&self.recorder).verdict(&Verdict {
            service: event.service.as_str(),
            at: event.at,
            incident,
            phase: match verdict.episode {
                Episode::Began => Phase::Begin,
                Episode::On => Phase::Middle,
                Episode::Ended => Phase::End,
                Episode::Quiet => Phase::Quiet,
            },
            ratio: gamma.map_or(0.0, |gamma| verdict.score / gamma),
            silent: &silent,
            metrics: &metrics,
        });
    }

    /// Wishes for a profile of a service in alarm whose first metric a stack would explain.
    fn wish(&self, incident: Option<IncidentId>, event: &Event) {
        let is_on = matches!(event.verdict.episode, Episode::Began | Episode::On);
        let first = event.reasons.first().filter(|reason| is_on && reason.seen > reason.expected);
        let event_of = first.and_then(|reason| profile::Event::of_metric(reason.series.name.as_str()));
        if let (Some(incident), Some(sampled)) = (incident, event_of) {
            self.profiler.wish(ProfileRequest { incident, service: event.service.to_string(), event: sampled });
        }
    }

    /// Looks at ranking, scores, traces, and at what was changed, at the moment `at`. Reads files of processes.
    fn look(&self, node: &Node, at: Timestamp) {
        let now = at.wall;
        let (rankings, scores, replicas) = node
            .inspect(|plane, _| (plane.incident_rankings(), plane.scores().collect::<Vec<_>>(), plane.replica_facts()));
        let replicas = lock(&self.facts).confirmed(replicas);
        self.profile(node, &replicas, now);
        let replicas = lock(&self.facts).look(replicas);
        let versions = self.versions();
        let taken = node.reloads.taken();
        let reloaded = core::mem::replace(&mut *lock(&self.reloads), taken) < taken;
        let mut recorder = lock(&self.recorder);
        let noted = recorder.changes.noted();
        recorder.recent.shift(lock(&self.dates).set_forward(at));
        let second = now.second() as u32;
        for score in scores {
            recorder.recent.add(&score.lmap, second, score.ratio.unwrap_or(f64::NAN) as f32);
        }
        if reloaded {
            let keys = node.reloads.latest().join(", ");
            recorder.changes.add("", "configuration", format!("the host agent took over {keys}"), now);
        }
        recorder.changes.forget(|service| replicas.contains_key(service) || versions.contains_key(service), now);
        for (service, replicas) in replicas {
            recorder.changes.replicas(&service, replicas, now);
        }
        for (service, versions) in versions {
            recorder.changes.versions(&service, versions, now);
        }
        node.counts.noted_changes.add(recorder.changes.noted() - noted);
        recorder.look(&rankings, now);
        // Also without an incident: of one that begins, records of before are evidence.
        let logs = self.sources.logs.look();
        if recorder.is_following() {
            recorder.traces(&self.sources.traces.look());
            recorder.logs(&logs);
        }
    }

    /// Adds profiles that were taken, and begins with the next one.
    fn profile(&self, node: &Node, replicas: &[ReplicaFacts], now: UnixNanos) {
        for taken in self.profiler.taken() {
            let is_taken = taken.profile.problem.is_empty();
            let count = if is_taken { &node.counts.profiles } else { &node.counts.failed_profiles };
            count.one_more();
            lock(&self.recorder).profile(taken.incident, &taken.profile);
        }
        let is_wanted = |wish: &ProfileRequest| lock(&self.recorder).wants_profile(wish.incident, &wish.service);
        self.profiler.go_on((replicas, &node.cgroup_files), is_wanted, now);
    }

    /// Versions of the node's pods, by service.
    fn versions(&self) -> std::collections::BTreeMap<String, Vec<String>> {
        let mut versions = std::collections::BTreeMap::<String, Vec<String>>::new();
        for pod in self.sources.pods.iter().filter_map(|pods| pods.all()).flatten() {
            if !pod.is_own && !pod.version.is_empty() {
                versions.entry(pod.service).or_default().push(pod.version);
            }
        }
        versions
    }

    /// Writes what has changed, and removes what had to make room; with `must`, also what is not due. What cannot be
    /// written is tried again.
    pub(crate) fn write(&self, node: &Node, must: bool) {
        let store = self.store.as_ref().map(lock);
        let steps = lock(&self.recorder).take_steps(clock::unix_now(), must);
        let Some(store) = store else { return };
        let mut failed: Option<(io::Error, Vec<Step>)> = None;
        for step in steps {
            if let Err(error) = store.carry_out(&step) {
                node.counts.failed_incident_writes.one_more();
                failed.get_or_insert_with(|| (error, Vec::new())).1.push(step);
            }
        }
        match failed {
            Some((error, steps)) => {
                if lock(&self.failure).replace(error.to_string()).is_none() {
                    tracing::warn!(%error, "cannot write incidents; retrying. A restart loses what is not written");
                }
                let mut recorder = lock(&self.recorder);
                for step in &steps {
                    recorder.again(step);
                }
            }
            None if lock(&self.recorder).is_written() => drop(lock(&self.failure).take()),
            None => {}
        }
    }

    /// What is wrong now, in words: records cannot be written.
    pub(crate) fn problem(&self) -> Option<String> {
        let error = lock(&self.failure).clone()?;
        Some(format!("incidents: they cannot be written, and a restart loses what is not written: {error}"))
    }

    /// The list of incidents.
    pub(crate) fn list(&self) -> proto::IncidentsReply {
        let incidents = lock(&self.recorder).list();
        proto::IncidentsReply { node: self.node.clone(), incidents, in_memory: self.store.is_none() }
    }

    /// Bytes of the records that are kept.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.recorder).bytes()
    }

    /// Changes with each change of the list.
    pub(crate) fn revision(&self) -> u64 {
        lock(&self.recorder).revision()
    }

    /// An incident; `None` if it is not kept.
    pub(crate) fn get(&self, id: IncidentId) -> Option<proto::Incident> {
        lock(&self.recorder).get(id)
    }

    /// The incident that `text` names.
    ///
    /// # Errors
    ///
    /// [`FindError`] if there is none, or several.
    pub(crate) fn find(&self, text: &str) -> Result<IncidentId, FindError> {
        lock(&self.recorder).find(text)
    }
}

#[cfg(test)]
mod tests;
