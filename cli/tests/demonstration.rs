//! The whole demo: real processes, one fault, its report, and no process or file left behind, however the demo ends.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use support::wait::Wait;
use tempfile::TempDir;

/// The demo itself, five services, the load and two agents. With root there is one more: the link between two services.
const PROCESSES: usize = 9;

/// How tests wait for a condition: twenty minutes. A run takes half a minute on an idle machine.
const WAIT: Wait = Wait::up_to(Duration::from_mins(20)).pausing(Duration::from_millis(50));

/// One demo at a time: two would compete for the CPU, and each would detect the other as a fault.
static STAGE: Mutex<()> = Mutex::new(());

/// A demo in a process group of its own, as a shell starts it.
struct Demo {
    child: Child,
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let file = |name| File::create(folder.path().join(name)).unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
        command.arg("demo").args(arguments).current_dir(folder.path()).env("TMPDIR", folder.path().join("tmp"));
        let child = command.process_group(0).stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap();
        Self { child, folder, _alone: alone }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn output(&self) -> String {
        let read = |name| fs::read_to_string(self.path(name)).unwrap();
        format!("stdout:\n{}\nstderr:\n{}", read("stdout"), read("stderr"))
    }

    /// The network interface of this demo's link, once the demo has printed it.
    fn interface(&self) -> Option<String> {
        let stdout = fs::read_to_string(self.path("stdout")).unwrap();
        let line = stdout.lines().find(|line| line.contains("starting the link"))?;
        line.rsplit_once(' ').map(|(_, name)| name.to_owned())
    }

    /// The running processes of this demo, as command lines. They all inherit its directory for temporary files, which
    /// no other process has.
    fn processes(&self) -> Vec<String> {
        let mark = format!("TMPDIR={}", self.path("tmp").display());
        let of_this = |process: &Path| {
            let environment = fs::read(process.join("environ")).ok()?;
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()).then_some(())?;
            Some(String::from_utf8_lossy(&fs::read(process.join("cmdline")).ok()?).replace('\0', " "))
        };
        fs::read_dir("/proc").unwrap().filter_map(|entry| of_this(&entry.unwrap().path())).collect()
    }

    #[track_caller]
    fn wait_for_processes(&mut self, count: usize) {
        WAIT.until(&format!("{count} processes run"), || {
            let processes = self.processes();
            if processes.len() >= count {
                return Ok(());
            }
            assert_eq!(self.child.try_wait().unwrap(), None, "{}", self.output());
            Err((processes, self.output()))
        });
    }

    /// Signals the process group of the demo.
    fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        WAIT.until("the demo ends", || self.child.try_wait().unwrap().ok_or_else(|| self.output()))
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        let files: Vec<_> = fs::read_dir(self.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files, Vec::<PathBuf>::new());
        self.assert_no_interface_is_left();
    }

    #[track_caller]
    fn assert_no_interface_is_left(&self) {
        let Some(interface) = self.interface() else { return };
        let path = Path::new("/sys/class/net").join(&interface);
        // The kernel removes an interface some time after the end of the process that had it, and the demo of another
        // test may take its name meanwhile.
        WAIT.until(&format!("{interface} is gone"), || !path.exists());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill(); // its children end with it
        let _ = self.child.wait();
    }
}

