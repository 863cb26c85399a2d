//! `uview receipt`: spans, log records and requests that were seen, kept, dropped and lost, per day and service,
//! compared with head sampling at the same number of bytes.

mod logs;
mod page;
mod view;

use std::path::PathBuf;

use wire::proto::operators::ReceiptReply;

use crate::agent::{self, AgentArgs, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};

use view::View;

/// Arguments of `uview receipt`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReceiptArgs {
    /// Print JSON, for programs
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write a self-contained web page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Asks the agent for its receipt, and prints it or writes the page.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked, or the output cannot be written.
pub fn run(args: &ReceiptArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let what = "ask the host agent for its receipt";
    let target = args.agent.clone().target(from_environment)?;
    let request = async { Connection::open(&target).await?.receipt().await };
    let reply: ReceiptReply = agent::runtime(what)?.block_on(request).map_err(|error| error.into_failure(what))?;
    let view = View::of(&reply);
    match &args.html {
        Some(path) => {
            let written = std::fs::write(path, page::page(&view));
            written.map_err(|error| Failure::to(format!("write {}", path.display())).caused_by(&error))?;
            output::print_stderr(&format!("the receipt is in {}", path.display()));
        }
        None if args.json => output::print(&json(&view)?)?,
        None => output::print(&view.to_string())?,
    }
    Ok(Exit::Fine)
}
