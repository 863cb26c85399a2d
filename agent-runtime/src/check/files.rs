//! Directories and Unix sockets.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::Inspection;
use crate::access::peer;

/// Mode bit: everybody may write.
const EVERYBODY_WRITES: u32 = 0o002;
/// Mode bit: in a directory, only owners remove files.
const STICKY: u32 = 0o1000;

/// What is known of a socket of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// Nobody listens; an agent that starts can create it.
    Free,
    /// A process listens; its id if it is visible here.
    Listening(Option<u32>),
    /// It cannot be used.
    Unusable,
}

/// Whether this process, with its effective user, may create files in `directory`.
fn is_writable(directory: &Path) -> bool {
    accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

impl Inspection {
    /// Checks that the directory `path`, the value of `key`, exists or can be created, is writable by the agent and not
    /// by everybody, and belongs to the agent or root.
    pub fn directory(&mut self, key: &str, path: &Path) {
        let (shown, own) = (path.display(), rustix::process::geteuid().as_raw());
        let create = format!("install -d -o {own} {shown}");
        match std::fs::metadata(path) {
            Ok(metadata) if !metadata.is_dir() => {
                self.error(key, format!("{shown} is not a directory"), "choose another path, or remove it");
            }
            Ok(_) if !is_writable(path) => {
                self.error(key, format!("user {own} cannot write to {shown}"), create);
            }
            Ok(metadata) => {
                let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
                if mode & EVERYBODY_WRITES != 0 && mode & STICKY == 0 {
                    let what = format!("everybody can replace files in {shown} (mode {mode:o})");
                    self.warning(key, what, format!("chmod o-w {shown}"));
                } else if owner != own && owner != 0 {
                    let what = format!("{shown} belongs to user {owner}, who can replace the agent's files");
                    self.warning(key, what, format!("chown {own} {shown}"));
                } else {
                    self.ok(key, format!("{shown} is writable (owner {owner}, mode {mode:o})"));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // The parent of a plain name is the working directory, and an empty path.
                let parents = path.ancestors().skip(1);
                let mut parents = parents.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
                let existing = parents.find(|ancestor| ancestor.exists());
                if existing.is_some_and(|ancestor| ancestor.is_dir() && is_writable(ancestor)) {
                    self.ok(key, format!("{shown} does not exist and can be created"));
                } else {
                    self.error(key, format!("{shown} does not exist and user {own} cannot create it"), create);
                }
            }
            Err(error) => self.error(key, format!("cannot look at {shown}: {error}"), create),
        }
    }

    /// Looks at the socket `path`, on which the agent will listen. A socket of a killed agent is no problem.
    pub fn own_socket(&mut self, key: &str, path: &Path) -> SocketState {
        let shown = path.display();
        match state(path) {
            Ok(SocketState::Listening(pid)) => {
                let process =
                    pid.map_or_else(|| "a process of another container".to_owned(), |pid| format!("process {pid}"));
                self.ok(
                    key,
                    format!("{shown}: an agent runs with it, {process}; it has to stop before another starts"),
                );
                SocketState::Listening(pid)
            }
            Ok(SocketState::Unusable) => {
                self.error(key, format!("{shown} is not a socket"), "remove it, or choose another path");
                SocketState::Unusable
            }
            Ok(SocketState::Free) => SocketState::Free,
            Err(error) => {
                self.error(key, format!("cannot look at {shown}: {error}"), "run the check as the agent's user");
                SocketState::Unusable
            }
        }
    }

    /// Looks at the socket `path` of another agent, to which this one connects.
    pub fn others_socket(&mut self, key: &str, path: &Path) {
        let shown = path.display();
        match state(path) {
            Ok(SocketState::Listening(pid)) => {
                let process = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
                self.ok(key, format!("a host agent listens on {shown}{process}"));
            }
            Ok(SocketState::Free) => {
                self.warning(key, format!("nobody listens on {shown}"), "the agent waits until the host agent starts");
            }
            Ok(SocketState::Unusable) => self.error(key, format!("{shown} is not a socket"), "name the host agent's"),
            Err(error) => {
                let own = rustix::process::geteuid().as_raw();
                let advice = "run as the user that the host agent expects (its regions.uid and access.workers)";
                self.error(key, format!("user {own} cannot connect to {shown}: {error}"), advice);
            }
        }
    }
}

fn state(path: &Path) -> std::io::Result<SocketState> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => return Ok(SocketState::Unusable),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(SocketState::Free),
        Err(error) => return Err(error),
    }
    match UnixStream::connect(path) {
        Ok(stream) => Ok(SocketState::Listening(peer(&stream).ok().and_then(|peer| peer.pid))),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(SocketState::Free),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::super::{Finding, Level};
    use super::*;

    fn found(inspect: impl FnOnce(&mut Inspection)) -> Finding {
        let mut inspection = Inspection::new(0);
        inspect(&mut inspection);
        inspection.findings().last().unwrap().clone()
    }

    #[test]
    fn a_directory_is_there_or_can_be_created_and_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        std::fs::create_dir(path("open")).unwrap();
        std::fs::set_permissions(path("open"), std::fs::Permissions::from_mode(0o777)).unwrap();
        let level = |name: &str| found(|to| to.directory("runtime_dir", &path(name))).level;

        assert_eq!(found(|to| to.directory("runtime_dir", folder.path())).level, Level::Ok);
        assert_eq!(
            ["new/one", "open", "file", "file/in"].map(level),
            [Level::Ok, Level::Warning, Level::Error, Level::Error]
        );
        assert_eq!(found(|to| to.directory("runtime_dir", Path::new("/proc/self/no"))).level, Level::Error);
    }

    #[test]
    fn a_running_agent_is_named_and_a_killed_ones_socket_is_no_problem() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let mut inspection = Inspection::new(0);

        assert_eq!(inspection.own_socket("a", &path), SocketState::Free);
        let listener = UnixListener::bind(&path).unwrap();
        let own = std::process::id();
        assert_eq!(inspection.own_socket("a", &path), SocketState::Listening(Some(own)));
        assert!(inspection.to_string().contains(&format!("process {own}")), "{inspection}");
        inspection.others_socket("b", &path);
        drop(listener);
        assert_eq!(inspection.own_socket("a", &path), SocketState::Free);
        inspection.others_socket("b", &path);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(inspection.own_socket("a", &path), SocketState::Unusable);

        let levels: Vec<_> = inspection.findings().iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Ok, Level::Ok, Level::Warning, Level::Error], "{inspection}");
    }
}
