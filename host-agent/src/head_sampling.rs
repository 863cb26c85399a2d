//! Services ask which share of their requests to record, and are told more while an operation is out of the ordinary.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::listen::{BindError, tcp};
use head_sampling::{Advice, Adviser, Answer, Counts};
use otlp::Edge;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;

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

/// Answers on `listen` from now on; ends when this is dropped. Without an `edge` nothing is ever out of the ordinary.
pub(crate) async fn start(
    listen: SocketAddr,
    advice: Advice,
    edge: Option<Arc<Edge>>,
    clock: Clock,
) -> Result<JoinSet<()>, BindError> {
    let (listener, address) = tcp("head_sampling.listen", listen).await?;
    let advised = Arc::new(Advised { advice: Mutex::new(advice), clock });
    let mut tasks = JoinSet::new();
    tasks.spawn(head_sampling::serve(listener, Arc::clone(&advised), Arc::new(Counts::default())));
    if let Some(edge) = edge {
        tasks.spawn(async move { look(&edge, &advised).await });
    }
    tracing::info!(%address, "services are told which share of their requests to record");
    Ok(tasks)
}

async fn look(edge: &Edge, advised: &Advised) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = 0;
    loop {
        every.tick().await;
        let (on, now) = (edge.operations_on(), advised.clock.now());
        let mut advice = advised.advice();
        for (service, operation) in &on {
            advice.raise(service, operation, now);
        }
        advice.lower(now);
        let effect = advice.effect();
        drop(advice);
        if effect.told > told {
            let mean_s = effect.waited.as_secs_f64() / effect.told as f64;
            let (longest_s, asked) = (effect.longest.as_secs_f64(), effect.told);
            tracing::info!(
                asked,
                mean_s,
                longest_s,
                "services have asked for raised shares, so long after they were raised"
            );
            told = effect.told;
        }
    }
}
