//! The live page: its socket, its clock and its tasks. [`page`] decides who may read, and what is sent.
//!
//! One task looks twice a second: at the status while somebody looks at the page, otherwise at scores, to remember
//! them; and it takes traces that were kept. A viewer has a task that sends what is new, one piece at a time: who does
//! not read holds up nobody, and is closed.

mod map_snapshot;
mod node_look;
mod older_scores;
mod viewers;

pub(crate) use self::node_look::NodeLook;
pub(crate) use self::older_scores::{BYTES as OLDER_BYTES, OlderScores};

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_runtime::access::{Access, Identity, Role};
use agent_runtime::lock;
use agent_runtime::reload::Reloadable;
use agent_runtime::server::{Limits, Traffic};
use agent_runtime::ticks::ticks;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, Response, header};
use page::documents::{self, Keeping};
use page::feed::{Feed, News, Revisions};
use page::fetch_metadata::FetchMetadata;
use page::history::History;
use page::map::Map;
use page::older::Reach;
use page::routing::{self, Answer, Document, Doorkeeper, Method};
use page::sessions::{Secret, Sessions, TOKEN_LIFETIME, TooManyTokens};
use page::viewed::ViewedLmaps;
use tokio::sync::{Semaphore, watch};
use wire::id::LmapId;
use wire::proto::operators as proto;
use wire::time::Nanos;

use crate::clock;
use crate::config::{PageConfig, TRACE};
use crate::incident_book::IncidentBook;
use crate::kept_traces::KeptTraces;
use crate::node::{Node, Onlooker};
use crate::open_problems::ProblemSources;
use crate::operators_server::status::status;

/// Connections to the page.
pub(crate) const LIMITS: Limits = Limits { connections: 256, connections_per_peer: 256, traffic: Traffic::Streams };
/// Viewers that are sent what changes.
pub(crate) const MAX_VIEWERS: usize = 128;
/// Time between two looks; workers send summaries once a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Somebody who has asked for nothing for so long, and is sent no events, does not look at the page.
const WATCHED_FOR: Nanos = Nanos::from_secs(10);

/// Where the page's contents come from, and who may read them.
#[derive(Debug)]
pub(crate) struct PageSources {
    pub(crate) access: Reloadable<Access>,
    pub(crate) problems: Arc<ProblemSources>,
    pub(crate) traces: Arc<KeptTraces>,
    pub(crate) looks: NodeLook,
    /// `None`: no Prometheus is asked.
    pub(crate) older: Option<OlderScores>,
}

/// When somebody asked for something of the page, and when the status was looked at for viewers.
#[derive(Debug, Default)]
struct Attention {
    asked: Option<Nanos>,
    looked: Option<Nanos>,
}

impl Attention {
    /// Whether `then` is less than `length` before `now`.
    fn is_recent(then: Option<Nanos>, now: Nanos, length: Nanos) -> bool {
        then.and_then(|then| now.since(then)).is_some_and(|age| age < length)
    }
}

/// The page of this agent.
#[derive(Debug)]
pub(crate) struct LivePage {
    address: SocketAddr,
    cookie: String,
    node: Arc<Node>,
    sources: PageSources,
    trace_link: Option<String>,
    sessions: Mutex<Sessions<Identity>>,
    feed: Mutex<Feed>,
    map: Mutex<Map>,
    viewed: Mutex<ViewedLmaps>,
    /// Held during a look, so that one follows the other.
    attention: Mutex<Attention>,
    /// Says that there is an event.
    changed: watch::Sender<()>,
    /// Viewers that may still begin.
    free: Arc<Semaphore>,
}

impl LivePage {
    /// A page without contents, served at `address`.
    pub(crate) fn new(config: &PageConfig, address: SocketAddr, node: Arc<Node>, sources: PageSources) -> Arc<Self> {
        Arc::new(Self {
            address,
            cookie: format!("uview-{}", address.port()),
            node,
            sources,
            trace_link: config.trace_link.clone(),
            sessions: Mutex::default(),
            feed: Mutex::new(Feed::new(History::new(config.history_bytes))),
            map: Mutex::default(),
            viewed: Mutex::default(),
            attention: Mutex::default(),
            changed: watch::Sender::new(()),
            free: Arc::new(Semaphore::new(MAX_VIEWERS)),
        })
    }

    /// An address that opens the page once, for a viewer.
    ///
    /// # Errors
    ///
    /// [`TooManyTokens`] if those that were given out to others wait to be opened.
    pub(crate) fn grant(&self, by: Identity) -> Result<proto::OpenPageReply, TooManyTokens> {
        let token = Secret::new(rand::random());
        lock(&self.sessions).grant(self.node.clock().now(), token, by)?;
        let url = format!("http://{}/open?token={}", self.address, token.text());
        Ok(proto::OpenPageReply { url, lifetime_ms: TOKEN_LIFETIME.as_millis() })
    }

