//! Services ask which share of their requests to record, and are told more while an operation is out of the ordinary.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::listen::{BindError, tcp};
use head_sampling::{Advice, Adviser, Answer, Counts, Effect};
use otlp::Edge;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::node::Node;

/// How often it is looked which operations are out of the ordinary.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is advised, and by which clock.
struct Advised {
    advice: Mutex<Advice>,
    clock: Clock,
}

impl Advised {
    fn advice(&self) -> MutexGuard<'_, Advice> {
        // Nothing in here panics; if something did, the state is still the best there is.
        self.advice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Adviser for Advised {
    fn answer(&self, service: &str) -> Answer {
        self.advice().answer(service, self.clock.now())
    }
}

/// Answers on `listen` from now on; ends when this is dropped. Without an `edge` nothing is ever out of the ordinary. What came of it is counted at `node`.
pub(crate) async fn start(
    listen: SocketAddr,
    advice: Advice,
    edge: Option<Arc<Edge>>,
    node: Arc<Node>,
) -> Result<JoinSet<()>, BindError> {
    let (listener, address) = tcp("head_sampling.listen", listen).await?;
    let advised = Arc::new(Advised { advice: Mutex::new(advice), clock: node.clock() });
    let counts = Arc::new(Counts::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(head_sampling::serve(listener, Arc::clone(&advised), Arc::clone(&counts)));
    tasks.spawn(async move { look(edge.as_deref(), &advised, &counts, &node).await });
    tracing::info!(%address, "services are told which share of their requests to record");
    Ok(tasks)
}

async fn look(edge: Option<&Edge>, advised: &Advised, counts: &Counts, node: &Node) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut counted = Counted::default();
    loop {
        every.tick().await;
        let (on, age) = edge.map(Edge::operations_on).unwrap_or_default();
        let now = advised.clock.now();
        let verdict = Nanos(now.0.saturating_sub(age.0));
        let mut advice = advised.advice();
        for (service, operation) in &on {
            advice.raise(service, operation, verdict, now);
        }
        advice.lower(now);
        let effect = advice.effect();
        drop(advice);
        if effect.told > counted.effect.told {
            let mean_s = effect.waited.as_secs_f64() / effect.told as f64;
            let (longest_s, asked) = (effect.longest.as_secs_f64(), effect.told);
            tracing::info!(
                asked,
                mean_s,
                longest_s,
                "services have asked for raised shares, so long after the verdict"
            );
        }
        counted.take(effect, counts, node);
    }
}

/// What is counted already.
#[derive(Default)]
struct Counted {
    effect: Effect,
    answered: u64,
    refused: u64,
}

impl Counted {
    /// Counts what is new.
    fn take(&mut self, effect: Effect, counts: &Counts, node: &Node) {
        let (answered, refused) = (counts.answered(), counts.refused());
        let waited = effect.waited.as_millis() - self.effect.waited.as_millis();
        for (count, more) in [
            (&node.counts.head_sampling_answers, answered - self.answered),
            (&node.counts.refused_head_sampling_requests, refused - self.refused),
            (&node.counts.raised_shares_told, effect.told - self.effect.told),
            (&node.counts.raised_shares_wait_ms, waited),
            (&node.counts.raised_shares_missed, effect.missed - self.effect.missed),
        ] {
            count.more(more);
        }
        *self = Self { effect, answered, refused };
    }
}
