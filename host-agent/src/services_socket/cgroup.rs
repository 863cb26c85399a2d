//! The process of a service: whether it is the one that connected, and its cgroup.

use std::io;
use std::os::fd::OwnedFd;

use agent_runtime::access;
use pods::cgroup::path_in;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::net::UnixStream;

/// What is known of the process that connected.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Its cgroup: that of version 2, unless only one of version 1 is of a pod.
    pub(super) cgroup: String,
    /// Its name, at most 15 bytes.
    pub(super) name: String,
}

/// The process that connected; empty if unknown, or if it has ended: another one may have its number by now. On a
/// kernel before 6.5 it is the process of the same user that has the number when it connects.
pub(super) async fn process(stream: &UnixStream, pid: u32) -> Process {
    let Ok(process) = process_at(stream, pid) else { return Process::default() };
    let read = move || {
        let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let (cgroups, name) = (file("cgroup"), file("comm"));
        // It lives, so that the number was its own all the while.
        let is_its_own = is_alive(&process);
        is_its_own.then(|| Process { cgroup: path_in(&cgroups).to_owned(), name: name.trim_end().to_owned() })
    };
    tokio::task::spawn_blocking(read).await.ok().flatten().unwrap_or_default()
}

/// Whether the process that connected still runs, so that the number `pid` is its own; true if that cannot be found out
/// for lack of descriptors. On a kernel before 6.5, whether any process of the same user has that number.
pub(super) fn lives(stream: &UnixStream, pid: u32) -> bool {
    match process_at(stream, pid) {
        Ok(process) => is_alive(&process),
        Err(error) => [Errno::MFILE, Errno::NFILE].iter().any(|full| error.raw_os_error() == Some(full.raw_os_error())),
    }
}

/// The process at the other end of `stream`.
fn process_at(stream: &UnixStream, pid: u32) -> io::Result<OwnedFd> {
    match access::peer_process(stream)? {
        Some(process) => Ok(process),
        None => process_of(pid, access::peer(stream)?.uid),
    }
}

/// The process that has the number `pid`, if it runs as the user `uid`, who connected. The number may have gone to
/// another process meanwhile, but to none of another user: nobody gets the place of somebody else.
fn process_of(pid: u32, uid: u32) -> io::Result<OwnedFd> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    // In this order: whoever uses it looks afterwards whether it lives, and then the user was its own.
    let process = pidfd_open(number, PidfdFlags::empty())?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    if effective_user(&status) == Some(uid) { Ok(process) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// The effective user in the text of `/proc/PID/status`, which is what the kernel records of a peer, too.
fn effective_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a process still runs: its descriptor becomes readable when it ends.
fn is_alive(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream as StdStream;
    use std::process::{Child, Command};

    use tokio::net::UnixListener;

    use super::*;

    const SOCKET: &str = "UVIEW_TEST_SOCKET";
    const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

    /// A process of this test program that connects to `path`, and ends.
    fn connecting(path: &std::path::Path) -> Child {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "services_socket::cgroup::tests::connects_and_ends", "--ignored"]);
        program.env(SOCKET, path).stdout(std::process::Stdio::null()).spawn().unwrap()
    }

    #[test]
    #[ignore = "a process of the next test"]
    #[expect(clippy::disallowed_methods, reason = "the other process names the socket")]
    fn connects_and_ends() {
        let Some(path) = std::env::var_os(SOCKET) else { return };
        drop(StdStream::connect(path).unwrap());
    }

    /// A process with the number of `ended`; `None` if another one was faster.
    fn reusing(ended: u32) -> Option<Child> {
        std::fs::write(LAST_PID, (ended - 1).to_string()).unwrap();
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        if process.id() == ended {
            return Some(process);
        }
        process.kill().and_then(|()| process.wait()).unwrap();
        None
    }

    #[tokio::test]
    async fn a_process_that_has_the_number_of_one_that_connected_does_not_get_its_place() {
        if std::fs::OpenOptions::new().write(true).open(LAST_PID).is_err() {
            return support::harness::not_run("the number of the next process is chosen by root only");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (stream, mut successor) = loop {
            let mut first = connecting(&path);
            let (stream, _) = listener.accept().await.unwrap();
            first.wait().unwrap();
            if let Some(successor) = reusing(first.id()) {
                break (stream, successor);
            }
        };
        let pid = successor.id();

        assert_eq!(access::peer(&stream).unwrap().pid, Some(pid));
        assert!(!std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap().is_empty());
        let cgroup = process(&stream, pid).await.cgroup;
        let lives = lives(&stream, pid);
        let knows_processes = !matches!(access::peer_process(&stream), Ok(None));

        successor.kill().and_then(|()| successor.wait()).unwrap();
        if knows_processes {
            assert_eq!((cgroup.as_str(), lives), ("", false));
        } else {
            support::harness::not_run("this kernel has no SO_PEERPIDFD");
        }
    }

    #[tokio::test]
    async fn the_cgroup_of_a_process_that_lives_is_known() {
        let (near, _far) = UnixStream::pair().unwrap();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();

        let found = process(&near, std::process::id()).await;
        assert!(lives(&near, std::process::id()));

        assert!(!found.name.is_empty());
        let found = found.cgroup;
        assert_eq!(Some(found.as_str()), own.lines().find_map(|line| line.strip_prefix("0::")).or(Some("")));
    }

    #[test]
    fn where_the_kernel_names_no_peer_a_number_counts_with_its_user_only() {
        let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());

        assert!(is_alive(&process_of(pid, uid).unwrap()));
        assert_eq!(process_of(pid, uid ^ 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(process_of(0, uid).unwrap_err().kind(), io::ErrorKind::NotFound);
        // Of real, effective, saved and file system's user.
        assert_eq!(effective_user("Name:\ta\\nUid:\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n"), Some(2));
        for none in ["", "Uid:\t1\n", "Uid:\t1\t-1\t3\t4\n", "XUid:\t1\t2\t3\t4\n"] {
            assert_eq!(effective_user(none), None, "{none:?}");
        }
    }
}
