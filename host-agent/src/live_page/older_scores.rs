//! Asks a Prometheus for scores and alarms that are older than the history: one request at a time, and none while
//! nobody looks.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::ConfigError;
use agent_runtime::http_client::{Client, GetError};
use agent_runtime::live_headers::LiveHeaders;
use otlp::gzip::{self, GzipError};
use page::older::{self, AnswerError, MAX_ANSWER_BYTES, PastScores, Reach};
use tokio::sync::Mutex as AsyncMutex;
use wire::time::Nanos;

use crate::clock::{Clock, unix_now};
use crate::config::PagePrometheus;

/// Answers that are kept: of the newest questions.
const KEPT: usize = 64;
/// Bytes that they take at most, with one that comes: packed, unpacked, and read, 16 bytes for each of its own.
pub(crate) const BYTES: usize = 6 << 20;
/// How long a failure is answered with, before it is asked again.
const FAILED_FOR: Nanos = Nanos::from_secs(10);

/// Scores and alarms, or why there are none.
type Answer = Arc<Result<PastScores, String>>;

/// Why there are none.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Get(#[from] GetError),
    #[error("its answer cannot be unpacked: {0}")]
    Gzip(GzipError<Infallible>),
    #[error("its answer is packed as `{0}`, which was not asked for")]
    Encoding(String),
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// A Prometheus that scrapes this agent, and what it has said.
#[derive(Debug)]
pub(crate) struct OlderScores {
    labels: BTreeMap<String, String>,
    headers: LiveHeaders,
    /// Locked during a request: there is one at a time.
    client: AsyncMutex<Client>,
    /// Answers, by service and reach, and when they came.
    known: Mutex<BTreeMap<(String, Reach), (Nanos, Answer)>>,
    clock: Clock,
}

impl OlderScores {
    /// Asks the Prometheus of `config`, when somebody looks.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it cannot be used.
    pub(crate) fn new(config: &PagePrometheus, clock: Clock) -> Result<Self, ConfigError> {
        let (labels, client) = (config.labels.clone(), config.client()?);
        let headers = client.headers().clone();
        Ok(Self { labels, headers, client: AsyncMutex::new(client), known: Mutex::default(), clock })
    }

    /// The headers of its requests, which may be replaced.
    pub(crate) const fn headers(&self) -> &LiveHeaders {
        &self.headers
    }

    /// Scores and alarms of `service`, as of the last step or two.
    pub(crate) async fn of(&self, service: &str, reach: Reach) -> Answer {
        if let Some(found) = self.known(service, reach) {
            return found;
        }
        let mut client = self.client.lock().await;
        // Another viewer may have asked the same meanwhile.
        if let Some(found) = self.known(service, reach) {
            return found;
        }
        let query = older::query(service, &self.labels, reach, unix_now());
        let found = ask(&mut client, &query, reach).await.map_err(|error| error.to_string());
        let found = Arc::new(found);
        self.keep((service.to_owned(), reach), Arc::clone(&found));
        found
    }

    /// What was said of late.
    fn known(&self, service: &str, reach: Reach) -> Option<Answer> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, found) = known.get(&(service.to_owned(), reach))?;
        let holds = if found.is_ok() { Nanos::from_secs(u64::from(reach.step())) } else { FAILED_FOR };
        let is_new = self.clock.now().since(*at).is_none_or(|age| age < holds);
        is_new.then(|| Arc::clone(found))
    }

    fn keep(&self, key: (String, Reach), found: Answer) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT && !known.contains_key(&key) {
            let oldest = known.iter().min_by_key(|(_, (at, _))| *at).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        known.insert(key, (self.clock.now(), found));
    }
}

async fn ask(client: &mut Client, query: &str, reach: Reach) -> Result<PastScores, AskError> {
    let mut body = Vec::new();
    let page = client.get_for(query, "application/json", &mut body, MAX_ANSWER_BYTES).await?;
    match page.encoding.as_deref() {
        None => {}
        Some("gzip") => body = gzip::unpack(&body, MAX_ANSWER_BYTES, |_| Ok(())).map_err(AskError::Gzip)?,
        Some(other) => return Err(AskError::Encoding(other.chars().take(40).collect())),
    }
    Ok(older::past(&body, reach)?)
}
