//! Streams of packets that a `SynopsisPolicy` of a file asks for, while both agents run.

use std::path::Path;

use serde_json::Value;

use super::{ANY, Agent, WAIT, addresses, ask, lmap};

const SERVICE: &str = "network.front";

/// A policy about the packets of `lo`.
fn write(folder: &Path, measured: &str) {
    let text = format!(
        "apiVersion: uview.dev/v1alpha1\nkind: SynopsisPolicy\nmetadata: {{name: front}}\nspec:\n  workload: {{name: front}}\n  \
         interface: lo\n  port: 5353\n  interval: 200ms\n{measured}"
    );
    std::fs::write(folder.join("front.yaml"), text).unwrap();
}

/// Columns of the stream's LMAP.
fn columns(runtime_dir: &Path) -> Option<u64> {
    lmap(runtime_dir, SERVICE)?["columns"].as_u64()
}

fn start_nic(directory: &Path, ready: &Value, policy_interfaces: u32) -> Agent {
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let services = directory.join("run/services.sock");
    let text = format!(
        "control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n\
         network: {{services_socket: {}, policy_interfaces: {policy_interfaces}}}\n",
        services.display()
    );
    let config = directory.join("nic.yaml");
    std::fs::write(&config, text).unwrap();
    Agent::start("nic-agent", &config)
}

#[test]
fn a_stream_comes_changes_and_goes_with_its_policy_and_no_agent_is_restarted() {
    if !rustix::process::geteuid().is_root() {
        return support::harness::not_run("reading an interface takes root");
    }
    let directory = tempfile::tempdir().unwrap();
    let (runtime_dir, folder) = (directory.path().join("run"), directory.path().join("resources"));
    std::fs::create_dir(&folder).unwrap();
    let host_config = directory.path().join("host.yaml");
    let text = format!("runtime_dir: {}\nmetrics: {ANY}\nresources: {}\n", runtime_dir.display(), folder.display());
    std::fs::write(&host_config, text).unwrap();
    write(&folder, "  delay: Dns\n  cardinality: {}\n");
    let _host = Agent::start("host-agent", &host_config);
    let ready = addresses(&runtime_dir);

    // An agent that captures nothing says what to set.
    let nic = start_nic(directory.path(), &ready, 0);
    WAIT.until("the refusal is said", || {
        let status = ask(&runtime_dir, &["status"])?;
        status.to_string().contains("set network.policy_interfaces of worker-0").then_some(())
    });
    assert_eq!((nic.end(), columns(&runtime_dir)), (Some(0), None));
    let nic = start_nic(directory.path(), &ready, 1);
    // Those of network and measurement: 29 of delays, 5 of distinct items, and 7 of all synopses together.
    let has = |wanted: u64| {
        let columns = columns(&runtime_dir);
        if columns == Some(wanted) { Ok(()) } else { Err(columns) }
    };
    WAIT.until("delays and distinct items have columns", || has(41));
    write(&folder, "  cardinality: {}\n");
    WAIT.until("only distinct items have", || has(12));
    write(&folder, "  cardinality: {}\n  reordering: {}\n  heavyHitters: {}\n");
    // Three of reordering and its fragments, and the top talker.
    WAIT.until("more columns come", || has(17));
    std::fs::remove_file(folder.join("front.yaml")).unwrap();
    WAIT.until("nothing is left", || lmap(&runtime_dir, SERVICE).is_none().then_some(()));
    assert_eq!(nic.end(), Some(0));
}
