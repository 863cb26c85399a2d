//! `uview paths`: operations of frontends and the services on the path of their requests, learnt from spans: a table,
//! JSON, or a drawing.

mod drawing;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::discovery::{self, READY_FILE};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::output::{self, json};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest response that is read: 10,000 operations with 256 services each fit.
const MAX_RESPONSE_BYTES: u64 = 256 << 20;
const WHAT: &str = "ask the host agent for paths";

/// Arguments of `uview paths`.
#[derive(Clone, Debug, clap::Args)]
pub struct PathsArgs {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    /// Also draw operations and services into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Runtime directory of the host agent [default: $UVIEW_RUNTIME_DIR, else /run/uview, else the only agent's]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Address of the agent's /metrics and /paths, instead of the one in host-agent.json
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
}

/// The JSON document at `/paths` of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Paths {
    /// Sorted by tenant, frontend and name.
    pub operations: Vec<Operation>,
}

/// One operation of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Operation {
    /// The tenant of the request.
    pub tenant: String,
    /// The service that received the request first.
    pub service: String,
    /// The name of the operation in that service.
    pub operation: String,
    /// Requests that entered at this node since the operation is known.
    pub requests: u64,
    /// The services on the path, sorted by name.
    pub services: Vec<ServiceOnPath>,
}

/// A service on the path of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ServiceOnPath {
    /// The name of the service.
    pub service: String,
    /// Milliseconds since a request was last seen in it.
    pub age_ms: u64,
    /// Operations that were requested of it; empty from an older agent.
    #[serde(default)]
    pub asked: Vec<String>,
}

/// The field of `host-agent.json` that is used here.
#[derive(Debug, Deserialize)]
struct Ready {
    metrics: String,
}

/// Asks the agent for its paths, prints them, and draws them if requested.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked or has no paths, or the output cannot be written.
pub fn run(args: &PathsArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let address = match &args.metrics {
        Some(address) => address.clone(),
        None => announced(&discovery::runtime_dir(WHAT, args.runtime_dir.clone(), from_environment)?)?,
    };
    let paths = ask(&address)?;
    if let Some(file) = &args.svg {
        let failed = |error: std::io::Error| Failure::to(format!("draw {}", file.display())).caused_by(&error);
        std::fs::write(file, drawing::svg(&paths)).map_err(failed)?;
    }
    output::print(&if args.json { json(&paths)? } else { text(&paths) })?;
    Ok(Exit::Fine)
}

/// The metrics address in `host-agent.json`.
fn announced(folder: &Path) -> Result<String, Failure> {
    let path = folder.join(READY_FILE);
    let failed = |error: &(dyn core::error::Error + 'static)| {
        let advice = "start `uview host-agent`, or pass its --runtime-dir or --metrics address";
        Failure::to(WHAT).because(format!("{} cannot be read", path.display())).caused_by(error).advice(advice)
    };
    let text = std::fs::read(&path).map_err(|error| failed(&error))?;
    let ready: Ready = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
    Ok(ready.metrics)
}

fn ask(address: &str) -> Result<Paths, Failure> {
    let failed = |because: String| Failure::to(WHAT).because(format!("{address}: {because}"));
    let response = get(address).map_err(|error| failed(error.to_string()).advice("is the host agent running?"))?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => serde_json::from_str(body).map_err(|error| failed(error.to_string())),
        "404" => Err(failed("it has no paths".to_owned())
            .advice("paths are learnt from buffered spans: set otlp.traces.keep to tail")),
        other => Err(failed(format!("HTTP status {other:?}"))),
    }
}

/// Sends the HTTP request; this is the only HTTP client of this program.
fn get(address: &str) -> std::io::Result<String> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let first = addresses.first().ok_or_else(|| std::io::Error::other("no such host"))?;
    let mut stream = TcpStream::connect_timeout(first, CONNECT_TIMEOUT)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    write!(stream, "GET /paths HTTP/1.0\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_string(&mut response)?;
    Ok(response)
}

/// A table with one line for each service on the path of each operation.
fn text(paths: &Paths) -> String {
    if paths.operations.is_empty() {
        return "no path is known yet: paths are learnt from one trace in 16, once it leaves the buffer\n".to_owned();
    }
    let name = |operation: &Operation| {
        let tenant = if operation.tenant == "default" { String::new() } else { format!("[{}] ", operation.tenant) };
        format!("{tenant}{} {}", operation.service, operation.operation)
    };
    let width = paths.operations.iter().map(|operation| name(operation).chars().count()).max().unwrap_or(0).max(9);
    let mut text =
        format!("{:<width$}  {:>9}  {:<24}  {:<16}  its operations\n", "operation", "requests", "service", "last seen");
    for operation in &paths.operations {
        let (mut what, mut requests) = (name(operation), operation.requests.to_string());
        for hop in &operation.services {
            let (age, asked) = (duration_ms(hop.age_ms) + " ago", hop.asked.join(", "));
            let line = format!("{what:<width$}  {requests:>9}  {:<24}  {age:<16}  {asked}", hop.service);
            _ = writeln!(text, "{}", line.trim_end());
            (what, requests) = (String::new(), String::new());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        let hop = |service: &str, age_ms, asked: &[&str]| {
            let asked = asked.iter().map(ToString::to_string).collect();
            ServiceOnPath { service: service.to_owned(), age_ms, asked }
        };
        let operation = |tenant: &str, name: &str, services| Operation {
            tenant: tenant.to_owned(),
            service: "frontend".to_owned(),
            operation: name.to_owned(),
            requests: 1_200,
            services,
        };
        Paths {
            operations: vec![
                operation("default", "GET /<id>", vec![hop("catalog", 0, &[])]),
                operation(
                    "bank",
                    "POST /pay",
                    vec![hop("frontend", 61_000, &["POST /pay"]), hop("payment", 500, &["Charge", "History"])],
                ),
            ],
        }
    }

    #[test]
    fn each_operation_has_its_services_under_it() {
        let expected = "\
operation                   requests  service                   last seen         its operations
frontend GET /<id>              1200  catalog                   0 ms ago
[bank] frontend POST /pay       1200  frontend                  1 min 1 s ago     POST /pay
                                      payment                   500 ms ago        Charge, History
";
        assert_eq!(text(&paths()), expected);
        assert!(text(&Paths { operations: Vec::new() }).contains("no path is known yet"));
    }

    #[test]
    fn the_drawing_has_every_name_once_and_a_line_for_each_pair() {
        let svg = drawing::svg(&paths());

        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        for name in ["GET /&lt;id&gt;", "POST /pay", "payment", "catalog"] {
            assert_eq!(svg.matches(&format!("{name}</text>")).count(), 1, "{name}");
        }
        assert_eq!(svg.matches("<path ").count(), 3);
    }

    #[test]
    fn an_agent_that_is_not_there_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let text = announced(folder.path()).unwrap_err().to_string();

        assert!(text.contains("host-agent.json cannot be read") && text.contains("uview host-agent"), "{text}");
        assert!(ask("127.0.0.1:1").unwrap_err().to_string().contains("is the host agent running?"));
    }
}
