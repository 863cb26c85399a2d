//! Finds the host agents that run on this machine, wherever their runtime directories are.
//!
//! A host agent listens on `services.sock` in its runtime directory, and the kernel lists every listening Unix socket
//! with its path in `/proc/net/unix`. So nothing has to be registered, and an agent that was killed is not in the list.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// The default runtime directory, without `--runtime-dir` and `UVIEW_RUNTIME_DIR`.
pub const RUNTIME_DIR: &str = "/run/uview";

/// The file in the runtime directory that a running agent writes.
pub const READY_FILE: &str = "host-agent.json";

/// Where the kernel lists Unix sockets.
const SOCKETS: &str = "/proc/net/unix";
/// The socket of a host agent to which services connect.
const SERVICES_SOCKET: &str = "services.sock";
/// The flag of a listening socket in [`SOCKETS`] (`__SO_ACCEPTCON` of the kernel).
const LISTENING: u32 = 1 << 16;

/// A host agent that runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningAgent {
    /// The runtime directory of the agent.
    pub runtime_dir: PathBuf,
    /// The process id in its host-agent.json.
    pub pid: u32,
}

/// The part of [`READY_FILE`] that is used here.
#[derive(Deserialize)]
struct Announcement {
    pid: u32,
}

/// The runtime directory to use: the one that the arguments name, else the one of the environment. If neither names
/// one: the default one if an agent runs there, else the one of the only agent on this machine, else the default one.
/// Where the choice is not obvious, stderr says what was chosen.
///
/// # Errors
///
/// [`Failure`] to do `what`, if several agents run and none of them in the default directory. It lists them.
pub fn runtime_dir(what: &str, argument: Option<PathBuf>, environment: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(named) = argument.or(environment) {
        return Ok(named);
    }
    let (runtime_dir, note) = choose(what, Path::new(RUNTIME_DIR), &running_agents())?;
    if let Some(note) = note {
        output::print_stderr(&note);
    }
    Ok(runtime_dir)
}

/// All host agents of this machine whose `host-agent.json` is readable, by runtime directory.
#[must_use]
pub fn running_agents() -> Vec<RunningAgent> {
    let sockets = fs::read_to_string(SOCKETS).unwrap_or_default();
    let found = listening(&sockets).into_iter().filter_map(|runtime_dir| {
        let file = fs::read(runtime_dir.join(READY_FILE)).ok()?;
        let Announcement { pid } = serde_json::from_slice(&file).ok()?;
        Some((runtime_dir.clone(), RunningAgent { runtime_dir, pid }))
    });
    found.collect::<BTreeMap<_, _>>().into_values().collect()
}

/// The folders with a listening `services.sock`, from the text of [`SOCKETS`].
fn listening(sockets: &str) -> Vec<PathBuf> {
    let folder = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path; the path may contain spaces.
        let mut fields = line.splitn(8, ' ').filter(|field| !field.is_empty());
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let at = line.find(" /")?;
        let path = Path::new(line[at..].trim_start());
        let listens = flags & LISTENING != 0 && path.file_name()? == SERVICES_SOCKET;
        listens.then(|| path.parent().map(Path::to_path_buf)).flatten()
    };
    sockets.lines().skip(1).filter_map(folder).collect()
}

/// The runtime directory, and a note for stderr if the choice is not obvious.
fn choose(what: &str, default: &Path, running: &[RunningAgent]) -> Result<(PathBuf, Option<String>), Failure> {
    let others: Vec<_> = running.iter().filter(|agent| agent.runtime_dir != default).collect();
    let default_runs = others.len() < running.len();
    match (default_runs, &others[..]) {
        (_, []) => Ok((default.to_path_buf(), None)),
        (true, _) => {
            let note = format!(
                "uview: using the host agent in {}; there are others:\n{}",
                default.display(),
                list(others.iter().copied())
            );
            Ok((default.to_path_buf(), Some(note)))
        }
        (false, [only]) => {
            let note = format!("uview: using the host agent in {} (pid {})", only.runtime_dir.display(), only.pid);
            Ok((only.runtime_dir.clone(), Some(note)))
        }
        (false, _) => Err(Failure::to(what)
            .because(format!("several host agents run on this machine:\n{}", list(running)))
            .advice("--runtime-dir DIR, with one of these directories")
            .exit_with(Exit::NoAgent)),
    }
}

