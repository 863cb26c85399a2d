//! The program: arguments, signals, and what a kill leaves behind.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use host_agent::config::Config;
use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use support::http::{self, exchange};
use support::otlp::traces;

use crate::agent::{WAIT, addresses};
use crate::coherence::free;
use crate::otlp::span;
use crate::service::Service;

const PROGRAM: &str = env!("CARGO_BIN_EXE_uview-host-agent");

fn write_config(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("config.yaml");
    let text = format!(
        "runtime_dir: {}\nmetrics: {{listen: '127.0.0.1:0'}}\nlog: {{format: json}}\n",
        folder.join("run").display()
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn start(folder: &Path) -> Child {
    start_by(&mut Command::new(PROGRAM), folder)
}

/// Starts it by `command`, and waits until it listens.
fn start_by(command: &mut Command, folder: &Path) -> Child {
    start_with(command, folder, "")
}

/// The same with `more` in its configuration.
fn start_with(command: &mut Command, folder: &Path, more: &str) -> Child {
    let config = write_config(folder);
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text + more).unwrap();
    let mut child = command.arg("--config").arg(config).stderr(Stdio::piped()).spawn().unwrap();
    WAIT.until("host-agent.json", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        addresses(&folder.join("run")).filter(|at| at.pid == child.id())
    });
    child
}

/// The page of metrics; `None` if the agent refuses the connection.
fn metrics(address: SocketAddr) -> Option<String> {
    http::get(address, "/metrics").ok()?.text().ok()
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

#[test]
fn on_sigterm_it_ends_well_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = start(folder.path());

    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();

    assert!(agent.wait().unwrap().success());
    assert!(!folder.path().join("run").exists());
    let mut log = String::new();
    agent.stderr.unwrap().read_to_string(&mut log).unwrap();
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect(line);
    }
    assert!(log.contains("host agent stopping"), "{log}");
}

#[test]
fn what_a_killed_one_left_is_taken_over_and_a_living_one_is_not_disturbed() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = start(folder.path());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(folder.path().join("run/services.sock").exists());

    let mut second = start(folder.path());

    let config = write_config(folder.path());
    let third = run(&["--config", config.to_str().unwrap()]);
    assert!(!third.status.success());
    let text = String::from_utf8(third.stderr).unwrap();
    assert!(text.contains("another agent listens on"), "{text}");
    assert!(addresses(&folder.path().join("run")).is_some_and(|at| at.pid == second.id()));
    kill_process(Pid::from_child(&second), Signal::TERM).unwrap();
    assert!(second.wait().unwrap().success());
}

#[test]
fn the_default_configuration_is_printed() {
    let printed = run(&["--print-default-config"]);

    assert!(printed.status.success());
    assert_eq!(Config::parse(&String::from_utf8(printed.stdout).unwrap()).unwrap(), Config::default());
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_config(folder.path());
    let check = || run(&["--config", path.to_str().unwrap(), "--check-config"]);

    let good = check();
    let text = String::from_utf8(good.stdout).unwrap();
    assert!(good.status.success() && text.contains("\n0 errors, "), "{text}");
    assert!(!folder.path().join("run").exists(), "nothing was created");

    let mut running = start(folder.path());
    let again = check();
    let text = String::from_utf8(again.stdout).unwrap();
    let process = format!("an agent runs with it, process {};", running.id());
    assert!(again.status.success() && text.contains(&process), "{text}");
    kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
    assert!(running.wait().unwrap().success());

    std::fs::write(&path, "runtime_dir: /proc/self/nowhere\nlmap: {interval_ms: 3600001}\n").unwrap();
    let bad = check();
    let text = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(text.contains("error    lmap.interval_ms") && text.contains("error    runtime_dir"), "{text}");
}

