//! A real Redis, unchanged: its commands, errors and bytes are what it says itself.

mod common;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use common::{Agent, Program, WAIT, output, there_are};

/// A Redis that listens on a socket in a folder.
struct Redis {
    socket: PathBuf,
    program: Program,
}

impl Redis {
    fn start(agent: &Agent) -> Self {
        let socket = agent.folder().join("redis.sock");
        let mut command = agent.watch("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
        let program = Program::start(command.arg("--dir").arg(agent.folder()));
        WAIT.until("Redis listens", || UnixStream::connect(&socket));
        Self { socket, program }
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-s").arg(&self.socket);
        command
    }

    fn cli(&self, arguments: &[&str]) -> String {
        output(self.client("redis-cli").args(arguments))
    }

    /// What it says about itself, this question included.
    fn info(&self) -> impl Fn(&str) -> i64 + use<> {
        let all = self.cli(&["INFO", "all"]);
        move |name| {
            let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).expect("Redis knows it")
        }
    }
}

/// Without this, what follows says nothing.
fn is_here() -> bool {
    there_are(&["redis-server", "redis-cli", "redis-benchmark"])
}

#[test]
fn requests_errors_and_bytes_are_those_that_redis_counts() {
    if !is_here() {
        return;
    }
    let agent = Agent::start();
    let redis = Redis::start(&agent);
    output(redis.client("redis-benchmark").args(["-q", "-n", "20000", "-c", "20", "-t", "set,get,lpush"]));
    for _ in 0..3 {
        redis.cli(&["NO-SUCH-COMMAND"]);
    }
    let info = redis.info();
    // The benchmark begins with two commands at once. Redis counts this question after its answer, and no command that
    // it does not know.
    let commands = info("total_commands_processed") + 1;
    agent.reaches("server.requests", commands - 1 + 3);
    agent.reaches("server.connection.count", 0);

    let values = agent.values();
    let pipelined = values["server.unseen{reason=\"pipelined\"}"];
    assert_eq!((pipelined, agent.sum("server.unseen")), (1, 1), "{values:#?}");
    assert_eq!(values["server.requests{outcome=\"ok\"}"] + pipelined, commands, "{values:#?}");
    assert_eq!(values["server.requests{outcome=\"error\"}"], 3);
    assert_eq!(values["server.request.duration"], agent.sum("server.requests"));
    assert_eq!(values["server.connections"], info("total_connections_received"));
    let received = "server.network.io{network.io.direction=\"receive\"}";
    assert_eq!(values[received], info("total_net_input_bytes"));
    assert_eq!(values["server.active_requests"], 0);
    assert!(values.keys().all(|title| !title.contains("5xx")), "Redis is no server of HTTP");
    assert_eq!(agent.replicas()[0].service, "redis-server");
}

#[test]
fn what_is_pipelined_is_one_turn_and_is_said_to_be_unseen() {
    if !is_here() {
        return;
    }
    let agent = Agent::start();
    let redis = Redis::start(&agent);

    output(redis.client("redis-benchmark").args(["-q", "-n", "16000", "-c", "4", "-P", "16", "-t", "set"]));
    let info = redis.info();
    assert!(info("total_commands_processed") >= 16_000);
    WAIT.until("what is pipelined is unseen", || {
        let unseen = agent.sum("server.unseen{reason=\"pipelined\"}");
        if unseen >= 1_000 { Ok(()) } else { Err(agent.values()) }
    });
    agent.reaches("server.connection.count", 0);

    assert!(agent.sum("server.requests") < 2_000, "{:#?}", agent.values());
}

#[test]
fn a_child_that_saves_changes_nothing_and_a_killed_redis_takes_its_replica_with_it() {
    if !is_here() {
        return;
    }
    let agent = Agent::start();
    let mut redis = Redis::start(&agent);
    redis.cli(&["SET", "key", "value"]);

    redis.cli(&["BGSAVE"]);
    WAIT.until("it saves", || (redis.info()("rdb_bgsave_in_progress") == 0).then_some(()));
    assert_eq!(redis.info()("rdb_saves"), 1);
    let info = redis.info();
    agent.reaches("server.requests", info("total_commands_processed") + 1);
    agent.reaches("server.connection.count", 0);
    assert_eq!(agent.replicas().len(), 1, "the child has registered nothing");

    redis.program.0.kill().expect("it runs");
    WAIT.until("the agent sees the end", || agent.replicas()[0].ended.then_some(()));
}
