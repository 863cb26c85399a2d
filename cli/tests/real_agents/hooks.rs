//! Streams of verdicts and rows from real agents: what they carry, and how they end when their LMAP is deleted.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use wire::proto::operators::{
    DeleteLmapRequest, HookEvent, NewLmapRequest, RegisterHookRequest, RowEvent, WatchRowsRequest,
};

use crate::metrics::page;
use crate::operator_calls::{Operators, RunningService};
use crate::{ANY, Agent, WAIT, addresses};

/// The client of docs/look-up/api.md.
#[path = "../../examples/hook.rs"]
#[expect(dead_code, reason = "main is for the example alone")]
mod example;

/// The example's lines about an LMAP, until it is deleted.
fn follow(address: String, lmap: u32) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut lines = Vec::new();
        runtime.block_on(example::follow(address, vec![lmap], |line| lines.push(line))).unwrap();
        lines
    })
}

/// Records the service into `folder`.
fn record(runtime_dir: &Path, folder: &Path) -> Child {
    let mut record = Command::new(env!("CARGO_BIN_EXE_uview"));
    record.args(["record", "shop", "--runtime-dir"]).arg(runtime_dir).arg("--out").arg(folder);
    let record = record.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    WAIT.until("a recording", || std::fs::read_dir(folder).ok()?.next().map(drop));
    record
}

/// Hooks and watchers that are registered, the agent's own among them.
fn hooks(ready: &serde_json::Value) -> Option<u64> {
    let page = page(ready["metrics"].as_str()?)?;
    page.lines().find_map(|line| line.strip_prefix("uview_host_hooks "))?.parse().ok()
}

/// Waits until rows from `first` to `last`, in nanoseconds since 1970, are in the recording.
fn until_recorded(path: &Path, first: u64, last: u64) {
    WAIT.until("rows of both LMAPs are in the recording", || {
        let bytes = std::fs::read(path).ok()?;
        let times = recording::decode(&bytes).ok()?.times;
        (times.first()?.0 <= first && times.last()?.0 >= last).then_some(())
    });
}

/// Ends a recording in good order. Its exit code, and what it said on stderr.
fn ended(record: Child) -> (Option<i32>, String) {
    kill_process(Pid::from_child(&record), Signal::TERM).unwrap();
    let said = record.wait_with_output().unwrap();
    (said.status.code(), String::from_utf8(said.stderr).unwrap())
}

#[test]
fn hooks_get_rows_and_residuals_and_every_stream_of_a_deleted_lmap_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let runtime_dir = directory.path().join("run");
    let (host_config, nic_config) = (directory.path().join("host.yaml"), directory.path().join("nic.yaml"));
    let rest = format!("lmap: {{interval_ms: 10}}\nprocess_metrics: {{enabled: false}}\nmetrics: {ANY}\n");
    std::fs::write(&host_config, format!("runtime_dir: {}\n{rest}", runtime_dir.display())).unwrap();
    let _host = Agent::start("host-agent", &host_config);
    let ready = addresses(&runtime_dir);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    std::fs::write(&nic_config, format!("control: {{address: '{control}'}}\nregions_socket: {regions}\n")).unwrap();
    let _nic = Agent::start("nic-agent", &nic_config);
    let address = ready["operators"].as_str().unwrap().to_owned();
    let mut operators = Operators::connect(&address);
    let _service = RunningService::start("shop", &runtime_dir.join("services.sock"));
    let lmap = operators.armed("shop").lmap;
    let before = WAIT.until("hooks are counted", || hooks(&ready));
    let recorded = directory.path().join("recorded");
    let record = record(&runtime_dir, &recorded);
    let example = follow(address, lmap);
    WAIT.until("the recorder and the example are registered", || (hooks(&ready)? >= before + 2).then_some(()));
    let Operators { runtime, client } = &mut operators;
    let hook = |features, follow| RegisterHookRequest {
        lmaps: vec![lmap],
        features,
        follow,
        ..RegisterHookRequest::default()
    };
    let mut without = runtime.block_on(client.register_hook(hook(false, false))).unwrap().into_inner();
    let mut with = runtime.block_on(client.register_hook(hook(true, true))).unwrap().into_inner();
    let rows = WatchRowsRequest { lmap, every: 1, follow: false };
    let mut rows = runtime.block_on(client.watch_rows(rows)).unwrap().into_inner();

    // A row with names, one residual per column, and none for those who did not ask.
    let mut columns = Vec::new();
    let features = loop {
        let event = runtime.block_on(with.message()).unwrap().unwrap();
        columns = if event.columns.is_empty() { columns } else { event.columns };
        if let Some(features) = event.features.filter(|features| !features.residuals.is_empty()) {
            break features;
        }
    };
    assert_eq!((columns.len(), features.values.len(), features.residuals.len()), (5, 5, 5));
    assert!(columns.iter().any(|column| column == "shop.depth"), "{columns:?}");
    assert!(features.residuals.iter().all(|residual| residual.is_finite()), "{features:?}");

    let row = runtime.block_on(rows.message()).unwrap().unwrap();
    assert!(row.values.len() == 5 && row.change.is_none(), "{row:?}");

    runtime.block_on(client.delete_lmap(DeleteLmapRequest { lmap })).unwrap();

    let told: Vec<HookEvent> = std::iter::from_fn(|| runtime.block_on(without.message()).unwrap()).collect();
    let (last, before) = told.split_last().unwrap();
    assert!(before.iter().all(|event| event.features.is_none() && event.change.is_none()));
    let change = last.change.as_ref().unwrap();
    assert_eq!((change.deleted, change.last, change.reason.as_str()), (lmap, true, "an operator deleted it"));
    let told: Vec<RowEvent> = std::iter::from_fn(|| runtime.block_on(rows.message()).unwrap()).collect();
    assert!(told.last().unwrap().change.as_ref().unwrap().last);
    assert_eq!(example.join().unwrap().last().unwrap(), "shop deleted: an operator deleted it");

    // The one that follows goes on, and says with what.
    let request = NewLmapRequest { service: "shop".to_owned(), ..NewLmapRequest::default() };
    let successor = runtime.block_on(client.new_lmap(request)).unwrap().into_inner().lmap;
    let mut changes = Vec::new();
    let event = loop {
        let event = runtime.block_on(with.message()).unwrap().unwrap();
        match event.change {
            Some(change) => changes.push((change.deleted, change.successor)),
            None if event.lmap == successor => break event,
            None => {}
        }
    };
    assert_eq!(changes, [(lmap, 0), (lmap, successor)]);
    assert!(event.features.is_none_or(|features| features.values.len() == event.columns.len()));

    // The recording goes on, too: rows of both are in one file.
    let rows = WatchRowsRequest { lmap: successor, every: 1, follow: false };
    let mut rows = runtime.block_on(client.watch_rows(rows)).unwrap().into_inner();
    let later = runtime.block_on(rows.message()).unwrap().unwrap();
    until_recorded(&recorded.join("shop.uvrec"), row.at_unix_ns, later.at_unix_ns);
    assert_eq!(ended(record), (Some(0), String::new()));
}
