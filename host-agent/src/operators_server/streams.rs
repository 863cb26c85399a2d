//! Streams of hooks and watchers: what is queued, for as long as its caller may have it.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::node::Node;

/// What is next for a stream.
pub(super) enum NextItem<T> {
    Item(T),
    /// Nothing is queued now.
    Wait,
    /// Nothing any more, in good order or with an error.
    End(Option<Status>),
}

/// Sends the items of `next` whenever the hook is notified. Ends when `next` says so, with the status of `withdrawn`,
/// when the receiver is gone, or the node drains and nothing is queued. `next` owns what has to end with the stream.
pub(super) fn stream<T: Send + 'static>(
    node: &Node,
    notified: Arc<Notify>,
    withdrawn: impl Future<Output = Status> + Send + 'static,
    mut next: impl FnMut() -> NextItem<T> + Send + 'static,
) -> ReceiverStream<Result<T, Status>> {
    // One item in flight. All others stay in the hook's own queue, where losses are counted.
    let (sender, receiver) = mpsc::channel(1);
    let mut draining = node.draining();
    tokio::spawn(async move {
        let mut withdrawn = core::pin::pin!(withdrawn);
        loop {
            loop {
                let item = match next() {
                    NextItem::Item(item) => Ok(item),
                    NextItem::Wait => break,
                    NextItem::End(None) => return,
                    NextItem::End(Some(status)) => Err(status),
                };
                let is_last = item.is_err();
                tokio::select! {
                    sent = sender.send(item) => if sent.is_err() || is_last { return },
                    status = &mut withdrawn => return end(&sender, status).await,
                }
            }
            if *draining.borrow() {
                return;
            }
            tokio::select! {
                () = notified.notified() => {}
                () = sender.closed() => return,
                status = &mut withdrawn => return end(&sender, status).await,
                _ = draining.changed() => {}
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Ends a stream with `status`, if somebody still reads it.
async fn end<T>(sender: &mpsc::Sender<Result<T, Status>>, status: Status) {
    tracing::warn!(denied = status.message(), "a stream ends: its caller may not any more");
    _ = sender.send(Err(status)).await;
}
