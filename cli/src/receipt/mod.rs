//! `uview receipt`: what was seen, kept, dropped and lost, per day and service, and what head sampling would have kept for as many bytes.

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
    /// Write a web page to this file, that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Asks and prints, or writes.
///
/// # Errors
///
/// [`Failure`] if the agent is not there, or nothing can be printed or written.
pub fn run(args: &ReceiptArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let what = "ask the host agent for its receipt";
    let place = args.agent.clone().place(from_environment)?;
    let ask = async { Connection::open(&place).await?.receipt().await };
    let reply: ReceiptReply = agent::runtime(what)?.block_on(ask).map_err(|error| error.into_failure(what))?;
    let view = View::of(&reply);
    match &args.html {
        Some(path) => {
            let written = std::fs::write(path, page::page(&view));
            written.map_err(|error| Failure::to(format!("write {}", path.display())).caused_by(&error))?;
            output::tell(&format!("the receipt is in {}", path.display()));
        }
        None if args.json => output::print(&json(&view)?)?,
        None => output::print(&view.to_string())?,
    }
    Ok(Exit::Fine)
}
