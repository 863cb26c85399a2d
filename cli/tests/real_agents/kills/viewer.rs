//! What an operator sees of a node whose processes are killed: a viewer that outlives them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_runtime::clock::timer_now;
use support::wait::Wait;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{
    DrainWorkerRequest, ListRequest, LmapInfo, LmapStatus, RegisterHookRequest, StatusRequest, UndrainWorkerRequest,
};
use wire::time::{Nanos, UnixNanos};

use super::{LIMIT, SERVICES, SETTLE_ROWS};

/// When rows of each service were judged: by the rows' own times, and when that arrived here.
type Verdicts = BTreeMap<String, Vec<(UnixNanos, Instant)>>;

/// Latest verdicts of a service among which one is looked for.
const LATEST: usize = 2_000;

/// A viewer of the operators' API that outlives host agents.
pub(super) struct Viewer {
    runtime: Runtime,
    channel: Channel,
    judged: Arc<Mutex<Verdicts>>,
}

impl Viewer {
    pub(super) fn new(address: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let endpoint = Endpoint::from_shared(address.to_owned()).unwrap();
        let channel = runtime.block_on(async { endpoint.connect_lazy() });
        let judged = Arc::new(Mutex::new(Verdicts::new()));
        runtime.spawn(follow(channel.clone(), Arc::clone(&judged)));
        Self { runtime, channel, judged }
    }

    fn judged(&self) -> MutexGuard<'_, Verdicts> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lmaps(&self) -> Vec<LmapInfo> {
        let mut client = OperatorsClient::new(self.channel.clone());
        let list = self.runtime.block_on(client.list(ListRequest {}));
        list.map(|list| list.into_inner().lmaps).unwrap_or_default()
    }

    pub(super) fn lmap(&self, service: &str) -> Option<LmapInfo> {
        self.lmaps().into_iter().find(|lmap| lmap.service == service)
    }

    /// The LMAPs on a worker, of services that run all the time.
    pub(super) fn lmaps_on(&self, worker: u32) -> usize {
        let is_its = |lmap: &&LmapInfo| lmap.worker == worker && SERVICES.contains(&lmap.service.as_str());
        self.lmaps().iter().filter(is_its).count()
    }

    /// The LMAPs of services that run all the time and for which `fits` is true.
    pub(super) fn which(&self, fits: impl Fn(&LmapStatus) -> bool) -> Vec<LmapStatus> {
        let mut client = OperatorsClient::new(self.channel.clone());
        let status = self.runtime.block_on(client.status(StatusRequest {}));
        let lmaps = status.map(|status| status.into_inner().lmaps).unwrap_or_default();
        let of = lmaps.into_iter().filter(|lmap| SERVICES.contains(&lmap.service.as_str()));
        of.filter(fits).collect()
    }

    /// Orders that the LMAPs of one worker go to the other one, as `uview undrain` and `uview drain` do. Returns
    /// whether the host agent takes the order: both workers have to be connected.
    pub(super) fn hand_over(&self, from: u32, to: u32) -> bool {
        let mut client = OperatorsClient::new(self.channel.clone());
        let drained = client.drain_worker(DrainWorkerRequest { worker: from, force: false });
        self.undrain(to) && self.runtime.block_on(drained).is_ok()
    }

    /// Lets a worker have LMAPs. Returns whether the host agent takes the order.
    pub(super) fn undrain(&self, worker: u32) -> bool {
        let mut client = OperatorsClient::new(self.channel.clone());
        self.runtime.block_on(client.undrain_worker(UndrainWorkerRequest { worker })).is_ok()
    }

    /// Waits until rows that are younger than `since` of all services that run all the time were judged. Returns when
    /// the first such row of the last service was.
    pub(super) fn all_judged_since(&self, since: UnixNanos) -> Instant {
        let wait = Wait::up_to(LIMIT).pausing(Duration::from_millis(1));
        wait.until("rows of all services are judged again", || {
            let latest = {
                let judged = self.judged();
                let latest = |service: &str| {
                    let rows = judged.get(service).map_or(&[][..], Vec::as_slice);
                    &rows[rows.len().saturating_sub(LATEST)..]
                };
                // When the first of them arrived.
                let first = |service| latest(service).iter().find(|(at, _)| *at > since).map(|(_, on)| *on);
                if let Some(all) = SERVICES.map(first).into_iter().collect::<Option<Vec<_>>>() {
                    return Ok(all.into_iter().max().unwrap());
                }
                SERVICES.map(|service| (service, latest(service).last().copied()))
            };
            let anew = self.which(|lmap| !lmap.judges() && lmap.rows_needed > SETTLE_ROWS);
            assert!(anew.is_empty(), "what was learnt is lost: {anew:?}");
            Err(Box::new(latest))
        })
    }

    /// The longest time between two rows of a service that were judged one after the other, from the last one before
    /// `since` on.
    pub(super) fn longest_gap(&self, service: &str, since: UnixNanos) -> Duration {
        let judged = self.judged();
        let mut times: Vec<UnixNanos> = judged[service].iter().map(|(at, _)| *at).collect();
        // Two workers judge while an LMAP moves.
        times.sort_unstable();
        let begin = times.partition_point(|at| *at <= since).saturating_sub(1);
        let gaps = times[begin..].windows(2).map(|pair| pair[1].since(pair[0]));
        Duration::from(gaps.max().unwrap_or(Nanos::ZERO))
    }
}

/// Records verdicts of all services; goes on with the next run of the host agent.
async fn follow(channel: Channel, judged: Arc<Mutex<Verdicts>>) {
    loop {
        let request =
            RegisterHookRequest { lmaps: Vec::new(), min_share: 0.0, queue: 0, ..RegisterHookRequest::default() };
        if let Ok(stream) = OperatorsClient::new(channel.clone()).register_hook(request).await {
            let mut stream = stream.into_inner();
            while let Ok(Some(event)) = stream.message().await {
                if event.judges() {
                    let mut judged = judged.lock().unwrap_or_else(PoisonError::into_inner);
                    judged.entry(event.service).or_default().push((UnixNanos(event.at_unix_ns), timer_now()));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
