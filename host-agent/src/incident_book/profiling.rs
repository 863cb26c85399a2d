//! Profiles of services in alarm, one at a time on this node, each in a thread of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_runtime::lock;
use profile::take::{MAX_THREADS, ROUND};
use profile::{Event, Plan, ProfileError};
use wire::incident::IncidentId;
use wire::proto::operators::IncidentProfile;
use wire::time::UnixNanos;

use crate::config::ProfileConfig;
use crate::control_plane::ReplicaFacts;
use crate::node::CgroupFiles;

/// Services that wait for their profile; further ones are not noted.
const MAX_WISHES: usize = 8;
/// Processes of a service that are sampled together.
const MAX_PROCESSES: usize = 8;

/// A service whose alarm a stack would explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProfileRequest {
    pub(super) incident: IncidentId,
    pub(super) service: String,
    pub(super) event: Event,
}

/// A profile that was taken, or why there is none.
#[derive(Debug)]
pub(super) struct ProfileOutcome {
    pub(super) incident: IncidentId,
    pub(super) profile: IncidentProfile,
}

#[derive(Debug, Default)]
struct State {
    wishes: Vec<ProfileRequest>,
    taken: Vec<ProfileOutcome>,
    /// The kernel's refusal was said.
    is_refusal_said: bool,
}

/// Samples stacks of processes.
trait Sampler: core::fmt::Debug + Send + Sync {
    /// As [`profile::take`].
    fn sample(
        &self,
        plan: &Plan,
        proc: &Path,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<IncidentProfile, ProfileError>;
}

/// By the kernel's perf events.
#[derive(Debug)]
struct PerfEvents;

impl Sampler for PerfEvents {
    fn sample(
        &self,
        plan: &Plan,
        proc: &Path,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<IncidentProfile, ProfileError> {
        profile::take(plan, proc, pause)
    }
}

/// What takes profiles.
#[derive(Debug)]
pub(super) struct Profiler {
    config: ProfileConfig,
    proc: PathBuf,
    sampler: Arc<dyn Sampler>,
    state: Arc<Mutex<State>>,
    is_busy: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

/// Says at its end, however that comes, that the next profile can be taken.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Profiler {
    pub(super) fn new(config: ProfileConfig, proc: PathBuf) -> Self {
        Self::with(config, proc, Arc::new(PerfEvents))
    }

    fn with(config: ProfileConfig, proc: PathBuf, sampler: Arc<dyn Sampler>) -> Self {
        let (state, is_busy, is_over) = (Arc::default(), Arc::default(), Arc::default());
        Self { config, proc, sampler, state, is_busy, is_over }
    }

    /// Notes a wish, unless it is known, or too many are.
    pub(super) fn wish(&self, wish: ProfileRequest) {
        let mut state = lock(&self.state);
        let is_known = state.wishes.iter().any(|of| of.incident == wish.incident && of.service == wish.service);
        if self.config.seconds > 0 && !is_known && state.wishes.len() < MAX_WISHES {
            state.wishes.push(wish);
        }
    }

    /// Begins with the next wish that `is_wanted`, if no profile is being taken. `replicas` are those of all services
    /// that have registered themselves; of others their cgroups are known.
    pub(super) fn go_on(
        &self,
        (replicas, cgroups): (&[ReplicaFacts], &CgroupFiles),
        is_wanted: impl Fn(&ProfileRequest) -> bool,
        now: UnixNanos,
    ) {
        let mut state = lock(&self.state);
        state.wishes.retain(is_wanted);
        if state.wishes.is_empty() || self.is_busy.swap(true, Ordering::Acquire) {
            return;
        }
        let wish = state.wishes.remove(0);
        drop(state);
        let of_service = replicas.iter().filter(|of| of.service.as_str() == wish.service && of.process != 0);
        let each = of_service.take(MAX_PROCESSES).flat_map(|of| {
            let all = with_children(&self.proc, of.process);
            all.into_iter().map(|process| (process, of.instance.to_string()))
        });
        let mut processes: Vec<_> = each.take(MAX_PROCESSES).collect();
        if processes.is_empty() {
            processes = cgroups.processes(&wish.service, MAX_PROCESSES);
        }
        let rounds = self.config.seconds * (1_000 / ROUND.as_millis() as u32);
        let plan = Plan { processes, event: wish.event, rounds, frequency_hz: self.config.frequency_hz };
        let (proc, sampler) = (self.proc.clone(), Arc::clone(&self.sampler));
        let (state, is_over) = (Arc::clone(&self.state), Arc::clone(&self.is_over));
        let busy = Busy(Arc::clone(&self.is_busy));
        let thread = std::thread::Builder::new().name("profile".to_owned()).spawn(move || {
            let _busy = busy;
            let mut pause = |length: Duration| {
                std::thread::sleep(length);
                !is_over.load(Ordering::Relaxed)
            };
            let profile = take(&*sampler, &plan, &proc, &mut pause, &state);
            let profile = IncidentProfile { service: wish.service, began_unix_ns: now.0, ..profile };
            lock(&state).taken.push(ProfileOutcome { incident: wish.incident, profile });
        });
        if let Err(error) = thread {
            tracing::warn!(%error, "cannot take a profile");
        }
    }

    /// What was taken since the last call.
    pub(super) fn taken(&self) -> Vec<ProfileOutcome> {
        core::mem::take(&mut lock(&self.state).taken)
    }

    /// Ends the profile that is being taken.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// `process`, its children, and theirs, as far as the kernel lists them, at most [`MAX_PROCESSES`].
fn with_children(proc: &Path, process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(process) = all.get(next).filter(|_| all.len() < MAX_PROCESSES) {
        let tasks = fs::read_dir(proc.join(process.to_string()).join("task")).into_iter().flatten().flatten();
        let texts = tasks.take(MAX_THREADS).filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<u32> = texts
            .flat_map(|text| text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
            .collect();
        for child in children {
            if all.len() < MAX_PROCESSES && !all.contains(&child) {
                all.push(child);
            }
        }
        next += 1;
    }
    all
}

fn take(
    sampler: &dyn Sampler,
    plan: &Plan,
    proc: &Path,
    pause: &mut dyn FnMut(Duration) -> bool,
    state: &Mutex<State>,
) -> IncidentProfile {
    let event = plan.event.name().to_owned();
    if plan.processes.is_empty() {
        let problem = "its processes are not known: they have ended, or are in another namespace";
        return IncidentProfile { event, problem: problem.to_owned(), ..IncidentProfile::default() };
    }
    sampler.sample(plan, proc, pause).unwrap_or_else(|error| {
        let problem = error.to_string();
        let is_refused = matches!(error, ProfileError::Refused { .. });
        if is_refused && !core::mem::replace(&mut lock(state).is_refusal_said, true) {
            tracing::warn!(
                "no profiles of services in alarm: {problem}; incidents.profile: {{seconds: 0}} turns them off"
            );
        }
        IncidentProfile { event, problem, ..IncidentProfile::default() }
    })
}

#[cfg(test)]
mod tests;
