//! `uview paths`: operations of frontends and the services on the path of their requests, learnt from spans: a table,
//! JSON, or a drawing.

mod drawing;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use wire::proto::operators::{PathOperation, PathService, PathsReply};

use crate::agent::{self, AgentArgs, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::output::{self, json};

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
    /// The host agent to ask.
    #[command(flatten)]
    agent: AgentArgs,
}

/// What `--json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Paths {
    /// Sorted by tenant, frontend and name.
    pub operations: Vec<Operation>,
}

/// One operation of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceOnPath {
    /// The name of the service.
    pub service: String,
    /// Milliseconds since a request was last seen in it.
    pub age_ms: u64,
    /// Operations that were requested of it.
    pub asked: Vec<String>,
}

impl From<PathsReply> for Paths {
    fn from(reply: PathsReply) -> Self {
        let service =
            |hop: PathService| ServiceOnPath { service: hop.service, age_ms: hop.age_ms, asked: hop.operations };
        let operation = |path: PathOperation| Operation {
            tenant: path.tenant,
            service: path.service,
            operation: path.operation,
            requests: path.requests,
            services: path.services.into_iter().map(service).collect(),
        };
        Self { operations: reply.operations.into_iter().map(operation).collect() }
    }
}

/// Asks the agent for its paths, prints them, and draws them if requested.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked or has no paths, or the output cannot be written.
pub fn run(args: &PathsArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let target = args.agent.clone().target(from_environment)?;
    let request = async { Connection::open(&target).await?.paths().await };
    let paths = agent::runtime(WHAT)?.block_on(request).map_err(|error| error.into_failure(WHAT))?;
    let not_buffered = || {
        let advice = "paths are learnt from buffered spans: set otlp.traces.keep to tail";
        Failure::to(WHAT).because("it has no paths").advice(advice)
    };
    let paths = Paths::from(paths.ok_or_else(not_buffered)?);
    if let Some(file) = &args.svg {
        let failed = |error: std::io::Error| Failure::to(format!("draw {}", file.display())).caused_by(&error);
        std::fs::write(file, drawing::svg(&paths)).map_err(failed)?;
    }
    output::print(&if args.json { json(&paths)? } else { text(&paths) })?;
    Ok(Exit::Fine)
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
}
