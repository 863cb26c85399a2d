//! Head sampling: services ask for sampling probabilities, which are raised while an operation's path is in alarm.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_runtime::Count;
use agent_runtime::descriptors::leaves_enough;
use agent_runtime::listen::{BindError, tcp};
use agent_runtime::peers::{Peer, Places};
use agent_runtime::server;
use agent_runtime::ticks::ticks;
use head_sampling::{Advice, AdviceLatency, Counts, StrategyProvider, StrategyResponse, VerdictSource};
use hooks::tracing::Origin;
use otlp::{AnomalousOperation, Edge};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::node::Node;

/// Connections, of which one user or address may have three times what is free.
const CONNECTIONS: usize = 1_024;
/// How often operations in alarm are collected.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

/// The advice, and its clock.
struct SharedAdvice {
    advice: Mutex<Advice>,
    clock: Clock,
}

impl SharedAdvice {
    fn advice(&self) -> MutexGuard<'_, Advice> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.advice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StrategyProvider for SharedAdvice {
    fn strategy(&self, service: &str) -> StrategyResponse {
        self.advice().respond(service, self.clock.now())
    }
}

/// Serves head sampling on `listen` until the result is dropped. Without an `edge` no probability is ever raised.
/// Counts at `node`; that it is full is among `connections`.
pub(crate) async fn start(
    listen: SocketAddr,
    advice: Advice,
    edge: Option<Arc<Edge>>,
    node: Arc<Node>,
    connections: Arc<server::Counts>,
) -> Result<JoinSet<()>, BindError> {
    let (listener, address) = tcp("head_sampling.listen", listen).await?;
    let shared = Arc::new(SharedAdvice { advice: Mutex::new(advice), clock: node.clock() });
    let counts = Arc::new(Counts::default());
    let mut tasks = JoinSet::new();
    let (places, unaffordable) = (Places::new("head sampling", CONNECTIONS, CONNECTIONS), Count::default());
    connections.full.watch(&places);
    let admits = move |stream: &TcpStream| {
        if leaves_enough(stream) {
            return places.take(Peer::of(stream));
        }
        if unaffordable.is_first() {
            tracing::warn!("connections for head sampling are refused: few file descriptors are left");
        }
        None
    };
    tasks.spawn(head_sampling::serve(listener, Arc::clone(&shared), Arc::clone(&counts), admits));
    tasks.spawn(async move { look(edge.as_deref(), &shared, &counts, &node).await });
    tracing::info!(%address, "head sampling started");
    Ok(tasks)
}

async fn look(edge: Option<&Edge>, shared: &SharedAdvice, counts: &Counts, node: &Node) {
    let mut every = ticks(COLLECT_INTERVAL);
    let mut counted = ReportedCounts::default();
    loop {
        every.tick().await;
        let (on, age) = edge.map(Edge::anomalous_operations).unwrap_or_default();
        let now = shared.clock.now();
        let verdict = Nanos(now.0.saturating_sub(age.0));
        let mut advice = shared.advice();
        for AnomalousOperation { service, operation, origin } in &on {
            let source = match origin {
                Origin::Here => VerdictSource::Own,
                Origin::Elsewhere(peers) => VerdictSource::Peers(peers.bits()),
            };
            advice.raise(service, operation, source, verdict, now);
        }
        advice.lower(now);
        let effect = advice.latency();
        drop(advice);
        if effect.delivered > counted.effect.delivered {
            let mean_s = effect.total.as_secs_f64() / effect.delivered as f64;
            let (longest_s, asked) = (effect.max.as_secs_f64(), effect.delivered);
            tracing::info!(asked, mean_s, longest_s, "raised probabilities delivered");
        }
        counted.take(effect, counts, node);
    }
}

/// Counts already added to the node's.
#[derive(Default)]
struct ReportedCounts {
    effect: AdviceLatency,
    answered: u64,
    refused: u64,
    accept_errors: u64,
}

impl ReportedCounts {
    /// Adds what is new.
    fn take(&mut self, effect: AdviceLatency, counts: &Counts, node: &Node) {
        let (answered, refused, accept_errors) = (counts.answered(), counts.refused(), counts.accept_errors());
        let waited = effect.total.as_millis() - self.effect.total.as_millis();
        for (count, more) in [
            (&node.counts.head_sampling_answers, answered - self.answered),
            (&node.counts.refused_head_sampling_requests, refused - self.refused),
            (&node.counts.accept_errors, accept_errors - self.accept_errors),
            (&node.counts.delivered_raised_probabilities, effect.delivered - self.effect.delivered),
            (&node.counts.raised_probabilities_wait_ms, waited),
            (&node.counts.missed_raised_probabilities, effect.missed - self.effect.missed),
        ] {
            count.add(more);
        }
        *self = Self { effect, answered, refused, accept_errors };
    }
}
