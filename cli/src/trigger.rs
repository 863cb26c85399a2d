//! `uview trigger`: has the traces through a service kept for a time, because somebody asks for them.

use std::path::PathBuf;

use wire::proto::operators::{TriggerReply, TriggerRequest};

use crate::agent::{self, AgentArgs, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::lmaps::interval::micros;
use crate::output;

/// The long help of `uview trigger`.
pub const LONG_ABOUT: &str = "\
Keep the traces through a service for a time, with your reason in each of them

  uview trigger checkout --for 5m --reason 'checkout is slow'
  uview trigger checkout --operation 'POST /pay'

The host agent keeps the traces with a span of the service: those that it has buffered, which is the
last minute unless it is configured otherwise, and those that come. They are kept as far as the
budget goes, behind errors, alarms and slow requests. The root span says who asked, and why.

The same service and operation again takes the place of the earlier request, so that `--for 1s` ends
it. Eight requests may go on at a time, of which four may be yours. A restart of the host agent ends
them.

Each node is asked by itself: one that has no span of the service has nothing to keep. What a node
keeps, all others that gossip with it keep, too. You need the role operator (docs/access.md).";

/// What becomes of kept traces where nobody gets them.
const ON_PAGE: &str =
    "\notlp.watch_only: they are passed on to nobody, and are on its page until newer ones take their place";

/// Arguments of `uview trigger`.
#[derive(Clone, Debug, clap::Args)]
pub struct TriggerArgs {
    /// Name of the service, as `uview receipt` lists it
    service: String,
    /// Only traces with such a span of the service, by the span's name [default: any]
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// For how long from now on, such as 30s or 5m; ten minutes at most
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = time)]
    length_ms: u64,
    /// Why, for whoever reads the traces; 128 bytes at most
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// A time in milliseconds.
fn time(text: &str) -> Result<u64, String> {
    let millis = micros(text).map(|micros| micros / 1_000).filter(|millis| *millis > 0);
    millis.ok_or_else(|| "a time such as 30s or 5m is possible".to_owned())
}

impl TriggerArgs {
    fn request(&self) -> TriggerRequest {
        let (operation, reason) = (self.operation.clone().unwrap_or_default(), self.reason.clone().unwrap_or_default());
        TriggerRequest { service: self.service.clone(), operation, for_ms: self.length_ms, reason }
    }
}

/// Asks for traces, and prints what is in effect.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked, or declines.
pub fn run(args: TriggerArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let (what, request) = (format!("keep the traces of {}", args.service), args.request());
    let target = args.agent.target(from_environment)?;
    let asked = async { Connection::open(&target).await?.trigger(request).await };
    let reply = agent::runtime(&what)?.block_on(asked).map_err(|error| error.into_failure(&what))?;
    output::print(&in_effect(&args.service, args.operation.as_deref(), &reply))?;
    Ok(Exit::Fine)
}

/// What is in effect, in words.
fn in_effect(service: &str, operation: Option<&str>, reply: &TriggerReply) -> String {
    let span = operation.map_or_else(String::new, |operation| format!(" with a span {operation}"));
    let (length, back) = (duration_ms(reply.for_ms), duration_ms(reply.look_back_ms));
    let on_page = if reply.unforwarded { ON_PAGE } else { "" };
    format!(
        "{service}: traces{span} of the last {back} and the next {length} are kept on this node, as far as its budget goes{on_page}\n"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: TriggerArgs,
    }

    fn request(words: &[&str]) -> Option<TriggerRequest> {
        let line = Line::try_parse_from([&["uview"], words].concat());
        line.ok().map(|line| line.args.request())
    }

    #[test]
    fn arguments_are_a_request_and_wrong_ones_are_none() {
        let asked = |operation: &str, for_ms, reason: &str| TriggerRequest {
            service: "shop/payment".to_owned(),
            operation: operation.to_owned(),
            for_ms,
            reason: reason.to_owned(),
        };

        assert_eq!(request(&["shop/payment"]), Some(asked("", 30_000, "")));
        let all = ["shop/payment", "--operation", "POST /pay", "--for", "5m", "--reason", "it is slow"];
        assert_eq!(request(&all), Some(asked("POST /pay", 300_000, "it is slow")));
        assert_eq!(request(&["shop/payment", "--for", "1500ms"]), Some(asked("", 1_500, "")));
        for wrong in [&[][..], &["a", "b"], &["a", "--for", "30"], &["a", "--for", "0s"], &["a", "--for", "1us"]] {
            assert_eq!(request(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_in_effect_is_said_in_words() {
        let reply = TriggerReply { for_ms: 300_000, look_back_ms: 60_000, unforwarded: false };

        let of_all =
            "a: traces of the last 1 min 0 s and the next 5 min 0 s are kept on this node, as far as its budget goes\n";
        assert_eq!(in_effect("a", None, &reply), of_all);
        assert!(in_effect("a", Some("POST /pay"), &reply).starts_with("a: traces with a span POST /pay of the last"));
        let on_page = in_effect("a", None, &TriggerReply { unforwarded: true, ..reply });
        assert!(on_page.starts_with(of_all.trim_end()) && on_page.contains("passed on to nobody"), "{on_page}");
    }
}
