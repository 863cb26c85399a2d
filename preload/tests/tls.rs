//! Real TLS and HTTP/2: what they hide is named, connection by connection, and nothing is made up in its place.

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Agent, Program, WAIT, output, there_are};

const NGINX: &str = "
daemon off; worker_processes 1; user root; pid FOLDER/pid; error_log FOLDER/errors;
events { worker_connections 64; }
http {
    access_log off; client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi; uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
    ssl_certificate FOLDER/certificate.pem; ssl_certificate_key FOLDER/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
    server { listen unix:FOLDER/tls ssl http2; location / { return 503; } }
    server { listen unix:FOLDER/h2c http2; location / { return 503; } }
    server { listen unix:FOLDER/plain; location / { return 503; } }
}";

/// A certificate of this test, and its key.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    command.args(["-days", "2", "-subj", "/CN=localhost", "-keyout"]).arg(&key).arg("-out").arg(&certificate);
    output(&mut command);
    (certificate, key)
}

fn nginx(agent: &Agent) -> Program {
    let folder = agent.folder().display().to_string();
    certificate(agent.folder());
    let config = agent.folder().join("nginx.conf");
    fs::write(&config, NGINX.replace("FOLDER", &folder)).expect("the folder is ours");
    let program = Program::start(agent.watch("nginx").args(["-p", &folder, "-c"]).arg(&config));
    WAIT.until("nginx listens", || UnixStream::connect(agent.folder().join("plain")));
    // The connection that has just been made.
    agent.reaches("server.connections", 1);
    program
}

/// Asks `times` over one connection. All answers have to be those of nginx.
fn ask(agent: &Agent, socket: &str, url: &str, times: usize, options: &[&str]) {
    let mut command = Command::new("curl");
    command.args(["-s", "-k", "-w", "%{http_code}\n", "--unix-socket"]).arg(agent.folder().join(socket)).args(options);
    (0..times).for_each(|_| _ = command.args(["-o", "/dev/null", url]));
    assert_eq!(output(&mut command), "503\n".repeat(times));
}

#[test]
fn requests_within_tls_and_http2_are_said_to_be_unseen_and_none_is_made_up() {
    if !there_are(&["nginx", "openssl", "curl"]) {
        return;
    }
    let agent = Agent::start();
    let _nginx = nginx(&agent);

    ask(&agent, "tls", "https://localhost/", 2, &["--http1.1", "--tlsv1.3"]);
    ask(&agent, "tls", "https://localhost/", 2, &["--http1.1", "--tls-max", "1.2"]);
    ask(&agent, "tls", "https://localhost/", 2, &["--http2"]);
    ask(&agent, "h2c", "http://localhost/", 1, &["--http2-prior-knowledge"]);
    agent.reaches("server.unseen{reason=\"tls\"}", 3);
    agent.reaches("server.unseen{reason=\"http2\"}", 1);
    agent.reaches("server.connections", 1 + 4);
    agent.reaches("server.connection.count", 0);

    let values = agent.values();
    assert_eq!((agent.sum("server.requests"), agent.sum("server.unseen")), (0, 4), "{values:#?}");
    assert_eq!((values["server.request.duration"], values["server.active_requests"]), (0, 0), "{values:#?}");
    let io = |direction: &str| values[&format!("server.network.io{{network.io.direction=\"{direction}\"}}")];
    assert!(io("receive") > 1_000 && io("transmit") > 1_000, "bytes are counted: {values:#?}");
    assert!(values.keys().all(|title| !title.starts_with("server.watch.off") || values[title] == 0), "{values:#?}");

    // Beside them, what is in the clear is counted as ever.
    ask(&agent, "plain", "http://localhost/", 2, &[]);
    agent.reaches("server.requests{outcome=\"5xx\"}", 2);
    assert_eq!((agent.sum("server.requests"), agent.sum("server.unseen")), (2, 4), "{:#?}", agent.values());
}

#[test]
fn commands_within_tls_are_said_to_be_unseen() {
    if !there_are(&["redis-server", "redis-cli", "openssl"]) {
        return;
    }
    let agent = Agent::start();
    let (certificate, key) = certificate(agent.folder());
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port is free");
    let port = free.port().to_string();
    let mut command = agent.watch("redis-server");
    command.args(["--port", "0", "--save", "", "--bind", "127.0.0.1", "--tls-auth-clients", "no", "--tls-port", &port]);
    command.arg("--tls-cert-file").arg(certificate).arg("--tls-key-file").arg(key);
    let _redis = Program::start(command.arg("--dir").arg(agent.folder()));
    let ping = || Command::new("redis-cli").args(["-p", &port, "--tls", "--insecure", "PING"]).output();
    WAIT.until("Redis listens", || ping().ok().filter(|output| output.stdout.starts_with(b"PONG")));
    agent.reaches("server.unseen{reason=\"tls\"}", 1);

    assert!(ping().expect("redis-cli starts").stdout.starts_with(b"PONG"));
    agent.reaches("server.unseen{reason=\"tls\"}", 2);

    agent.reaches("server.connections", 2);
    assert_eq!(agent.sum("server.unseen"), 2, "{:#?}", agent.values());
    assert_eq!(agent.sum("server.requests"), 0, "{:#?}", agent.values());
}
