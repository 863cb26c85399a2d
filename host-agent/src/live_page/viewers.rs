//! Viewers: a task each, which sends what is new, in pieces.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::lock;
use axum::body::{Body, Bytes};
use page::routing;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::LivePage;

/// Bytes of a piece. A viewer that does not read holds few of them, however long the whole is.
const PIECE: usize = 16 << 10;
/// A viewer that takes no piece for so long is closed.
const STALLED: Duration = Duration::from_secs(5);
/// A comment is sent after so long a silence, so that a connection that broke is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);

type Pieces = mpsc::Sender<Result<Bytes, Infallible>>;

/// Why a viewer's stream ends.
#[derive(Debug, PartialEq, Eq)]
enum StreamEnd {
    /// It has gone, or the agent stops, or its session is over.
    Over,
    /// It does not read.
    Slow,
}

/// The events for a viewer whose header `Cookie` is `cookies`; `None` if there are too many viewers.
pub(super) fn begin(page: &Arc<LivePage>, cookies: String) -> Option<Body> {
    let place = Arc::clone(&page.free).try_acquire_owned().ok()?;
    let (sender, receiver) = mpsc::channel(1);
    let page = Arc::clone(page);
    tokio::spawn(async move {
        if let StreamEnd::Slow = send(&page, &cookies, &sender).await {
            page.node.counts.slow_page_viewers.one_more();
        }
        drop(place);
    });
    Some(Body::from_stream(ReceiverStream::new(receiver)))
}

/// Sends everything, then what changes.
async fn send(page: &LivePage, cookies: &str, to: &Pieces) -> StreamEnd {
    let (mut seen, mut changed, mut draining) = (None, page.changed.subscribe(), page.node.draining());
    loop {
        if !has_session(page, cookies) || *draining.borrow() {
            return StreamEnd::Over;
        }
        let next = lock(&page.feed).next(seen);
        if let Some(event) = next {
            seen = Some(event.sequence);
            if let Some(ended) = in_pieces(event.text.as_bytes(), to, STALLED).await {
                return ended;
            }
            continue;
        }
        tokio::select! {
            _ = changed.changed() => {}
            _ = draining.changed() => {}
            () = to.closed() => return StreamEnd::Over,
            () = tokio::time::sleep(HEARTBEAT) => {
                if let Some(ended) = in_pieces(b":\n\n", to, STALLED).await {
                    return ended;
                }
            }
        }
    }
}

/// Whether the session is there, and its owner may still read.
fn has_session(page: &LivePage, cookies: &str) -> bool {
    let sessions = lock(&page.sessions);
    let owner = routing::session(&sessions, &page.cookie, page.node.clock().now(), cookies);
    owner.is_some_and(|owner| page.may(owner))
}

/// Sends `text`, each piece `within` so long. Returns why the stream ends, if it does.
async fn in_pieces(text: &[u8], to: &Pieces, within: Duration) -> Option<StreamEnd> {
    for piece in text.chunks(PIECE) {
        match timeout(within, to.send(Ok(Bytes::copy_from_slice(piece)))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Some(StreamEnd::Over),
            Err(_) => return Some(StreamEnd::Slow),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_viewer_that_does_not_read_is_given_up_and_one_that_reads_gets_everything() {
        let (sender, mut receiver) = mpsc::channel(1);
        let text = vec![b'x'; 3 * PIECE + 1];

        assert_eq!(in_pieces(&text, &sender, SOON).await, Some(StreamEnd::Slow));
        assert_eq!(receiver.recv().await.map(|piece| piece.unwrap().len()), Some(PIECE));

        let reader = tokio::spawn(async move {
            let mut bytes = 0;
            while let Some(piece) = receiver.recv().await {
                bytes += piece.unwrap().len();
            }
            bytes
        });
        assert_eq!(in_pieces(&text, &sender, Duration::from_mins(1)).await, None);
        drop(sender);
        assert_eq!(reader.await.unwrap(), text.len());
    }

    #[tokio::test]
    async fn a_viewer_that_has_gone_is_no_slow_one() {
        let (sender, receiver) = mpsc::channel(1);
        drop(receiver);

        assert_eq!(in_pieces(b"text", &sender, SOON).await, Some(StreamEnd::Over));
    }
}
