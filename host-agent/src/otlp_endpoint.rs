//! The OTLP endpoint of this node, connected to the node's verdicts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::ticks::ticks;
use hooks::suspects::Calls;
use otlp::{Edge, EdgeHandle, Settings, StartError};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use wire::time::Nanos;

use crate::config::WATCH_ONLY;
use crate::control_plane::Event;
use crate::dispatch::{Filter, TooManyHooks};
use crate::findings::findings;
use crate::node::Node;
use crate::span_metrics::{self, Destination};
use crate::telemetry_threads;

/// Queued verdicts: 100 services in alarm for ten seconds.
const VERDICTS: usize = 1_024;
/// How often the call graph is updated.
const CALLS_EVERY: Duration = Duration::from_secs(1);

/// Why the OTLP endpoint did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// Its settings are invalid.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The limit of hooks leaves none for it.
    #[error("the OTLP endpoint needs a hook: raise operators.hooks")]
    Hooks(#[from] TooManyHooks),
    /// A listener cannot be served by other threads.
    #[error("cannot move a listener to the threads of the OTLP endpoint")]
    Listener(#[source] std::io::Error),
}

/// Starts the endpoint on `listeners`, in the runtime of `threads`. It gets the verdicts of `node` like any hook,
/// through its own queue; addresses of incidents have the node's `name`. Counts spans every `interval`, for their
/// destination.
pub(crate) fn start(
    settings: &Settings,
    listeners: impl IntoIterator<Item = TcpListener>,
    (node, name): (&Arc<Node>, &str),
    (interval, destination): (Nanos, Destination),
    threads: &Handle,
) -> Result<EdgeHandle, OtlpError> {
    let moved = listeners.into_iter().map(|listener| telemetry_threads::move_to(threads, listener));
    let listeners = moved.collect::<Result<Vec<_>, _>>().map_err(OtlpError::Listener)?;
    let _entered = threads.enter();
    let running = otlp::start(settings, listeners)?;
    let waits = settings.tail.is_some();
    if let Some(to) = &settings.upstream {
        tracing::info!(upstream = to.endpoint, buffers_traces = waits, "OTLP endpoint started");
    } else {
        tracing::info!(buffers_traces = waits, "OTLP endpoint started; otlp.watch_only: {WATCH_ONLY}");
    }
    if let Some(derived) = settings.span_metrics {
        tokio::spawn(span_metrics::run(Arc::clone(running.edge()), Arc::clone(node), derived, (interval, destination)));
    }
    if settings.tail.is_some() {
        tokio::spawn(update_call_graph(Arc::clone(running.edge()), Arc::clone(node)));
    }
    // Head sampling needs verdicts, too, even if no traces are buffered.
    if settings.tail.is_some() || settings.observed.is_some() {
        let (id, notified) =
            node.register_hook(Filter { lmaps: BTreeSet::new(), min_share: 1.0, ..Filter::default() }, VERDICTS)?;
        let (node, edge, name) = (Arc::clone(node), Arc::clone(running.edge()), name.to_owned());
        tokio::spawn(async move {
            tokio::select! {
                () = node.drained() => {}
                () = async {
                    loop {
                        while let Some(taken) = node.next_event(id) {
                            pass_verdict(&edge, &taken.item, &name, interval);
                        }
                        notified.notified().await;
                    }
                } => {}
            }
            node.unregister(id);
        });
    }
    Ok(running)
}

/// Gives `node` the call graph from traces of the default tenant, until it drains.
async fn update_call_graph(edge: Arc<Edge>, node: Arc<Node>) {
    let mut ticks = ticks(CALLS_EVERY);
    let mut drained = core::pin::pin!(node.drained());
    loop {
        tokio::select! {
            () = &mut drained => return,
            _ = ticks.tick() => {}
        }
        if let Some(calls) = edge.with_tail(|tail, _| Calls::new(tail.calls())) {
            node.set_calls(calls);
        }
    }
}

/// Passes on what `event` means for traces.
fn pass_verdict(edge: &Edge, event: &Event, node: &str, interval: Nanos) {
    findings(event, node, |at| edge.covered_period(at, interval)).for_each(|finding| edge.verdict(finding));
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::mpsc;

    use otlp::{Protocol, UpstreamSettings};
    use wire::id::Incarnation;
    use wire::time::Interval;

    use super::*;
    use crate::clock::Clock;
    use crate::telemetry_threads::TelemetryThreads;

    /// A node without services.
    fn node() -> Arc<Node> {
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        let settings = crate::control_plane::Settings::new(Incarnation(1), interval);
        Arc::new(Node::new(settings, 4, Clock::start(), None))
    }

    /// Asks for an unknown path of the endpoint. The status line, if it comes within `patience`.
    fn ask(address: std::net::SocketAddr, patience: Duration) -> Option<String> {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut line = [0; 12];
        stream.read_exact(&mut line).ok()?;
        String::from_utf8(line.to_vec()).ok()
    }

    #[tokio::test]
    async fn while_the_endpoint_has_no_thread_left_the_control_plane_runs() {
        let upstream = UpstreamSettings {
            endpoint: "http://127.0.0.1:1".to_owned(),
            protocol: Protocol::Http,
            headers: Vec::new(),
            tls: None,
            gzip: false,
            timeout: Duration::from_secs(1),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (threads, node) = (TelemetryThreads::start(Some(1)).unwrap(), node());
        let counted = (Nanos::from_millis(100), Destination::Columns);
        let _running =
            start(&Settings::new(upstream), [listener], (&node, "node-3"), counted, threads.handle()).unwrap();
        let asking = |patience| tokio::task::spawn_blocking(move || ask(address, patience));
        assert_eq!(asking(Duration::from_mins(1)).await.unwrap().as_deref(), Some("HTTP/1.1 404"));

        // A request that takes for ever.
        let (release, released) = mpsc::channel::<()>();
        let (begun, began) = tokio::sync::oneshot::channel();
        threads.handle().spawn(async move {
            _ = begun.send(());
            _ = released.recv();
        });
        began.await.unwrap();
        let unanswered = asking(Duration::from_millis(300)).await.unwrap();
        // This thread serves the control plane here.
        let ticks = tokio::time::timeout(Duration::from_mins(1), tokio::time::sleep(Duration::from_millis(1))).await;
        node.inspect(|plane, _| assert!(plane.list().lmaps.is_empty()));
        drop(release);

        assert_eq!(unanswered, None, "the endpoint runs on the threads that are busy, and on no others");
        assert!(ticks.is_ok());
        assert_eq!(asking(Duration::from_mins(1)).await.unwrap().as_deref(), Some("HTTP/1.1 404"));
    }
}
