//! Reads what host agents say of their LMAPs: from `/metrics/lmaps` on the addresses of their pods, when somebody asks.
//!
//! Bounded: a page is read at most every 5 s, 16 at a time, 1 MiB of each, within 2 s; all of a request within 8 s.
//! What is kept of pages has 64 MiB; a page goes once it is not fresh any more.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use agent_runtime::http_client::{Client, Endpoint};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

use crate::clock::{self, Clock};
use crate::counts::Counts;
use crate::memory_budget::MemoryBudget;
use crate::questions::Questions;
use crate::scores::{Page, Pages};

/// How long a page is good, and the list of agents.
const FRESH: Duration = Duration::from_secs(5);
/// Pages that are read at a time.
pub(crate) const AT_A_TIME: usize = 16;
/// Time limit of one page, and of all pages of a request.
const ONE_WITHIN: Duration = Duration::from_secs(2);
const ALL_WITHIN: Duration = Duration::from_secs(8);
/// Most bytes of a page.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// What an agent says of its LMAPs.
const PATH: &str = "/metrics/lmaps";
/// Pods of host agents.
const LABELS: &str = "app.kubernetes.io/name=uview,app.kubernetes.io/component=host-agent";
/// Most bytes of all pages that are fresh.
pub(crate) const MAX_PAGE_BYTES: usize = 64 << 20;

/// The last reading of one agent.
#[derive(Debug)]
struct Reading {
    client: Client,
    /// The page, or why there is none, and since when.
    page: Option<(Duration, Result<Arc<Page>, String>)>,
}

/// The address of an agent, and its last reading.
type LocatedAgent = (IpAddr, Arc<Mutex<Reading>>);

/// Where the agents are, when that was asked, and their readings.
#[derive(Debug, Default)]
struct Agents {
    asked: Option<Duration>,
    readings: BTreeMap<String, LocatedAgent>,
}

/// Reads the agents of one namespace.
pub(crate) struct Reader {
    clock: Clock,
    questions: Questions,
    budget: MemoryBudget,
    namespace: String,
    port: u16,
    slots: Arc<Semaphore>,
    agents: Mutex<Agents>,
    counts: Arc<Counts>,
}

impl Reader {
    /// Reads the agents of `namespace`, which listen on `port`.
    pub(crate) fn new(questions: Questions, namespace: String, port: u16, counts: Arc<Counts>) -> Self {
        let slots = Arc::new(Semaphore::new(AT_A_TIME));
        let budget = MemoryBudget::new(MAX_PAGE_BYTES);
        Self { clock: Clock::start(), questions, budget, namespace, port, slots, agents: Mutex::default(), counts }
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
            let (slots, counts, budget) = (Arc::clone(&self.slots), Arc::clone(&self.counts), self.budget.clone());
            let clock = self.clock;
            reading.spawn(async move {
                // Nobody closes it.
                let _slot = slots.acquire().await;
                (node, agent.lock().await.fresh(clock, &counts, &budget).await)
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
        // One that is being read is kept by whoever reads it.
        let now = self.clock.now();
        let idle = agents.readings.values().filter_map(|(_, reading)| reading.try_lock().ok());
        idle.for_each(|mut reading| reading.forget_old(now));
        if agents.asked.is_none_or(|asked| asked + FRESH <= now) {
            let located = self.questions.running_pods(&self.namespace, LABELS, located).await?;
            let mut before = core::mem::take(&mut agents.readings);
            agents.readings = located.into_iter().filter_map(|at| self.agent(at, &mut before)).collect();
            agents.asked = Some(self.clock.now());
        }
        let known = |node: &&str| Some(((*node).to_owned(), Arc::clone(&agents.readings.get(*node)?.1)));
        Ok(nodes.iter().filter_map(known).collect())
    }

    /// Node and reading of an agent; that of `before`, if it has the same address.
    fn agent(
        &self,
        (node, address): (String, IpAddr),
        before: &mut BTreeMap<String, LocatedAgent>,
    ) -> Option<(String, LocatedAgent)> {
        if let Some(known) = before.remove(&node).filter(|(known, _)| *known == address) {
            return Some((node, known));
        }
        let url = format!("http://{}{PATH}", SocketAddr::new(address, self.port));
        let endpoint = Endpoint { url, headers: Vec::new(), ca: None, timeout: ONE_WITHIN };
        let reading = Reading { client: Client::new(&endpoint, PATH).ok()?, page: None };
        Some((node, (address, Arc::new(Mutex::new(reading)))))
    }
}

/// Node and address of the agent in `pod`, with the bytes that they take.
fn located(pod: &Pod) -> Option<((String, IpAddr), usize)> {
    let node = pod.spec.as_ref()?.node_name.clone()?;
    let address = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    let bytes = 64 + node.len();
    Some(((node, address), bytes))
}

impl Reading {
    /// Forgets a page that is not fresh any more.
    fn forget_old(&mut self, now: Duration) {
        if self.page.as_ref().is_some_and(|(at, _)| *at + FRESH <= now) {
            self.page = None;
        }
    }

    /// The page, read anew unless it is fresh.
    async fn fresh(&mut self, clock: Clock, counts: &Counts, budget: &MemoryBudget) -> Result<Arc<Page>, String> {
        self.forget_old(clock.now());
        if let Some((_, page)) = &self.page {
            return page.clone();
        }
        let read = self.read(budget).await;
        if let Err(error) = &read {
            counts.unread.one_more();
            tracing::debug!(error, client = ?self.client, "a host agent cannot be read");
        }
        self.page = Some((clock.now(), read.clone()));
        read
    }

    async fn read(&mut self, budget: &MemoryBudget) -> Result<Arc<Page>, String> {
        let mut body = Vec::new();
        let page = self.client.get("application/openmetrics-text;version=1.0.0", &mut body, MAX_BYTES).await;
        let page = page.map_err(|error| error.to_string())?;
        if let Some(encoding) = page.encoding {
            return Err(format!("its answer is compressed ({encoding}), as no host agent does"));
        }
        let page = Page::read(&body, clock::wall()).map_err(|error| error.to_string())?;
        Ok(Arc::new(page.within(budget)?))
    }
}
