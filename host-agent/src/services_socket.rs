//! The Unix socket on which services register: frames with descriptors, one task per connection.

mod cgroup;
mod frame_budget;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access;
use agent_runtime::listen::ACCEPT_PAUSE;
use agent_runtime::repeated_events::RepeatedEvents;
use region::fd_passing;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::frame::Frames;
use wire::registration::ServiceMessage;

use self::cgroup::{Process, lives, process};
pub(crate) use self::frame_budget::INCOMPLETE_BYTES;
use self::frame_budget::{FrameBudget, FrameShare};
use crate::clock;
use crate::control_plane::{ConnectionId, Peer};
use crate::node::Node;
use crate::outbox::Outbox;
use crate::pod_watch::PodWatch;

/// Bytes read from one service at a time, so that it does not delay others.
const CHUNK_BYTES: usize = 16 << 10;
/// Time limit for the rest of a frame, from its first byte on.
const FRAME_WITHIN: Duration = Duration::from_secs(5);

/// Serves services until the node drains, then until their outboxes are sent.
/// A process of one of `pods` is that pod's service.
pub(crate) async fn serve(listener: UnixListener, node: Arc<Node>, pods: Option<Arc<PodWatch>>) {
    let mut drained = core::pin::pin!(node.drained());
    let mut connections = JoinSet::new();
    let budget = Arc::new(FrameBudget::default());
    let failures = RepeatedEvents::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&node), Arc::clone(&budget), pods.clone()));
                }
                Err(error) => {
                    node.counts.accept_errors.one_more();
                    if let Some(times) = failures.count(node.clock().now(), error.kind()) {
                        tracing::warn!(%error, times, "cannot accept a service");
                    }
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

async fn connection(stream: UnixStream, node: Arc<Node>, budget: Arc<FrameBudget>, pods: Option<Arc<PodWatch>>) {
    let peer = match access::peer(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "cannot get the credentials of a service");
            return;
        }
    };
    let pid = peer.pid.unwrap_or(0);
    // Before the process is looked at: one that gets its number later began later.
    let connected = clock::since_boot();
    // Who pays may be its pod or container.
    let Process { cgroup, name } = process(&stream, pid).await;
    let pid = if lives(&stream, pid) { pid } else { 0 };
    let peer = Peer { pid, uid: peer.uid, cgroup: cgroup.clone() };
    let share = FrameShare::new(budget, peer.owner());
    let (id, outbox) = node.service_connected_at(peer, connected);
    if let Some(pods) = &pods {
        // It counts as connected while its pod is waited for, and nothing of it is read yet.
        let pod = pods.identity(&cgroup, &name).await;
        node.plane(|plane, _| plane.set_pod(id, pod));
    }
    let mut writing = core::pin::pin!(write(&stream, &outbox));
    let ended = tokio::select! {
        end = read(&stream, &node, id, share) => Some(end),
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

async fn read(stream: &UnixStream, node: &Node, id: ConnectionId, mut share: FrameShare) -> End {
    let mut began = None;
    let mut frames = Frames::default();
    let mut descriptors = Vec::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let receive = || fd_passing::receive(stream, &mut buffer, &mut descriptors);
        let next = stream.async_io(Interest::READABLE, receive);
        let got = match began {
            None => next.await,
            Some(began) => {
                let passed = node.clock().now().since(began).map_or(Duration::ZERO, Duration::from);
                let Ok(got) = timeout(FRAME_WITHIN.saturating_sub(passed), next).await else {
                    node.service_garbage(id, &format!("the rest of a message did not come within {FRAME_WITHIN:?}"));
                    return End::Garbage;
                };
                got
            }
        };
        let got = match got {
            Ok(0) | Err(_) => return End::Gone,
            Ok(got) => got,
        };
        frames.push(buffer.get(..got).unwrap_or_default());
        match take_frames(&mut frames, &mut descriptors, node, id) {
            Ok(0) => {}
            // What follows is of another frame.
            Ok(_) => began = None,
            Err(reason) => {
                node.service_garbage(id, &reason);
                return End::Garbage;
            }
        }
        // A descriptor belongs to the frame it came with. One descriptor may wait for the rest of an incomplete frame.
        let pending = frames.pending();
        let keep = usize::from(pending > 0);
        node.counts.stray_descriptors.add(descriptors.len().saturating_sub(keep) as u64);
        descriptors.truncate(keep);
        if let Err(reason) = share.resize(pending) {
            node.service_garbage(id, &reason);
            return End::Garbage;
        }
        if pending == 0 {
            // What a large frame took is given back.
            (began, frames) = (None, Frames::default());
        } else {
            began = began.or_else(|| Some(node.clock().now()));
        }
    }
}

/// Handles all complete frames. Returns their number.
fn take_frames(
    frames: &mut Frames,
    descriptors: &mut Vec<OwnedFd>,
    node: &Node,
    id: ConnectionId,
) -> Result<usize, String> {
    let mut taken = 0;
    while let Some(frame) = frames.next_frame().map_err(|error| error.to_string())? {
        let message = ServiceMessage::decode(frame).map_err(|error| error.to_string())?;
        let brings = matches!(message, ServiceMessage::AddRegion { .. } | ServiceMessage::AddSpanRing { .. });
        let takes = brings && !descriptors.is_empty();
        let descriptor = takes.then(|| descriptors.remove(0));
        node.service_message(id, message, descriptor);
        taken += 1;
    }
    Ok(taken)
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
