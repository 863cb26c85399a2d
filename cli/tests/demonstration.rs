//! The demo, whole: real processes, one fault, the account of it, and nothing left behind, however it ends.
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
use tempfile::TempDir;

/// The demo itself, five services, the load and two agents; where root is there is one more, the way between two services.
const PROCESSES: usize = 9;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A run takes half a minute; so many looks are four minutes, for a machine that is busy.
const LOOKS: usize = 4800;

/// One demo at a time: two would have to share the processor, and each would see the other as a fault.
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

    fn said(&self) -> String {
        let read = |name| fs::read_to_string(self.path(name)).unwrap();
        format!("stdout:\n{}\nstderr:\n{}", read("stdout"), read("stderr"))
    }

    /// The interface that packets of this demo pass, once it is said.
    fn interface(&self) -> Option<String> {
        let said = fs::read_to_string(self.path("stdout")).unwrap();
        let line = said.lines().find(|line| line.contains("starting the way"))?;
        line.rsplit_once(' ').map(|(_, name)| name.to_owned())
    }

    /// The processes of this demo that live, as command lines: they all inherit its directory for temporary files, which is nobody else's.
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
        for _ in 0..LOOKS {
            if self.processes().len() >= count {
                return;
            }
            assert_eq!(self.child.try_wait().unwrap(), None, "{}", self.said());
            std::thread::sleep(LOOK_EVERY);
        }
        assert_eq!(self.processes().len(), count, "{}", self.said());
    }

    /// To the demo and whoever else is in its group.
    fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        let look = |_| {
            let status = self.child.try_wait().unwrap();
            if status.is_none() {
                std::thread::sleep(LOOK_EVERY);
            }
            status
        };
        let status = (0..LOOKS).find_map(look);
        assert!(status.is_some(), "it does not end:\n{}", self.said());
        status.unwrap()
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
        let left = |name: &String| Path::new("/sys/class/net").join(name).exists();
        assert_eq!(self.interface().filter(left), None);
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill(); // its children end with it
        let _ = self.child.wait();
    }
}

/// A field and what has to hold of it.
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

/// Requests that failed are kept whole, and their root spans say in whose name, or at which of its operations.
#[track_caller]
fn assert_kept(traces: &Value) {
    let some = |value: &Value| value.as_u64().is_some_and(|number| number > 0);
    assert_has(traces, &[("hit", some), ("kept_whole", some), ("reason_names_service", some), ("kept_bytes", some)]);
    let shown = &traces["shown"];
    let names = |reason: &str| ["payment: ", "GET /pay ", "GET /quote "].iter().any(|name| reason.contains(name));
    assert!(shown["reason"].as_str().is_some_and(names), "{shown}");
    assert!(shown["trace"].as_str().is_some_and(|id| id.len() == 32), "{shown}");
}

/// If a trace was kept, the page draws it, and the terminal says where.
#[track_caller]
fn assert_can_be_opened(traces: &Value, page: &str, said: &str) {
    let Some(trace) = traces["shown"]["trace"].as_str() else { return };
    for word in ["href=\"#trace-of-fault-1\"", "id=\"trace-of-fault-1\"", "class=\"waterfall\"", trace] {
        assert!(page.contains(word), "`{word}` is not in the page");
    }
    assert!(said.contains("file:///") && said.contains("/page/index.html#trace-of-fault-1\n"), "{said}");
}

/// What the machine had no time for, if there is such a thing: then what was missed says more about the machine than about the agents.
fn starved(facts: &Value) -> Option<String> {
    let number = |value: &Value| value.as_u64().unwrap();
    let (load, ticks, missed) = (&facts["load"], number(&facts["ticks"]), number(&facts["missed_ticks"]));
    // Services wait for each other for a second: then the shop has errors without a fault.
    let gave_up = number(&load["p99_us"]) >= 1_000_000 || number(&load["dropped"]) > 0;
    let blind = missed * 10 >= ticks;
    (gave_up || blind).then(|| format!("{missed} of {ticks} ticks missed, load {load}"))
}

