//! Certificates and configuration that change while the agent runs.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use support::certificates::{Authority, Subject};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use wire::proto::operators::ListRequest;

use crate::agent::{Agent, WAIT};
use crate::logged::Logged;
use crate::service::Service;
use crate::worker::{Worker, hello};

/// Replaces a file as a whole, as a rotation does.
pub fn replace(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, path).unwrap();
}

/// A worker that trusts `authority` and shows a certificate of `own`.
pub fn worker(agent: &Agent, number: u32, authority: &Authority, own: &Authority) -> Result<Worker, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let shown = Subject::new(&["nic.example"]).signed_by(own);
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.pem()))
        .domain_name("host.example")
        .identity(Identity::from_pem(shown.pem(), shown.key_pem()));
    let endpoint: Endpoint = Channel::from_shared(format!("https://{}", agent.at.control_listen.unwrap())).unwrap();
    let endpoint = endpoint.tls_config(tls).unwrap();
    let channel = runtime.block_on(endpoint.connect()).map_err(|error| error.to_string())?;
    Worker::over(runtime, channel, hello(number, u64::from(number) + 1)).map_err(|status| status.to_string())
}

pub fn rejected(agent: &Agent) -> bool {
    agent.get("/metrics").1.contains("uview_host_configuration_rejected 1\n")
}

#[test]
fn new_connections_get_the_renewed_certificate_old_ones_live_and_a_broken_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let [first, second] = [(); 2].map(|()| Authority::new("authority"));
    let write = |authority: &Authority| {
        let own = Subject::new(&["host.example"]).signed_by(authority);
        replace(&path("host.key"), &own.key_pem());
        replace(&path("host.pem"), &own.pem());
    };
    write(&first);
    replace(&path("ca.pem"), &first.pem());
    let agent = Agent::with(&format!(
        "access: {{workers: {{certificates: [nic.example]}}}}\nprocess_metrics: {{enabled: false}}\ncontrol:\n  \
         listen: 127.0.0.1:0\n  tls: {{certificate: {0}/host.pem, key: {0}/host.key, client_ca: {0}/ca.pem}}\n",
        folder.path().display()
    ));
    let mut old = worker(&agent, 0, &first, &first).unwrap();
    old.welcomed();
    assert!(worker(&agent, 1, &second, &second).is_err());

    replace(&path("ca.pem"), &second.pem());
    write(&second);
    let mut new = WAIT.until("the renewed certificate", || worker(&agent, 1, &second, &second).ok());
    assert_eq!(new.welcomed().host_incarnation, agent.at.incarnation);
    assert!(worker(&agent, 2, &first, &first).is_err() && worker(&agent, 2, &second, &first).is_err());
    drop(new);

    replace(&path("host.pem"), "no certificate\n");
    WAIT.until("the problem", || rejected(&agent).then_some(()));
    let problems = agent.status().problems;
    assert!(problems.iter().any(|line| line.contains("not in use") && line.contains("host.pem")), "{problems:?}");
    drop(worker(&agent, 3, &second, &second).unwrap());

    write(&second);
    WAIT.until("the end of the problem", || (!rejected(&agent)).then_some(()));
    assert!(!agent.status().problems.iter().any(|line| line.contains("not in use")));
    assert!(agent.status().workers[0].connected, "the first connection has outlived it all");
}

#[test]
fn changed_rules_hold_for_who_comes_later_and_a_file_that_is_wrong_is_reported_until_it_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.yaml");
    std::fs::write(&file, "process_metrics: {enabled: false}\n").unwrap();
    let agent = Agent::of_file(tempfile::tempdir().unwrap(), &file);
    let (_cart, _region) = Service::register(&agent, "cart", &["a"]);
    let reloads = |agent: &Agent| agent.get("/metrics").1.contains("uview_host_reloads_total 1\n");

    replace(
        &file,
        "process_metrics: {enabled: false}\nservices: {identities: [{services: [payment]}]}\nlmap: {interval_ms: 10}\n",
    );
    WAIT.until("the rules", || {
        assert_eq!(agent.status().problems, Vec::<String>::new());
        reloads(&agent).then_some(())
    });
    let (_payment, _other) = Service::register(&agent, "payment", &["a"]);
    let mut refused = Service::connect(&agent);
    refused.send_hello("cart");
    WAIT.until("the refusal", || (agent.counter("refused_hellos") == 1).then_some(()));
    assert_eq!(agent.status().lmaps.len(), 2, "who was there stays");

    replace(&file, "servces: {}\n");
    WAIT.until("the problem", || rejected(&agent).then_some(()));
    let problems = agent.status().problems;
    assert!(problems.iter().any(|line| line.contains("line 1") && line.contains("servces")), "{problems:?}");
    replace(&file, "process_metrics: {enabled: false}\n");
    WAIT.until("the end of the problem", || (!rejected(&agent)).then_some(()));
    let (_cart, _region) = Service::register(&agent, "cart", &["a"]);
}

