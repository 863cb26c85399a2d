//! Checks of the node: the runtime directory, the host agent, and the ports.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use rustix::fs::{Access, access};

use super::Finding;
use crate::agent::{self, AgentError, Target};

/// Name of the check, default port, what listens there.
const PORTS: [(&str, u16, &str); 2] =
    [("port 9702", 9702, "host agent's metrics"), ("port 9703", 9703, "NIC agent's metrics")];

pub(super) fn runtime_dir(directory: &Path, running: bool) -> Finding {
    const NAME: &str = "runtime directory";
    let shown = directory.display();
    let fix = format!("`sudo install -d -o $USER {shown}`, or --runtime-dir with a directory that you can write");
    if running {
        return Finding::fine(NAME, format!("{shown} is in use by the agent"));
    }
    match fs::metadata(directory) {
        Ok(metadata) if !metadata.is_dir() => Finding::broken(NAME, format!("{shown} is not a directory"), fix),
        Ok(_) if access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() => {
            Finding::broken(NAME, format!("{shown} is not writable: your agent cannot create its sockets"), fix)
        }
        Ok(_) => Finding::fine(NAME, format!("{shown} is writable")),
        Err(error) if error.kind() == ErrorKind::NotFound && parent_is_writable(directory) => {
            Finding::fine(NAME, format!("{shown} can be created"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::broken(NAME, format!("{shown} does not exist and cannot be created"), fix)
        }
        Err(error) => Finding::broken(NAME, format!("{shown} cannot be accessed: {error}"), fix),
    }
}

fn parent_is_writable(directory: &Path) -> bool {
    let existing = directory.ancestors().skip(1).find(|ancestor| ancestor.is_dir());
    existing.is_some_and(|ancestor| access(ancestor, Access::WRITE_OK | Access::EXEC_OK).is_ok())
}

/// What is wrong with the objects in the files of `folder`: a finding for each.
pub(super) fn resources(folder: &Path) -> Vec<Finding> {
    const NAME: &str = "resources";
    match host_agent::problems_of_resources(folder) {
        Ok(problems) if problems.is_empty() => {
            vec![Finding::fine(NAME, format!("{}: all objects are taken", folder.display()))]
        }
        Ok(problems) => {
            let fix = format!("change the file in {}", folder.display());
            problems.into_iter().map(|problem| Finding::broken(NAME, problem, fix.clone())).collect()
        }
        Err(error) => vec![Finding::broken(NAME, error.to_string(), "name a folder that you can read")],
    }
}

/// Whether a host agent runs, and if so, what it leaves open.
pub(super) fn agent(target: &Target) -> (Finding, Option<Finding>) {
    const NAME: &str = "host agent";
    let finding = match agent::runtime("ask").map(|runtime| runtime.block_on(ask(target))) {
        Ok(Ok((found, warnings))) => return (Finding::fine(NAME, found), Some(judge_warnings(&warnings))),
        Ok(Err(error @ AgentError::NotReady(_))) => {
            Finding::missing(NAME, error.to_string(), "start `uview host-agent`; `uview demo` starts its own")
        }
        Ok(Err(error @ AgentError::Unreachable { .. })) => {
            let fix = "it was killed or hangs: start it again";
            Finding::missing(NAME, error.to_string(), fix)
        }
        Ok(Err(error)) => {
            let fix = if let AgentError::Tls { problem, .. } = &error {
                problem.advice()
            } else {
                "--runtime-dir or --operators"
            };
            Finding::missing(NAME, error.to_string(), fix)
        }
        Err(failure) => Finding::broken(NAME, failure.to_string(), "raise the limit of open files (ulimit -n)"),
    };
    (finding, None)
}

/// What the agent says is open to anybody.
fn judge_warnings(warnings: &[String]) -> Finding {
    const NAME: &str = "open addresses";
    if warnings.is_empty() {
        return Finding::fine(NAME, "none: workers and operators are known by user or certificate");
    }
    let fix = "tls with client_ca instead of insecure: true in the agent's configuration (docs/access.md)";
    Finding::missing(NAME, warnings.join("; "), fix)
}

async fn ask(target: &Target) -> Result<(String, Vec<String>), AgentError> {
    let mut connection = agent::Connection::open(target).await?;
    let status = connection.status().await?;
    let (lmaps, workers) = (status.lmaps.len(), status.workers.iter().filter(|worker| worker.connected).count());
    let found =
        format!("release {} answers at {}: {lmaps} LMAPs, {workers} workers", status.version, connection.address());
    let found = [vec![found], status.notes].concat().join("; ");
    Ok((found, status.warnings))
}

pub(super) fn ports(running: bool) -> impl Iterator<Item = Finding> {
    PORTS.into_iter().map(move |(name, port, what)| {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).err().map(|error| error.kind());
        judge_port(name, what, taken, running)
    })
}

fn judge_port(name: &'static str, what: &str, taken: Option<ErrorKind>, running: bool) -> Finding {
    match taken {
        None => Finding::fine(name, format!("free ({what})")),
        Some(_) if running => Finding::fine(name, format!("in use, presumably by the agent ({what})")),
        Some(kind) => {
            let found = format!("{kind}, but no agent answers ({what})");
            let fix = "`ss -ltnp` shows the process; or set another address in the agent's configuration, port 0 for any free one";
            Finding::missing(name, found, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_directory_that_can_be_created_is_fine_and_a_file_in_its_place_is_not() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "").unwrap();

        assert_eq!(runtime_dir(directory.path(), false).level, Level::Fine);
        assert_eq!(runtime_dir(&directory.path().join("a/b"), false).level, Level::Fine);
        assert_eq!(runtime_dir(&directory.path().join("file"), false).level, Level::Broken);
        assert_eq!(runtime_dir(Path::new("/proc/self/nothing"), false).level, Level::Broken);
    }

    #[test]
    fn an_agent_that_left_its_file_behind_is_reported_with_its_address() {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let text = serde_json::json!({ "pid": 1, "operators": address }).to_string();
        fs::write(directory.path().join(crate::discovery::READY_FILE), text).unwrap();

        let (finding, open) = agent(&Target { runtime_dir: directory.path().to_owned(), operators: None, tls: None });

        assert_eq!(finding.level, Level::Missing);
        assert!(finding.found.contains(&address) && finding.found.contains("refused"), "{}", finding.found);
        assert_eq!(open, None);
    }

    #[test]
    fn each_problem_of_a_file_with_objects_is_a_finding_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let object = "apiVersion: uview.dev/v1alpha1\nkind: SamplingPolicy\nmetadata: {name: a}\nspec:\n  share: 2\n  workload: {name: b}\n";
        assert_eq!(resources(&folder.path().join("none"))[0].level, Level::Broken);
        assert_eq!(resources(folder.path())[0].level, Level::Fine);

        fs::write(folder.path().join("a.yaml"), format!("{object}  reason: []\n")).unwrap();
        let found: Vec<_> = resources(folder.path()).into_iter().map(|finding| finding.found).collect();

        let unknown = "a.yaml:7: spec.reason is no field that is known: is it misspelt?";
        assert_eq!(found, ["a.yaml:5: spec.share is 2: 1 is the most", unknown]);
    }

    #[test]
    fn what_is_open_to_anybody_is_repeated() {
        assert_eq!(judge_warnings(&[]).level, Level::Fine);

        let open = ["control.listen 0.0.0.0:9700 takes whoever connects".to_owned(), "b".to_owned()];
        let finding = judge_warnings(&open);

        assert_eq!(finding.level, Level::Missing);
        assert_eq!(finding.found, "control.listen 0.0.0.0:9700 takes whoever connects; b");
    }

    #[test]
    fn a_taken_port_is_a_problem_only_without_an_agent() {
        assert_eq!(judge_port("p", "x", Some(ErrorKind::AddrInUse), false).level, Level::Missing);
        assert_eq!(judge_port("p", "x", Some(ErrorKind::AddrInUse), true).level, Level::Fine);
        assert_eq!(judge_port("p", "x", None, false).level, Level::Fine);
    }
}
