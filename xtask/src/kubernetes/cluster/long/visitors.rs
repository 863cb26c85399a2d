//! Visitors of the shop: requests at times that do not depend on answers, from a thread in the cluster's network, to
//! all frontends in turn.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use support::clock::Stopwatch;
use support::http::exchange;

/// How long a visitor waits for a connection, and then for each part of the answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of the stack of a visitor's thread, which does little.
const STACK: usize = 128 << 10;
/// Of the times between visits.
const SEED: u64 = 7;

/// Visitors who come until this is dropped.
#[derive(Debug)]
pub struct Visitors {
    shared: Arc<Shared>,
    sender: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    load: Mutex<Load>,
    ended: Mutex<Vec<Visit>>,
    is_over: AtomicBool,
}

#[derive(Debug)]
struct Load {
    frontends: Vec<SocketAddr>,
    per_second: f64,
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    took: Duration,
    is_fine: bool,
}

/// What became of the visits that ended within some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// All of them.
    pub ended: usize,
    /// Those with an error, or without an answer.
    pub failed: usize,
    /// Half of them took less.
    pub median: Duration,
    /// 95 % of them took less.
    pub p95: Duration,
}

impl Visitors {
    /// Visitors of `frontends`, so many a second, in the network namespace that the file `network` names.
    ///
    /// # Errors
    ///
    /// The namespace cannot be entered.
    pub fn start(network: &Path, frontends: Vec<SocketAddr>, per_second: f64) -> Result<Self> {
        let load = Mutex::new(Load { frontends, per_second });
        let shared = Arc::new(Shared { load, ended: Mutex::default(), is_over: AtomicBool::new(false) });
        let file = File::open(network).with_context(|| network.display().to_string())?;
        let (entered, has_entered) = mpsc::channel();
        let sending = Arc::clone(&shared);
        let sender = std::thread::spawn(move || {
            // Threads that this one starts are in its network, too.
            let inside = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
            if entered.send(inside).is_ok() && inside.is_ok() {
                send(&sending);
            }
        });
        has_entered.recv().context("the visitors' thread ended")?.context("the cluster's network cannot be entered")?;
        Ok(Self { shared, sender: Some(sender) })
    }

    /// From now on so many come in a second, more than none.
    pub fn come(&self, per_second: f64) {
        lock(&self.shared.load).per_second = per_second;
    }

    /// From now on they visit these frontends.
    pub fn visit(&self, frontends: Vec<SocketAddr>) {
        lock(&self.shared.load).frontends = frontends;
    }

    /// What became of those who left since the last call.
    pub fn window(&self) -> Window {
        Window::of(core::mem::take(&mut *lock(&self.shared.ended)))
    }
}

impl Drop for Visitors {
    fn drop(&mut self) {
        // Relaxed: nothing else depends on it.
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

impl Window {
    fn of(mut visits: Vec<Visit>) -> Self {
        visits.sort_unstable_by_key(|visit| visit.took);
        let failed = visits.iter().filter(|visit| !visit.is_fine).count();
        let quantile =
            |percent: usize| visits.get(visits.len() * percent / 100).map_or(Duration::ZERO, |visit| visit.took);
        Self { ended: visits.len(), failed, median: quantile(50), p95: quantile(95) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a visitor whenever one is due, whatever became of those before.
fn send(shared: &Arc<Shared>) {
    let (clock, mut chance) = (Stopwatch::start(), Chance(SEED));
    let mut due = Duration::ZERO;
    for number in 0_usize.. {
        // Relaxed: as above.
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        let (frontend, per_second) = {
            let load = lock(&shared.load);
            (load.frontends.get(number % load.frontends.len().max(1)).copied(), load.per_second)
        };
        due += Duration::from_secs_f64(chance.gap() / per_second);
        std::thread::sleep(due.saturating_sub(clock.elapsed()));
        let (Some(frontend), key) = (frontend, chance.number()) else { continue };
        let shared = Arc::clone(shared);
        let visit = move || {
            let clock = Stopwatch::start();
            let is_fine = is_served(frontend, key).unwrap_or(false);
            lock(&shared.ended).push(Visit { took: clock.elapsed(), is_fine });
        };
        // Without a thread nobody visits, and fewer visits end.
        let _ = std::thread::Builder::new().stack_size(STACK).spawn(visit);
    }
}

/// Whether a frontend answers as it should.
fn is_served(frontend: SocketAddr, key: u64) -> io::Result<bool> {
    let stream = TcpStream::connect_timeout(&frontend, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(exchange(stream, &format!("GET /browse?key={key}"), "", &[])?.is_ok())
}

/// Numbers by chance, the same in each run (SplitMix64).
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let number = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    }

    /// A time between two visits, where one comes each second on average (exponential).
    fn gap(&mut self) -> f64 {
        let half = u32::try_from(self.number() >> 32).unwrap_or(u32::MAX);
        -((f64::from(half) + 0.5) / (f64::from(u32::MAX) + 1.0)).ln()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use support::http::HttpMessage;

    use super::*;

    #[test]
    fn times_between_visits_are_one_on_average_and_the_same_again() {
        let gaps = || {
            let mut chance = Chance(SEED);
            (0..10_000).map(|_| chance.gap()).collect::<Vec<_>>()
        };

        let (first, again) = (gaps(), gaps());

        assert_eq!(first, again);
        let mean = first.iter().sum::<f64>() / 10_000.0;
        assert!((0.95..1.05).contains(&mean), "{mean}");
        assert!(first.iter().all(|gap| *gap > 0.0 && *gap < 30.0));
    }

    #[test]
    fn a_window_counts_failures_and_has_quantiles() {
        let visit = |ms| Visit { took: Duration::from_millis(ms), is_fine: ms != 7 };

        let window = Window::of((0..100).rev().map(visit).collect());

        let (median, p95) = (Duration::from_millis(50), Duration::from_millis(95));
        assert_eq!(window, Window { ended: 100, failed: 1, median, p95 });
        assert_eq!(Window::of(Vec::new()), Window::default());
    }

    #[test]
    fn a_visit_is_fine_if_it_is_answered_with_200() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for status in ["200 OK", "502 Bad Gateway"] {
                let (mut stream, _) = listener.accept().unwrap();
                let request = HttpMessage::read(&mut io::BufReader::new(&stream)).unwrap();
                assert_eq!(request.path(), "/browse?key=3");
                stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).unwrap();
            }
        });

        assert!(is_served(address, 3).unwrap());
        assert!(!is_served(address, 3).unwrap());
        server.join().unwrap();
        assert!(is_served(address, 3).is_err(), "nobody listens");
    }
}
