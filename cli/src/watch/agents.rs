//! The agents that watch: those that run, or two of its own in a private directory, which end with this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_runtime::clock::Clock;
use demo::processes::Processes;
use serde::Deserialize;
use tempfile::TempDir;

use super::WHAT;
use crate::agent::{AgentArgs, Target};
use crate::discovery::{self, READY_FILE};
use crate::failure::Failure;

/// Limit for the host agent to get ready; generous, since the machine may be busy.
const READY_WITHIN: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const HOST_AGENT: &str = "host-agent";
const NIC_AGENT: &str = "nic-agent";

/// What the host agent writes into its directory when it is ready.
#[derive(Deserialize)]
struct ReadyAgent {
    control: String,
    regions: PathBuf,
}

/// Agents of its own. Dropping them ends both, then removes the directory.
pub(super) struct OwnAgents {
    processes: Processes,
    directory: TempDir,
}

impl OwnAgents {
    /// Starts both agents, by `program` (this one), and waits until the host agent is ready.
    pub(super) async fn start(program: &Path, interval_ms: u32) -> Result<Self, Failure> {
        let failed =
            |error: &(dyn core::error::Error + 'static)| Failure::to("start agents of its own").caused_by(error);
        let directory = tempfile::Builder::new().prefix("uview-watch-").tempdir().map_err(|error| failed(&error))?;
        let parent = std::process::id().to_string();
        let program = program.display().to_string();
        let prefix = [program.as_str(), "child", "--parent", &parent, "--"].map(str::to_owned);
        let mut own = Self { processes: Processes::new(prefix.to_vec(), directory.path()), directory };
        let runtime_dir = own.runtime_dir();
        fs::create_dir(&runtime_dir).map_err(|error| failed(&error))?;
        let host = serde_json::json!({
            "runtime_dir": runtime_dir,
            "lmap": {"interval_ms": interval_ms},
            "metrics": {"listen": "127.0.0.1:0"},
        });
        own.start_agent(HOST_AGENT, &host).map_err(|error| failed(&error))?;
        let ready = own.ready().await?;
        let nic = serde_json::json!({
            "control": {"address": ready.control},
            "regions_socket": ready.regions,
            "metrics": {"listen": "127.0.0.1:0"},
        });
        own.start_agent(NIC_AGENT, &nic).map_err(|error| failed(&error))?;
        Ok(own)
    }

    pub(super) fn runtime_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// Fails if one of them has ended.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let Some(exited) = self.processes.exited() else { return Ok(()) };
        let because = format!("{} ended ({}); its last output:\n{}", exited.name, exited.status, exited.last_output);
        Err(Failure::to("watch with agents of its own").because(because))
    }

    /// JSON is YAML, so that paths need no quoting of ours.
    fn start_agent(&mut self, name: &str, config: &serde_json::Value) -> std::io::Result<()> {
        let path = self.directory.path().join(format!("{name}.yaml"));
        fs::write(&path, config.to_string())?;
        self.processes.start(name, &[name.to_owned(), "--config".to_owned(), path.display().to_string()], &[])
    }

    async fn ready(&mut self) -> Result<ReadyAgent, Failure> {
        let (clock, file) = (Clock::start(), self.runtime_dir().join(READY_FILE));
        while Duration::from(clock.now()) < READY_WITHIN {
            let found = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if let Some(ready) = found {
                return Ok(ready);
            }
            self.check()?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(Failure::to(WHAT).because(format!("its host agent was not ready within {} s", READY_WITHIN.as_secs())))
    }
}

/// The host agent to use if one is named or runs and `private` is not asked for; else `None`.
pub(super) fn running(args: AgentArgs, private: bool, environment: Option<PathBuf>) -> Result<Option<Target>, Failure> {
    let named = args.runtime_dir.is_some() || args.operators.is_some() || environment.is_some();
    if private || (!named && discovery::running_agents().is_empty()) {
        return Ok(None);
    }
    args.target(environment).map(Some)
}
