//! Incidents of two real agents: a replica is started again, a fault follows, and the incident names the restart first.
//! It becomes a file, and survives a restart of the host agent.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::metrics::page;
use crate::{ANY, Agent, HEARTBEAT_MS, WAIT, addresses, ask, lmap};

/// A label of a metric.
const HOSTILE: &str = "</style><script>window.hit=1</script>\u{202e}";
const SHOWN: &str = "&lt;/style&gt;&lt;script&gt;window.hit=1&lt;/script&gt;\\u{202e}";

/// A replica of a service, which runs until it is told to stop. One of its metrics grows once it is `broken`.
pub struct Replica {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Replica {
    /// A replica of payment, whose queue grows; `route` is a label of it.
    pub fn start(socket: PathBuf, instance: &str, route: &'static str, broken: &Arc<AtomicBool>) -> Self {
        let service = client::Service::new("payment").instance(instance).socket(socket);
        Self::of(service, move |uview| uview.gauge("queue.depth").label("route", route).register(), broken)
    }

    /// A replica of `service`, of which the gauge grows.
    pub fn of(
        service: client::Service,
        gauge: impl FnOnce(&client::Client) -> client::Gauge + Send + 'static,
        broken: &Arc<AtomicBool>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, broken) = (Arc::clone(&stop), Arc::clone(broken));
        let thread = std::thread::spawn(move || {
            let uview = client::connect(service);
            let calm: Vec<_> = (0..4).map(|number| uview.gauge(&format!("calm.{number}")).register()).collect();
            let queue = gauge(&uview);
            for tick in 0_u64.. {
                if stopped.load(Relaxed) {
                    return;
                }
                let noise = (tick.wrapping_mul(6_364_136_223_846_793_005) >> 40) % 100;
                for gauge in &calm {
                    gauge.set(50.0 + noise as f64);
                }
                queue.set(if broken.load(Relaxed) { 50_000.0 + 1_000.0 * noise as f64 } else { noise as f64 });
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self { stop, thread }
    }

    /// Ends it: its connection is closed.
    pub fn end(self) {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap();
    }
}

fn host_agent(folder: &Path) -> Agent {
    let config = folder.join("host.yaml");
    let text = format!(
        "runtime_dir: {}\nmetrics: {ANY}\nprocess_metrics: {{enabled: false}}\nlmap: {{interval_ms: 20}}\n\
         services: {{heartbeat_ms: {HEARTBEAT_MS}}}\nincidents: {{dir: {}}}\n",
        folder.join("run").display(),
        folder.join("incidents").display()
    );
    std::fs::write(&config, text).unwrap();
    Agent::start("host-agent", &config)
}

fn uview(run: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.args(arguments).env("UVIEW_RUNTIME_DIR", run).output().unwrap()
}

/// Text that `uview ARGUMENTS` prints.
fn said(run: &Path, arguments: &[&str]) -> String {
    let output = uview(run, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Changes that the host agent has noted.
pub fn noted_changes(ready: &serde_json::Value) -> Option<u64> {
    let page = page(ready["metrics"].as_str()?)?;
    page.lines().find_map(|line| line.strip_prefix("uview_host_noted_changes_total "))?.parse().ok()
}

#[test]
fn a_fault_makes_an_incident_that_names_the_restart_before_it_and_survives_one_of_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let host = host_agent(folder.path());
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let nic = folder.path().join("nic.yaml");
    let text =
        format!("control: {{address: '{control}'}}\nregions_socket: {regions}\ntransport: shm\nmetrics: {ANY}\n");
    std::fs::write(&nic, text).unwrap();
    let _nic = Agent::start("nic-agent", &nic);
    let (sound, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let socket = || run.join("services.sock");
    let first = Replica::start(socket(), "payment-1", HOSTILE, &broken);
    let second = Replica::start(socket(), "payment-2", HOSTILE, &sound);
    // What was normal before is in it, too: scores of some seconds.
    WAIT.until("the LMAP has judged for six seconds", || {
        let lmap = lmap(&run, "payment")?;
        let has_judged = lmap["samples"].as_u64()? >= 140 + 300;
        (lmap["state"] == "armed" && lmap["replicas"] == 2 && has_judged).then_some(())
    });
    assert!(said(&run, &["incidents"]).contains("no incident is kept"));

    // That the second one joined may be one, too.
    let before = WAIT.until("changes are counted", || noted_changes(&ready));
    second.end();
    WAIT.until("it is noted that payment-2 is gone", || (noted_changes(&ready)? > before).then_some(()));
    let again = Replica::start(socket(), "payment-2", HOSTILE, &sound);
    WAIT.until("it is noted that payment-2 is back", || (noted_changes(&ready)? >= before + 2).then_some(()));
    broken.store(true, Relaxed);

    let id = WAIT.until("the incident names its metric and the restart", || {
        let listed = ask(&run, &["incidents"])?;
        let incidents = listed["incidents"].as_array()?;
        let of = incidents.iter().find(|of| {
            let cause = of["cause"].as_str().unwrap_or_default();
            cause.contains("queue.depth") && cause.starts_with("payment: payment-2 was started again")
        })?;
        Some(of["id"].as_str()?.to_owned())
    });

    let words = said(&run, &["incident", &id]);
    let line = "before an alarm; then payment: queue.depth";
    for part in [line, ", replica payment-1", "payment in alarm", "1  payment: up to", "scores of"] {
        assert!(words.contains(part), "{part}:\n{words}");
    }
    let file = folder.path().join("incident.html");
    said(&run, &["incident", &id[..8], "--html", file.to_str().unwrap()]);
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(
        page.contains(SHOWN) && page.contains("suspected cause") && page.contains("class=\"change first\""),
        "{page}"
    );
    for outside in ["<script", "<link", "<img", "src=", "href=", "http:", "https:"] {
        assert!(!page.contains(outside), "{outside}");
    }
    broken.store(false, Relaxed);
    WAIT.until("the incident is over", || {
        let incident = ask(&run, &["incident", &id])?;
        incident["ended"].is_number().then_some(())
    });

    assert_eq!(host.end(), Some(0));
    let _host = host_agent(folder.path());
    let kept = WAIT.until("the incident is there after a restart", || ask(&run, &["incident", &id]));
    assert_eq!(kept["services"][0]["service"], "payment");
    assert!(kept["changes"].as_array().unwrap().iter().any(|change| change["first"] == true), "{kept:#}");
    let none = uview(&run, &["incident", "1999"]);
    assert!(!none.status.success() && String::from_utf8_lossy(&none.stderr).contains("no incident 1999"), "{none:?}");
    [first, again].into_iter().for_each(Replica::end);
}
