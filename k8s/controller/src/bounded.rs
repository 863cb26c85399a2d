//! A client whose answers are bounded in bytes: lists come in pages, and one that is longer than it should be is an
//! error and no memory. Watches last, and have no bound of their own: each event is one object.

use agent_runtime::api_server;
use kube::Client;

/// Most bytes of one answer.
pub(crate) const MAX_BYTES: usize = 5 << 20;

/// `client`, whose answers have at most `most` bytes.
pub(crate) fn bounded(client: Client, most: usize) -> Client {
    api_server::bounded(client, most, is_no_watch)
}

fn is_no_watch(query: &str) -> bool {
    !query.split('&').any(|part| part == "watch=true" || part == "watch=1")
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
