//! Starts servers, senders and the clock, and ends them.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

use crate::edge::Edge;
use crate::settings::{Settings, StartError};
use crate::{sender, server};

/// Requests of one tenant and signal that are on their way at one time.
const SENDERS: usize = 8;
/// How often waiting traces are looked at.
const TICK: Duration = Duration::from_millis(100);

/// An edge that runs. It ends with its runtime, or in order by [`Running::end`].
#[derive(Debug)]
pub struct Running {
    edge: Arc<Edge>,
    stop: watch::Sender<bool>,
    servers: JoinSet<()>,
    senders: JoinSet<()>,
}

/// Starts an edge that takes connections from `listeners`: either protocol on any of them. Needs a tokio runtime with time and network.
///
/// # Errors
///
/// [`StartError`] if the settings cannot be.
pub fn start(settings: &Settings, listeners: impl IntoIterator<Item = TcpListener>) -> Result<Running, StartError> {
    let edge = Arc::new(Edge::new(settings)?);
    let stop = watch::Sender::new(false);
    let (mut servers, mut senders) = (JoinSet::new(), JoinSet::new());
    let tls = settings.tls.clone().map(|mut tls| {
        // By gRPC, or by HTTP; a client that does not say which is heard, too.
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
    Ok(Running { edge, stop, servers, senders })
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is an end, too.
    _ = stop.wait_for(|stop| *stop).await;
}

async fn tick(edge: &Edge) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        edge.tick();
    }
}

impl Running {
    /// What runs.
    #[must_use]
    pub const fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    /// Takes nothing more, sends what waits, and gives up what is not sent `within` this time: counted as [`Lost::Ended`](crate::counts::Lost::Ended). Spans that wait for
    /// a decision are gone.
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
            tracing::warn!("not everything was sent to the upstream in time");
            for (tenant, signal) in edge.queues() {
                edge.queue(tenant, signal).close();
                edge.queue(tenant, signal).abandon();
            }
            while self.senders.join_next().await.is_some() {}
        }
    }
}
