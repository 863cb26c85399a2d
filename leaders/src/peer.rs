//! One peer is called.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hooks::coherence::{MAX_WORDS_BYTES, Words};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::transport::{Channel, Endpoint};
use wire::proto::coherence::coherence_client::CoherenceClient;

use crate::local::Local;
use crate::running::Counts;

/// How often it is asked whether there is something to say.
const TICK: Duration = Duration::from_millis(100);
/// An answer has to come within this; the next call says what was lost.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The longest pause after calls that failed, in ticks.
const MOST_PAUSE: u32 = 20;
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Until when a peer is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// It is called.
    Going,
    /// This node ends.
    Ending,
    /// The peer's address is no longer one of the cluster's.
    Gone,
}

/// Calls the peer at `address` until `stop` says so. Returns at once if that is this node itself.
pub(crate) async fn call<L: Local>(
    endpoint: Endpoint,
    address: SocketAddr,
    local: Arc<L>,
    counts: Arc<Counts>,
    mut stop: watch::Receiver<Until>,
) {
    let client = CoherenceClient::new(endpoint.connect_lazy())
        .max_decoding_message_size(MAX_WORDS_BYTES)
        .max_encoding_message_size(MAX_WORDS_BYTES);
    let mut peer = Peer { client, local, counts, name: None, last: None, failures: 0, pause: 0 };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while *stop.borrow() == Until::Going {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|until| *until != Until::Going) => break,
        }
        if peer.turn(address).await == Met::Itself {
            return;
        }
    }
    let gone = *stop.borrow() == Until::Gone;
    match &peer.name {
        Some(name) if gone => peer.local.forget(name),
        // Whoever ends in order says so, and nobody waits for it.
        _ => _ = timeout(LAST_WORDS, peer.exchange()).await,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    Other,
    Itself,
}

struct Peer<L> {
    client: CoherenceClient<Channel>,
    local: Arc<L>,
    counts: Arc<Counts>,
    /// How it calls itself, once it has answered.
    name: Option<Arc<str>>,
    last: Option<wire::time::Nanos>,
    failures: u32,
    pause: u32,
}

impl<L: Local> Peer<L> {
    async fn turn(&mut self, address: SocketAddr) -> Met {
        if self.pause > 0 {
            self.pause -= 1;
            return Met::Other;
        }
        if !self.local.is_due(self.name.as_deref(), self.last) {
            return Met::Other;
        }
        match self.exchange().await {
            Ok(met) => {
                if self.failures > 0 {
                    tracing::info!(%address, node = self.name.as_deref(), "a peer answers again");
                }
                (self.failures, self.pause) = (0, 0);
                met
            }
            Err(why) => {
                self.counts.failed.add(1);
                if self.failures == 0 {
                    tracing::warn!(%address, node = self.name.as_deref(), why, "a peer does not answer: trying again");
                }
                self.failures = self.failures.saturating_add(1);
                self.pause = 1_u32.checked_shl(self.failures.min(5)).unwrap_or(MOST_PAUSE).min(MOST_PAUSE);
                Met::Other
            }
        }
    }

    async fn exchange(&mut self) -> Result<Met, String> {
        let Some(words) = self.local.words(self.name.as_deref()) else { return Ok(Met::Other) };
        self.last = Some(self.local.time());
        self.counts.said.add(1);
        let answer = timeout(ANSWER_WITHIN, self.client.exchange(words.encode())).await;
        let answer = answer.map_err(|_| "no answer within a second".to_owned())?;
        let answer = answer.map_err(|status| status.message().to_owned())?.into_inner();
        let answer = Words::decode(&answer).map_err(|error| error.to_string())?;
        if answer.run == words.run {
            return Ok(Met::Itself);
        }
        self.name = Some(Arc::clone(&answer.run.node));
        self.local.hear(answer).map_err(|error| error.to_string())?;
        Ok(Met::Other)
    }
}
