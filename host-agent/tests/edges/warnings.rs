//! What a configuration leaves open is said where operators look, while the agent runs.

use std::net::TcpStream;

use crate::agent::{Agent, WAIT};

#[test]
fn open_addresses_and_secrets_over_http_are_in_the_status_and_counted_and_no_secret_is() {
    // 192.0.2.1 is an address that nobody has.
    let agent = Agent::with(
        "head_sampling: {listen: '0.0.0.0:0'}\n\
         remote_write: {url: 'http://192.0.2.1:9/w', headers: {authorization: s3cret}}\n\
         webhooks: [{name: a, url: 'http://192.0.2.1:9/x', headers: {x-token: s3cret}}]\n",
    );

    let status = agent.status();

    let expected = [
        "head_sampling.listen 0.0.0.0:0 has no TLS",
        "remote_write: the header authorization goes to 192.0.2.1 over http",
        "webhooks: the header x-token goes to 192.0.2.1 over http",
    ];
    assert_eq!(status.warnings.len(), expected.len(), "{:?}", status.warnings);
    for (warning, expected) in status.warnings.iter().zip(expected) {
        assert!(warning.starts_with(expected), "{warning}");
    }
    let page = agent.get("/metrics").1;
    assert!(page.contains("\nuview_host_warnings 3\n"), "{page}");
    assert!(!format!("{status:?}{page}").contains("s3cret"));
}

#[test]
fn an_agent_that_leaves_nothing_open_says_nothing() {
    let agent = Agent::start();

    assert_eq!(agent.status().warnings, [""; 0]);
    assert!(agent.get("/metrics").1.contains("\nuview_host_warnings 0\n"));
}

#[test]
fn a_listener_that_is_full_is_in_the_status_with_who_has_most() {
    let agent = Agent::start();
    // One more than one user may have.
    let _held: Vec<_> = (0..65).map(|_| TcpStream::connect(agent.at.metrics).unwrap()).collect();

    let problem = WAIT.until("it is in the status", || {
        agent.status().problems.into_iter().find(|problem| problem.starts_with("metrics: connections are refused"))
    });

    let said = format!("user {} has 64 connections", rustix::process::geteuid().as_raw());
    assert!(problem.contains(&said), "{problem}");
}