/// A field, and a condition that it has to meet.
type Field = (&'static str, fn(&Value) -> bool);

#[track_caller]
fn assert_has(facts: &Value, fields: &[Field]) {
    for (field, right) in fields {
        assert!(right(&facts[field]), "{field} is {}", facts[field]);
    }
}

#[track_caller]
fn assert_account(facts: &Value, count: usize) {
    let positive = |value: &Value| value.as_f64().is_some_and(|number| number > 0.0);
    assert_has(
        facts,
        &[
            ("seed", |value| value == 7),
            ("interval_ms", |value| value == 50),
            ("skipped", Value::is_array),
            ("false_alarms", Value::is_array),
            ("false_alarms_per_service_minute", Value::is_number),
            ("service_minutes", positive),
            ("agent_cpu_share", positive),
            ("cpu_shares", Value::is_object),
            ("ticks", positive),
            ("missed_ticks", Value::is_u64),
            ("traces", Value::is_object),
            ("lost_verdicts", |value| value == 0),
            ("all_bars_met", Value::is_boolean),
        ],
    );
    assert_eq!(facts["faults"].as_array().map(Vec::len), Some(count), "{}", facts["faults"]);
    assert_has(&facts["load"], &[("sent", positive), ("failed", Value::is_u64), ("median_us", positive)]);
    let kept_of_seen = |value: &Value| value.as_f64().is_some_and(|share| share < 1.0);
    assert_has(&facts["traces"], &[("requests", positive), ("seen_spans", positive), ("head_share", kept_of_seen)]);
    let bars = facts["bars"].as_array().unwrap();
    for bar in bars {
        assert!(bar["met"].is_boolean() || bar["met"].is_null(), "{bar}");
        assert_has(bar, &[("name", Value::is_string), ("reached", Value::is_string), ("asked", Value::is_string)]);
    }
    let outcomes: Vec<_> = bars.iter().map(|bar| bar["met"].as_bool()).collect();
    assert!(bars.len() == 4 && outcomes.iter().any(Option::is_some), "{bars:?}");
    assert_eq!(facts["all_bars_met"], !outcomes.contains(&Some(false)), "{bars:?}");
}

/// Failed requests are kept completely, and their root spans name the service or operation that failed.
#[track_caller]
fn assert_kept(traces: &Value) {
    let some = |value: &Value| value.as_u64().is_some_and(|number| number > 0);
    assert_has(traces, &[("hit", some), ("kept_whole", some), ("reason_names_service", some), ("kept_bytes", some)]);
    let shown = &traces["shown"];
    let names = |reason: &str| ["payment: ", "GET /pay ", "GET /quote "].iter().any(|name| reason.contains(name));
    assert!(shown["reason"].as_str().is_some_and(names), "{shown}");
    assert!(shown["trace"].as_str().is_some_and(|id| id.len() == 32), "{shown}");
}

/// If a trace was kept, the page draws it, and stdout has a link to it.
#[track_caller]
fn assert_can_be_opened(traces: &Value, page: &str, output: &str) {
    let Some(trace) = traces["shown"]["trace"].as_str() else { return };
    for word in ["href=\"#trace-of-fault-1\"", "id=\"trace-of-fault-1\"", "class=\"waterfall\"", trace] {
        assert!(page.contains(word), "`{word}` is not in the page");
    }
    assert!(output.contains("file:///") && output.contains("/page/index.html#trace-of-fault-1\n"), "{output}");
}

/// Where packets are captured, who visits the frontend is in all reports: who of the load's addresses sends most, and
/// how many there are.
#[track_caller]
fn assert_visitors(talkers: &Value, page: &str, output: &str) {
    let named = |value: &Value| value.as_str().is_some_and(|name| name.starts_with("127.0.0."));
    assert!(named(&talkers["top_talker"]["usual"]), "{talkers}");
    let share = talkers["share"]["usual"].as_f64();
    assert!(share.is_some_and(|share| share > 0.0 && share <= 1.0), "{talkers}");
    for figure in ["clients", "connections"] {
        assert!(talkers[figure]["usual"].as_f64().is_some_and(|count| count >= 0.5), "{talkers}");
    }
    assert!(page.contains("<h2>Who visits the frontend</h2>") && page.contains("<td>distinct clients</td>"), "{page}");
    assert!(output.contains("\nwho visits the frontend: ") && output.contains("\ndistinct clients "), "{output}");
}

/// The first line has an address of the live page, so that it can be opened while the shop starts.
#[track_caller]
fn assert_the_page_comes_first(stdout: &str) {
    let lines: Vec<_> = stdout.lines().collect();
    let url = lines[0].strip_prefix("watch it live, in one browser (another: `uview open`): ");
    let token = url.and_then(|url| url.strip_prefix("http://127.0.0.1:")?.split_once("/open?token=")).map(|of| of.1);
    assert!(token.is_some_and(|token| token.len() >= 32), "{stdout}");
    let other = lines.iter().filter(|line| line.contains("/open?token=")).count();
    assert!(other == 1 && lines.iter().any(|line| line.starts_with("  starting ")), "{stdout}");
}

/// Why the machine was too busy for the shop, if it was. Then a missed fault is no failure of the agents.
fn starved(facts: &Value) -> Option<String> {
    let number = |value: &Value| value.as_u64().unwrap();
    let (load, ticks, missed) = (&facts["load"], number(&facts["ticks"]), number(&facts["missed_ticks"]));
    // A timeout of one second causes errors in the shop without a fault.
    let gave_up = number(&load["p99_us"]) >= 1_000_000 || number(&load["dropped"]) > 0;
    let blind = missed * 10 >= ticks;
    (gave_up || blind).then(|| format!("{missed} of {ticks} ticks missed, load {load}"))
}

/// Whether the service was in alarm before its fault, so that the fault cannot be noticed. How often that happens is a
/// figure of `uview demo` on an idle machine.
fn was_in_alarm(facts: &Value, service: &str) -> bool {
    facts["false_alarms"].as_array().unwrap().iter().any(|alarm| alarm["service"] == service)
}

/// Checks that the fault was noticed, in its service, with a matching metric. Delay and rank depend on the load of the
/// machine.
#[track_caller]
fn assert_noticed(fault: &Value, kind: &str, service: &str) {
    assert_eq!((&fault["kind"], &fault["service"]), (&kind.into(), &service.into()));
    assert_has(
        fault,
        &[
            ("started_ms", |value| value.as_u64().is_some_and(|ms| ms > 0)),
            ("lasted_ms", |value| value.as_u64().is_some_and(|ms| ms >= 4000)),
            ("noticed_ms", Value::is_u64),
            ("by_silence", |value| value == false),
            ("in_time", Value::is_boolean),
            ("doubled_ms", Value::is_null),
            ("rank", Value::is_u64),
            ("explained", |value| value == true),
        ],
    );
    let flagged = fault["flagged"].as_array().unwrap();
    let own = flagged.iter().find(|flagged| flagged["service"] == service).unwrap();
    assert!(own["score_over_gamma"].as_f64().is_some_and(|ratio| ratio >= 1.0), "{own}");
    assert!(own["after_ms"] == fault["noticed_ms"] && own["on_path"] == true, "{own}");
    let top = fault["top_metrics"].as_array().unwrap();
    let telling = top.iter().find(|metric| metric["belongs"] == true).unwrap();
    assert!(telling["column"].is_string() && telling["share"].is_number() && telling["seen"].is_number(), "{telling}");
}

#[track_caller]
fn assert_self_contained(page: &str, fault: &str, service: &str) {
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"), "{page}");
    for word in ["<svg", fault, service, "seed 7"] {
        assert!(page.contains(word), "`{word}` is not in the page");
    }
    for outside in ["<script", "<link", "<img", "<iframe", "url(", "@import", "src=", "could not be drawn"] {
        assert!(!page.contains(outside), "`{outside}` is in the page");
    }
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
}

/// Runs the demo for half a minute with one fault, or none if `kind` is skipped, and returns its report. Also on a busy
/// machine the report is complete and nothing is left behind.
#[track_caller]
fn facts_of_one_fault(kind: &str, service: &str) -> Value {
    let account = ["--json", "facts.json", "--report", "page"];
    let mut demo = Demo::start(&[&["--seed", "7", "--only", kind, "--interval-ms", "50"][..], &account].concat());
    demo.wait_for_processes(PROCESSES);

    let status = demo.ended();

    demo.assert_nothing_is_left();
    assert_the_page_comes_first(&fs::read_to_string(demo.path("stdout")).unwrap());
    let facts = fs::read(demo.path("facts.json"));
    assert!(facts.is_ok(), "{status}\n{}", demo.output());
    let facts: Value = serde_json::from_slice(&facts.unwrap()).unwrap();
    let skipped = facts["skipped"].as_array().unwrap();
    assert_account(&facts, 1 - skipped.len());
    assert_eq!(status.code(), Some(if facts["all_bars_met"] == true { 0 } else { 3 }), "{}", demo.output());
    let page = fs::read_to_string(demo.path("page/index.html")).unwrap();
    let Some(left_out) = skipped.first() else {
        assert_self_contained(&page, &format!("<td>{kind}</td>"), service);
        assert_can_be_opened(&facts["faults"][0]["traces"], &page, &demo.output());
        if kind == "slow-link" {
            assert_visitors(&facts["talkers"], &page, &demo.output());
        } else {
            assert!(facts["talkers"].is_null(), "no packet was captured: {}", facts["talkers"]);
        }
        return facts;
    };
    let note = format!("{kind} is skipped: {}", left_out["why"].as_str().unwrap());
    assert_self_contained(&page, &note, "payment");
    assert!(demo.output().contains(&format!("  {note}\n")), "{}", demo.output());
    assert!(demo.interface().is_none(), "{}", demo.output());
    facts
}

/// Runs the demo with one fault, up to three times until the machine is not too busy, and passes its report to `judge`.
#[track_caller]
fn judge_one_fault(kind: &str, service: &str, judge: fn(&Value)) {
    let mut in_alarm = 0;
    for attempt in 1..=3 {
        let facts = facts_of_one_fault(kind, service);
        if let Some(skipped) = facts["skipped"].get(0) {
            eprintln!("NOT JUDGED: {skipped}");
            assert!(kind == "slow-link", "{skipped}");
            return;
        }
        let Err(missed) = catch_unwind(|| judge(&facts["faults"][0])) else { return };
        if let Some(why) = starved(&facts) {
            eprintln!("attempt {attempt} of 3: the machine was too busy for the shop: {why}");
        } else if was_in_alarm(&facts, service) {
            in_alarm += 1;
            eprintln!("attempt {attempt} of 3: an alarm before the fault: {}", facts["false_alarms"]);
        } else {
            resume_unwind(missed);
        }
    }

    // Whatever the machine did, the accounts were whole, and nothing was left behind.
    assert!(in_alarm < 3, "there was an alarm before the fault whenever the machine had time for the shop");
    eprintln!("NOT JUDGED: whether the fault is noticed, and its traces kept; the machine was too busy for the shop");
}

#[test]
fn a_fault_is_noticed_in_its_own_service_and_the_account_says_so_to_programs_and_people() {
    judge_one_fault("errors", "payment", |fault| {
        assert_noticed(fault, "errors", "payment");
        assert_kept(&fault["traces"]);
    });
}

/// Whether the metrics of packets detect the fault is checked by the longer demo of `cargo xtask ci`.
#[test]
fn a_fault_on_the_network_happens_with_root_and_is_reported_as_skipped_without() {
    judge_one_fault("slow-link", "network.payment-store", |fault| {
        assert_eq!((&fault["kind"], &fault["service"]), (&"slow-link".into(), &"network.payment-store".into()));
        assert!(fault["lasted_ms"].as_u64().is_some_and(|ms| ms >= 4000), "{fault}");
    });
}

#[test]
fn ctrl_c_leaves_neither_a_process_nor_a_file_behind() {
    for (when, count) in [("while the stage is set", 3), ("while everything runs", PROCESSES)] {
        let mut demo = Demo::start(&["--json", "facts.json"]);
        demo.wait_for_processes(count);

        demo.signal(Signal::INT);

        assert_eq!(demo.ended().code(), Some(1), "{when}");
        demo.assert_nothing_is_left();
        assert!(demo.output().contains("interrupted"), "{when}: {}", demo.output());
        assert!(!demo.path("facts.json").exists(), "{when}: half a run is no account");
    }
}

#[test]
fn a_demo_that_is_killed_takes_its_processes_with_it() {
    let mut demo = Demo::start(&[]);
    demo.wait_for_processes(PROCESSES);

    demo.signal(Signal::KILL);

    demo.ended();
    WAIT.until("no process is left", || {
        let left = demo.processes();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    demo.assert_no_interface_is_left();
}
