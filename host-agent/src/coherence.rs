//! This node's traces are kept together with those of other nodes: the OTLP endpoint decides and does, `leaders` carries.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::listen::tcp;
use hooks::coherence::{HearError, MemberSettings, Words};
use leaders::{Counts, Local, PeerSettings, Running};
use otlp::{Edge, TogetherSettings};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use wire::time::Nanos;

use crate::config::CoherenceConfig;
use crate::run::RunError;

/// Calls at one time on one connection.
const CALLS: usize = 8;
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The endpoint's end of every exchange.
struct Endpoint(Arc<Edge>);

impl Local for Endpoint {
    fn hear(&self, words: Words) -> Result<(), HearError> {
        self.0.hear(words)
    }

    fn words(&self, peer: Option<&str>) -> Option<Words> {
        self.0.words(peer)
    }

    fn is_due(&self, peer: Option<&str>, last: Option<Nanos>) -> bool {
        self.0.is_due(peer, last)
    }

    fn time(&self) -> Nanos {
        self.0.time()
    }

    fn forget(&self, peer: &str) {
        self.0.forget_peer(peer);
    }
}

/// Calls and answers that go on.
#[derive(Debug)]
pub(crate) struct Coherence {
    edge: Arc<Edge>,
    calls: Running,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    trace_run: PathBuf,
}

/// Where it is written that this node has traces: who finds it was killed.
fn trace_run(folder: &Path) -> PathBuf {
    folder.join("trace-run")
}

/// Begins to keep traces of `edge` together with `peers`, as the node `name`.
pub(crate) async fn start(
    config: &CoherenceConfig,
    peers: PeerSettings,
    name: &str,
    folder: &Path,
    edge: Arc<Edge>,
) -> Result<Coherence, RunError> {
    let (listener, address) = tcp("coherence.listen", config.listen).await?;
    let failed = |error| RunError::Server("coherence", error);
    let trace_run = trace_run(folder);
    let successor = trace_run.exists();
    std::fs::write(&trace_run, "").map_err(|cause| RunError::Runtime { path: trace_run.clone(), cause })?;
    edge.join(name, TogetherSettings { member: MemberSettings::default(), successor });
    let (counts, local) = (Arc::new(Counts::default()), Arc::new(Endpoint(Arc::clone(&edge))));
    let mut server = Server::builder().tcp_nodelay(true).concurrency_limit_per_connection(CALLS);
    if let Some(tls) = &config.tls {
        server = server.tls_config(tls.server()?).map_err(|error| failed(error.into()))?;
    }
    let server = server.add_service(leaders::service(Arc::clone(&local), Arc::clone(&counts)));
    let (stop, stopped) = oneshot::channel::<()>();
    let incoming = TcpListenerStream::new(listener);
    let server = tokio::spawn(server.serve_with_incoming_shutdown(incoming, async { _ = stopped.await }));
    let calls = leaders::start(peers, local, Arc::clone(&counts)).map_err(|error| failed(error.into()))?;
    tracing::info!(%address, node = name, successor, "traces are kept together with other nodes");
    Ok(Coherence { edge, calls, stop, server, trace_run })
}

impl Coherence {
    /// Says to everyone that this node ends, and ends.
    pub(crate) async fn end(self) {
        self.edge.leave();
        self.calls.end(LAST_WORDS).await;
        drop(self.stop);
        _ = tokio::time::timeout(LAST_WORDS, self.server).await;
        if let Err(error) = std::fs::remove_file(&self.trace_run) {
            tracing::warn!(path = %self.trace_run.display(), %error, "the next run will take this one for killed");
        }
    }
}