    /// Whether `owner` may still read.
    fn may(&self, owner: &Identity) -> bool {
        self.sources.access.load().has(owner, Role::Viewer)
    }

    /// Looks, as thoroughly as somebody looks at the page.
    fn look(&self) {
        let now = self.node.clock().now();
        let mut attention = lock(&self.attention);
        if self.changed.receiver_count() > 0 || Attention::is_recent(attention.asked, now, WATCHED_FOR) {
            return self.look_at_status(&mut attention, now);
        }
        self.look_at_the_rest(now);
        // Kept spans wait in little memory.
        drop(self.sources.traces.look());
        let mut feed = lock(&self.feed);
        let scored = self.node.inspect(|plane, _| plane.scored(|lmap, at| feed.is_new(lmap, at)));
        feed.remember(&scored, clock::steady_now());
    }

    /// Somebody asks for something of the page: what it shows is no older than the last look would be.
    fn attend(&self) {
        let now = self.node.clock().now();
        let mut attention = lock(&self.attention);
        attention.asked = Some(now);
        if !Attention::is_recent(attention.looked, now, LOOK_EVERY.into()) {
            self.look_at_status(&mut attention, now);
        }
    }

    /// Looks at the status, and at what was kept.
    fn look_at_status(&self, attention: &mut Attention, now: Nanos) {
        attention.looked = Some(now);
        let traces = self.sources.traces.look().taken();
        let incidents = self.sources.problems.incidents.as_ref().map_or(0, |incidents| incidents.revision());
        let status = status(&self.node, &self.sources.problems);
        self.look_at_the_rest(now);
        let news = lock(&self.feed).look(&status, Revisions { traces, incidents }, clock::steady_now());
        if news == News::Event {
            self.changed.send_replace(());
        }
    }

    /// Forgets the map, and metrics of services, that nobody asks for any more.
    fn look_at_the_rest(&self, now: Nanos) {
        lock(&self.map).forget(now);
        let viewed = lock(&self.viewed).current(now);
        self.node.look_at(Onlooker::Page, viewed.into_iter().map(LmapId).collect());
    }

    /// The JSON of `document`; `None` if there is no such thing.
    fn document(&self, document: Document) -> Option<String> {
        match document {
            Document::Service(lmap) => documents::service(&lock(&self.feed), lmap, self.has_older()),
            // A Prometheus is waited for elsewhere.
            Document::Older(..) => None,
            Document::Metrics(lmap) => self.metrics(LmapId(lmap)),
            Document::Map => Some(self.map()),
            Document::Traces => Some(documents::traces(&self.sources.traces.look(), self.keeping())),
            Document::Trace(id) => documents::trace(&self.sources.traces.look(), id, self.trace_link(id).as_deref()),
            Document::Incidents => Some(documents::incidents(&self.incidents()?.list())),
            Document::Incident(id) => {
                Some(documents::incident(&self.incidents()?.get(id)?, |trace| self.trace_link(trace)))
            }
            Document::IncidentFile(id) => Some(incidents::draw::page(&self.incidents()?.get(id)?)),
            Document::Sources => Some(documents::sources(&self.sources.problems.watched.reply())),
            Document::Node => Some(self.node()),
            Document::Receipt => {
                let reply = self.sources.problems.receipts.reply(&self.node);
                Some(documents::receipt(&reply, node_look::resident_now()))
            }
        }
    }

    fn has_older(&self) -> documents::OlderScores {
        match self.sources.older {
            Some(_) => documents::OlderScores::Prometheus,
            None => documents::OlderScores::Nowhere,
        }
    }

    /// Scores and alarms of `lmap` that are older than the history, when the Prometheus has answered.
    async fn older(&self, lmap: u32, reach: Reach) -> Option<String> {
        let older = self.sources.older.as_ref()?;
        let service = lock(&self.feed).service(lmap)?.to_owned();
        let found = older.of(&service, reach).await;
        let found = found.as_ref().as_ref();
        Some(documents::older(found.map_err(String::as_str), reach))
    }

    /// Each metric of `lmap`, which is fetched as long as somebody asks for it.
    fn metrics(&self, lmap: LmapId) -> Option<String> {
        let (each, ratio) = self.node.inspect(|plane, _| (plane.each_column(lmap), plane.last_ratio(lmap)));
        let (at, each) = each?;
        let availability = lock(&self.viewed).ask(lmap.0, self.node.clock().now());
        Some(documents::metrics(at, ratio, &each, availability))
    }

    /// The map, as of the last look. All that ask wait for whoever looks.
    fn map(&self) -> String {
        let (urgent, streams) = {
            let feed = lock(&self.feed);
            (feed.urgent(), feed.streams())
        };
        let mut map = lock(&self.map);
        let now = self.node.clock().now();
        if map.ask(now) {
            map.take(map_snapshot::snapshot(self.sources.problems.edge.as_deref()), now);
        }
        map.json(|service| urgent.contains(service), &streams)
    }

