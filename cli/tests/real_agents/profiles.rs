//! A service burns a processor: the incident says in which function.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::live_page::shows_profile;
use crate::{ANY, Agent, HEARTBEAT_MS, WAIT, addresses, ask, lmap};

/// Names the folder for the process that is watched.
const FOLDER: &str = "UVIEW_TEST_PROFILED";

/// Ended with the test.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[inline(never)]
fn burn_the_processor() -> ! {
    let mut number = 1_u64;
    // It calls nothing: without frame pointers, only the function that runs is sure to be seen.
    loop {
        number ^= number << 13;
        number ^= number >> 7;
    }
}

/// The process that is watched: started by the test below, in this same program.
#[test]
#[ignore = "it is the process that another test watches"]
#[expect(clippy::disallowed_methods, reason = "it is a program of its own")]
fn a_service_that_burns_when_it_is_told_to() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a test starts it"));
    let service = client::Service::new("burner").instance("burner-1").socket(folder.join("run/services.sock"));
    let uview = client::connect(service);
    let queue = uview.gauge("queue.depth").register();
    let mut burns = None;
    for tick in 0_u64.. {
        queue.set((tick.wrapping_mul(6_364_136_223_846_793_005) >> 58) as f64);
        if burns.is_none() && folder.join("burn").exists() {
            burns = Some(std::thread::spawn(|| burn_the_processor()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn start_service(folder: &Path) -> Service {
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself.args(["--ignored", "--exact", "profiles::a_service_that_burns_when_it_is_told_to"]);
    Service(itself.env(FOLDER, folder).spawn().unwrap())
}

fn start_agents(folder: &Path) -> (Agent, Agent) {
    let (host, nic, run) = (folder.join("host.yaml"), folder.join("nic.yaml"), folder.join("run"));
    let text = format!(
        "runtime_dir: {}\nmetrics: {ANY}\nprocess_metrics: {{interval_ms: 100}}\nlmap: {{interval_ms: 100}}\n\
         services: {{heartbeat_ms: {HEARTBEAT_MS}}}\nincidents: {{profile: {{seconds: 5, frequency_hz: 499}}}}\n",
        run.display()
    );
    std::fs::write(&host, text).unwrap();
    let host = Agent::start("host-agent", &host);
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let text =
        format!("control: {{address: '{control}'}}\nregions_socket: {regions}\ntransport: shm\nmetrics: {ANY}\n");
    std::fs::write(&nic, text).unwrap();
    (host, Agent::start("nic-agent", &nic))
}

/// What `uview incident --folded -` prints.
fn folded(run: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    let output = command.args(["incident", "--folded", "-"]).env("UVIEW_RUNTIME_DIR", run).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_function_that_burns_a_processor_is_in_the_incident() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let _agents = start_agents(folder.path());
    let _service = start_service(folder.path());
    WAIT.until("the LMAP is armed", || (lmap(&run, "burner")?["state"] == "armed").then_some(()));
    std::fs::write(folder.path().join("burn"), "").unwrap();

    let (id, profile) = WAIT.until("the incident has a profile", || {
        let incident = ask(&run, &["incident"])?;
        Some((incident["id"].as_str()?.to_owned(), incident["profiles"].as_array()?.first()?.clone()))
    });

    let problem = profile["problem"].as_str().unwrap();
    if problem.contains("the kernel refuses") {
        // CI says that this was not run.
        eprintln!("no profile here: {problem}");
        return;
    }
    assert_eq!(
        (problem, profile["service"].as_str(), profile["event"].as_str()),
        ("", Some("burner"), Some("processor time"))
    );
    let folded = folded(&run);
    let samples = |is_counted: fn(&str) -> bool| -> u64 {
        let lines = folded.lines().filter_map(|line| line.rsplit_once(' '));
        lines.filter(|(stack, _)| is_counted(stack)).map(|(_, count)| count.parse::<u64>().unwrap()).sum()
    };
    let (burning, all) = (samples(|stack| stack.contains("profiles::burn_the_processor")), samples(|_| true));
    assert!(all >= 50 && 10 * burning >= 9 * all, "{burning} of {all}:\n{folded}");
    assert!(folded.lines().all(|line| line.starts_with("burner-1;")), "{folded}");
    shows_profile(&run, &id, "profiles::burn_the_processor");
}
