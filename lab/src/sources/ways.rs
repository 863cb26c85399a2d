//! The two ways: `uview watch` with agents of its own, and a host agent that scrapes exporters. Each says what it says
//! into one channel.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use support::clock::Stopwatch;
use tonic::transport::Endpoint;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{HookEvent, RegisterHookRequest, SourceTarget, SourcesRequest};
use wire::time::Nanos;

use super::judge::{Statement, Way, Word};
use super::programs::{RunningProgram, command, listens};
use super::schedule::{Pace, Program};
use crate::clients::shop::{Process, ending_with_us, free};

/// Limit for an agent to be ready, on a busy machine.
const START: Duration = Duration::from_mins(1);

/// How often the host agent is asked for restarts.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// PostgreSQL's exporter takes some hundred milliseconds on a busy machine.
const SHORTEST_TIMEOUT_MS: u32 = 1000;

/// Both agents, as processes that end with this one.
#[derive(Debug)]
pub struct Agents {
    pub host: Process,
    pub nic: Process,
    runtime_dir: PathBuf,
    operators: String,
}

impl Agents {
    /// Starts them below `folder`. `sources` are those of the host agent.
    pub fn start(uview: &Path, folder: &Path, pace: &Pace, sources: &serde_json::Value) -> Result<Self> {
        fs::create_dir(folder)?;
        let runtime_dir = folder.join("run");
        // JSON is YAML.
        let host = serde_json::json!({
            "runtime_dir": runtime_dir,
            "lmap": {"interval_ms": pace.interval_ms},
            "metrics": {"listen": "127.0.0.1:0"},
            "sources": sources,
        });
        let host = agent(uview, "host-agent", folder, &host)?;
        let (clock, file) = (Stopwatch::start(), runtime_dir.join("host-agent.json"));
        let ready: serde_json::Value = loop {
            if let Some(ready) = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                break ready;
            }
            ensure!(clock.elapsed() < START, "the host agent is not ready, see {}", folder.display());
            std::thread::sleep(Duration::from_millis(20));
        };
        let text = |name: &str| ready.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let nic = serde_json::json!({
            "control": {"address": text("control")},
            "regions_socket": text("regions"),
            "metrics": {"listen": "127.0.0.1:0"},
        });
        let nic = agent(uview, "nic-agent", folder, &nic)?;
        Ok(Self { host, nic, runtime_dir, operators: text("operators") })
    }
}

/// Records the rows of `agents` below `folder`, until it is dropped.
pub fn record(uview: &Path, agents: &Agents, folder: &Path) -> Result<Process> {
    let mut command = ending_with_us(uview);
    command.args(["record", "--out"]).arg(folder.join("rows")).arg("--runtime-dir").arg(&agents.runtime_dir);
    Process::start(&mut command, &folder.join("record.log"))
}

fn agent(uview: &Path, name: &str, folder: &Path, config: &serde_json::Value) -> Result<Process> {
    let path = folder.join(format!("{name}.yaml"));
    fs::write(&path, config.to_string())?;
    let mut command = ending_with_us(uview);
    command.arg(name).arg("--config").arg(path);
    Process::start(&mut command, &folder.join(format!("{name}.log")))
}

/// A running `uview watch`. Dropping it kills it.
#[derive(Debug)]
pub struct WatchProcess(Child);

