//! Calls of the operators' API about LMAPs, from the call to the detector and back. Each test checks the effect.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use lmap::{Column, ColumnKind, Model, Settings};
use support::http;
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{Detector, ListRequest, LmapStatus, NewLmapRequest, StatusRequest, WatchRowsRequest};

use crate::{ANY, Agent, WAIT, addresses, free_port};

const COUNTERS: [&str; 4] = ["shop.requests", "shop.items", "shop.bytes", "shop.calls"];
const GAUGE: &str = "shop.depth";

/// Uniform numbers from 0 to 99, the same in every run.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) % 100
    }
}

/// A service that runs until this value is dropped.
pub(crate) struct RunningService {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningService {
    pub(crate) fn start(name: &str, socket: &Path) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (stop, service) = (Arc::clone(&ends), client::Service::new(name).instance("one").socket(socket));
        let work = move || {
            let client = client::connect(service);
            let counters = COUNTERS.map(|name| client.counter(name).register());
            let depth = client.gauge(GAUGE).register();
            let mut noise = Noise(1);
            while !stop.load(Relaxed) {
                for counter in &counters {
                    counter.add(100 + noise.draw());
                }
                depth.set(50.0 + noise.draw() as f64);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Self { ends, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for RunningService {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the test sees the effects of a failure
        }
    }
}

/// A client of the operators' API.
pub(crate) struct Operators {
    pub(crate) runtime: Runtime,
    pub(crate) client: OperatorsClient<Channel>,
}

impl Operators {
    pub(crate) fn connect(address: &str) -> Self {
        Self::try_connect(address).unwrap()
    }

    /// `None` if nobody listens.
    pub(crate) fn try_connect(address: &str) -> Option<Self> {
        let runtime = Runtime::new().unwrap();
        let client = runtime.block_on(OperatorsClient::connect(address.to_owned())).ok()?;
        Some(Self { runtime, client })
    }

    pub(crate) fn new_lmap(&mut self, service: &str, detector: Detector, model: Vec<u8>, interval_ms: u64) {
        let (service, interval_us) = (service.to_owned(), interval_ms * 1000);
        let detector = Some(detector);
        let request = NewLmapRequest { service, interval_us, model, detector, ..NewLmapRequest::default() };
        self.runtime.block_on(self.client.new_lmap(request)).unwrap();
    }

    /// The status of a service's LMAP, as soon as `fits` returns true.
    pub(crate) fn when(&mut self, service: &str, what: &str, fits: impl Fn(&LmapStatus) -> bool) -> LmapStatus {
        WAIT.until(&format!("{service}: {what}"), || {
            let status = self.runtime.block_on(self.client.status(StatusRequest {})).unwrap().into_inner();
            status.lmaps.into_iter().find(|lmap| lmap.service == service && fits(lmap))
        })
    }

    /// Waits for a row of a service, by the titles of its columns, for which `fits` returns true. `uview record` writes
    /// the same rows.
    pub(crate) fn row(&mut self, service: &str, what: &str, mut fits: impl FnMut(&BTreeMap<String, f64>) -> bool) {
        let list = self.runtime.block_on(self.client.list(ListRequest {})).unwrap().into_inner();
        let lmap = list.lmaps.into_iter().find(|lmap| lmap.service == service).unwrap().lmap;
        let request = WatchRowsRequest { lmap, every: 1, ..WatchRowsRequest::default() };
        let watched = self.runtime.block_on(self.client.watch_rows(request));
        let (mut rows, mut columns) = (watched.unwrap().into_inner(), Vec::new());
        WAIT.until(&format!("{service}: {what}"), || {
            let row = self.runtime.block_on(rows.message()).unwrap().unwrap();
            if !row.columns.is_empty() {
                columns = row.columns;
            }
            fits(&columns.iter().cloned().zip(row.values).collect()).then_some(())
        });
    }

    /// Workers that run LMAPs, by service.
    pub(crate) fn placed(&mut self) -> BTreeMap<String, u32> {
        let list = self.runtime.block_on(self.client.list(ListRequest {})).unwrap().into_inner();
        list.lmaps.into_iter().map(|lmap| (lmap.service, lmap.worker)).collect()
    }

    /// The last configuration that the worker has acknowledged.
    fn acknowledged(&mut self) -> u64 {
        let status = self.runtime.block_on(self.client.status(StatusRequest {})).unwrap().into_inner();
        status.workers.first().unwrap().acknowledged_epoch
    }

    pub(crate) fn armed(&mut self, service: &str) -> LmapStatus {
        self.when(service, "armed", |lmap| lmap.judges() && lmap.columns == 5 && !lmap.scores.is_empty())
    }
}

/// What `uview model fetch` says about a service, and the model in `out`.
fn fetch(service: &str, models: &str, out: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.args(["model", "fetch", service, "--from", &format!("unix:{models}")]).arg("--out").arg(out);
    command.output().unwrap()
}

/// A model of the metrics of [`RunningService`], and its γ.
pub(crate) fn trained() -> (Vec<u8>, f64) {
    let column = |(kind, title): (ColumnKind, &str)| Column::new(kind, nic_agent::fingerprint(title));
    let counters = COUNTERS.map(|title| (ColumnKind::Increment, title));
    let columns = counters.into_iter().chain([(ColumnKind::Gauge, GAUGE)]).map(column).collect();
    let mut detector = lmap::Detector::new(columns, Settings::default(), 1).unwrap();
    let mut noise = Noise(7);
    for _ in 0..130 {
        let mut row = [0.0; COUNTERS.len() + 1];
        row.fill_with(|| 1000.0 + noise.draw() as f64);
        let _ = detector.score(&row).unwrap();
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    let model = detector.model().unwrap();
    (model.encode(), model.gamma())
}

#[test]
fn operator_calls_take_effect_in_the_real_agents() {
    let directory = tempfile::tempdir().unwrap();
    let runtime_dir = directory.path().join("run");
    let (host_config, nic_config) = (directory.path().join("host.yaml"), directory.path().join("nic.yaml"));
    let text = format!(
        "runtime_dir: {}\nlmap: {{interval_ms: 10}}\nprocess_metrics: {{enabled: false}}\nmetrics: {ANY}\n",
        runtime_dir.display()
    );
    std::fs::write(&host_config, text).unwrap();
    let _host = Agent::start("host-agent", &host_config);
    let ready = addresses(&runtime_dir);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let nic_metrics = free_port();
    let models = runtime_dir.join("models.sock");
    let models = models.to_str().unwrap();
    let text = format!(
        "control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {{listen: '{nic_metrics}'}}\nmodels: {{socket: {models}}}\ndetector: {{alarms_per_day: 3}}\n"
    );
    std::fs::write(&nic_config, text).unwrap();
    let _nic = Agent::start("nic-agent", &nic_config);
    let mut operators = Operators::connect(ready["operators"].as_str().unwrap());

    let (model, gamma) = trained();
    let steady = Detector { alarms_per_day: Some(0.0), ..Detector::default() };
    let relative = Detector { score: "relative".to_owned(), rank: Some(2), ..steady.clone() };
    let budget = Detector { alarms_per_day: Some(864_000.0), rows_kept: Some(500), ..Detector::default() };
    operators.new_lmap("relative", relative.clone(), Vec::new(), 0);
    operators.new_lmap("budget", budget.clone(), Vec::new(), 0);
    operators.new_lmap("trained", steady.clone(), model, 0);
    operators.new_lmap("again", steady, Vec::new(), 30);
    let socket = runtime_dir.join("services.sock");
    let start = |name| RunningService::start(name, &socket);
    let (_others, again) = (["plain", "relative", "budget", "trained"].map(start), start("again"));

    // A trained model arms at once, with its own γ.
    let found = operators.armed("trained");
    assert_eq!((found.gamma, found.unwatched), (gamma, 0));
    // Relative scores and their γ are at most 1; other scores exceed it.
    let found = operators.armed("relative");
    assert!(found.gamma <= 1.0 && found.scores.iter().all(|score| *score <= 1.0), "{found:?}");
    assert_eq!(found.detector, Some(relative));
    let found = operators.armed("plain");
    assert!(found.gamma > 1.0 && found.detector.is_none(), "{found:?}");
    // The agent's default of three alarms a day; no budget; a budget so large that γ falls at once.
    assert!((found.alarms_per_day - 3.0).abs() < 1e-6 && found.gamma_factor > 0.99, "{found:?}");
    assert_eq!(operators.armed("relative").alarms_per_day, 0.0);
    let found = operators.when("budget", "γ falls", |lmap| lmap.judges() && lmap.gamma_factor < 0.9);
    assert!((found.alarms_per_day - 864_000.0).abs() < 1.0, "{found:?}");
    assert_eq!(found.detector, Some(budget));

    // A model is a file that the agent of another node accepts.
    let [first, second, merged] = ["a.model", "b.model", "both.model"].map(|name| directory.path().join(name));
    let fetch = |service: &str| fetch(service, models, &first);
    WAIT.until("a model of the service", || fetch("plain").status.success().then_some(()));
    assert!(Model::decode(&std::fs::read(&first).unwrap()).unwrap().gamma() > 1.0);
    let nobodys = fetch("nobody");
    let text = String::from_utf8(nobodys.stderr).unwrap();
    assert!(nobodys.status.code() == Some(1) && text.contains("no model of nobody"), "{text}");
    let refused = http::get(nic_metrics, "/models/plain").unwrap();
    assert!(!refused.is_ok(), "not for everybody who reaches the port: {refused:?}");
    std::fs::write(&second, trained().0).unwrap();
    let mut merge = Command::new(env!("CARGO_BIN_EXE_uview"));
    assert!(
        merge.args(["model", "merge"]).args([&first, &second]).arg("--out").arg(&merged).status().unwrap().success()
    );
    let highest = [&first, &second].map(|file| Model::decode(&std::fs::read(file).unwrap()).unwrap().gamma());
    let both = Model::decode(&std::fs::read(&merged).unwrap()).unwrap();
    assert_eq!(both.gamma(), highest[0].max(highest[1]));

    // A service that returns is judged by its old model, long before it could have learnt a new one.
    let before = operators.armed("again");
    let epoch = operators.acknowledged();
    drop(again);
    let gone = operators.when("again", "gone", |lmap| lmap.replicas == 0);
    // One that is back before the worker has heard that it left goes on as if nothing had been.
    WAIT.until("the worker has heard of it", || (operators.acknowledged() > epoch).then_some(()));
    let _again = start("again");
    let warm = operators.when("again", "judged again", |lmap| lmap.judges() && lmap.samples < before.samples);
    // It may have been fitted once more between the last status and its end.
    assert!(warm.gamma > 0.0 && [before.gamma, gone.gamma].contains(&warm.gamma), "{before:?} {gone:?} {warm:?}");
}
