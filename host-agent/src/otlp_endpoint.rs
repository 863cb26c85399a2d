//! The OTLP endpoint of this node, fed with its verdicts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hooks::time::UnixNanos;
use hooks::tracing::Metric;
use otlp::{Edge, Finding, Running, Settings, StartError};
use ranking::Calls;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use wire::control::Episode;
use wire::time::Nanos;

use crate::control_plane::Event;
use crate::dispatch::{Filter, TooManyHooks};
use crate::node::Node;
use crate::span_metrics;

/// Verdicts that wait: an alarm of a hundred services for ten seconds.
const VERDICTS: usize = 1_024;
/// How often it is told who calls whom.
const CALLS_EVERY: Duration = Duration::from_secs(1);

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// Its settings.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No room for one more hook.
    #[error("operators.hooks leaves no room for traces")]
    Hooks(#[from] TooManyHooks),
}

/// Starts the endpoint on `listeners`. It hears the verdicts of `node` as every hook does: through a queue of its own. What it
/// counts of spans is written into regions every `interval`.
pub(crate) fn start(
    settings: &Settings,
    listeners: impl IntoIterator<Item = TcpListener>,
    node: &Arc<Node>,
    interval: Nanos,
) -> Result<Running, OtlpError> {
    let running = otlp::start(settings, listeners)?;
    let (upstream, waits) = (settings.upstream.endpoint.as_str(), settings.tail.is_some());
    tracing::info!(upstream, spans_wait = waits, "OTLP is taken and goes on");
    if let Some(derived) = settings.derived {
        tokio::spawn(span_metrics::run(Arc::clone(running.edge()), Arc::clone(node), derived, interval));
    }
    if settings.tail.is_some() {
        tokio::spawn(tell_calls(Arc::clone(running.edge()), Arc::clone(node)));
    }
    // Whoever keeps no traces may still advise which to record.
    if settings.tail.is_some() || settings.observed.is_some() {
        let (id, notified) = node.register_hook(Filter { lmaps: BTreeSet::new(), min_share: 1.0 }, VERDICTS)?;
        let (node, edge) = (Arc::clone(node), Arc::clone(running.edge()));
        tokio::spawn(async move {
            tokio::select! {
                () = node.drained() => {}
                () = async {
                    loop {
                        while let Some(taken) = node.next_event(id) {
                            tell(&edge, &taken.item, interval);
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

/// Tells `node` who calls whom, as traces of the default tenant have it, until it drains.
async fn tell_calls(edge: Arc<Edge>, node: Arc<Node>) {
    let mut ticks = tokio::time::interval(CALLS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drained = core::pin::pin!(node.drained());
    loop {
        tokio::select! {
            () = &mut drained => return,
            _ = ticks.tick() => {}
        }
        if let Some(calls) = edge.look(|tail, _| Calls::new(tail.calls())) {
            node.know_calls(calls);
        }
    }
}

/// Tells what `event` means for traces: of what was counted of spans every `interval`, that it is about earlier requests.
fn tell(edge: &Edge, event: &Event, interval: Nanos) {
    let Some(mut finding) = finding(event) else { return };
    let of_spans = event.reasons.first().is_some_and(|reason| span_metrics::is_of_spans(&reason.column));
    if let Some((from, at)) = edge.ended(finding.at, interval).filter(|_| of_spans) {
        (finding.from, finding.at) = (from, at);
    }
    edge.verdict(finding);
}

/// What `event` means for traces; `None` if its service is not in an alarm, and none of its replicas silent.
fn finding(event: &Event) -> Option<Finding<'_>> {
    let verdict = &event.verdict;
    let alarm = matches!(verdict.episode, Episode::Began | Episode::On);
    if !alarm && event.silent.is_empty() {
        return None;
    }
    let metrics = event.reasons.iter().map(|reason| Metric {
        title: reason.column.as_str().into(),
        unit: reason.unit.as_str().into(),
        seen: reason.seen,
        expected: reason.expected,
    });
    // A service that hangs may show nothing else.
    let silent =
        Metric { title: "silent replicas".into(), unit: "".into(), seen: event.silent.len() as f64, expected: 0.0 };
    let silent = (!event.silent.is_empty()).then_some(silent);
    Some(Finding {
        service: event.service.as_str(),
        from: UnixNanos(event.at_unix_ns),
        at: UnixNanos(event.at_unix_ns),
        parts: event.parts.clone(),
        score: verdict.score,
        gamma: verdict.gamma.unwrap_or(0.0),
        metrics: silent.into_iter().chain(metrics).collect(),
    })
}

#[cfg(test)]
mod tests {
    use wire::control::{State, Verdict};
    use wire::id::{Epoch, LmapId, WorkerId};
    use wire::name::{InstanceName, ServiceName};

    use super::*;

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
        };
        let silent = silent.iter().map(|name| InstanceName::new(name).unwrap()).collect();
        let service = ServiceName::new("payment").unwrap();
        let (worker, reasons) = (WorkerId(0), Vec::new());
        Event { worker, service, at_unix_ns: 5, verdict, reasons, parts: None, silent, suspicion: None }
    }

    #[test]
    fn alarms_and_silent_replicas_are_told_and_nothing_else() {
        let told = |episode, silent: &[&str]| {
            let event = event(episode, silent);
            finding(&event).map(|finding| finding.metrics.iter().map(ToString::to_string).collect::<Vec<_>>())
        };

        assert_eq!(told(Episode::Quiet, &[]), None);
        assert_eq!(told(Episode::Ended, &[]), None);
        assert_eq!(told(Episode::Began, &[]), Some(vec![]));
        assert_eq!(told(Episode::On, &[]), Some(vec![]));
        assert_eq!(told(Episode::Quiet, &["payment-1"]).unwrap(), ["silent replicas 1, expected 0"]);
    }
}
