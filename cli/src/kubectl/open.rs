//! `uview kubectl open`: the live page of a node's agent, through a tunnel of kubectl as long as this command runs.

use std::io::{BufRead as _, BufReader};
use std::process::{Output, Stdio};

use wire::incident::IncidentId;

use super::{Agent, KubectlArgs, not_run};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Display, open, output};

/// Why the page was not opened.
const USAGE: &str = "one page at a time, as `open [--print] [INCIDENT]`";

impl KubectlArgs {
    /// Fetches an address in the agent's container, forwards its port, prints the address, and opens it where there is
    /// a display. Ends with the tunnel.
    pub(super) fn open(&self, agents: &[Agent], what: &str, display: Display) -> Result<Exit, Failure> {
        let asked = asked(self.command.get(1..).unwrap_or_default()).filter(|_| !self.all);
        let ([agent], Some((prints, incident))) = (agents, asked) else {
            return Err(Failure::to(what).because(USAGE).exit_with(Exit::Usage));
        };
        let url = self.address(agent, incident, what)?;
        let port = port(&url).ok_or_else(|| Failure::to(what).because("the agent printed no address of its page"))?;
        let mut forward = self.kubectl();
        forward.args([
            "port-forward",
            "--address",
            "127.0.0.1",
            &format!("pod/{}", agent.pod),
            &format!("{port}:{port}"),
        ]);
        let mut tunnel = forward.stdout(Stdio::piped()).spawn().map_err(|error| not_run(what, &error))?;
        // It says so when the tunnel is there, and something for each connection.
        let mut lines = BufReader::new(tunnel.stdout.take().ok_or_else(|| Failure::to(what))?).lines();
        if lines.next().is_some_and(|line| line.is_ok()) {
            output::print(&format!("{url}\n"))?;
            if !prints && display == Display::There && open::show(&url).is_none() {
                output::print_stderr("uview: no browser was started; open the address yourself\n");
            }
            lines.for_each(drop);
        }
        let status = tunnel.wait().map_err(|error| not_run(what, &error))?;
        if status.success() {
            return Ok(Exit::Fine);
        }
        Err(Failure::to(what).because(format!("the tunnel to port {port} of {} ended", agent.pod)))
    }

    /// What `uview open --print INCIDENT` says in the agent's container.
    fn address(&self, agent: &Agent, incident: Option<&str>, what: &str) -> Result<String, Failure> {
        let mut exec = self.exec(agent, &[]);
        exec.args(["open", "--print"]).args(incident);
        let Output { status, stdout, stderr } = exec.output().map_err(|error| not_run(what, &error))?;
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr);
            return Err(Failure::to(what).because(format!("the agent's container says: {}", said.trim())));
        }
        Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
    }
}

/// Whether the address is only printed, and the incident that is wanted, if one is; `None` for other arguments.
fn asked(arguments: &[String]) -> Option<(bool, Option<&str>)> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with('-'));
    let prints = match options.as_slice() {
        [] => false,
        ["--print"] => true,
        _ => return None,
    };
    match names.as_slice() {
        [] => Some((prints, None)),
        [incident] => Some((prints, Some(*incident))),
        _ => None,
    }
}

/// The port of an address of the page: `http://127.0.0.1:PORT/open?token=…`, also of an incident, and nothing else.
fn port(url: &str) -> Option<u16> {
    let (port, query) = url.strip_prefix("http://127.0.0.1:")?.split_once("/open?token=")?;
    let (token, incident) = query.split_once("&incident=").map_or((query, None), |(token, id)| (token, Some(id)));
    let is_token = !token.is_empty() && token.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_incident = incident.is_none_or(|id| id.parse::<IncidentId>().is_ok());
    let is_port = port.bytes().all(|digit| digit.is_ascii_digit());
    (is_token && is_incident && is_port).then(|| port.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_incident_at_most_is_asked_for_and_no_other_option_goes_to_the_container() {
        let of = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            asked(&words).map(|(prints, incident)| (prints, incident.map(str::to_owned)))
        };

        assert_eq!(of(""), Some((false, None)));
        assert_eq!(of("--print"), Some((true, None)));
        let named = Some("20261127".to_owned());
        assert_eq!(of("20261127"), Some((false, named.clone())));
        assert_eq!(of("--print 20261127"), Some((true, named.clone())));
        assert_eq!(of("20261127 --print"), Some((true, named)));
        for wrong in ["--json", "--print --print", "20261127 20261128", "20261127 --operators", "--operators a:1"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_address_has_a_port_of_loopback_and_a_token() {
        assert_eq!(port("http://127.0.0.1:9705/open?token=00ff"), Some(9705));
        assert_eq!(port("http://127.0.0.1:9705/open?token=00ff&incident=20261127-064215-123"), Some(9705));
        for wrong in [
            "",
            "http://127.0.0.1:/open?token=00ff",
            "http://127.0.0.1:99999/open?token=00ff",
            "http://127.0.0.1:+1/open?token=00ff",
            "http://10.0.0.1:9705/open?token=00ff",
            "http://127.0.0.1:9705/open?token=",
            "http://127.0.0.1:9705/open?token=0\nx",
            "http://127.0.0.1:9705/open?token=00ff&incident=",
            "http://127.0.0.1:9705/open?token=00ff&incident=20261127-064215-123\nx",
        ] {
            assert_eq!(port(wrong), None, "{wrong}");
        }
    }
}
