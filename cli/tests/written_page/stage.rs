//! An agent's page without an agent: its files, a feed of LMAPs that a test writes, and documents that it writes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use page::assets::asset;
use page::documents::{self, OlderScores};
use page::feed::{Feed, News, Revisions};
use page::history::History;
use page::routing::{EVENTS, HEADERS, JSON};
use page::viewed::Availability;
use wire::proto::operators::{IncidentsReply, LmapStatus, StatusReply};
use wire::time::{Nanos, Timestamp, UnixNanos};

/// When the first look is taken: 2026-11-27 06:42:15 UTC.
pub const BEGAN: UnixNanos = UnixNanos::from_secs(1_795_761_735);

/// A service that is quiet: a quarter of its threshold.
pub fn lmap(number: u32, service: &str) -> LmapStatus {
    LmapStatus {
        lmap: number,
        service: service.to_owned(),
        state: "armed".to_owned(),
        gamma: 4.0,
        scores: vec![1.0],
        columns: 100,
        replicas: 2,
        interval_us: 1_000_000,
        rows: 120,
        rows_needed: 120,
        ..LmapStatus::default()
    }
}

/// What viewers are sent.
struct Play {
    feed: Feed,
    documents: BTreeMap<String, String>,
    second: u64,
}

impl Play {
    /// What is at `path`: as a test has written it, or as the feed has it.
    fn document(&self, path: &str) -> Option<String> {
        if let Some(written) = self.documents.get(path) {
            return Some(written.clone());
        }
        match path.strip_prefix("/api/")?.split_once('/') {
            None if path == "/api/incidents" => Some(documents::incidents(&IncidentsReply::default())),
            Some(("service", lmap)) => documents::service(&self.feed, lmap.parse().ok()?, OlderScores::Nowhere),
            Some(("metrics", _)) => Some(documents::metrics(BEGAN, None, &[], Availability::Free)),
            _ => None,
        }
    }
}

/// What is shown, and whoever waits for its next change.
#[derive(Clone)]
struct Curtain(Arc<(Mutex<Play>, Condvar)>);

impl Curtain {
    fn play(&self) -> MutexGuard<'_, Play> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, stream: &TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        lines.take_while(|line| !line.is_empty()).for_each(drop);
        if path == "/api/events" {
            return self.tell(stream);
        }
        let asset = asset(&path).map(|asset| (asset.content_type, asset.text.to_owned()));
        let found = asset.or_else(|| Some((JSON, self.play().document(&path)?)));
        let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
        let (content_type, body) = found.unwrap_or((JSON, "null".to_owned()));
        let mut to = stream;
        write!(to, "{}content-length: {}\r\n\r\n{body}", head(status, content_type), body.len()).ok()
    }

    /// Sends each event of the feed, until the viewer is gone.
    fn tell(&self, stream: &TcpStream) -> Option<()> {
        let (mut to, mut seen) = (stream, None);
        write!(to, "{}\r\n", head("200 OK", EVENTS)).ok()?;
        loop {
            let mut play = self.play();
            let event = loop {
                match play.feed.next(seen) {
                    Some(event) => break event,
                    None => play = self.0.1.wait(play).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(play);
            seen = Some(event.sequence);
            to.write_all(event.text.as_bytes()).ok()?;
        }
    }
}

/// Begin of a response, with the headers that an agent sends.
fn head(status: &str, content_type: &str) -> String {
    let headers = HEADERS.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    format!("HTTP/1.1 {status}\r\n{headers}content-type: {content_type}\r\nconnection: close\r\n")
}

/// A page on loopback, which needs no session.
pub struct Stage {
    address: SocketAddr,
    curtain: Curtain,
}

impl Stage {
    /// A page without services.
    pub fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let play = Play { feed: Feed::new(History::new(16 << 20)), documents: BTreeMap::new(), second: 0 };
        let curtain = Curtain(Arc::new((Mutex::new(play), Condvar::new())));
        let of = curtain.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let of = of.clone();
                std::thread::spawn(move || of.answer(&stream));
            }
        });
        Self { address, curtain }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Shows these LMAPs with a summary each, a second after those of before.
    pub fn show(&self, lmaps: Vec<LmapStatus>) {
        let mut play = self.curtain.play();
        play.second += 1;
        let wall = BEGAN.plus(Nanos::from_secs(play.second - 1));
        let of_now = |lmap| LmapStatus { at_unix_ns: wall.0, ..lmap };
        let status = StatusReply { lmaps: lmaps.into_iter().map(of_now).collect(), ..StatusReply::default() };
        let now = Timestamp { monotonic: Nanos::from_secs(play.second), wall };
        assert_eq!(play.feed.look(&status, Revisions { traces: 1, incidents: 1 }, now), News::Event);
        self.curtain.0.1.notify_all();
    }

    /// What is at `path` from now on.
    pub fn write(&self, path: &str, document: String) {
        self.curtain.play().documents.insert(path.to_owned(), document);
    }
}
