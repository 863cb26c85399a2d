//! `uview open`: an address of the live page, which opens it once.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use wire::incident::{IncidentId, IncidentIdError};
use wire::printable::markup;

use crate::agent::{self, AgentArgs, AgentError, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::{Display, Environment};

const WHAT: &str = "open the page";
/// What opens a file with the desktop's browser.
const OPENER: &str = "xdg-open";
/// Time for the browser to read the file that names the address.
const READ_WITHIN: Duration = Duration::from_secs(3);

/// The long help of `uview open`.
pub const LONG_ABOUT: &str = "\
Open the live page: services, what stands out, kept traces

Prints an address of the host agent's page. Where there is a display, it is opened in the browser,
too. It is on the loopback of the agent's machine, and good for one browser, which has a session for
twelve hours. You need the role viewer (docs/access.md). The page is for reading: nothing can be
changed on it.

With an incident, the page opens there. It is named as by `uview incidents`, or by the beginning of
that; spans and webhooks have the name after the node's and a slash.

From another machine, take a tunnel to the port that is printed, and open the address there:

  ssh node-3 uview open --print
  ssh -L PORT:127.0.0.1:PORT node-3";

/// Arguments of `uview open`.
#[derive(Clone, Debug, clap::Args)]
pub struct OpenArgs {
    /// The incident to show, or the beginning of its name [default: the overview]
    #[arg(value_name = "INCIDENT")]
    incident: Option<String>,
    /// Print the address only, and start no browser
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Fetches an address, prints it, and opens it where there is a display.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked, has no page or no such incident, or does not let this user read.
pub fn run(args: OpenArgs, environment: Environment) -> Result<Exit, Failure> {
    let target = args.agent.target(environment.runtime_dir)?;
    let request = async {
        let mut agent = Connection::open(&target).await?;
        // Asked first: no address is given out for an incident that is not there.
        let found = match args.incident {
            Some(named) => Some(agent.incident(named).await?.incident.unwrap_or_default().id),
            None => None,
        };
        Ok::<_, AgentError>((found, agent.open_page().await?.url))
    };
    let (found, url) = agent::runtime(WHAT)?.block_on(request).map_err(|error| error.into_failure(WHAT))?;
    let url = match found {
        Some(id) => url + &leading_to(&id).map_err(|error| Failure::to(WHAT).caused_by(&error))?,
        None => url,
    };
    output::print(&format!("{url}\n"))?;
    if !args.print && environment.display == Display::There && is_page(&url) && show(&url).is_none() {
        output::print_stderr(&format!("uview: no browser was started ({OPENER}); open the address yourself\n"));
    }
    Ok(Exit::Fine)
}

/// What makes an address of the page one of the incident `id`.
fn leading_to(id: &str) -> Result<String, IncidentIdError> {
    let id: IncidentId = id.parse()?;
    Ok(format!("&incident={id}"))
}

/// Whether `url` has only what an address of the page has, so that it can stand in a file of markup.
fn is_page(url: &str) -> bool {
    let rest = url.strip_prefix("http://").unwrap_or_default();
    !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric() || "[]:.-/?=&".contains(c))
}

/// Opens `url` in the desktop's browser; `None` if that cannot be started. A file that only this user can read names
/// the address: everybody may see the arguments of a process.
pub(crate) fn show(url: &str) -> Option<()> {
    let own = Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix("uview-open-").permissions(own).tempdir().ok()?;
    let file = folder.path().join("page.html");
    let url = markup(url);
    let text =
        format!("<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={url}\">\n");
    std::fs::write(&file, text).ok()?;
    let mut opener = Command::new(OPENER);
    let status = opener.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    std::thread::sleep(READ_WITHIN);
    status.success().then_some(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn only_an_address_of_a_page_gets_into_the_file() {
        assert!(is_page("http://127.0.0.1:9705/open?token=00ff") && is_page("http://[::1]:9705/open?token=00ff"));
        assert!(is_page("http://127.0.0.1:9705/open?token=00ff&incident=20261127-064215-123"));
        for wrong in ["", "http://", "https://a/", "file:///etc/passwd", "http://a/\"><script>", "http://a/;url=b"] {
            assert!(!is_page(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_an_agent_says_that_names_no_incident_gets_into_no_address() {
        assert_eq!(leading_to("20261127-064215-123"), Ok("&incident=20261127-064215-123".to_owned()));
        for wrong in ["", "20261127", "20261127-064215-123&token=1", "../x"] {
            assert!(leading_to(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_an_agent_it_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let agent = AgentArgs { runtime_dir: Some(PathBuf::from(directory.path())), ..AgentArgs::default() };

        let failure = run(OpenArgs { incident: None, print: true, agent }, Environment::default()).unwrap_err();

        assert_eq!(failure.exit(), Exit::NoAgent);
    }
}
