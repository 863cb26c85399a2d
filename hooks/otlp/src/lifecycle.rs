//! Starts and stops the endpoint: servers, senders, ticks.

use std::sync::Arc;
use std::time::Duration;

use agent_runtime::ticks::ticks;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::edge::Edge;
use crate::settings::{Settings, StartError};
use crate::{sender, server};

/// Requests in flight per tenant and signal.
const SENDERS: usize = 8;
/// Period of [`Edge::tick`].
const TICK: Duration = Duration::from_millis(100);

/// A running endpoint. It stops with its runtime, or gracefully with [`EdgeHandle::end`].
#[derive(Debug)]
pub struct EdgeHandle {
    edge: Arc<Edge>,
    stop: watch::Sender<bool>,
    servers: JoinSet<()>,
    senders: JoinSet<()>,
}

/// Starts an endpoint on `listeners`; each accepts gRPC and HTTP. Needs a tokio runtime with time and network.
///
/// # Errors
///
/// [`StartError`] if the settings are invalid.
pub fn start(settings: &Settings, listeners: impl IntoIterator<Item = TcpListener>) -> Result<EdgeHandle, StartError> {
    let edge = Arc::new(Edge::new(settings)?);
    let stop = watch::Sender::new(false);
    let (mut servers, mut senders) = (JoinSet::new(), JoinSet::new());
    let tls = settings.tls.clone().map(|mut tls| {
        // gRPC needs h2, HTTP either. A client without ALPN is served as well.
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(tls))
    });
    for listener in listeners {
        let stopped = stopped(stop.subscribe());
        servers.spawn(server::serve(listener, tls.clone(), Arc::clone(&edge), stopped));
    }
    for (tenant, signal) in edge.queues() {
        for _ in 0..SENDERS {
            senders.spawn(sender::run(Arc::clone(&edge), tenant, signal));
        }
    }
    let ticking = Arc::clone(&edge);
    let stopped = stopped(stop.subscribe());
    servers.spawn(async move {
        tokio::select! {
            () = tick(&ticking) => {}
            () = stopped => {}
        }
    });
    Ok(EdgeHandle { edge, stop, servers, senders })
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender was dropped, which is a stop as well.
    _ = stop.wait_for(|stop| *stop).await;
}

async fn tick(edge: &Edge) {
    let mut ticks = ticks(TICK);
    loop {
        ticks.tick().await;
        edge.tick();
    }
}

impl EdgeHandle {
    /// The endpoint that runs.
    #[must_use]
    pub const fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    /// Stops accepting, sends what is queued, and gives up what is not sent `within` this time, counted as
    /// [`UpstreamLoss::Ended`](crate::counts::UpstreamLoss::Ended). Spans that wait for a decision are discarded.
    pub async fn end(mut self, within: Duration) {
        self.stop.send_replace(true);
        let edge = Arc::clone(&self.edge);
        let ending = async {
            while self.servers.join_next().await.is_some() {}
            self.edge.tick();
            for (tenant, signal) in self.edge.queues() {
                self.edge.queue(tenant, signal).close();
            }
            while self.senders.join_next().await.is_some() {}
        };
        if tokio::time::timeout(within, ending).await.is_err() {
            tracing::warn!("the upstream did not take everything in time: the rest is lost");
            for (tenant, signal) in edge.queues() {
                edge.queue(tenant, signal).close();
                edge.queue(tenant, signal).abandon();
            }
            while self.senders.join_next().await.is_some() {}
        }
    }
}
