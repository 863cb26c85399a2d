//! `uview paths`: operations of frontends and the services that their requests pass, as spans showed: a table, JSON, or drawn.

mod drawing;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::{READY_FILE, RUNTIME_DIR};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::output::{self, json};

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// An answer is not read further: 10,000 operations with 256 services each would fit.
const ANSWER_BYTES: u64 = 256 << 20;
const WHAT: &str = "ask the host agent for paths";

/// Arguments of `uview paths`.
#[derive(Clone, Debug, clap::Args)]
pub struct PathsArgs {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    /// Draw operations and services into this file, too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Where the host agent keeps its sockets and host-agent.json [default: $UVIEW_RUNTIME_DIR, else /run/uview]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// The address of the agent's /metrics and /paths, instead of the one in host-agent.json
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Page {
    /// By tenant, frontend and name.
    pub operations: Vec<Operation>,
}

/// One operation of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Operation {
    /// Whose.
    pub tenant: String,
    /// The frontend.
    pub service: String,
    /// What it calls the operation.
    pub operation: String,
    /// Requests that entered by this node since the operation is known.
    pub requests: u64,
    /// By name.
    pub services: Vec<Passed>,
}

/// A service on its path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Passed {
    /// Its name.
    pub service: String,
    /// Since a request was last seen to pass it, in milliseconds.
    pub age_ms: u64,
    /// What it was asked for; empty from an agent that does not say it.
    #[serde(default)]
    pub asked: Vec<String>,
}

/// The part of `host-agent.json` that says where to ask.
#[derive(Debug, Deserialize)]
struct Ready {
    metrics: String,
}

/// Asks, prints, draws.
///
/// # Errors
///
/// [`Failure`] if the agent is not there or has no paths, or nothing can be printed or drawn.
pub fn run(args: &PathsArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let folder = args.runtime_dir.clone().or(from_environment).unwrap_or_else(|| PathBuf::from(RUNTIME_DIR));
    let address = args.metrics.clone().map_or_else(|| announced(&folder), Ok)?;
    let page = ask(&address)?;
    if let Some(file) = &args.svg {
        let failed = |error: std::io::Error| Failure::to(format!("draw {}", file.display())).caused_by(&error);
        std::fs::write(file, drawing::svg(&page)).map_err(failed)?;
    }
    output::print(&if args.json { json(&page)? } else { text(&page) })?;
    Ok(Exit::Fine)
}

/// The address in `host-agent.json`.
fn announced(folder: &Path) -> Result<String, Failure> {
    let path = folder.join(READY_FILE);
    let failed = |error: &(dyn core::error::Error + 'static)| {
        let advice = "start `uview host-agent`, or name its --runtime-dir or --metrics address";
        Failure::to(WHAT).because(format!("{} cannot be read", path.display())).caused_by(error).advice(advice)
    };
    let text = std::fs::read(&path).map_err(|error| failed(&error))?;
    let ready: Ready = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
    Ok(ready.metrics)
}

fn ask(address: &str) -> Result<Page, Failure> {
    let failed = |because: String| Failure::to(WHAT).because(format!("{address}: {because}"));
    let answer = get(address).map_err(|error| failed(error.to_string()).advice("is the host agent running?"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => serde_json::from_str(body).map_err(|error| failed(error.to_string())),
        "404" => Err(failed("it has no paths".to_owned())
            .advice("paths are learnt from spans that wait: set otlp.traces.keep to tail")),
        other => Err(failed(format!("it answered {other:?}"))),
    }
}

/// The page, by plain HTTP: nothing else of this program speaks it.
fn get(address: &str) -> std::io::Result<String> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let first = addresses.first().ok_or_else(|| std::io::Error::other("no such host"))?;
    let mut stream = TcpStream::connect_timeout(first, CONNECT_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    write!(stream, "GET /paths HTTP/1.0\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES).read_to_string(&mut answer)?;
    Ok(answer)
}

/// A table: a line for each operation, and one for each service on its path.
fn text(page: &Page) -> String {
    if page.operations.is_empty() {
        return "no path is known yet: it is learnt from one trace in sixteen, when it has waited\n".to_owned();
    }
    let name = |operation: &Operation| {
        let tenant = if operation.tenant == "default" { String::new() } else { format!("[{}] ", operation.tenant) };
        format!("{tenant}{} {}", operation.service, operation.operation)
    };
    let width = page.operations.iter().map(|operation| name(operation).chars().count()).max().unwrap_or(0).max(9);
    let mut text =
        format!("{:<width$}  {:>9}  {:<24}  {:<16}  asked for\n", "operation", "requests", "passes", "last seen");
    for operation in &page.operations {
        let (mut what, mut requests) = (name(operation), operation.requests.to_string());
        for passed in &operation.services {
            let (age, asked) = (duration_ms(passed.age_ms) + " ago", passed.asked.join(", "));
            let line = format!("{what:<width$}  {requests:>9}  {:<24}  {age:<16}  {asked}", passed.service);
            _ = writeln!(text, "{}", line.trim_end());
            (what, requests) = (String::new(), String::new());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let passed = |service: &str, age_ms, asked: &[&str]| {
            let asked = asked.iter().map(ToString::to_string).collect();
            Passed { service: service.to_owned(), age_ms, asked }
        };
        let operation = |tenant: &str, name: &str, services| Operation {
            tenant: tenant.to_owned(),
            service: "frontend".to_owned(),
            operation: name.to_owned(),
            requests: 1_200,
            services,
        };
        Page {
            operations: vec![
                operation("default", "GET /<id>", vec![passed("catalog", 0, &[])]),
                operation(
                    "bank",
                    "POST /pay",
                    vec![passed("frontend", 61_000, &["POST /pay"]), passed("payment", 500, &["Charge", "History"])],
                ),
            ],
        }
    }

    #[test]
    fn each_operation_has_its_services_under_it() {
        let expected = "\
operation                   requests  passes                    last seen         asked for
frontend GET /<id>              1200  catalog                   0 ms ago
[bank] frontend POST /pay       1200  frontend                  1 min 1 s ago     POST /pay
                                      payment                   500 ms ago        Charge, History
";
        assert_eq!(text(&page()), expected);
        assert!(text(&Page { operations: Vec::new() }).contains("no path is known yet"));
    }

    #[test]
    fn the_drawing_has_every_name_once_and_a_line_for_each_pair() {
        let svg = drawing::svg(&page());

        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        for name in ["GET /&lt;id&gt;", "POST /pay", "payment", "catalog"] {
            assert_eq!(svg.matches(&format!("{name}</text>")).count(), 1, "{name}");
        }
        assert_eq!(svg.matches("<path ").count(), 3);
    }

    #[test]
    fn an_agent_that_is_not_there_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let said = announced(folder.path()).unwrap_err().to_string();

        assert!(said.contains("host-agent.json cannot be read") && said.contains("uview host-agent"), "{said}");
        assert!(ask("127.0.0.1:1").unwrap_err().to_string().contains("is the host agent running?"));
    }
}
