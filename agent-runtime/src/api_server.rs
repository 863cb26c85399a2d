//! What programs that ask the API server of a cluster have in common: answers whose bytes are bounded, and kinds that
//! it may not have.

use core::pin::Pin;
use core::task::{Context, Poll};

use axum::http::{Request, Response};
use http_body_util::Limited;
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher;
use tower_service::Service;

/// `client`, whose answers to requests with the queries that it `selects` have at most `most` bytes: a longer
/// one is an error and no memory. A request without a query has an empty one.
#[must_use]
pub fn bounded(client: Client, most: usize, selects: fn(query: &str) -> bool) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(BoundedClient { client, most, selects }, namespace)
}

struct BoundedClient {
    client: Client,
    most: usize,
    selects: fn(&str) -> bool,
}

impl Service<Request<Body>> for BoundedClient {
    type Response = Response<Limited<Body>>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        // The client waits in `send`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let most = if (self.selects)(query) { self.most } else { usize::MAX };
        let client = self.client.clone();
        Box::pin(async move { Ok(client.send(request).await?.map(|body| Limited::new(body, most))) })
    }
}

/// Whether a list or a watch failed since the API server does not know the kind.
#[must_use]
pub fn is_missing(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error)
    | watcher::Error::WatchStartFailed(error)
    | watcher::Error::WatchFailed(error)) = error
    else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
