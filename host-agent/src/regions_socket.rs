//! The Unix socket from which NIC agents on this host get read-only descriptors of regions. Restricted to one user.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access;
use agent_runtime::listen::ACCEPT_PAUSE;
use agent_runtime::repeated_events::RepeatedEvents;
use prost::Message as _;
use region::fd_passing;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use wire::frame::Frames;
use wire::id::{Incarnation, RegionId};
use wire::proto::attach::{AttachReply, AttachRequest};

use crate::clock::timer_now;
use crate::node::Node;

/// Limit of concurrent readers: workers on this host.
pub(crate) const READERS: usize = 256;
/// Longest request, of two numbers.
const REQUEST_BYTES: usize = 4 << 10;
/// Time limit for the rest of a request, and for its reply to be taken.
const WITHIN: Duration = Duration::from_secs(5);

/// Serves readers of user `uid` until the node drains.
pub async fn serve(listener: UnixListener, node: Arc<Node>, uid: u32) {
    let mut drained = core::pin::pin!(node.drained());
    let mut readers = JoinSet::new();
    let events = RepeatedEvents::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if may_ask(&stream, &node, (uid, readers.len()), &events) => {
                    readers.spawn(reader(stream, Arc::clone(&node)));
                }
                Ok(_) => {}
                Err(error) => {
                    node.counts.accept_errors.one_more();
                    if let Some(times) = events.count(node.clock().now(), error.kind()) {
                        tracing::warn!(%error, times, "cannot accept a reader");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = readers.join_next() => {}
            () = &mut drained => return,
        }
    }
}

/// Whether the sender of `stream` is user `uid`, and has a place beside so many `readers`.
fn may_ask(stream: &UnixStream, node: &Node, (uid, readers): (u32, usize), events: &RepeatedEvents) -> bool {
    let peer = access::peer(stream);
    let allowed = peer.as_ref().is_ok_and(|peer| peer.uid == uid) && readers < READERS;
    if !allowed {
        node.counts.refused_readers.one_more();
        let who = peer.as_ref().ok().map(|peer| peer.uid);
        if let Some(times) = events.count(node.clock().now(), ("reader", who)) {
            tracing::warn!(?peer, readers, times, "refused a region reader: only user {uid} may connect");
        }
    }
    allowed
}

/// Serves one reader until it disconnects, sends anything but a request, or is slow.
async fn reader(stream: UnixStream, node: Arc<Node>) {
    let mut frames = Frames::default();
    let mut buffer = [0; 4096];
    // Of a request that has begun to come.
    let mut deadline: Option<Instant> = None;
    loop {
        let mut surplus = Vec::new();
        let receive = || fd_passing::receive(&stream, &mut buffer, &mut surplus);
        let next = stream.async_io(Interest::READABLE, receive);
        let got = match deadline {
            None => next.await,
            Some(deadline) => match timeout_at(deadline, next).await {
                Ok(got) => got,
                Err(_) => return,
            },
        };
        let Ok(got @ 1..) = got else { return };
        frames.push(buffer.get(..got).unwrap_or_default());
        loop {
            let request = match frames.next_frame() {
                Ok(Some(frame)) => AttachRequest::decode(frame),
                Ok(None) => break,
                Err(_) => return,
            };
            let Ok(request) = request else { return };
            let (reply, descriptor) = answer(&node, request);
            let sent = timeout(WITHIN, send(&stream, &reply, descriptor)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
            deadline = None;
        }
        match frames.pending() {
            0 => deadline = None,
            1..=REQUEST_BYTES => deadline = deadline.or_else(|| Some(timer_now() + WITHIN)),
            _ => return,
        }
    }
}

fn answer(node: &Node, request: AttachRequest) -> (AttachReply, Option<OwnedFd>) {
    match node.read_only_descriptor(Incarnation(request.host_incarnation), RegionId(request.region)) {
        Ok((descriptor, size)) => {
            node.counts.passed_regions.one_more();
            let reply = AttachReply { region: request.region, bytes: size.bytes() as u64, problem: String::new() };
            (reply, Some(descriptor))
        }
        Err(error) => {
            node.counts.refused_requests.one_more();
            (AttachReply { region: request.region, bytes: 0, problem: error.to_string() }, None)
        }
    }
}

async fn send(stream: &UnixStream, reply: &AttachReply, descriptor: Option<OwnedFd>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    wire::frame::encode(reply, &mut bytes).map_err(std::io::Error::other)?;
    let mut descriptor = descriptor;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let borrowed = descriptor.as_ref().map(|descriptor| descriptor.as_fd());
        let sent = stream.async_io(Interest::WRITABLE, || fd_passing::send(stream, rest, borrowed)).await?;
        rest = rest.get(sent..).unwrap_or_default();
        descriptor = None;
    }
    Ok(())
}
