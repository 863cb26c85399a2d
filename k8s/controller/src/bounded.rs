//! A client whose answers are bounded in bytes: lists come in pages, and one that is longer than it should be is an
//! error and no memory. Watches last, and have no bound of their own: each event is one object.

use core::pin::Pin;
use core::task::{Context, Poll};

use axum::http::{Request, Response};
use http_body_util::Limited;
use kube::Client;
use kube::client::Body;
use tower_service::Service;

/// Most bytes of one answer.
pub(crate) const MAX_BYTES: usize = 5 << 20;

/// `client`, whose answers have at most `most` bytes.
pub(crate) fn bounded(client: Client, most: usize) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(Bounded { client, most }, namespace)
}

struct Bounded {
    client: Client,
    most: usize,
}

impl Service<Request<Body>> for Bounded {
    type Response = Response<Limited<Body>>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        // The client waits in `send`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_watch = |query: &str| query.split('&').any(|part| part == "watch=true" || part == "watch=1");
        let most = if request.uri().query().is_some_and(is_watch) { usize::MAX } else { self.most };
        let client = self.client.clone();
        Box::pin(async move { Ok(client.send(request).await?.map(|body| Limited::new(body, most))) })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::ListParams;
    use serde_json::json;

    use super::*;
    use crate::testing::ApiServer;

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_an_error() {
        let server = ApiServer::new();
        let metadata = json!({"name": "a", "namespace": "shop", "annotations": {"long": "x".repeat(5_000)}});
        server.put("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
        let client = Client::try_from(server.start("a").await).unwrap();
        let list = async |most| {
            let pods: Api<Pod> = Api::namespaced(bounded(client.clone(), most), "shop");
            pods.list(&ListParams::default()).await.map(|list| list.items.len())
        };

        assert_eq!(list(10_000).await.unwrap(), 1);
        let error = agent_runtime::chain(&list(4_000).await.unwrap_err());
        assert!(error.contains("length limit exceeded"), "{error}");
    }
}