fn list<'a>(agents: impl IntoIterator<Item = &'a RunningAgent>) -> String {
    let line = |agent: &RunningAgent| format!("  --runtime-dir {}  (pid {})", agent.runtime_dir.display(), agent.pid);
    agents.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(runtime_dir: &str, pid: u32) -> RunningAgent {
        RunningAgent { runtime_dir: runtime_dir.into(), pid }
    }

    fn chosen(running: &[RunningAgent]) -> Result<(PathBuf, Option<String>), Failure> {
        choose("ask", Path::new(RUNTIME_DIR), running)
    }

    #[test]
    fn only_listening_sockets_of_host_agents_are_found() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            00000000d0b4ab79: 00000003 00000000 00000000 0001 03  1677\n\
            0000000000000001: 00000002 00000000 00010000 0001 01 20001 /tmp/uview-demo-Ab/run/services.sock\n\
            0000000000000002: 00000003 00000000 00000000 0001 03 20002 /tmp/uview-demo-Ab/run/services.sock\n\
            0000000000000003: 00000002 00000000 00010000 0001 01 20003 /run/with space/services.sock\n\
            0000000000000004: 00000002 00000000 00010000 0001 01 20004 /run/other.sock\n\
            0000000000000005: 00000002 00000000 00010000 0001 01 20005 @abstract/services.sock\n";

        assert_eq!(listening(text), [Path::new("/tmp/uview-demo-Ab/run"), Path::new("/run/with space")]);
        assert_eq!(listening(""), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_only_agent_is_used_and_named() {
        let (directory, note) = chosen(&[agent("/tmp/demo", 7)]).unwrap();

        assert_eq!(directory, Path::new("/tmp/demo"));
        assert_eq!(note.unwrap(), "uview: using the host agent in /tmp/demo (pid 7)");
    }

    #[test]
    fn the_default_directory_comes_first_and_other_agents_are_named() {
        assert_eq!(chosen(&[]).unwrap(), (RUNTIME_DIR.into(), None));
        assert_eq!(chosen(&[agent(RUNTIME_DIR, 1)]).unwrap(), (RUNTIME_DIR.into(), None));

        let (directory, note) = chosen(&[agent(RUNTIME_DIR, 1), agent("/tmp/demo", 7)]).unwrap();

        assert_eq!(directory, Path::new(RUNTIME_DIR));
        assert!(note.unwrap().ends_with("  --runtime-dir /tmp/demo  (pid 7)"));
    }

    #[test]
    fn several_agents_elsewhere_are_listed_and_none_is_guessed() {
        let text = chosen(&[agent("/tmp/a", 1), agent("/tmp/b", 2)]).unwrap_err().to_string();

        assert!(
            text.contains("--runtime-dir /tmp/a  (pid 1)") && text.contains("--runtime-dir /tmp/b  (pid 2)"),
            "{text}"
        );
    }

    #[test]
    fn an_agent_is_found_by_its_socket_and_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(directory.path().join(SERVICES_SOCKET)).unwrap();
        let find = || running_agents().into_iter().find(|agent| agent.runtime_dir == directory.path());

        assert_eq!(find(), None, "a socket alone is no agent");
        std::fs::write(directory.path().join(READY_FILE), r#"{"pid": 12, "operators": "127.0.0.1:1"}"#).unwrap();

        assert_eq!(find().map(|agent| agent.pid), Some(12));
    }
}
