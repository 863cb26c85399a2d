//! Serves the metrics API over TLS, once it is known whom to trust.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use agent_runtime::listen;
use agent_runtime::live_tls::LiveServer;
use agent_runtime::server::{Limits, Listener, ReplyShares, Server, Traffic, with_page_shares};
use kube::Client;
use tokio::net::TcpListener;

use crate::agents::Reader;
use crate::counts::Counts;
use crate::front_proxy::{self, OwnCertificate};
use crate::known::ClusterView;
use crate::metrics_api::{self, MetricsApi};
use crate::objects::Objects;
use crate::pace::Intervals;
use crate::questions::Questions;
use crate::{ControllerArgs, RunError};

/// Connections of API servers.
pub(crate) const METRICS_LIMITS: Limits = Limits { connections: 64, connections_per_peer: 32, traffic: Traffic::Pages };
/// Bytes of answers that API servers have not read.
pub(crate) const UNREAD_BYTES: u64 = 4 << 20;

/// The metrics API, which listens, and is served once it is known whom to trust.
pub(crate) struct Serving {
    server: Server,
    pub(crate) listener: TcpListener,
    own: OwnCertificate,
    /// Whether requests are answered.
    pub(crate) is_served: Arc<AtomicBool>,
}

impl Serving {
    /// Listens, if `args` want it.
    pub(crate) async fn new(
        client: &Client,
        args: &ControllerArgs,
        known: &Arc<ClusterView>,
        counts: &Arc<Counts>,
    ) -> Result<Option<Self>, RunError> {
        // The arguments need each other.
        let (Some(address), Some(certificate), Some(key)) = (args.metrics_api, &args.certificate, &args.key) else {
            return Ok(None);
        };
        let (listener, address) = listen::tcp("--metrics-api", address).await?;
        tracing::info!(%address, "custom.metrics.k8s.io");
        let questions = Questions::new(client.clone());
        let api = MetricsApi {
            objects: Objects { questions: questions.clone(), known: Arc::clone(known) },
            reader: Reader::new(questions, args.namespace.clone(), args.agent_port, Arc::clone(counts)),
            counts: Arc::clone(counts),
        };
        let unread = ReplyShares::new(UNREAD_BYTES, |error| tracing::debug!(%error, "an answer is refused"));
        let router = with_page_shares(metrics_api::router(api), &unread);
        let (name, limits) = ("metrics API", METRICS_LIMITS);
        let server = Server { name, router, limits, counts: Arc::default() };
        let own = OwnCertificate { certificate: certificate.clone(), key: key.clone() };
        Ok(Some(Self { server, listener, own, is_served: Arc::default() }))
    }
}

/// Serves the metrics API for ever; nothing, if it is not wanted.
pub(crate) async fn serve(serving: Option<Serving>, client: &Client, intervals: Intervals) {
    let Some(Serving { server, listener, own, is_served }) = serving else { return core::future::pending().await };
    let live = loop {
        match front_proxy::files(client, &own).await {
            Ok(files) => break LiveServer::new(files),
            Err(error) => {
                tracing::warn!(error = agent_runtime::chain(&error), "metrics are not served yet");
                tokio::time::sleep(intervals.again).await;
            }
        }
    };
    let acceptor = match live.acceptor(b"http/1.1") {
        Ok(acceptor) => acceptor,
        Err(error) => {
            tracing::error!(error = agent_runtime::chain(&error), "metrics are not served");
            return core::future::pending().await;
        }
    };
    is_served.store(true, Ordering::Relaxed);
    tokio::select! {
        () = server.serve(vec![Listener::Tcp(listener)], Some(acceptor), core::future::pending()) => {}
        () = front_proxy::keep_current(client, &own, &live, intervals.certificates) => {}
    }
}