    /// What this agent and the NIC agents keep of what they may, and the other nodes.
    fn node(&self) -> String {
        let PageSources { problems, traces, looks, .. } = &self.sources;
        let pages = (lock(&self.feed).history.bytes(), traces.look().bytes());
        let budget = looks.budget(&self.node, problems, pages);
        let accounts = self.node.inspect(|plane, _| plane.memory_accounts());
        let nics: Vec<_> = accounts.iter().map(|(worker, account)| (worker.0, node_look::of_nic(account))).collect();
        documents::node(&budget, &nics, looks.others(problems.edge.as_deref()).as_deref())
    }

    /// Where the trace `id` is at a tracing backend.
    fn trace_link(&self, id: u128) -> Option<String> {
        Some(self.trace_link.as_ref()?.replace(TRACE, &format!("{id:032x}")))
    }

    fn keeping(&self) -> Keeping {
        if self.sources.traces.are_chosen() { Keeping::Tail } else { Keeping::Nothing }
    }

    fn incidents(&self) -> Option<&IncidentBook> {
        self.sources.problems.incidents.as_deref()
    }
}

/// Looks until the task is dropped.
pub(crate) async fn watch(page: Arc<LivePage>) {
    let mut looks = ticks(LOOK_EVERY);
    loop {
        looks.tick().await;
        page.look();
    }
}

/// What answers requests to the page.
pub(crate) fn router(page: &Arc<LivePage>) -> Router {
    Router::new().fallback(answer).with_state(Arc::clone(page))
}

/// The value of the only header `name`; `None` if there are none or several.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

fn fetch_metadata(headers: &HeaderMap) -> FetchMetadata<'_> {
    let of = |name| only(headers, HeaderName::from_static(name));
    FetchMetadata { site: of("sec-fetch-site"), mode: of("sec-fetch-mode"), destination: of("sec-fetch-dest") }
}

async fn answer(State(page): State<Arc<LivePage>>, request: Request) -> Response<Body> {
    let (headers, uri) = (request.headers(), request.uri());
    let host = if headers.contains_key(header::HOST) {
        only(headers, header::HOST)
    } else {
        uri.authority().map(Authority::as_str)
    };
    let cookies = only(headers, header::COOKIE).unwrap_or_default().to_owned();
    let asked = routing::Request {
        method: match *request.method() {
            HttpMethod::GET => Method::Get,
            HttpMethod::HEAD => Method::Head,
            _ => Method::Other,
        },
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        host,
        cookies: &cookies,
        from: fetch_metadata(headers),
    };
    let decided = {
        let mut sessions = lock(&page.sessions);
        let now = page.node.clock().now();
        let fresh = Secret::new(rand::random());
        let doorkeeper = Doorkeeper { sessions: &mut sessions, cookie: &page.cookie, now, fresh };
        doorkeeper.answer(&asked, |owner| page.may(owner))
    };
    match decided {
        Answer::Response(response) => {
            if matches!(response.status, 401 | 403 | 405 | 421) {
                page.node.counts.refused_page_requests.one_more();
            }
            let routing::Response { status, content_type, set_cookie, body } = response;
            with_headers(status, content_type, set_cookie, Body::from(body))
        }
        Answer::Document(document) => {
            let of = Arc::clone(&page);
            // Not here: the receipt waits for the OTLP endpoint's locks, and a look or a large trace takes its time.
            let made = tokio::task::spawn_blocking(move || {
                of.attend();
                of.document(document)
            });
            let text = match (made.await, document) {
                (_, Document::Older(lmap, reach)) => page.older(lmap, reach).await,
                (made, _) => made.ok().flatten(),
            };
            match text {
                Some(text) => with_headers(200, document.content_type(), None, Body::from(text)),
                None => with_headers(404, routing::JSON, None, Body::from("null")),
            }
        }
        Answer::Events if asked.method == Method::Head => with_headers(200, routing::EVENTS, None, Body::empty()),
        Answer::Events => {
            // Who begins gets everything.
            page.attend();
            let Some(events) = viewers::begin(&page, cookies) else {
                page.node.counts.refused_page_viewers.one_more();
                return with_headers(503, "text/plain; charset=utf-8", None, Body::from("too many viewers\n"));
            };
            with_headers(200, routing::EVENTS, None, events)
        }
    }
}

/// A response with the headers that all have.
fn with_headers(status: u16, content_type: &'static str, set_cookie: Option<String>, body: Body) -> Response<Body> {
    let mut response = Response::builder().status(status).header(header::CONTENT_TYPE, content_type);
    for (name, value) in routing::HEADERS {
        response = response.header(name, value);
    }
    if let Some(cookie) = set_cookie.and_then(|cookie| HeaderValue::try_from(cookie).ok()) {
        response = response.header(header::SET_COOKIE, cookie);
    }
    // Whoever has no session keeps no connection from those who have one.
    if status >= 400 {
        response = response.header(header::CONNECTION, "close");
    }
    // Statuses and headers are this agent's own, and valid.
    response.body(body).unwrap_or_default()
}
