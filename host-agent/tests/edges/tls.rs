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

fn agent() -> Agent {
    let path = |name| certificate(name).display().to_string();
    Agent::with(&format!(
        "access: {{workers: {{certificates: [{WORKER}]}}}}\ncontrol:\n  listen: 127.0.0.1:0\n  \
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