/// Whether the service was in alarm, or about to be, before it had the fault: one that is in alarm already cannot be noticed. How often that
/// happens is a figure of `uview demo` on a machine of its own.
fn was_in_alarm(facts: &Value, service: &str) -> bool {
    facts["false_alarms"].as_array().unwrap().iter().any(|alarm| alarm["service"] == service)
}

/// How long it took and who was ranked first depends on who else uses the machine; that it was noticed, where, and why does not.
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

/// One run of half a minute with one fault, or none if `kind` is skipped, and its account. Whatever the machine does, the account is whole and nothing
/// is left.
#[track_caller]
fn facts_of_one_fault(kind: &str, service: &str) -> Value {
    let account = ["--json", "facts.json", "--report", "page"];
    let mut demo = Demo::start(&[&["--seed", "7", "--only", kind, "--interval-ms", "50"][..], &account].concat());
    demo.wait_for_processes(PROCESSES);

    let status = demo.ended();

    demo.assert_nothing_is_left();
    let facts = fs::read(demo.path("facts.json"));
    assert!(facts.is_ok(), "{status}\n{}", demo.said());
    let facts: Value = serde_json::from_slice(&facts.unwrap()).unwrap();
    let skipped = facts["skipped"].as_array().unwrap();
    assert_account(&facts, 1 - skipped.len());
    assert_eq!(status.code(), Some(if facts["all_bars_met"] == true { 0 } else { 3 }), "{}", demo.said());
    let page = fs::read_to_string(demo.path("page/index.html")).unwrap();
    let Some(left_out) = skipped.first() else {
        assert_self_contained(&page, &format!("<td>{kind}</td>"), service);
        assert_can_be_opened(&facts["faults"][0]["traces"], &page, &demo.said());
        return facts;
    };
    let said = format!("{kind} is skipped: {}", left_out["why"].as_str().unwrap());
    assert_self_contained(&page, &said, "payment");
    assert!(demo.said().contains(&format!("  {said}\n")), "{}", demo.said());
    assert!(demo.interface().is_none(), "{}", demo.said());
    facts
}

/// Runs the demo with one fault until the machine has time for the shop, and gives its account to `judge`.
#[track_caller]
fn judge_one_fault(kind: &str, service: &str, judge: fn(&Value)) {
    let mut in_alarm = 0;
    for attempt in 1..=3 {
        let facts = facts_of_one_fault(kind, service);
        if let Some(skipped) = facts["skipped"].get(0) {
            eprintln!("NOT JUDGED: {skipped}");
            assert!(kind == "slow-way", "{skipped}");
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

/// That the packets' metrics find it is judged by `cargo xtask ci`'s demo, where there is more to learn from than in half a minute of few visitors.
#[test]
fn a_fault_on_the_network_happens_where_root_is_and_is_said_to_be_skipped_where_not() {
    judge_one_fault("slow-way", "network.payment-store", |fault| {
        assert_eq!((&fault["kind"], &fault["service"]), (&"slow-way".into(), &"network.payment-store".into()));
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
        assert!(demo.said().contains("interrupted"), "{when}: {}", demo.said());
        assert!(!demo.path("facts.json").exists(), "{when}: half a run is no account");
    }
}

#[test]
fn a_demo_that_is_killed_takes_its_processes_with_it() {
    let mut demo = Demo::start(&[]);
    demo.wait_for_processes(PROCESSES);

    demo.signal(Signal::KILL);

    demo.ended();
    let left = (0..LOOKS).find_map(|_| {
        let left = demo.processes();
        if !left.is_empty() {
            std::thread::sleep(LOOK_EVERY);
        }
        left.is_empty().then_some(())
    });
    assert!(left.is_some(), "{:?}", demo.processes());
    demo.assert_no_interface_is_left();
}
