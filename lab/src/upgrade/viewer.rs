//! A viewer of the operators' API that outlives host agents: what they say, and when rows were judged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{
    DrainWorkerRequest, ListRequest, LmapInfo, LmapStatus, RegisterHookRequest, StatusReply, StatusRequest,
    UndrainWorkerRequest,
};
use wire::time::UnixNanos;

use super::rows::RowTimes;

/// Limit for the reply to a call.
const REPLIES_WITHIN: Duration = Duration::from_secs(5);
/// Pause until a stream that ended is asked for again: less than the shortest interval.
const AGAIN_AFTER: Duration = Duration::from_millis(5);

/// What the host agent says at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub status: StatusReply,
    pub lmaps: Vec<LmapInfo>,
}

impl Snapshot {
    /// The state of a service's LMAP.
    pub fn lmap(&self, service: &str) -> Option<&LmapStatus> {
        self.status.lmaps.iter().find(|lmap| lmap.service == service)
    }

    /// The worker that runs a service's LMAP.
    pub fn worker_of(&self, service: &str) -> Option<u32> {
        let worker = self.lmaps.iter().find(|lmap| lmap.service == service)?.worker;
        Some(worker).filter(|worker| *worker != u32::MAX)
    }

    /// Process, number of regions and their bytes, of each replica of a service.
    pub fn registered(&self, service: &str) -> Vec<(u32, u64, u64)> {
        let of = self.lmaps.iter().filter(|lmap| lmap.service == service).flat_map(|lmap| &lmap.replicas);
        of.map(|replica| (replica.pid, replica.regions, replica.bytes)).collect()
    }

    /// Whether a worker is connected.
    pub fn is_connected(&self, worker: u32) -> bool {
        self.status.workers.iter().any(|status| status.worker == worker && status.connected)
    }
}

/// A client of the operators' API, and a hook of all verdicts.
#[derive(Debug)]
pub struct Viewer {
    runtime: Runtime,
    channel: Channel,
    rows: Arc<Mutex<RowTimes>>,
}

impl Viewer {
    /// Follows whichever host agent listens at `address`.
    ///
    /// # Errors
    ///
    /// The address is none.
    pub fn new(address: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let endpoint = Endpoint::from_shared(address.to_owned())?;
        let channel = runtime.block_on(async { endpoint.connect_lazy() });
        let rows = Arc::new(Mutex::new(RowTimes::default()));
        runtime.spawn(follow(channel.clone(), Arc::clone(&rows)));
        Ok(Self { runtime, channel, rows })
    }

    /// Rows that were judged.
    pub fn rows(&self) -> MutexGuard<'_, RowTimes> {
        lock(&self.rows)
    }

    /// Asks the host agent.
    ///
    /// # Errors
    ///
    /// No host agent replies.
    pub fn look(&self) -> Result<Snapshot> {
        let mut client = self.client();
        self.within(async move {
            let status = client.status(StatusRequest {}).await?.into_inner();
            let lmaps = client.list(ListRequest {}).await?.into_inner().lmaps;
            anyhow::Ok(Snapshot { status, lmaps })
        })
    }

    /// Moves all LMAPs from a worker to the other one.
    ///
    /// # Errors
    ///
    /// The host agent refuses it, or does not know the call: then the error is a [`tonic::Status`].
    pub fn drain(&self, from: u32, to: u32) -> Result<()> {
        let mut client = self.client();
        self.within(async move {
            client.undrain_worker(UndrainWorkerRequest { worker: to }).await?;
            client.drain_worker(DrainWorkerRequest { worker: from, force: false }).await?;
            anyhow::Ok(())
        })
    }

    /// Lets a worker take LMAPs again.
    ///
    /// # Errors
    ///
    /// Those of [`Viewer::drain`].
    pub fn undrain(&self, worker: u32) -> Result<()> {
        let mut client = self.client();
        self.within(async move {
            client.undrain_worker(UndrainWorkerRequest { worker }).await?;
            anyhow::Ok(())
        })
    }

    fn client(&self) -> OperatorsClient<Channel> {
        OperatorsClient::new(self.channel.clone())
    }

    fn within<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(async { tokio::time::timeout(REPLIES_WITHIN, call).await })?
    }
}

fn lock(rows: &Mutex<RowTimes>) -> MutexGuard<'_, RowTimes> {
    // No code under this lock panics. If one did, the times would still be right.
    rows.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records rows of all services; goes on with the next run of the host agent.
async fn follow(channel: Channel, rows: Arc<Mutex<RowTimes>>) {
    loop {
        let request = RegisterHookRequest { min_share: 0.0, ..RegisterHookRequest::default() };
        if let Ok(stream) = OperatorsClient::new(channel.clone()).register_hook(request).await {
            let mut stream = stream.into_inner();
            while let Ok(Some(event)) = stream.message().await {
                // What became of a deleted LMAP is no row.
                if event.change.is_none() {
                    lock(&rows).take(&event.service, UnixNanos(event.at_unix_ns), event.judges());
                }
            }
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}