impl WatchProcess {
    /// Watches `running`, and sends what the command prints.
    pub fn start(
        uview: &Path,
        agents: &Agents,
        running: &RunningProgram,
        pace: &Pace,
        (clock, heard): (Stopwatch, Sender<Statement>),
    ) -> Result<Self> {
        let mut command = ending_with_us(uview);
        command.args(["watch", "--service", running.program.name(), "--command", &running.words()]);
        command.args(["--interval-ms", &pace.interval_ms.to_string(), "--runtime-dir"]).arg(&agents.runtime_dir);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let (out, program) = (child.stdout.take().context("its output is a pipe")?, running.program);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let at = Nanos::from(clock.elapsed());
                if let Some(word) = word(program.name(), &line) {
                    _ = heard.send(Statement { at, way: Way::Watch, program, word });
                }
            }
        });
        Ok(Self(child))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for WatchProcess {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// What a line of `uview watch` says of `service`.
fn word(service: &str, line: &str) -> Option<Word> {
    let said = line.strip_prefix(service)?.strip_prefix(": ")?;
    Some(match said {
        "the alarm has ended" => Word::Ended,
        "another alarm begins" => Word::Another,
        "has ended; waiting for its restart" => Word::Down,
        _ if said.starts_with("armed, ") => Word::Armed,
        _ if said.starts_with("has restarted as pid ") => Word::Restarted,
        _ if said.contains(", expected ") => Word::Began(said.to_owned()),
        _ => return None,
    })
}

/// What a verdict of the host agent says; nothing while there is no alarm, and while one goes on.
fn words_of(event: &HookEvent) -> Vec<Word> {
    match event.episode.as_str() {
        "began" => {
            let first = event.reasons.first();
            let why = first.map_or_else(
                || format!("silent: {}", event.silent_replicas.join(", ")),
                |first| format!("{} {}, expected {}", first.column, first.seen, first.expected),
            );
            vec![Word::Another, Word::Began(why)]
        }
        "ended" => vec![Word::Ended],
        _ => Vec::new(),
    }
}

/// The `sources` of a host agent that scrapes the exporters of `programs`.
pub fn sources(programs: &[RunningProgram], pace: &Pace) -> serde_json::Value {
    let target = |running: &RunningProgram| {
        serde_json::json!({
            "service": running.program.name(),
            "url": format!("http://{}/metrics", running.exporter),
            "interval_ms": pace.interval_ms,
            "timeout_ms": pace.interval_ms.max(SHORTEST_TIMEOUT_MS),
            "learn_scrapes": pace.learn_scrapes,
        })
    };
    serde_json::json!({"prometheus": {"targets": programs.iter().map(target).collect::<Vec<_>>()}})
}

/// Sends what the host agent says of services until it ends.
pub fn listen(agents: &Agents, programs: &[Program], (clock, heard): (Stopwatch, Sender<Statement>)) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (operators, programs) = (agents.operators.clone(), programs.to_vec());
    let mut events = runtime.block_on(async {
        let channel = Endpoint::from_shared(operators)?.connect().await?;
        let mut client = OperatorsClient::new(channel);
        anyhow::Ok(client.register_hook(RegisterHookRequest::default()).await?.into_inner())
    })?;
    std::thread::spawn(move || {
        let mut armed = Vec::new();
        // Until the agent ends, which it does with the run.
        while let Ok(Some(event)) = runtime.block_on(events.message()) {
            let at = Nanos::from(clock.elapsed());
            let Some(&program) = programs.iter().find(|program| program.name() == event.service) else { continue };
            let said = |word| Statement { at, way: Way::Endpoint, program, word };
            if event.judges() && !armed.contains(&program) {
                armed.push(program);
                _ = heard.send(said(Word::Armed));
            }
            for word in words_of(&event) {
                _ = heard.send(said(word));
            }
        }
    });
    Ok(())
}

/// Sends each restart that the host agent counts of a target, as `uview sources` shows it, until the agent ends. Those
/// of before are not sent.
pub fn listen_for_restarts(
    agents: &Agents,
    programs: &[Program],
    (clock, heard): (Stopwatch, Sender<Statement>),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (operators, programs) = (agents.operators.clone(), programs.to_vec());
    let mut client = runtime
        .block_on(async { anyhow::Ok(OperatorsClient::new(Endpoint::from_shared(operators)?.connect().await?)) })?;
    let mut known = restarts(&runtime.block_on(client.sources(SourcesRequest {}))?.into_inner().targets);
    std::thread::spawn(move || {
        // Until the agent ends, which it does with the run.
        while let Ok(reply) = runtime.block_on(client.sources(SourcesRequest {})) {
            let at = Nanos::from(clock.elapsed());
            let now = restarts(&reply.into_inner().targets);
            for program in restarted(&known, &now, &programs) {
                _ = heard.send(Statement { at, way: Way::Endpoint, program, word: Word::Restarted });
            }
            known = now;
            std::thread::sleep(ASK_EVERY);
        }
    });
    Ok(())
}

