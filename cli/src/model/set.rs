//! `uview model set` and `unset`: gives a running host agent a model for a service, and takes it back.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use wire::proto::operators::{LmapStatus, SetModelReply};

use super::{MAX_BYTES, contents, decode};
use crate::agent::{self, AgentArgs, Connection, Target};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// The long help of `uview model set`.
pub const LONG_ABOUT: &str = "\
Give a running agent a model for a service, which judges from the next row on

  uview model set payment payment.model
  uview model unset payment                it learns by itself again

The file is one of `uview train`, `uview replay --save-model`, `uview model fetch` or `merge`; `-`
is the standard input. What has judged the service goes on until its next row. An alarm that is on
goes on.

A model is refused if it is damaged, of another version, above 8 MiB, of rows at another interval
than the service has, or if it knows less than half of what is watched of the service. Nothing has
changed then. Metrics that it does not know are named, and not judged.

No fit takes the place of such a model: it stays until another one is set, `uview model unset`, or
the end of the host agent. Then its LMAP (local metrics analysis pipeline) goes on from it, and
learns by itself. At another interval than its own it does not judge (`uview lmap SERVICE`).

Each node is asked by itself. You need the role operator (docs/access.md).";

/// Arguments of `uview model set`.
#[derive(Clone, Debug, clap::Args)]
pub struct SetArgs {
    /// Name of the service, or of an LMAP over several
    service: String,
    /// The model file; - is the standard input
    file: PathBuf,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Arguments of `uview model unset`.
#[derive(Clone, Debug, clap::Args)]
pub struct UnsetArgs {
    /// Name of the service, or of an LMAP over several
    service: String,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Gives a model, and prints how it fits.
///
/// # Errors
///
/// [`Failure`] if there is no model in the file, if the agent cannot be asked, or if it declines.
pub fn run(args: &SetArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let (service, what) = (&args.service, format!("give {} a model", args.service));
    let (bytes, name) = if args.file == Path::new("-") {
        (input(&what)?, "the standard input".to_owned())
    } else {
        (contents(&args.file, &what)?, args.file.display().to_string())
    };
    decode(&bytes, &name, &what)?;
    let target = args.agent.clone().target(from_environment)?;
    let reply = agent::runtime(&what)?.block_on(give(&target, service, bytes, &what))?;
    output::print(&given(service, &reply))?;
    Ok(Exit::Fine)
}

async fn give(target: &Target, service: &str, model: Vec<u8>, what: &str) -> Result<SetModelReply, Failure> {
    let mut agent = Connection::open(target).await.map_err(|error| error.into_failure(what))?;
    let lmap = find(&mut agent, service, what).await?;
    agent.set_model(lmap.lmap, model).await.map_err(|error| error.into_failure(what))
}

/// Takes the model back that a service was given.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked, or there is no LMAP of that name.
pub fn undo(args: &UnsetArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let (service, what) = (&args.service, format!("take the model of {} back", args.service));
    let target = args.agent.clone().target(from_environment)?;
    output::print(&agent::runtime(&what)?.block_on(take_back(&target, service, &what))?)?;
    Ok(Exit::Fine)
}

/// Takes the model of a service back. Returns what to print.
async fn take_back(target: &Target, service: &str, what: &str) -> Result<String, Failure> {
    let mut agent = Connection::open(target).await.map_err(|error| error.into_failure(what))?;
    let lmap = find(&mut agent, service, what).await?;
    if lmap.model_by.is_empty() {
        return Ok(format!("{service}: nobody gave it a model: it learns by itself\n"));
    }
    agent.set_model(lmap.lmap, Vec::new()).await.map_err(|error| error.into_failure(what))?;
    let from = "from what it had learnt before that model, or from the model if that is not known";
    Ok(format!("{service}: learns by itself again, {from}\n"))
}

/// All of the standard input.
fn input(what: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(MAX_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| Failure::to(what).because("the standard input cannot be read").caused_by(&error))?;
    Ok(bytes)
}

/// The LMAP of a service.
async fn find(agent: &mut Connection, service: &str, what: &str) -> Result<LmapStatus, Failure> {
    let status = agent.status().await.map_err(|error| error.into_failure(what))?;
    let none = || Failure::to(what).because("no LMAP has that name").advice("`uview status` lists the services");
    status.lmaps.into_iter().find(|lmap| lmap.service == service).ok_or_else(none)
}

/// How a model fits the service that has it now, in words.
fn given(service: &str, reply: &SetModelReply) -> String {
    let SetModelReply { examples, .. } = reply;
    let SetModelReply { columns, unknown, running, .. } = *reply;
    let from = match (columns, running) {
        (0, _) => "from the first row of its next replica on; whether it knows its metrics is seen then",
        (_, true) => "from its next row on",
        (_, false) => "as soon as a NIC agent runs its LMAP",
    };
    let mut text = format!("{service}: judged by this model {from}\n");
    if unknown > 0 {
        let more = (unknown as usize).saturating_sub(examples.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = examples.join(", ");
        let _ = writeln!(text, "{service}: not judged, since it does not know {unknown} of {columns}: {named}{more}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_does_not_know_is_named_and_counted() {
        let reply = SetModelReply { columns: 61, unknown: 0, examples: Vec::new(), running: true };
        assert_eq!(given("payment", &reply), "payment: judged by this model from its next row on\n");

        let examples = ["errors", "queue.depth"].map(str::to_owned).to_vec();
        let partly = SetModelReply { unknown: 2, examples, ..reply.clone() };
        let text = given("payment", &partly);
        assert!(text.ends_with("not judged, since it does not know 2 of 61: errors, queue.depth\n"), "{text}");
        let many = given("payment", &SetModelReply { unknown: 9, ..partly });
        assert!(many.ends_with("9 of 61: errors, queue.depth and 7 more\n"), "{many}");

        let unplaced = given("payment", &SetModelReply { running: false, ..reply.clone() });
        assert!(unplaced.ends_with("as soon as a NIC agent runs its LMAP\n"), "{unplaced}");
        let absent = given("payment", &SetModelReply { columns: 0, ..reply });
        assert!(absent.contains("first row of its next replica"), "{absent}");
    }
}
