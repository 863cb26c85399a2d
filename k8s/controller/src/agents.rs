//! Reads what host agents say of their LMAPs: from `/metrics/lmaps` on the addresses of their pods, when somebody asks.
//!
//! Bounded: a page is read at most every 5 s, 16 at a time, 1 MiB of each, within 2 s; all of a request within 8 s.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client as ApiClient};
use remote_write::client::{Client, Receiver};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::calls::within;
use crate::clock;
use crate::counts::{Counts, one_more};
use crate::scores::{Page, Pages};

/// How long a page is good, and the list of agents.
const FRESH: Duration = Duration::from_secs(5);
/// Pages that are read at a time.
const AT_A_TIME: usize = 16;
/// Time limit of one page, and of all pages of a request.
const ONE_WITHIN: Duration = Duration::from_secs(2);
const ALL_WITHIN: Duration = Duration::from_secs(8);
/// Most bytes of a page.
const MAX_BYTES: usize = 1 << 20;
/// Pods of host agents.
const LABELS: &str = "app.kubernetes.io/name=uview,app.kubernetes.io/component=host-agent";
/// Pods of one answer, and the most of all answers to one question.
const PAGE: u32 = 250;
const MAX_PODS: usize = 5_000;

/// The last reading of one agent.
#[derive(Debug)]
struct Reading {
    client: Client,
    page: Option<(Instant, Result<Arc<Page>, String>)>,
}

/// The address of an agent, and its last reading.
type Located = (IpAddr, Arc<Mutex<Reading>>);

/// Where the agents are, when that was asked, and their readings.
#[derive(Debug, Default)]
struct Agents {
    asked: Option<Instant>,
    readings: BTreeMap<String, Located>,
}

/// Reads the agents of one namespace.
pub(crate) struct Reader {
    client: ApiClient,
    namespace: String,
    port: u16,
    slots: Arc<Semaphore>,
    agents: Mutex<Agents>,
    counts: Arc<Counts>,
}

/// The running pods of `namespace` that have `labels`.
///
/// # Errors
///
/// Why they are not known, as a sentence; also if there are more than 5,000.
pub(crate) async fn running_pods(client: &ApiClient, namespace: &str, labels: &str) -> Result<Vec<Pod>, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut parameters = ListParams::default().labels(labels).fields("status.phase=Running").limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = within(pods.list(&parameters)).await.map_err(|error| format!("pods cannot be listed: {error}"))?;
        all.extend(page.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()));
        if all.len() > MAX_PODS {
            return Err(format!("more than {MAX_PODS} pods are selected"));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            None => return Ok(all),
            Some(token) => parameters = parameters.continue_token(&token),
        }
    }
}

impl Reader {
    /// Reads the agents of `namespace`, which listen on `port`.
    pub(crate) fn new(client: ApiClient, namespace: String, port: u16, counts: Arc<Counts>) -> Self {
        let slots = Arc::new(Semaphore::new(AT_A_TIME));
        Self { client, namespace, port, slots, agents: Mutex::default(), counts }
    }

    /// The pages of `nodes`. A node without an agent is not in it.
    ///
    /// # Errors
    ///
    /// Why it is not known where the agents are.
    pub(crate) async fn pages(&self, nodes: &BTreeSet<&str>) -> Result<Pages, String> {
        let readings = self.readings(nodes).await?;
        let mut pages: Pages =
            readings.keys().map(|node| (node.clone(), Err("no answer in time".to_owned()))).collect();
        // Aborted on drop.
        let mut reading = JoinSet::new();
        for (node, agent) in readings {
            let (slots, counts) = (Arc::clone(&self.slots), Arc::clone(&self.counts));
            reading.spawn(async move {
                // Nobody closes it.
                let _slot = slots.acquire().await;
                (node, agent.lock().await.fresh(&counts).await)
            });
        }
        let all = async {
            while let Some(read) = reading.join_next().await {
                pages.extend(read);
            }
        };
        let in_time = tokio::time::timeout(ALL_WITHIN, all).await.is_ok();
        tracing::trace!(in_time, "host agents were read");
        Ok(pages)
    }

    /// The agents of `nodes`, as the API server knows them now, or has known 5 s ago.
    async fn readings(&self, nodes: &BTreeSet<&str>) -> Result<BTreeMap<String, Arc<Mutex<Reading>>>, String> {
        let mut agents = self.agents.lock().await;
        if agents.asked.is_none_or(|asked| asked.elapsed() >= FRESH) {
            let pods = running_pods(&self.client, &self.namespace, LABELS).await?;
            let mut before = core::mem::take(&mut agents.readings);
            agents.readings = pods.iter().filter_map(|pod| self.agent(pod, &mut before)).collect();
            agents.asked = Some(Instant::now());
        }
        let known = |node: &&str| Some(((*node).to_owned(), Arc::clone(&agents.readings.get(*node)?.1)));
        Ok(nodes.iter().filter_map(known).collect())
    }

    /// Node and reading of the agent in `pod`; that of `before`, if it has the same address.
    fn agent(&self, pod: &Pod, before: &mut BTreeMap<String, Located>) -> Option<(String, Located)> {
        let node = pod.spec.as_ref()?.node_name.clone()?;
        let address: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
        if let Some(known) = before.remove(&node).filter(|(known, _)| *known == address) {
            return Some((node, known));
        }
        let url = format!("http://{}/metrics/lmaps", SocketAddr::new(address, self.port));
        let receiver = Receiver { url, headers: Vec::new(), ca: None, timeout: ONE_WITHIN };
        let reading = Reading { client: Client::new(&receiver).ok()?, page: None };
        Some((node, (address, Arc::new(Mutex::new(reading)))))
    }
}

impl Reading {
    /// The page, read anew unless it is fresh.
    async fn fresh(&mut self, counts: &Counts) -> Result<Arc<Page>, String> {
        if let Some((at, page)) = &self.page
            && at.elapsed() < FRESH
        {
            return page.clone();
        }
        let read = self.read().await;
        if let Err(error) = &read {
            one_more(&counts.unread);
            tracing::debug!(error, client = ?self.client, "a host agent cannot be read");
        }
        self.page = Some((Instant::now(), read.clone()));
        read
    }

    async fn read(&mut self) -> Result<Arc<Page>, String> {
        let mut body = Vec::new();
        let page = self.client.get("application/openmetrics-text;version=1.0.0", &mut body, MAX_BYTES).await;
        let page = page.map_err(|error| error.to_string())?;
        if let Some(encoding) = page.encoding {
            return Err(format!("its answer is compressed ({encoding}), as no host agent does"));
        }
        Page::read(&body, clock::wall()).map(Arc::new).map_err(|error| error.to_string())
    }
}
