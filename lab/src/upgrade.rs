//! `cargo lab upgrade`: agents of two releases beside each other, while services run. Each agent is upgraded, and goes
//! back, before and after the other one; LMAPs move between NIC agents of both releases. After each step services have
//! their regions, every LMAP judges rows with what it has learnt, and nothing was refused.

mod action;
mod node;
mod outcome;
mod rows;
mod viewer;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use anyhow::{Context as _, Result, bail, ensure};
use support::clock::Stopwatch;
use wire::proto::operators::LmapStatus;
use wire::time::UnixNanos;

use action::{Action, PLAN, Release, SECOND};
use node::{Node, SERVICES, ShopService};
use outcome::{Outcome, table};
use viewer::{Snapshot, Viewer};

/// Rows that a detector without a model learns before it judges any.
const WARM_UP: u32 = 120;
/// Rows that one with a model may take to settle.
const SETTLE_ROWS: u32 = 20;
/// Limit for learning, as a multiple of the time that twice as many rows take.
const PATIENCE: u32 = 10;
/// Limit for everything to be as before. What could not move is tried again every 10 s.
const SETTLED_WITHIN: Duration = Duration::from_mins(1);
/// How long rows are looked at after that.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Arguments of `cargo lab upgrade`.
#[derive(Debug, clap::Args)]
pub struct UpgradeArgs {
    /// The program `uview` of one release.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// That of the next one. The same program twice is a check of this command.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Interval of the LMAPs, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(20..=10_000))]
    interval_ms: u32,
}

/// Takes all steps, and prints a table of them.
///
/// # Errors
///
/// A process does not start or ends by itself, or a step failed.
pub fn run(args: &UpgradeArgs) -> Result<()> {
    let absolute = |path: &PathBuf| path.canonicalize().with_context(|| path.display().to_string());
    let programs = [absolute(&args.from)?, absolute(&args.to)?];
    for (release, program) in [Release::Old, Release::New].into_iter().zip(&programs) {
        println!("{}: {}, {}", release.name(), node::version(program)?, program.display());
    }
    for release in [Release::Old, Release::New] {
        let services = SERVICES.iter().filter(|service| service.release == release).map(|service| service.name);
        println!("services with the client of {}: {}", release.name(), services.collect::<Vec<_>>().join(", "));
    }
    let interval = Duration::from_millis(args.interval_ms.into());
    let mut node = Node::start(programs, args.interval_ms)?;
    let viewer = Viewer::new(&node.operators())?;
    println!("learning what is normal, {} rows", 2 * WARM_UP);
    learn(&mut node, &viewer, interval)?;
    let mut outcomes = Vec::with_capacity(PLAN.len());
    for action in PLAN {
        let outcome = step(&mut node, &viewer, action)?;
        println!("{}: {}", action.title(), outcome.result(interval));
        outcomes.push(outcome);
    }
    print!("\n{}", table(&outcomes, interval));
    let failed = outcomes.iter().filter(|outcome| !outcome.failures(interval).is_empty()).count();
    if failed > 0 {
        bail!("{failed} of {} steps failed; the agents' logs are in {}", outcomes.len(), node.keep_logs().display());
    }
    Ok(())
}

