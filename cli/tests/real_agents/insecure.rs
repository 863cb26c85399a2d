//! What both agents leave open stands wherever an operator looks: before a start, in the log, in the status, in
//! `check`.

use std::fs::{File, read_to_string, write};
use std::path::Path;
use std::process::Command;

use crate::{ANY, Agent, WAIT, addresses, ask};

/// What is said of each agent. Addresses are those of the configuration.
const HOST: [&str; 3] = [
    "control.listen 127.0.0.1:0 takes whoever connects for a worker (control.insecure)",
    "operators.listen 127.0.0.1:0 takes whoever connects for an operator (operators.insecure)",
    "coherence.listen 127.0.0.1:0 takes whoever connects for any node, and coherence.peers whoever answers (coherence.insecure)",
];
const NIC: [&str; 3] = [
    "control.address 127.0.0.1:PORT is called without TLS (control.insecure): whoever answers there is taken for the host agent",
    "metrics.listen 0.0.0.0:0 has no TLS: whoever reaches it may read names of services",
    "network.peers.listen 127.0.0.1:0 takes whoever connects for the other end of a measurement (network.peers.insecure)",
];

/// What `uview` prints on stdout with these words.
fn uview(words: &[&str], run: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    let output = command.args(words).env("UVIEW_RUNTIME_DIR", run).env("NO_COLOR", "1").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Starts an agent whose log goes to a file.
fn start(name: &str, config: &Path, log: &Path) -> Agent {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.arg(name).arg("--config").arg(config).stderr(File::create(log).unwrap());
    Agent(command.spawn().unwrap())
}

/// Fails unless `text` has each of `warnings` behind `before`.
#[track_caller]
fn assert_said(text: &str, before: &str, warnings: &[&str]) {
    for warning in warnings {
        assert!(text.contains(&format!("{before}{warning}")), "`{before}{warning}` is not in\n{text}");
    }
}

#[test]
fn what_is_insecure_stands_before_a_start_in_the_log_in_the_status_and_in_check() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let run = path("run");
    let text = format!(
        "runtime_dir: {}\nmetrics: {ANY}\ncontrol: {{listen: 127.0.0.1:0, insecure: true}}\n\
         operators: {{listen: 127.0.0.1:0, insecure: true}}\nlog: {{format: json}}\n\
         otlp: {{upstream: {{endpoint: 'http://127.0.0.1:1', protocol: http}}, listen_grpc: 127.0.0.1:0, \
         listen_http: 127.0.0.1:0, traces: {{order_key: 00112233445566778899aabbccddeeff}}}}\n\
         coherence: {{peers: ['127.0.0.1:1'], listen: 127.0.0.1:0, insecure: true}}\n",
        run.display()
    );
    write(path("host.yaml"), text).unwrap();
    let checked = |agent: &str, file: &str| {
        let text = uview(&[agent, "--config", path(file).to_str().unwrap(), "--check-config"], &run);
        // The key stands in a column of its own.
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect::<String>()
    };
    assert_said(&checked("host-agent", "host.yaml"), "warning ", &HOST);

    let host = start("host-agent", &path("host.yaml"), &path("host.log"));
    let ready = addresses(&run);
    let (control, regions) = (ready["control_listen"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let port = control.rsplit_once(':').unwrap().1;
    let said = NIC.map(|warning| warning.replace("PORT", port));
    let nic_says = said.each_ref().map(String::as_str);
    let text = |insecure: &str| {
        format!(
            "control: {{address: '{control}'{insecure}}}\nregions_socket: {regions}\ntransport: shm\n\
             metrics: {{listen: '0.0.0.0:0'}}\nnetwork: {{peers: {{listen: 127.0.0.1:0, insecure: true}}}}\n\
             log: {{format: json}}\n"
        )
    };
    write(path("nic.yaml"), text("")).unwrap();
    let refused = format!("control.address is {control}: needs control.tls");
    let log = File::create(path("refused.log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    let status = command.arg("nic-agent").arg("--config").arg(path("nic.yaml")).stderr(log).status().unwrap();
    let log = read_to_string(path("refused.log")).unwrap();
    assert!(!status.success() && log.contains(&refused) && log.contains("control.insecure: true"), "{status}: {log}");
    assert_said(&checked("nic-agent", "nic.yaml"), "error control.address ", &["is 127.0.0.1:"]);
    write(path("nic.yaml"), text(", insecure: true")).unwrap();
    assert_said(&checked("nic-agent", "nic.yaml"), "warning ", &nic_says);
    let nic = start("nic-agent", &path("nic.yaml"), &path("nic.log"));
    WAIT.until("the worker is connected", || {
        let status = ask(&run, &["status"])?;
        (status["workers"][0]["connected"] == true).then_some(())
    });

    let status = uview(&["status"], &run);
    assert_said(&status, "INSECURE: ", &HOST);
    assert_said(&status, "INSECURE: worker-0: ", &nic_says);
    let check = uview(&["check"], &run);
    assert_said(&check, "", &HOST);
    assert_said(&check, "worker-0: ", &nic_says);
    assert_eq!((nic.end(), host.end()), (Some(0), Some(0)));
    for (log, warnings) in [("host.log", &HOST[..]), ("nic.log", &nic_says[..])] {
        let text = read_to_string(path(log)).unwrap();
        let warns = text.lines().filter(|line| line.contains("\"level\":\"WARN\"")).collect::<Vec<_>>().join("\n");
        assert_said(&warns, "\"message\":\"", warnings);
    }
}
