//! The OTLP endpoint of this node, connected to the node's verdicts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hooks::suspects::Calls;
use hooks::tracing::Metric;
use otlp::{Edge, EdgeHandle, Finding, Settings, StartError};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;
use wire::control::Episode;
use wire::incident::IncidentId;
use wire::name::ServiceName;
use wire::time::Nanos;

use crate::control_plane::Event;
use crate::dispatch::{Filter, TooManyHooks};
use crate::node::Node;
use crate::{span_columns, span_metrics, telemetry_threads};

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
/// through its own queue; addresses of incidents have the node's `name`. Writes span metrics into regions every
/// `interval`.
pub(crate) fn start(
    settings: &Settings,
    listeners: impl IntoIterator<Item = TcpListener>,
    (node, name): (&Arc<Node>, &str),
    interval: Nanos,
    threads: &Handle,
) -> Result<EdgeHandle, OtlpError> {
    let moved = listeners.into_iter().map(|listener| telemetry_threads::move_to(threads, listener));
    let listeners = moved.collect::<Result<Vec<_>, _>>().map_err(OtlpError::Listener)?;
    let _entered = threads.enter();
    let running = otlp::start(settings, listeners)?;
    let (upstream, waits) = (settings.upstream.endpoint.as_str(), settings.tail.is_some());
    tracing::info!(upstream, buffers_traces = waits, "OTLP endpoint started");
    if let Some(derived) = settings.span_metrics {
        tokio::spawn(span_metrics::run(Arc::clone(running.edge()), Arc::clone(node), derived, interval));
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
    let mut ticks = tokio::time::interval(CALLS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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

/// Passes on what `event` means for traces. Span metrics lag behind, so verdicts on them are about earlier requests.
fn pass_verdict(edge: &Edge, event: &Event, node: &str, interval: Nanos) {
    let of_spans = event.reasons.first().is_some_and(|reason| is_of_spans(event, reason.series.name.as_str()));
    for mut finding in findings(event, node) {
        if let Some((from, at)) = edge.covered_period(finding.at, interval).filter(|_| of_spans) {
            (finding.from, finding.at) = (from, at);
        }
        edge.verdict(finding);
    }
}

/// The service that a metric of an LMAP over several is of, and the rest of its name; `None` for a derived column.
fn service_of<'a>(event: &'a Event, metric: &'a str) -> Option<(&'a ServiceName, &'a str)> {
    event
        .concerned
        .iter()
        .find_map(|service| Some((service, metric.strip_prefix(service.as_str())?.strip_prefix('/')?)))
}

fn is_of_spans(event: &Event, metric: &str) -> bool {
    span_columns::is_of_spans(service_of(event, metric).map_or(metric, |(_, metric)| metric))
}

/// What `event` means for traces: nothing unless its service is in alarm or has silent replicas. That of an LMAP over
/// several services is about those whose columns stand out. Each is told its own columns, and what is derived: others
/// may be another tenant's.
fn findings<'a>(event: &'a Event, node: &'a str) -> impl Iterator<Item = Finding<'a>> {
    let verdict = &event.verdict;
    let incident = event.suspicion.as_ref().map(|suspicion| IncidentId::of(suspicion.incident).at(node));
    let alarm = matches!(verdict.episode, Episode::Began | Episode::On);
    let is_finding = alarm || !event.silent.is_empty();
    let own = event.concerned.is_empty().then_some(&event.service);
    let services = own.into_iter().chain(&event.concerned).filter(move |_| is_finding);
    services.map(move |service| {
        let is_told = |metric: &str| service_of(event, metric).is_none_or(|(of, _)| of == service);
        let metrics = event.reasons.iter().filter(|reason| is_told(reason.series.name.as_str())).map(|reason| Metric {
            title: reason.column().into(),
            unit: reason.unit().into(),
            seen: reason.seen,
            expected: reason.expected,
        });
        // A hanging service may show nothing but its silence.
        let silent =
            Metric { title: "silent replicas".into(), unit: "".into(), seen: event.silent.len() as f64, expected: 0.0 };
        let silent = (!event.silent.is_empty()).then_some(silent);
        Finding {
            service: service.as_str(),
            from: event.at,
            at: event.at,
            breakdown: event.breakdown.clone(),
            score: event.verdict.score,
            gamma: event.verdict.gamma.unwrap_or(0.0),
            metrics: silent.into_iter().chain(metrics).collect(),
            incident: incident.clone().unwrap_or_default().into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::mpsc;

    use otlp::{Protocol, UpstreamSettings};
    use wire::id::Incarnation;
    use wire::time::{Interval, UnixNanos};

    use wire::control::{State, Verdict};
    use wire::id::{Epoch, LmapId, WorkerId};
    use wire::metric::Statistic;
    use wire::name::InstanceName;

    use super::*;
    use crate::clock::Clock;
    use crate::control_plane::testing::counter;
    use crate::control_plane::{NamedReason, Suspicion};
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
        let interval = Nanos::from_millis(100);
        let _running =
            start(&Settings::new(upstream), [listener], (&node, "node-3"), interval, threads.handle()).unwrap();
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

    fn event(episode: Episode, silent: &[&str]) -> Event {
        let verdict = Verdict {
            lmap: LmapId(1),
            epoch: Epoch(1),
            score: 12.0,
            gamma: Some(4.0),
            state: State::Armed,
            episode,
            reasons: Vec::new(),
            groups: Vec::new(),
            row: None,
            silent: Vec::new(),
            features: None,
        };
        let silent = silent.iter().map(|name| InstanceName::new(name).unwrap()).collect();
        let service = ServiceName::new("payment").unwrap();
        let (worker, reasons) = (WorkerId(0), Vec::new());
        Event {
            worker,
            service,
            at: UnixNanos(5),
            verdict,
            reasons,
            breakdown: None,
            silent,
            suspicion: None,
            columns: None,
            concerned: Vec::new(),
        }
    }

    #[test]
    fn only_alarms_and_silent_replicas_become_findings() {
        let reported = |episode, silent: &[&str]| {
            let event = event(episode, silent);
            findings(&event, "node-3")
                .next()
                .map(|finding| finding.metrics.iter().map(ToString::to_string).collect::<Vec<_>>())
        };

        assert_eq!(reported(Episode::Quiet, &[]), None);
        assert_eq!(reported(Episode::Ended, &[]), None);
        assert_eq!(reported(Episode::Began, &[]), Some(vec![]));
        assert_eq!(reported(Episode::On, &[]), Some(vec![]));
        assert_eq!(reported(Episode::Quiet, &["payment-1"]).unwrap(), ["silent replicas 1, expected 0"]);
    }

    #[test]
    fn a_finding_has_the_address_of_its_incident() {
        let incident = UnixNanos(1_795_761_735_123_456_789);
        let mut event = event(Episode::Began, &[]);
        assert_eq!(&*findings(&event, "node-3").next().unwrap().incident, "");

        event.suspicion = Some(Suspicion { rank: 1, points_at: None, incident });

        assert_eq!(&*findings(&event, "node-3").next().unwrap().incident, "node-3/20261127-064215-123");
    }

    #[test]
    fn an_alarm_over_several_services_is_about_those_that_stand_out_each_with_its_own_columns() {
        let reason = |metric: &str| NamedReason {
            series: counter(metric),
            statistic: Statistic::Increment,
            share: 0.3,
            seen: 2.0,
            expected: 1.0,
            since: Nanos::ZERO,
            about: String::new(),
        };
        let mut event = event(Episode::Began, &[]);
        event.concerned = ["cart", "payment"].map(|name| ServiceName::new(name).unwrap()).to_vec();
        event.reasons = ["payment/requests", "cart/errors", "ratio"].map(reason).to_vec();

        let told: Vec<_> = findings(&event, "node-3")
            .map(|of| (of.service, of.metrics.iter().map(|metric| metric.title.to_string()).collect::<Vec<_>>()))
            .collect();

        let titles = |all: [&str; 2]| all.map(str::to_owned).to_vec();
        assert_eq!(
            told,
            [("cart", titles(["cart/errors", "ratio"])), ("payment", titles(["payment/requests", "ratio"]))]
        );
        assert!(!is_of_spans(&event, "payment/requests"));
        assert!(is_of_spans(&event, "payment/traces.span.metrics.duration"));
        assert!(is_of_spans(&event, "traces.span.metrics.errors"));
    }
}