#[test]
fn an_unknown_key_ends_it_with_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, "lmap:\n  interval: 5\n").unwrap();

    let ended = run(&["--config", path.to_str().unwrap()]);

    assert!(!ended.status.success());
    let text = String::from_utf8(ended.stderr).unwrap();
    assert!(text.contains("line 2") && text.contains("column 3") && text.contains("interval"), "{text}");
    let missing = run(&["--config", "/nowhere/at/all"]);
    assert!(String::from_utf8(missing.stderr).unwrap().contains("cannot read the configuration file /nowhere/at/all"));
}

#[test]
fn the_budget_of_a_configuration_is_printed_without_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, "lmap: {model_bytes: 5242880}\n").unwrap();

    let printed = run(&["--config", path.to_str().unwrap(), "--budget", "--services", "7", "--columns", "9"]);

    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.status.success() && text.contains("with 7 services of 9 columns"), "{text}");
    assert!(text.contains("      7 MiB  learnt models: lmap.model_bytes + 4,096 × 512 B\n"), "{text}");
    assert!(!run(&["--services", "7"]).status.success(), "without --budget it means nothing");
}

#[test]
fn when_others_have_taken_the_descriptors_that_they_may_have_a_service_still_registers() {
    /// Descriptors of the agent, of which 16 are kept back. It has about twenty before anybody connects.
    const DESCRIPTORS: &str = "ulimit -n 64 && exec \"$0\" \"$@\"";
    let folder = tempfile::tempdir().unwrap();
    let mut agent = start_by(Command::new("sh").args(["-c", DESCRIPTORS, PROGRAM]), folder.path());
    let at = addresses(&folder.path().join("run")).unwrap();
    let open = || std::fs::read_dir(format!("/proc/{}/fd", agent.id())).unwrap().count();
    let held: Vec<_> = (0..60).map(|_| TcpStream::connect(at.metrics).unwrap()).collect();
    WAIT.until("full agent", || (open() >= 47).then_some(()));

    let (service, _region) = Service::connect_to(&at.services).registered("payment", &["requests"]);

    drop((held, service));
    let counted = WAIT.until("page", || {
        // What was held is not closed yet at the first try, perhaps.
        metrics(at.metrics)?
            .lines()
            .find_map(|line| line.strip_prefix("uview_host_unaffordable_api_connections_total ")?.parse().ok())
    });
    assert!((10..60).contains(&counted), "{counted} were refused");
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    assert!(agent.wait().unwrap().success());
}

#[test]
fn when_otlp_and_head_sampling_have_taken_the_descriptors_that_they_may_have_a_service_still_registers() {
    /// Descriptors of the agent, of which 16 are kept back.
    const DESCRIPTORS: &str = "ulimit -n 80 && exec \"$0\" \"$@\"";
    const LEFT_TO_OTHERS: usize = 64;
    let (folder, ask) = (tempfile::tempdir().unwrap(), free(&[23])[0]);
    let more = format!(
        "head_sampling: {{listen: '{ask}'}}\n\
         otlp: {{upstream: {{endpoint: 'http://127.0.0.1:1', protocol: http}}, listen_grpc: '127.0.0.1:0', listen_http: '127.0.0.1:0'}}\n"
    );
    let mut agent = start_with(Command::new("sh").args(["-c", DESCRIPTORS, PROGRAM]), folder.path(), &more);
    let at = addresses(&folder.path().join("run")).unwrap();
    let open = || std::fs::read_dir(format!("/proc/{}/fd", agent.id())).unwrap().count();
    // To each listener more than all of them may have together.
    let all = [at.otlp[0], at.otlp[1], ask].into_iter().cycle().take(3 * (LEFT_TO_OTHERS + 1));
    // The agent is found before its head sampling listens.
    let connect = |to: SocketAddr| WAIT.until("a listener", || TcpStream::connect(to));
    let held: Vec<_> = all.map(connect).collect();
    WAIT.until("full agent", || (open() >= LEFT_TO_OTHERS - 1).then_some(()));

    let (service, _region) = Service::connect_to(&at.services).registered("payment", &["requests"]);

    drop((held, service));
    WAIT.until("both counts", || {
        // What was held is not closed yet at the first try, perhaps.
        let page = metrics(at.metrics)?;
        let count = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let refused = ["uview_host_refused_otlp_connections_total", "uview_host_refused_head_sampling_requests_total"];
        refused.into_iter().all(|name| count(name).is_some_and(|count| count > 0)).then_some(())
    });
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    assert!(agent.wait().unwrap().success());
    let mut log = String::new();
    agent.stderr.unwrap().read_to_string(&mut log).unwrap();
    for listener in ["to OTLP", "for head sampling"] {
        let said = format!("connections {listener} are refused: few file descriptors are left");
        assert!(log.contains(&said), "{log}");
    }
}

