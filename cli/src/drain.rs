//! `uview drain` and `uview undrain`: take all LMAPs off a NIC worker, for a restart or a repair of its card, and let
//! it have some again.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use agent_runtime::clock::Clock;
use wire::proto::operators::{LmapStatus, StatusReply};

use crate::agent::{self, AgentArgs, AgentError, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::status::state;

/// The long help of `uview drain`.
pub const LONG_ABOUT: &str = "\
Move all LMAPs off a NIC worker, and place none on it until `uview undrain`

Each LMAP (local metrics analysis pipeline) moves with what it has learnt, and without a gap: its next worker reads
before this one stops. Those that are learning, in alarm or silent would lose something; they move when they are not any
more, which is tried again every 10 s. The command waits until nothing is left; if it is interrupted, the order stands.

The order is about the worker's number: a restart of the NIC agent does not end it. A restart of the host agent does,
unless lmap.models_dir is set.

The last worker that takes LMAPs is not drained, since nothing would be watched then. --force does it all the same:
LMAPs wait, and go on with what they have learnt on the next worker that comes.";

/// Pause between two looks at what is left.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Services that are named when they remain.
const NAMED: usize = 8;

/// Arguments of `uview drain`.
#[derive(Clone, Debug, clap::Args)]
pub struct DrainArgs {
    /// Number of the worker, as in `uview status`
    worker: u32,
    /// Move LMAPs that are learning or in alarm now, too; drain the last worker, so that nothing is watched
    #[arg(long)]
    force: bool,
    /// Wait at most so many seconds until nothing is left; 0: do not wait [default: wait for as long as it takes]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Arguments of `uview undrain`.
#[derive(Clone, Debug, clap::Args)]
pub struct UndrainArgs {
    /// Number of the worker, as in `uview status`
    worker: u32,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Drains a worker, and waits until nothing is left on it.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked or refuses, or LMAPs are left after the time.
pub fn run(args: DrainArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let what = format!("drain worker {}", args.worker);
    let target = args.agent.target(from_environment)?;
    let limit = args.timeout.map(Duration::from_secs);
    agent::runtime(&what)?.block_on(async {
        let failed = |error: AgentError| error.into_failure(&what);
        let mut agent = Connection::open(&target).await.map_err(failed)?;
        let lmaps = agent.drain(args.worker, args.force).await.map_err(failed)?;
        output::print(&format!("worker {} is drained, and gets no LMAPs; it has {lmaps}\n", args.worker))?;
        match limit {
            Some(Duration::ZERO) => Ok(()),
            _ => wait(&what, args.worker, &mut agent, limit).await,
        }
    })?;
    Ok(Exit::Fine)
}

/// Waits until nothing is left on a drained worker, and prints what is.
async fn wait(what: &str, worker: u32, agent: &mut Connection, limit: Option<Duration>) -> Result<(), Failure> {
    let clock = Clock::start();
    let mut said = String::new();
    loop {
        let status = agent.status().await.map_err(|error| error.into_failure(what))?;
        let undrained = || {
            Failure::to(what)
                .because("it is not drained any more: somebody has undrained it, or the host agent has restarted")
        };
        let remaining = remaining(&status, worker).ok_or_else(undrained)?;
        if remaining.is_empty() {
            return output::print(&format!("worker {worker} runs nothing any more\n"));
        }
        let left = words(&remaining);
        if limit.is_some_and(|limit| Duration::from(clock.now()) >= limit) {
            return Err(Failure::to(what)
                .because(format!("{left}, after {} s", Duration::from(clock.now()).as_secs()))
                .advice("wait longer: the order stands, and `uview status` says how many are left")
                .advice("--force, which moves them at a loss"));
        }
        if left != said {
            output::print(&format!("{left}\n"))?;
            said = left;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Lets a worker have LMAPs again.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked or refuses.
pub fn undo(args: UndrainArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let what = format!("undrain worker {}", args.worker);
    let target = args.agent.target(from_environment)?;
    let undrained = async { Connection::open(&target).await?.undrain(args.worker).await };
    agent::runtime(&what)?.block_on(undrained).map_err(|error| error.into_failure(&what))?;
    output::print(&format!("worker {} takes LMAPs again\n", args.worker))?;
    Ok(Exit::Fine)
}

/// What a drained worker runs still; `None` if it is not drained.
fn remaining(status: &StatusReply, worker: u32) -> Option<Vec<&LmapStatus>> {
    let is_drained = |of: &&wire::proto::operators::WorkerStatus| of.worker == worker && of.drained_by.is_some();
    status.workers.iter().find(is_drained)?;
    Some(status.lmaps.iter().filter(|lmap| lmap.worker == Some(worker)).collect())
}

/// Says what is left, and in which state.
fn words(remaining: &[&LmapStatus]) -> String {
    let mut words = format!("{} left:", remaining.len());
    for lmap in remaining.iter().take(NAMED) {
        let _ = write!(words, " {} ({}),", lmap.service, state(lmap));
    }
    words.pop();
    if remaining.len() > NAMED {
        words.push_str(", …");
    }
    words
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::WorkerStatus;

    use super::*;

    fn status(drained_by: Option<&str>) -> StatusReply {
        let lmap = |service: &str, worker, alarm| LmapStatus {
            service: service.to_owned(),
            worker,
            alarm,
            state: "learning".to_owned(),
            rows: 30,
            rows_needed: 120,
            ..LmapStatus::default()
        };
        StatusReply {
            workers: vec![WorkerStatus {
                worker: 1,
                drained_by: drained_by.map(str::to_owned),
                ..WorkerStatus::default()
            }],
            lmaps: vec![
                lmap("cart", Some(1), false),
                lmap("shop", Some(1), true),
                lmap("else", Some(0), false),
                lmap("nowhere", None, false),
            ],
            ..StatusReply::default()
        }
    }

    #[test]
    fn what_is_left_on_a_drained_worker_is_named_with_its_state() {
        let reply = status(Some("user 0"));

        let left = remaining(&reply, 1).unwrap();

        assert_eq!(words(&left), "2 left: cart (learning 30/120), shop (ALARM)");
        assert!(remaining(&status(None), 1).is_none() && remaining(&reply, 0).is_none());
    }
}
