//! A program that forks, has threads and signal handlers, closes descriptors in all ways and uses them again: it works
//! as without the library, and every count is right.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use common::{Agent, Program, WAIT, output, there_are};

/// Compiles the program.
fn built(agent: &Agent) -> PathBuf {
    let program = agent.folder().join("hostile");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-D_GNU_SOURCE", "-D_FORTIFY_SOURCE=2", "-Wall", "-pthread", "-o"]);
    output(cc.arg(&program).arg(&source));
    program
}

#[test]
fn whatever_a_program_does_it_works_as_before_and_its_counts_are_right() {
    if !there_are(&["cc"]) {
        return;
    }
    let agent = Agent::start();
    let program = built(&agent);
    output(Command::new(&program).stdin(Stdio::null()));

    let mut command = agent.watch(program.to_str().expect("a folder for temporary files is text"));
    let mut program = Program::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(program.0.stdout.take().expect("it is piped")).read_line(&mut line).expect("it is text");
    let counts: Vec<i64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [connections, turns, received, sent] = counts[..] else { panic!("the program has failed: {line}") };

    agent.reaches("server.requests{outcome=\"unknown\"}", turns);
    agent.reaches("server.connection.count", 0);
    agent.reaches("server.active_requests", 0);
    let values = agent.values();
    assert!(turns > 16_000);
    assert_eq!(values["server.request.duration"], turns);
    assert_eq!(values["server.connections"], connections);
    assert_eq!(values["server.network.io{network.io.direction=\"receive\"}"], received);
    assert_eq!(values["server.network.io{network.io.direction=\"transmit\"}"], sent);
    // It is its own client: what one end has sent, the other has received.
    assert_eq!(values["client.network.io{network.io.direction=\"transmit\"}"], received);
    assert_eq!(values["client.network.io{network.io.direction=\"receive\"}"], sent);
    assert_eq!(agent.sum("server.unseen"), 0);
    assert_eq!(agent.sum("server.watch.off"), 0);
    assert_eq!(agent.replicas().len(), 1);
    drop(program.0.stdin.take());
    assert!(program.0.wait().expect("it ends").success());
}

#[test]
fn connections_that_were_there_before_the_agent_are_counted_however_often_the_library_looks_for_it() {
    if !there_are(&["cc"]) {
        return;
    }
    let agent = Agent::starting();
    let program = built(&agent);
    let mut command = agent.watch(program.to_str().expect("a folder for temporary files is text"));
    command.arg("early").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Program::start(&mut command);
    let mut lines = BufReader::new(program.0.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("connected"));

    // Sockets of the library have had numbers that connections of the program have.
    let hung_up = || agent.starting.hung_up.load(Relaxed);
    let before = hung_up();
    WAIT.until("the library tries again", || hung_up() >= before + 3);
    agent.becomes_ready();
    program.0.stdin.as_mut().expect("it is piped").write_all(b"\n").expect("it reads");

    let counts = lines.next().expect("it prints its counts");
    let counts: Vec<i64> = counts.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [connections, turns, received, sent] = counts[..] else { panic!("the program has failed: {counts:?}") };
    agent.reaches("server.requests{outcome=\"unknown\"}", turns);
    agent.reaches("server.connection.count", 0);
    assert_eq!(agent.sum("server.connections"), connections);
    let values = agent.values();
    let bytes =
        |end: &str, direction: &str| values[&format!("{end}.network.io{{network.io.direction=\"{direction}\"}}")];
    assert_eq!((bytes("server", "receive"), bytes("server", "transmit")), (received, sent));
    assert_eq!((bytes("client", "receive"), bytes("client", "transmit")), (sent, received));
}

#[test]
fn a_program_that_accepts_nothing_registers_nothing() {
    if !there_are(&["sh", "cat"]) {
        return;
    }
    let agent = Agent::start();
    let mut shell = agent.watch("sh");
    assert_eq!(output(shell.args(["-c", "echo $(echo text | cat)"]).stdout(Stdio::piped())), "text\n");
    assert!(agent.replicas().is_empty());
}

#[test]
fn a_switch_turns_everything_off_and_names_come_from_the_environment() {
    if !there_are(&["cc"]) {
        return;
    }
    let agent = Agent::start();
    let program = built(&agent);
    let run = |variable: (&str, &str)| {
        let path = program.to_str().expect("a folder for temporary files is text");
        output(agent.watch(path).env(variable.0, variable.1));
        let replicas = agent.replicas();
        replicas.last().map(|replica| (replica.service.clone(), replica.process_metrics))
    };

    assert_eq!(run(("UVIEW_PRELOAD", "off")), None);
    assert_eq!(run(("OTEL_SERVICE_NAME", "shop")), Some(("shop".to_owned(), true)));
    assert_eq!(run(("UVIEW_PRELOAD", "traffic")), Some(("hostile".to_owned(), false)));
}