/// Clock ticks for which threads of `process` have run: those of OTLP, and all others that are there now.
fn ran(process: u32) -> (u64, u64) {
    let (mut of_otlp, mut of_others) = (0, 0);
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
        let file = |name: &str| std::fs::read_to_string(task.path().join(name));
        // A thread may end meanwhile.
        let (Ok(name), Ok(stat)) = (file("comm"), file("stat")) else { continue };
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        if name.trim() == "uview-otlp" {
            of_otlp += ticks;
        } else {
            of_others += ticks;
        }
    }
    (of_otlp, of_others)
}

/// Sends spans that are packed by gzip, and waits for the answer.
fn send_packed(to: SocketAddr, packed: &[u8]) -> std::io::Result<()> {
    let headers = "content-type: application/x-protobuf\r\ncontent-encoding: gzip\r\n";
    exchange(TcpStream::connect(to)?, "POST /v1/traces", headers, packed).map(drop)
}

/// Whether the agent says that it runs, within the time after which it takes a worker that is silent for gone.
fn is_healthy(at: SocketAddr) -> bool {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    exchange(stream, "GET /healthz", "", &[]).is_ok_and(|response| response.is_ok())
}

/// Says on drop that senders are to end, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn while_the_one_thread_of_otlp_is_busy_without_an_end_the_agent_is_healthy_and_services_register() {
    let folder = tempfile::tempdir().unwrap();
    let more = "process_metrics: {enabled: false}\n\
        otlp: {threads: 1, upstream: {endpoint: 'http://127.0.0.1:1', protocol: http}, listen_grpc: '127.0.0.1:0', \
        listen_http: '127.0.0.1:0', traces: {keep: tail, memory_bytes: 67108864}}\n";
    let mut agent = start_with(&mut Command::new(PROGRAM), folder.path(), more);
    let (at, id) = (addresses(&folder.path().join("run")).unwrap(), agent.id());
    let spans = (1..=20_000).map(|trace| span(trace, 1, &[], "POST /pay")).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&traces("payment", spans).encode_to_vec()).unwrap();
    let (packed, done) = (encoder.finish().unwrap(), AtomicBool::new(false));

    let (of_otlp, of_others) = std::thread::scope(|senders| {
        let _ends = Ends(&done);
        for _ in 0..4 {
            senders.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // What is refused for lack of memory has been decoded, too.
                    let _ = send_packed(at.otlp[1], &packed);
                }
            });
        }
        let before = ran(id);
        WAIT.until("a busy endpoint", || (ran(id).0 >= before.0 + 100).then_some(()));
        let mut registered = Vec::new();
        for round in 0..20 {
            let busy = ran(id).0;
            assert!(is_healthy(at.metrics), "round {round}");
            registered.push(Service::connect_to(&at.services).registered(&format!("cart-{round}"), &["requests"]));
            WAIT.until("the endpoint, which is busy all the time", || (ran(id).0 > busy).then_some(()));
        }
        let after = ran(id);
        (after.0 - before.0, after.1.saturating_sub(before.1))
    });

    assert!(of_others < of_otlp / 2, "others worked for {of_others} ticks, those of OTLP for {of_otlp}");
    agent.kill().unwrap();
    agent.wait().unwrap();
}