/// Waits until every LMAP has learnt twice as many rows as it needs, and is quiet.
fn learn(node: &mut Node, viewer: &Viewer, interval: Duration) -> Result<()> {
    let limit = PATIENCE * 2 * WARM_UP * interval;
    let clock = Stopwatch::start();
    loop {
        let now = viewer.look()?;
        let has_learnt = |lmap: &LmapStatus| lmap.judges() && !lmap.alarm && lmap.samples >= u64::from(2 * WARM_UP);
        let learns = |service: &&ShopService| now.lmap(service.name).is_none_or(|lmap| !has_learnt(lmap));
        let Some(service) = SERVICES.iter().find(learns) else { return Ok(()) };
        node.check()?;
        let seen = now.lmap(service.name);
        ensure!(clock.elapsed() < limit, "{} has not learnt within {} s: {seen:?}", service.name, limit.as_secs());
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Takes one step, waits until everything is as before, and looks on for some seconds.
fn step(node: &mut Node, viewer: &Viewer, action: Action) -> Result<Outcome> {
    let before = viewer.look()?;
    viewer.rows().cut();
    let clock = Stopwatch::start();
    let unknown = match act(node, viewer, action) {
        Err(error) if is_unknown_call(&error) => Some(format!("the host agent does not know the call: {error:#}")),
        other => other.map(|()| None)?,
    };
    let done = unix_now();
    let expected = if unknown.is_some() { Action::Wait } else { action };
    let (mut anew, mut refused) = (BTreeSet::new(), Vec::new());
    let (mut took, mut missing): (Option<Duration>, Option<String>) = (None, None);
    while took.is_none_or(|took| clock.elapsed() < took + AFTERWARDS) {
        node.check()?;
        let looked = viewer.look();
        if let Ok(now) = &looked {
            anew.extend(learning_anew(now));
            refused = refusals(&before, now);
        }
        if took.is_none() {
            missing = match &looked {
                Ok(now) => lacking(&before, now, (expected, node.workers())).or_else(|| without_row(viewer, done)),
                Err(error) => Some(format!("the host agent does not reply: {error:#}")),
            };
            took = (missing.is_none() || clock.elapsed() > SETTLED_WITHIN).then(|| clock.elapsed());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let longest = viewer.rows().longest();
    let unjudged = viewer.rows().unjudged();
    Ok(Outcome { action, took: took.unwrap_or_default(), longest, unjudged, anew, refused, missing, unknown })
}

fn act(node: &mut Node, viewer: &Viewer, action: Action) -> Result<()> {
    match action {
        Action::Wait => Ok(()),
        Action::HostAgent(release) => node.replace_host_agent(release),
        Action::NicAgent(release) => node.replace_nic_agent(release),
        Action::Join(release) => node.start_nic_agent(SECOND, release),
        Action::Drain(worker) => viewer.drain(worker, SECOND - worker),
        Action::Undrain(worker) => viewer.undrain(worker),
        Action::Leave => node.end_nic_agent(SECOND),
    }
}

/// Whether the host agent is of a release before the call.
fn is_unknown_call(error: &anyhow::Error) -> bool {
    error.downcast_ref::<tonic::Status>().is_some_and(|status| status.code() == tonic::Code::Unimplemented)
}

/// Services whose detectors learn without a model.
fn learning_anew(now: &Snapshot) -> Vec<String> {
    let lmaps = SERVICES.iter().filter_map(|service| now.lmap(service.name));
    let anew = lmaps.filter(|lmap| !lmap.judges() && lmap.rows_needed > SETTLE_ROWS);
    anew.map(|lmap| lmap.service.clone()).collect()
}

/// Counters of refusals that have grown; of another run of the host agent, those that are not zero.
fn refusals(before: &Snapshot, now: &Snapshot) -> Vec<String> {
    let is_same_run = before.status.incarnation == now.status.incarnation;
    let earlier = |name: &str| before.status.counters.get(name).copied().filter(|_| is_same_run).unwrap_or_default();
    let refusals = now.status.counters.iter().filter(|(name, _)| name.starts_with("refused_"));
    let grown = refusals.filter(|(name, count)| **count > earlier(name.as_str()));
    let mut grown: Vec<_> = grown.map(|(name, count)| format!("{name} {count}")).collect();
    grown.sort();
    // The texts say which, and why.
    if !grown.is_empty() {
        grown.extend(now.status.problems.iter().cloned());
    }
    grown
}

/// What is not as before, or not as the step would have it, in words; `None` if nothing is.
fn lacking(before: &Snapshot, now: &Snapshot, (action, workers): (Action, Vec<u32>)) -> Option<String> {
    if let Some(worker) = workers.into_iter().find(|worker| !now.is_connected(*worker)) {
        return Some(format!("worker {worker} is not connected"));
    }
    let mut placed = BTreeSet::new();
    for service in SERVICES.map(|service| service.name) {
        match (now.lmap(service), now.worker_of(service)) {
            (Some(lmap), Some(worker)) if lmap.judges() => _ = placed.insert(worker),
            (lmap, _) => {
                let state = lmap.map_or("not there", |lmap| lmap.state.as_str());
                return Some(format!("{service} is {state}"));
            }
        }
        let (had, has) = (before.registered(service), now.registered(service));
        if had != has {
            return Some(format!("{service} had process, regions and bytes {had:?}, and has {has:?}"));
        }
    }
    let is_as_planned = match action {
        Action::Join(_) | Action::Undrain(_) => placed.contains(&SECOND),
        Action::Drain(worker) => !placed.contains(&worker),
        Action::Leave => !placed.contains(&SECOND),
        Action::Wait | Action::HostAgent(_) | Action::NicAgent(_) => true,
    };
    // An older NIC agent hands nothing over, so that LMAPs that are armed stay.
    (!is_as_planned).then(|| format!("LMAPs are on workers {placed:?}"))
}

/// A service that has no judged row since `done`, in words.
fn without_row(viewer: &Viewer, done: UnixNanos) -> Option<String> {
    let rows = viewer.rows();
    let service = SERVICES.iter().find(|service| rows.last(service.name) <= Some(done))?;
    Some(format!("no row of {} was judged", service.name))
}

#[cfg(test)]
mod tests;
