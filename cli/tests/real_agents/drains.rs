//! `uview drain` and `uview undrain` with real agents.

use std::process::{Command, Output};

use crate::WAIT;
use crate::operator_calls::RunningService;
use crate::restarts::{Host, WARM_UP};

/// Runs the command against the host agent, and returns it with what it printed and its errors.
fn uview(host: &Host, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    let Output { status, stdout, stderr } =
        command.args(arguments).env("UVIEW_RUNTIME_DIR", host.runtime_dir()).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_drained_nic_agent_hands_everything_over_and_gets_nothing_until_it_is_undrained() {
    // It has to hand its models over when they are needed.
    let mut host = Host::with("models_every_s: 300");
    let first = host.nic_agent(0);
    let _services = ["cart", "store"].map(|name| RunningService::start(name, &host.services));
    for service in ["cart", "store"] {
        host.operators.when(service, "it has learnt", |lmap| lmap.judges() && lmap.samples > WARM_UP);
    }
    let (code, text) = uview(&host, &["drain", "0"]);
    assert!(code == Some(1) && text.contains("no other worker takes the LMAPs of worker 0"), "{code:?}: {text}");
    let (code, text) = uview(&host, &["drain", "9"]);
    assert!(code == Some(1) && text.contains("there is no worker 9"), "{code:?}: {text}");

    let _second = host.nic_agent(1);
    WAIT.until("the second one is there", || host.operators.placed().values().any(|worker| *worker == 1).then_some(()));
    let (code, text) = uview(&host, &["drain", "0"]);

    assert!(code == Some(0) && text.contains("worker 0 runs nothing any more"), "{code:?}: {text}");
    assert!(host.operators.placed().values().all(|worker| *worker == 1));
    for service in ["cart", "store"] {
        let after = host.operators.when(service, "judged by the other one", |lmap| lmap.judges() && lmap.samples > 0);
        println!("{service}: armed after {} rows", after.samples);
    }
    let who = format!("DRAINED by user {}", rustix::process::geteuid().as_raw());
    let (_, text) = uview(&host, &["status"]);
    assert!(text.contains(&format!("worker 0 connected, {who}, shm")), "{text}");

    let order = host.models().join("drained-workers");
    WAIT.until("the order is stored", || order.exists().then_some(()));

    // Neither its next run nor that of the host agent gets anything.
    assert_eq!(first.end(), Some(0));
    let _first = host.nic_agent(0);
    host.kill();
    host.restart();
    WAIT.until("both are back", || uview(&host, &["status"]).1.matches(" connected, ").count().eq(&2).then_some(()));
    let _third = RunningService::start("new", &host.services);
    for service in ["cart", "store", "new"] {
        host.operators.when(service, "watched", |lmap| lmap.samples > 0);
    }
    assert!(host.operators.placed().values().all(|worker| *worker == 1), "{:?}", host.operators.placed());
    let (_, text) = uview(&host, &["status"]);
    assert!(text.contains(&format!("worker 0 connected, {who}, shm")), "{text}");

    let (code, text) = uview(&host, &["undrain", "0"]);
    assert!(code == Some(0) && text.contains("takes LMAPs again"), "{code:?}: {text}");
    WAIT.until("it takes its share", || host.operators.placed().values().any(|worker| *worker == 0).then_some(()));
}
