//! The receipt's ledger survives shutdown and kill.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use agent_runtime::clock::unix_now;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message as _;
use wire::proto::operators::{ReceiptLine, ReceiptReply, ReceiptRequest};

use crate::agent::{self, Agent, WAIT, addresses};
use crate::otlp::{send, span, upstream};
use support::otlp::spans_of;

/// An agent with a long decision wait, in the directory of an earlier one.
fn start(folder: tempfile::TempDir, to: std::net::SocketAddr) -> Agent {
    Agent::again(folder, |folder| {
        let dir = folder.join("ledger").display().to_string();
        let text = format!(
            "process_metrics: {{enabled: false}}\nreceipt: {{dir: '{dir}', write_interval_ms: 100}}\n\
             otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
             traces: {{keep: tail, floor: 0, latency: false}}\n"
        );
        agent::config(folder, &text)
    })
}

fn receipt(agent: &Agent) -> ReceiptReply {
    let mut operators = agent.operators();
    operators.runtime.block_on(operators.client.receipt(ReceiptRequest {})).unwrap().into_inner()
}

fn sum(receipt: &ReceiptReply, of: impl Fn(&ReceiptLine) -> u64) -> u64 {
    receipt.days.iter().flat_map(|day| &day.services).map(of).sum()
}

fn grown(receipt: &ReceiptReply, name: &str) -> u64 {
    receipt.days.iter().filter_map(|day| day.grown.get(name)).sum()
}

/// Spans received, kept, lost by a kill, lost by a shutdown, and buffered.
fn spans(receipt: &ReceiptReply) -> [u64; 5] {
    let lost = |why: &'static str| sum(receipt, move |line| line.lost_spans.get(why).copied().unwrap_or(0));
    let waiting = receipt.waiting_spans.values().sum();
    [sum(receipt, |line| line.seen_spans), sum(receipt, |line| line.kept_spans), lost("killed"), lost("ended"), waiting]
}

/// One failed trace, and `others` without an error.
fn shop(agent: &Agent, first: u128, others: u128) {
    let failed = Span { status: Some(Status { code: 2, ..Status::default() }), ..span(first, 1, &[], "POST /pay") };
    let rest = (1..=others).map(|n| span(first + n, 1, &[], "POST /pay"));
    let body = spans_of("frontend", core::iter::once(failed).chain(rest).collect());
    let body = ExportTraceServiceRequest { resource_spans: vec![body] }.encode_to_vec();
    assert_eq!(send(agent.at.otlp[1], &body), "HTTP/1.1 200 OK");
}

#[test]
fn a_restart_continues_the_ledger_and_buffered_spans_are_lost() {
    let (to, _) = upstream();
    let first = start(tempfile::tempdir().unwrap(), to);
    shop(&first, 1, 3);
    assert_eq!(spans(&receipt(&first)), [4, 1, 0, 0, 3]);
    let second = start(first.stop(), to);
    shop(&second, 11, 2);

    let receipt = receipt(&second);

    assert_eq!(spans(&receipt), [7, 2, 0, 3, 2]);
    assert_eq!((grown(&receipt, "starts"), grown(&receipt, "kills")), (2, 0));
    assert_eq!(receipt.runs.iter().map(|run| run.ended_in_order).collect::<Vec<_>>(), [true, false]);
    assert_eq!(receipt.since_unix_ns, receipt.runs[0].began_unix_ns);
    assert!(!receipt.in_memory && receipt.runs[0].written_unix_ns < receipt.runs[1].began_unix_ns);
}

#[test]
fn after_a_kill_the_receipt_shows_since_when_nothing_was_recorded() {
    let (to, _) = upstream();
    let first = start(tempfile::tempdir().unwrap(), to);
    let file = |folder: &Path| folder.join("ledger/receipt.ledger");
    shop(&first, 1, 3);
    let sent = unix_now().0;
    // As a kill finds it: written after the spans came, without the final write.
    let left = WAIT.until("the ledger with what came", || {
        (receipt(&first).runs[0].written_unix_ns > sent).then(|| fs::read(file(first.folder.path())).unwrap())
    });
    shop(&first, 11, 1);
    let folder = first.stop();
    fs::write(file(folder.path()), left).unwrap();
    let second = start(folder, to);

    let receipt = receipt(&second);

    // Two spans came after the last write and are not recorded.
    assert_eq!(spans(&receipt), [4, 1, 3, 0, 0]);
    assert_eq!((grown(&receipt, "starts"), grown(&receipt, "kills")), (2, 1));
    let (killed, this) = (&receipt.runs[0], &receipt.runs[1]);
    assert!(!killed.ended_in_order && (sent..this.began_unix_ns).contains(&killed.written_unix_ns), "{receipt:?}");
}

