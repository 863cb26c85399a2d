//! TLS with certificates on both sides.

use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::agent::Agent;
use crate::worker::{Worker, hello};

/// The name in the certificates of tests.
const WORKER: &str = "localhost";

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/edges/certificates").join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(certificate(name)).unwrap()
}

/// An agent that lets the holder of the certificate be a worker.
fn agent() -> Agent {
    agent_with(&format!("access: {{workers: {{certificates: [{WORKER}]}}}}"))
}

fn agent_with(access: &str) -> Agent {
    let path = |name| certificate(name).display().to_string();
    Agent::with(&format!(
        "{access}\ncontrol:\n  listen: 127.0.0.1:0\n  \
         tls: {{certificate: {}, key: {}, client_ca: {}}}\nprocess_metrics: {{enabled: false}}\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    ))
}

fn worker(agent: &Agent, scheme: &str, tls: Option<ClientTlsConfig>) -> Result<Worker, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let endpoint: Endpoint = Channel::from_shared(format!("{scheme}://{}", agent.at.control_listen.unwrap())).unwrap();
    let endpoint = match tls {
        Some(tls) => endpoint.tls_config(tls).unwrap(),
        None => endpoint,
    };
    let channel = runtime.block_on(endpoint.connect()).map_err(|error| error.to_string())?;
    Worker::over(runtime, channel, hello(0, 1)).map_err(|status| status.to_string())
}

fn trusting() -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca.pem"))).domain_name("localhost")
}

#[test]
fn a_worker_with_a_certificate_of_the_authority_is_welcome() {
    let agent = agent();
    let identity = Identity::from_pem(read("client.pem"), read("client.key"));

    let mut worker = worker(&agent, "https", Some(trusting().identity(identity))).unwrap();

    assert_eq!(worker.welcomed().host_incarnation, agent.at.incarnation);
}

#[test]
fn a_worker_without_a_certificate_or_with_a_strangers_is_not() {
    let agent = agent();
    let stranger = Identity::from_pem(read("stranger.pem"), read("stranger.key"));

    assert!(worker(&agent, "https", Some(trusting())).is_err());
    assert!(worker(&agent, "https", Some(trusting().identity(stranger))).is_err());
    assert!(worker(&agent, "http", None).is_err());
    assert!(agent.status().workers.is_empty());
}

#[test]
fn a_worker_with_a_certificate_of_the_authority_and_no_role_is_refused_with_the_line_that_grants_it() {
    let identity = || Identity::from_pem(read("client.pem"), read("client.key"));
    // Both are no worker: of nobody, and of somebody else.
    for access in ["", "access: {workers: {certificates: [other.example]}, operators: {certificates: [localhost]}}"] {
        let agent = agent_with(access);

        let refused = worker(&agent, "https", Some(trusting().identity(identity()))).err().expect("it has no role");

        let who = format!("certificate {WORKER} may not be a worker: it needs the role worker. To grant it: ");
        assert!(refused.contains("does not have permission") && refused.contains(&who), "{refused}");
        assert!(refused.contains("the URI uview:worker"), "{refused}");
        assert!(agent.status().workers.is_empty());
        assert_eq!(agent.counter("denied_calls"), 1);
        let line = refused.split('`').nth(1).expect("a line of the configuration").to_owned();
        let granted = agent_with(&line);
        worker(&granted, "https", Some(trusting().identity(identity()))).expect("it may now").welcomed();
    }
}
