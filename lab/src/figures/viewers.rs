//! What the live page costs the host agent for each viewer: a hundred services of a hundred metrics, ten rows a second.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::agents::{Agents, Case, build, shares};
use super::figure::{Figure, Goal};
use super::pair::Pair;

const CASE: Case = Case { services: 100, interval_ms: 100, busy: true };
/// The page on any free port.
const PAGE: &str = "page: {listen: '127.0.0.1:0'}\n";
/// How often a browser asks for the metrics of the service that it shows (`metrics.js`).
const ASKS_EVERY: Duration = Duration::from_secs(1);
/// Alternating measurements without and with viewers, of this length.
const TURNS: usize = 7;
const LENGTH: Duration = Duration::from_secs(15);
/// Viewers that have just come are sent everything once, which is not what they cost from then on.
const COME: Duration = Duration::from_secs(2);
/// The most that a viewer may cost, in per cent of a core.
const MOST: f64 = 1.0;
/// No event for so long is a page that does not answer.
const SILENCE: Duration = Duration::from_secs(20);

/// Additional processor time of the host agent for each of `count` viewers at a time. Every other one looks at a
/// service, and is sent each of its metrics once a second; a single one does.
///
/// # Errors
///
/// An agent does not start, or the page does not answer.
pub fn cost(name: &str, count: usize) -> Result<Figure> {
    let folder = tempfile::Builder::new().prefix("uview-figures-").tempdir()?;
    let program = build(folder.path())?;
    let agents = Agents::start(CASE, program, folder.path(), PAGE)?;
    agents.settle(CASE)?;
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    for _ in 0..TURNS {
        let [without] = shares([agents.host], LENGTH)?;
        let viewers = (0..count).map(|at| Viewer::open(&agents, at)).collect::<Result<Vec<_>>>()?;
        std::thread::sleep(COME);
        let [with] = shares([agents.host], LENGTH)?;
        for viewer in viewers {
            bytes += viewer.end()?;
        }
        pairs.push(((with - without) / count as f64, without));
    }
    let measured = Pair::of(&pairs).context("there are turns")?;
    let mut figure = Figure::new(name, "% of a core", "the same host agent without viewers", measured, Goal::Stated);
    (figure.goal, figure.met) = (format!("≤ {MOST} % for each viewer"), Some(measured.ours <= MOST));
    let seconds = TURNS as f64 * count as f64 * (LENGTH + COME).as_secs_f64();
    figure.note = format!(
        "viewers at a time: {count}, every other one with a service and each of its metrics; {:.1} kB a second to each",
        bytes as f64 / seconds / 1000.0
    );
    println!("{name}: {:.3} % for each viewer, {:.2} % without; {}", figure.value, figure.peer_value, figure.note);
    Ok(figure)
}

/// Somebody who looks at the page.
struct Viewer {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<usize>>>,
}

impl Viewer {
    /// Opens the page with a token of its own. An even one looks at a service.
    fn open(agents: &Agents, at: usize) -> Result<Self> {
        let page = Page::open(&agents.page()?)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, events) = (Arc::clone(&is_over), page.clone());
        let mut threads = vec![std::thread::spawn(move || events.listen(&over))];
        if at.is_multiple_of(2) {
            let (over, lmap) = (Arc::clone(&is_over), agents.lmap(at)?);
            threads.push(std::thread::spawn(move || page.ask(&format!("/api/metrics/{lmap}"), &over)));
        }
        Ok(Self { is_over, threads })
    }

    /// Bytes that it was sent.
    fn end(self) -> Result<usize> {
        self.is_over.store(true, Relaxed);
        let panicked = |_| Err(anyhow!("a viewer of the page panicked"));
        let ended = self.threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
        ended.sum()
    }
}

/// An address of the page, and the cookie of a session.
#[derive(Clone, Debug)]
struct Page {
    authority: String,
    cookie: String,
}

impl Page {
    /// Exchanges the token of `url` for a session.
    fn open(url: &str) -> Result<Self> {
        let (authority, path) =
            url.trim().strip_prefix("http://").and_then(|url| url.split_once('/')).context("no address")?;
        let mut page = Self { authority: authority.to_owned(), cookie: String::new() };
        let mut answer = String::new();
        page.request(&format!("/{path}"), "close")?.read_to_string(&mut answer)?;
        let cookie =
            answer.lines().find_map(|line| Some(line.split_once("et-cookie: ")?.1.split(';').next()?.to_owned()));
        page.cookie = cookie.with_context(|| format!("no session: {answer}"))?;
        Ok(page)
    }

    fn request(&self, path: &str, connection: &str) -> Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(&self.authority)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let Self { authority, cookie } = self;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {authority}\r\ncookie: {cookie}\r\nconnection: {connection}\r\n\r\n"
        )?;
        Ok(BufReader::new(stream))
    }

    /// Reads events until it `is_over`; how many bytes came.
    fn listen(&self, is_over: &AtomicBool) -> Result<usize> {
        let (mut stream, mut bytes) = (self.request("/api/events", "keep-alive")?, 0);
        while !is_over.load(Relaxed) {
            let part = stream.fill_buf()?.len();
            ensure!(part > 0, "the page closed the events");
            stream.consume(part);
            bytes += part;
        }
        Ok(bytes)
    }

    /// Asks for `path` once a second until it `is_over`; how many bytes came.
    fn ask(&self, path: &str, is_over: &AtomicBool) -> Result<usize> {
        let mut bytes = 0;
        while !is_over.load(Relaxed) {
            let mut answer = Vec::new();
            self.request(path, "close")?.read_to_end(&mut answer)?;
            ensure!(answer.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&answer));
            bytes += answer.len();
            std::thread::sleep(ASKS_EVERY);
        }
        Ok(bytes)
    }
}