#[test]
fn changed_rules_of_aggregation_hold_for_services_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.yaml");
    let text = "process_metrics: {enabled: false}\n";
    std::fs::write(&file, text).unwrap();
    let agent = Agent::of_file(tempfile::tempdir().unwrap(), &file);
    let (_cart, _region) = Service::register(&agent, "cart", &["queue"]);
    let aggregation = || {
        let mut operators = agent.operators();
        let reply = operators.runtime.block_on(operators.client.list(ListRequest {})).unwrap().into_inner();
        reply.lmaps[0].metrics[0].aggregation.clone()
    };
    assert_eq!(aggregation(), "sum");

    replace(&file, &format!("{text}lmap: {{aggregations: [{{metrics: queue, aggregation: p90}}]}}\n"));
    WAIT.until("the rule", || (aggregation() == "p90").then_some(()));
    assert_eq!(agent.status().problems, Vec::<String>::new());

    replace(&file, &format!("{text}lmap: {{aggregations: [{{metrics: queue, aggregation: max -}}]}}\n"));
    WAIT.until("the problem", || rejected(&agent).then_some(()));
    assert_eq!(aggregation(), "p90", "what cannot be computed changes nothing");
    replace(&file, text);
    WAIT.until("the end of the rule", || (aggregation() == "sum").then_some(()));
}

#[test]
fn the_log_says_which_keys_and_certificates_were_taken_over_which_wait_and_that_sighup_has_come() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("authority"));
    authority.write(folder.path(), "ca");
    let renew = || Subject::new(&["host.example"]).signed_by(&authority).write(folder.path(), "host");
    renew();
    let header = folder.path().join("authorization");
    replace(&header, "Bearer one\n");
    let logged = Logged::start(
        "info",
        &format!(
            "control:\n  listen: 127.0.0.1:0\n  \
             tls: {{certificate: {0}/host.pem, key: {0}/host.key, client_ca: {0}/ca.pem}}\n\
             webhooks: [{{name: a, url: 'http://127.0.0.1:9/', header_files: {{authorization: {0}/authorization}}}}]\n",
            folder.path().display()
        ),
    );
    let text = std::fs::read_to_string(logged.config()).unwrap();
    let says = |message: &'static str, changed: &'static str| {
        move |event: &Value| event["message"] == message && (changed.is_empty() || event["changed"] == changed)
    };

    // The agent looks by itself; when it has seen one change it takes the signal, too.
    let rules = "services: {identities: [{services: [payment]}]}\n";
    replace(&logged.config(), &format!("{text}{rules}"));
    logged.wait_for("the rules", says("configuration taken over", "services.identities"));
    logged.signal(Signal::HUP);
    logged.wait_for("the signal", says("SIGHUP: nothing has changed since the files were taken over last", ""));

    replace(
        &logged.config(),
        &format!("{text}{rules}access: {{viewers: {{users: [7003]}}}}\nlmap: {{interval_ms: 10}}\n"),
    );
    logged.signal(Signal::HUP);
    logged.wait_for("the role", says("configuration taken over", "access.viewers.users"));
    let waits = "these keys take effect with the next start of the agent";
    logged.wait_for("what waits", says(waits, "lmap.interval_ms"));

    renew();
    logged.signal(Signal::HUP);
    logged.wait_for("the certificate", says("configuration taken over", "control.tls"));

    replace(&header, "Bearer two\n");
    logged.signal(Signal::HUP);
    logged.wait_for("the header", says("configuration taken over", "webhooks"));
    // A key follows its receiver: where the URL waits, it does, too.
    let samples = "remote_write: {url: 'http://127.0.0.1:9/', headers: {x-key: three}}\n";
    replace(&logged.config(), &format!("{text}{rules}{samples}"));
    logged.signal(Signal::HUP);
    logged.wait_for("the key", says(waits, "lmap.interval_ms, remote_write.url, remote_write.headers.x-key"));
    assert!(logged.agent.status().problems.iter().all(|line| !line.contains("not in use")));
    logged.end();
}
