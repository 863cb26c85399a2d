//! What the metrics API asks the API server: single objects, and lists of pods. Bounded in bytes: two questions at a
//! time, each answer as [`crate::bounded`] lets it through, and what is kept of a list.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;

use crate::calls::within;

/// Questions at a time; others wait.
pub(crate) const AT_A_TIME: usize = 2;
/// Pods of one answer, and the most of all answers to one question.
const PAGE: u32 = 50;
const MAX_PODS: usize = 5_000;
/// Most bytes that are kept of the pods of one question.
pub(crate) const MAX_KEPT_BYTES: usize = 2 << 20;

/// Asks the API server. Clones ask with the same slots.
#[derive(Clone)]
pub(crate) struct Questions {
    client: Client,
    slots: Arc<Semaphore>,
    most_bytes: usize,
}

impl Questions {
    /// Asks with `client`.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, slots: Arc::new(Semaphore::new(AT_A_TIME)), most_bytes: MAX_KEPT_BYTES }
    }

    /// What `keep` makes of the object that `get` asks for; `None`: there is none.
    ///
    /// # Errors
    ///
    /// Why it is not known, as a sentence.
    pub(crate) async fn one<K, T>(
        &self,
        get: impl AsyncFnOnce(Client) -> Result<Option<K>, kube::Error>,
        keep: impl FnOnce(K) -> T,
    ) -> Result<Option<T>, String> {
        // Nobody closes it.
        let _slot = self.slots.acquire().await;
        Ok(within(get(self.client.clone())).await?.map(keep))
    }

    /// What `keep` makes of each running pod of `namespace` with `labels`, with the bytes that it takes; `None`:
    /// nothing.
    ///
    /// # Errors
    ///
    /// Why they are not known, as a sentence; also if there are more than 5,000, or 2 MiB of them are to be kept.
    pub(crate) async fn running_pods<T>(
        &self,
        namespace: &str,
        labels: &str,
        mut keep: impl FnMut(&Pod) -> Option<(T, usize)>,
    ) -> Result<Vec<T>, String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut parameters = ListParams::default().labels(labels).fields("status.phase=Running").limit(PAGE);
        let (mut kept, mut seen, mut bytes) = (Vec::new(), 0, 0);
        loop {
            let slot = self.slots.acquire().await;
            let page = within(pods.list(&parameters)).await;
            let page = page.map_err(|error| format!("pods cannot be listed: {error}"))?;
            seen += page.items.len();
            if seen > MAX_PODS {
                return Err(format!("more than {MAX_PODS} pods are selected"));
            }
            for pod in page.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                let Some((value, takes)) = keep(pod) else { continue };
                bytes += takes;
                if bytes > self.most_bytes {
                    return Err(format!("what is to be kept of these pods takes more than {} bytes", self.most_bytes));
                }
                kept.push(value);
            }
            drop(slot);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                None => return Ok(kept),
                Some(token) => parameters = parameters.continue_token(&token),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::ApiServer;

    #[tokio::test]
    async fn what_is_kept_of_pods_is_bounded_in_bytes() {
        let server = ApiServer::new();
        for number in 0..3 {
            let metadata = json!({"name": format!("pod-{number}"), "namespace": "shop"});
            server.put("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
        }
        let questions = |most_bytes| {
            let server = server.clone();
            async move {
                let client = Client::try_from(server.start("a").await).unwrap();
                Questions { most_bytes, ..Questions::new(client) }
            }
        };
        let name = |pod: &Pod| Some((pod.metadata.name.clone()?, 10));

        let all = questions(30).await.running_pods("shop", "", name).await.unwrap();
        assert_eq!(all, ["pod-0", "pod-1", "pod-2"]);
        let refused = questions(29).await.running_pods("shop", "", name).await.unwrap_err();
        assert_eq!(refused, "what is to be kept of these pods takes more than 29 bytes");
    }
}
