//! A client of the API server that tells when a watch is answered. The runtime of kube tells what a watch says, and
//! what fails; nothing happens for long when one begins again after an outage.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use axum::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower_service::Service;

/// `client`, which calls `answered` each time that the API server accepts a watch of `path`.
pub(super) fn telling(client: Client, path: &'static str, answered: impl Fn() + Send + Sync + 'static) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(AnsweredClient { client, path, answered: Arc::new(answered) }, namespace)
}

struct AnsweredClient<F> {
    client: Client,
    path: &'static str,
    answered: Arc<F>,
}

impl<F: Fn() + Send + Sync + 'static> Service<Request<Body>> for AnsweredClient<F> {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        // The client waits in `send`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, answered) = (self.client.clone(), Arc::clone(&self.answered));
        let is_watch = |query: &str| query.split('&').any(|part| part == "watch=true" || part == "watch=1");
        let uri = request.uri();
        let is_meant = uri.path().ends_with(self.path) && uri.query().is_some_and(is_watch);
        Box::pin(async move {
            let response = client.send(request).await?;
            if is_meant && response.status().is_success() {
                answered();
            }
            Ok(response)
        })
    }
}