#[test]
fn an_unreadable_ledger_is_moved_aside_and_the_agent_starts() {
    let (to, _) = upstream();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("ledger")).unwrap();
    fs::write(folder.path().join("ledger/receipt.ledger"), "uview receipt 1 00000000 99\n{").unwrap();

    let agent = start(folder, to);

    let receipt = receipt(&agent);
    assert_eq!((grown(&receipt, "ledgers_set_aside"), receipt.runs.len()), (1, 1));
    assert!(fs::read_to_string(agent.folder.path().join("ledger/receipt.set-aside")).unwrap().ends_with("99\n{"));
}

#[test]
fn a_ledger_that_cannot_be_written_is_a_problem_until_it_can() {
    let (to, _) = upstream();
    let agent = start(tempfile::tempdir().unwrap(), to);
    let ledger = agent.folder.path().join("ledger");
    let problem = || agent.status().problems.into_iter().find(|problem| problem.starts_with("receipt: "));
    WAIT.until("the first write", || ledger.join("receipt.ledger").exists().then_some(()));
    assert_eq!(problem(), None);

    fs::rename(&ledger, agent.folder.path().join("elsewhere")).unwrap();
    let said = WAIT.until("the problem", problem);
    assert!(said.contains("the ledger cannot be written"), "{said}");
    assert!(agent.counter("failed_receipt_writes") > 0);

    fs::create_dir(&ledger).unwrap();
    WAIT.until("the end of the problem", || problem().is_none().then_some(()));
}

/// An agent in a process of its own, whose ledger is on a disk of its own.
struct SmallDiskAgent {
    agent: Agent,
    process: Child,
    /// The ledger's directory, as the process sees it.
    ledger: PathBuf,
}

impl SmallDiskAgent {
    /// Starts it with a disk of 256 KiB; `None` where it cannot be mounted.
    fn start() -> Option<Self> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--mount"]);
        let possible = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status();
        if !possible.is_ok_and(|status| status.success()) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let [config, run, ledger] = ["config.yaml", "run", "ledger"].map(|name| folder.path().join(name));
        fs::create_dir(&ledger).unwrap();
        let text = format!(
            "runtime_dir: {}\nmetrics: {{listen: '127.0.0.1:0'}}\nprocess_metrics: {{enabled: false}}\n\
             receipt: {{dir: '{}', write_interval_ms: 100}}\n",
            run.display(),
            ledger.display()
        );
        fs::write(&config, text).unwrap();
        unshare.args(["sh", "-c", "mount -t tmpfs -o size=256k tmpfs \"$0\" && exec \"$@\""]).arg(&ledger);
        let mut process =
            unshare.arg(env!("CARGO_BIN_EXE_uview-host-agent")).arg("--config").arg(config).spawn().unwrap();
        let at = WAIT.until("host-agent.json", || {
            assert!(process.try_wait().unwrap().is_none(), "it ended");
            addresses(&run)
        });
        let ledger = PathBuf::from(format!("/proc/{}/root{}", process.id(), ledger.display()));
        Some(Self { agent: Agent::beside(folder, at), process, ledger })
    }
}

impl Drop for SmallDiskAgent {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

#[test]
fn on_a_full_disk_the_ledger_of_before_stays_and_status_and_metrics_say_so_until_there_is_room() {
    let disk = SmallDiskAgent::start();
    let Some(SmallDiskAgent { agent, ledger, .. }) = &disk else {
        return support::harness::not_run("a full disk for the ledger: no namespace of mounts here");
    };
    let (file, other) = (ledger.join("receipt.ledger"), ledger.join("filler"));
    let problem = || agent.status().problems.into_iter().find(|problem| problem.starts_with("receipt: "));
    WAIT.until("the first write", || file.exists().then_some(()));
    assert_eq!(problem(), None);

    let mut filler = fs::File::create(&other).unwrap();
    let said = WAIT.until("the problem", || {
        // A write that succeeds meanwhile gives the earlier ledger's space back.
        while filler.write_all(&[7; 4096]).is_ok() {}
        problem()
    });

    assert!(said.contains("the ledger cannot be written") && said.contains("No space left"), "{said}");
    let before = fs::read(&file).unwrap();
    assert!(before.starts_with(b"uview receipt "), "{before:?}");
    assert!(agent.counter("failed_receipt_writes") > 0);
    let (_, page) = agent.get("/metrics");
    let failed = page.lines().find_map(|line| line.strip_prefix("uview_host_failed_receipt_writes_total "));
    assert!(failed.is_some_and(|count| count != "0"), "{failed:?}");

    drop(filler);
    fs::remove_file(&other).unwrap();
    WAIT.until("the end of the problem", || problem().is_none().then_some(()));
    assert_ne!(fs::read(&file).unwrap(), before, "what is newer follows");
}
