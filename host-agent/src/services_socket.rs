//! The Unix socket on which services register: frames with descriptors, one task per connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access;
use region::fd_passing;
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
    let cgroup = if needs_cgroup { cgroup_of(pid).await } else { String::new() };
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

/// The process's cgroup (v2); empty if unknown.
async fn cgroup_of(pid: u32) -> String {
    let read = move || std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let text = tokio::task::spawn_blocking(read).await.unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned()
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
