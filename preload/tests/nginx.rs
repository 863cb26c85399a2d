//! A real nginx with two workers, reloaded while it runs.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Agent, Program, WAIT, output, there_are};

const CONFIG: &str = "
daemon off; worker_processes 2; user root; pid FOLDER/pid; error_log FOLDER/errors;
events { worker_connections 64; }
http {
    access_log off; sendfile on; client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi; uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
    server {
        listen unix:FOLDER/socket; root FOLDER/files;
        location = /fails { return 503; }
        location = /elsewhere { return 302 /; }
        location = /status { stub_status; }
    }
}";

/// Asks one connection for all `paths`, one after the other. The bytes sent and received.
fn ask(socket: &Path, paths: &[&str]) -> (i64, i64, String) {
    let mut stream = UnixStream::connect(socket).expect("nginx listens");
    let (mut sent, mut received, mut last) = (0, 0, Vec::new());
    for path in paths {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("nginx reads");
        sent += request.len();
        last.clear();
        let is_whole = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).to_lowercase();
            let (head, _) = text.split_once("\r\n\r\n")?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            (bytes.len() >= head.len() + 4 + length.unwrap_or(0)).then_some(())
        };
        while is_whole(&last).is_none() {
            let mut part = [0; 4096];
            let got = stream.read(&mut part).expect("nginx answers");
            assert!(got > 0, "nginx hung up on {path}");
            last.extend(&part[..got]);
        }
        received += last.len();
    }
    (sent as i64, received as i64, String::from_utf8_lossy(&last).into_owned())
}

/// What nginx says of itself: accepted connections and requests. The bytes of the question.
fn status(socket: &Path) -> (i64, i64, i64) {
    let (sent, _, text) = ask(socket, &["/status"]);
    let line =
        text.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1).expect("it has three numbers");
    let numbers: Vec<i64> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    (numbers[0], numbers[2], sent)
}

fn workers(master: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

fn start(agent: &Agent) -> (Program, PathBuf) {
    let folder = agent.folder().display().to_string();
    fs::create_dir(agent.folder().join("files")).expect("the folder is ours");
    fs::write(agent.folder().join("files/large"), vec![b'x'; 300_000]).expect("the folder is ours");
    let config = agent.folder().join("nginx.conf");
    fs::write(&config, CONFIG.replace("FOLDER", &folder)).expect("the folder is ours");
    let program = Program::start(agent.watch("nginx").args(["-p", &folder, "-c"]).arg(&config));
    let socket = agent.folder().join("socket");
    WAIT.until("nginx listens", || UnixStream::connect(&socket));
    (program, socket)
}

#[test]
fn requests_by_status_and_bytes_are_those_that_nginx_and_its_client_count() {
    if !there_are(&["nginx"]) {
        return;
    }
    let agent = Agent::start();
    let (program, socket) = start(&agent);
    let mut bytes = (0, 0);
    let mut add = |paths: &[&str]| {
        let (sent, received, _) = ask(&socket, paths);
        bytes = (bytes.0 + sent, bytes.1 + received);
    };
    for _ in 0..30 {
        add(&["/large", "/fails", "/nowhere", "/elsewhere", "/large"]);
    }
    let before = workers(program.0.id());
    output(Command::new("kill").args(["-HUP", &program.0.id().to_string()]));
    WAIT.until("it reloads", || workers(program.0.id()).iter().all(|pid| !before.contains(pid)).then_some(()));
    for _ in 0..20 {
        add(&["/large", "/fails"]);
    }
    let (accepts, requests, asked) = status(&socket);
    agent.reaches("server.requests", requests);

    let values = agent.values();
    let by = |outcome: &str| values[&format!("server.requests{{outcome=\"{outcome}\"}}")];
    let counted: BTreeMap<_, _> = ["2xx", "3xx", "4xx", "5xx"].into_iter().map(|class| (class, by(class))).collect();
    let expected = BTreeMap::from([("2xx", 60 + 20 + 1), ("3xx", 30), ("4xx", 30), ("5xx", 30 + 20)]);
    assert_eq!(counted, expected);
    agent.reaches("server.connections", accepts);
    assert_eq!(values["server.request.duration"], requests);
    assert_eq!(agent.sum("server.unseen"), 0);
    let io = |direction: &str| values[&format!("server.network.io{{network.io.direction=\"{direction}\"}}")];
    assert_eq!(io("receive"), bytes.0 + asked);
    // With the answer about the status.
    assert!(io("transmit") > bytes.1 && io("transmit") < bytes.1 + 1_000, "{} {}", io("transmit"), bytes.1);
    assert!(agent.replicas().iter().all(|replica| replica.service == "nginx"));
    assert!(agent.replicas().len() >= 2, "the workers before and after");
}

#[test]
fn a_worker_that_is_killed_ends_its_replica_and_the_next_one_has_another() {
    if !there_are(&["nginx"]) {
        return;
    }
    let agent = Agent::start();
    let (program, socket) = start(&agent);
    ask(&socket, &["/fails"]);
    WAIT.until("a worker registers", || (!agent.replicas().is_empty()).then_some(()));

    for pid in workers(program.0.id()) {
        output(Command::new("kill").args(["-KILL", &pid.to_string()]));
    }

    WAIT.until("the agent sees the end", || agent.replicas().iter().all(|replica| replica.ended).then_some(()));
    WAIT.until("nginx starts others", || (workers(program.0.id()).len() == 2).then_some(()));
    ask(&socket, &["/fails"]);
    WAIT.until("another worker registers", || agent.replicas().iter().any(|replica| !replica.ended).then_some(()));
}
