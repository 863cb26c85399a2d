//! The Unix socket on which services register: frames with descriptors, one task per connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access;
use region::fd_passing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use wire::frame::Frames;
use wire::registration::ServiceMessage;

use crate::control_plane::{ConnectionId, Peer};
use crate::node::Node;
use crate::outbox::Outbox;

/// Bytes read from one service at a time, so that it does not delay others.
const CHUNK_BYTES: usize = 16 << 10;
/// Pause after a failed accept, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves services until the node drains, then until their outboxes are sent.
pub async fn serve(listener: UnixListener, node: Arc<Node>, needs_cgroup: bool) {
    let mut drained = core::pin::pin!(node.drained());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&node), needs_cgroup));
                }
                Err(error) => {
                    node.counts.accept_errors.one_more();
                    tracing::warn!(%error, "cannot accept a service");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = &mut drained => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Why reading from a service ended.
enum End {
    /// The service disconnected.
    Gone,
    /// It sent a malformed frame. It is sent the reason, then closed.
    Garbage,
}

async fn connection(stream: UnixStream, node: Arc<Node>, needs_cgroup: bool) {
    let peer = match access::peer(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "cannot get the credentials of a service");
            return;
        }
    };
    let pid = peer.pid.unwrap_or(0);
    let cgroup = if needs_cgroup { cgroup_of(&stream, pid).await } else { String::new() };
    let (id, outbox) = node.service_connected(Peer { pid, uid: peer.uid, cgroup });
    let mut writing = core::pin::pin!(write(&stream, &outbox));
    let ended = tokio::select! {
        end = read(&stream, &node, id) => Some(end),
        () = &mut writing => None,
        () = outbox.expired() => None,
    };
    if let Some(End::Garbage) = ended {
        tokio::select! {
            () = &mut writing => {}
            () = outbox.expired() => {}
        }
    }
    node.service_gone(id);
}

/// The cgroup (v2) of the process that connected; empty if unknown, or if that process has ended: another one may have
/// its number by now. On a kernel before 6.5 it is that of the process that has the number when it connects.
async fn cgroup_of(stream: &UnixStream, pid: u32) -> String {
    let process = match access::peer_process(stream) {
        Ok(Some(process)) => Ok(process),
        Ok(None) => process_of(pid),
        Err(gone) => Err(gone),
    };
    let Ok(process) = process else { return String::new() };
    let read = move || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        // It lives, so that the number was its own all the while.
        if is_alive(&process) { text } else { String::new() }
    };
    let text = tokio::task::spawn_blocking(read).await.unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned()
}

fn process_of(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Whether a process still runs: its descriptor becomes readable when it ends.
fn is_alive(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready == 0)
}

async fn read(stream: &UnixStream, node: &Node, id: ConnectionId) -> End {
    let mut frames = Frames::default();
    let mut descriptors = Vec::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let receive = || fd_passing::receive(stream, &mut buffer, &mut descriptors);
        let got = match stream.async_io(Interest::READABLE, receive).await {
            Ok(0) | Err(_) => return End::Gone,
            Ok(got) => got,
        };
        frames.push(buffer.get(..got).unwrap_or_default());
        if let Err(reason) = take_frames(&mut frames, &mut descriptors, node, id) {
            node.service_garbage(id, &reason);
            return End::Garbage;
        }
        // A descriptor belongs to the frame it came with. One descriptor may wait for the rest of an incomplete frame.
        let keep = usize::from(frames.pending() > 0);
        node.counts.stray_descriptors.more(descriptors.len().saturating_sub(keep) as u64);
        descriptors.truncate(keep);
    }
}

/// Handles all complete frames.
fn take_frames(
    frames: &mut Frames,
    descriptors: &mut Vec<OwnedFd>,
    node: &Node,
    id: ConnectionId,
) -> Result<(), String> {
    while let Some(frame) = frames.next_frame().map_err(|error| error.to_string())? {
        let message = ServiceMessage::decode(frame).map_err(|error| error.to_string())?;
        let brings = matches!(message, ServiceMessage::AddRegion { .. } | ServiceMessage::AddSpanRing { .. });
        let takes = brings && !descriptors.is_empty();
        let descriptor = takes.then(|| descriptors.remove(0));
        node.service_message(id, message, descriptor);
    }
    Ok(())
}

/// Sends the outbox until it is closed and empty, or the service disconnects.
async fn write(stream: &UnixStream, outbox: &Outbox) {
    while let Some(bytes) = outbox.next().await {
        if write_all(stream, &bytes).await.is_err() {
            return;
        }
    }
}

async fn write_all(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = stream.async_io(Interest::WRITABLE, || fd_passing::send(stream, bytes, None)).await?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream as StdStream;
    use std::process::{Child, Command};

    use super::*;

    const SOCKET: &str = "UVIEW_TEST_SOCKET";
    const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

    /// A process of this test program that connects to `path`, and ends.
    #[expect(clippy::disallowed_methods, reason = "a program of its own")]
    fn connecting(path: &std::path::Path) -> Child {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "services_socket::tests::connects_and_ends", "--ignored"]);
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
            println!("NOT RUN: the number of the next process is chosen by root only");
            return;
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
        let cgroup = cgroup_of(&stream, pid).await;
        let knows_processes = !matches!(access::peer_process(&stream), Ok(None));

        successor.kill().and_then(|()| successor.wait()).unwrap();
        if knows_processes {
            assert_eq!(cgroup, "");
        } else {
            println!("NOT RUN: this kernel has no SO_PEERPIDFD");
        }
    }

    #[tokio::test]
    async fn the_cgroup_of_a_process_that_lives_is_known() {
        let (near, _far) = UnixStream::pair().unwrap();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();

        let found = cgroup_of(&near, std::process::id()).await;

        assert_eq!(Some(found.as_str()), own.lines().find_map(|line| line.strip_prefix("0::")).or(Some("")));
    }
}