/// Restarts by service.
fn restarts(targets: &[SourceTarget]) -> BTreeMap<String, u64> {
    targets.iter().map(|target| (target.service.clone(), target.restarts)).collect()
}

/// Those of `programs` of which more restarts are counted `now` than `before`.
fn restarted(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>, programs: &[Program]) -> Vec<Program> {
    let count = |of: &BTreeMap<String, u64>, program: &Program| of.get(program.name()).copied().unwrap_or(0);
    programs.iter().copied().filter(|program| count(now, program) > count(before, program)).collect()
}

/// Prometheus, scraping the same exporters as often.
pub fn prometheus(programs: &[RunningProgram], folder: &Path, pace: &Pace) -> Result<Process> {
    let [address]: [SocketAddr; 1] = free()?;
    let exporters: Vec<_> = programs.iter().map(|running| running.exporter.to_string()).collect();
    let every = format!("{}ms", pace.interval_ms);
    let config = serde_json::json!({
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "scrape_configs": [{"job_name": "exporters", "static_configs": [{"targets": exporters}]}],
    });
    let path = folder.join("prometheus.yml");
    fs::write(&path, config.to_string())?;
    let mut prometheus = command("prometheus")?;
    prometheus.arg(format!("--config.file={}", path.display()));
    prometheus.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
    prometheus.arg(format!("--web.listen-address={address}"));
    let process = Process::start(&mut prometheus, &folder.join("prometheus.log"))?;
    listens(address)?;
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_watch_are_told_apart() {
        let of = |line: &str| word("redis", line);

        assert_eq!(of("redis: armed, γ 12.9"), Some(Word::Armed));
        let alarm = "process.network.queue{network.io.direction=\"receive\"} 3.153 kB, expected 1.092 kB (92 %)";
        assert_eq!(of(&format!("redis: {alarm}")), Some(Word::Began(alarm.to_owned())));
        assert_eq!(of("redis: the alarm has ended"), Some(Word::Ended));
        assert_eq!(of("redis: another alarm begins"), Some(Word::Another));
        assert_eq!(of("redis: has ended; waiting for its restart"), Some(Word::Down));
        assert_eq!(of("redis: has restarted as pid 7"), Some(Word::Restarted));
        assert_eq!(of("redis: learning what is normal from 120 samples of 23 metrics"), None);
        assert_eq!(of("redis-2: the alarm has ended"), None);
        assert_eq!(of("live view: uview top --runtime-dir /tmp/x"), None);
    }

    #[test]
    fn a_verdict_says_when_an_alarm_begins_and_ends() {
        let of = |episode: &str| words_of(&HookEvent { episode: episode.to_owned(), ..HookEvent::default() });

        assert!(matches!(&of("began")[..], [Word::Another, Word::Began(_)]));
        assert_eq!((of("on"), of("quiet"), of("ended")), (vec![], vec![], vec![Word::Ended]));
    }

    #[test]
    fn a_restart_is_a_count_that_has_grown() {
        let of = |redis, nginx| {
            let target = |service: &str, restarts| SourceTarget {
                service: service.to_owned(),
                restarts,
                ..SourceTarget::default()
            };
            restarts(&[target("redis", redis), target("nginx", nginx)])
        };

        let programs = [Program::Redis, Program::Nginx];
        assert_eq!(restarted(&of(1, 0), &of(1, 1), &programs), [Program::Nginx]);
        assert!(restarted(&of(1, 1), &of(1, 1), &programs).is_empty());
    }
}
