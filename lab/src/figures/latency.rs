//! Time from a write into shared memory until a hook has the verdict, with rows of a millisecond.
//!
//! Service, hook and peer are threads of this process, so that one monotonic clock (CLOCK_MONOTONIC) times all three;
//! both agents are processes of their own. The wall clock tells which rows end after a write, and times nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use anyhow::{Context as _, Result, bail};
use support::clock::Stopwatch;
use tonic::Streaming;
use tonic::transport::Endpoint;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{HookEvent, RegisterHookRequest};

use super::agents::{Agents, Case, build};
use super::figure::{Figure, Goal};
use super::pair::{Pair, median};

/// Writes that are followed: some forty of them are above the 99th percentile.
const JUMPS: usize = 4_000;
/// What a service measures otherwise; the first of them jumps.
const GAUGES: usize = 10;
const CALM: f64 = 100.0;
const JUMP: f64 = 100_000.0;
/// Time between two writes of the service, and between two looks of the peer.
const WRITES_EVERY: Duration = Duration::from_micros(500);
const LOOKS_EVERY: Duration = Duration::from_millis(1);
/// A jump follows its order by up to so many microseconds: by when it comes between two ticks of the agent, however the
/// order came about.
const PHASES: u64 = 1_000;
/// A jump is over if the hook gets nothing for so many rows: smoothed scores are below γ by then.
const REST: Duration = Duration::from_millis(25);
/// The last fit is at 2,000 rows.
const SETTLES_WITHIN: Duration = Duration::from_secs(8);
const ARMED_WITHIN: Duration = Duration::from_secs(30);
/// A verdict that does not come.
const PATIENCE: Duration = Duration::from_secs(10);
/// In milliseconds, as asked; the 99th percentile has to be below.
const MAX: f64 = 5.0;
/// Position of the 99th percentile.
const MOST_OF: f64 = 0.99;

/// What the service, the peer and the hook share. 0: not yet.
#[derive(Debug)]
struct Shared {
    clock: Stopwatch,
    jumps: AtomicBool,
    ends: AtomicBool,
    /// The value that was written last, for the peer.
    value: AtomicU64,
    /// When the jump began to be written, in nanoseconds of `clock`, and since 1970.
    written: AtomicU64,
    written_unix: AtomicU64,
    /// When the peer saw it, in nanoseconds of `clock`.
    seen: AtomicU64,
}

impl Shared {
    fn new() -> Self {
        let (jumps, ends) = (AtomicBool::new(false), AtomicBool::new(false));
        let [value, written, written_unix, seen] = [const { AtomicU64::new(0) }; 4];
        Self { clock: Stopwatch::start(), jumps, ends, value, written, written_unix, seen }
    }

    /// Nanoseconds of the monotonic clock, never 0.
    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Forgets the last jump, and orders another one.
    fn order(&self) {
        for time in [&self.seen, &self.written, &self.written_unix] {
            time.store(0, Ordering::Relaxed);
        }
        self.jumps.store(true, Ordering::Release);
    }

    /// Nanoseconds since 1970 at which the jump was written, 0 before.
    fn written_unix(&self) -> u64 {
        self.written_unix.load(Ordering::Acquire)
    }
}

/// The service, which jumps when it is told to.
fn service(shared: &Arc<Shared>, socket: &Path) -> JoinHandle<()> {
    let service = client::Service::new("jumper").socket(socket).without_process_metrics();
    let (uview, shared) = (client::connect(service), Arc::clone(shared));
    std::thread::spawn(move || {
        let gauges: Vec<_> = (0..GAUGES).map(|at| uview.gauge(&format!("gauge.{at}")).register()).collect();
        let mut random = 1_u64;
        let mut draw = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        while !shared.ends() {
            let jumps = shared.jumps.load(Ordering::Acquire);
            if jumps && shared.written_unix() == 0 {
                std::thread::sleep(Duration::from_micros(draw() % PHASES));
                // Before the value: what is late here counts.
                shared.written.store(shared.now(), Ordering::Relaxed);
                shared.written_unix.store(unix_now().0, Ordering::Release);
            }
            for (at, gauge) in gauges.iter().enumerate() {
                let calm = CALM + draw() as f64 / f64::from(1_u32 << 31);
                gauge.set(if at == 0 && jumps { JUMP } else { calm });
                if at == 0 {
                    shared.value.store(u64::from(jumps), Ordering::Release);
                }
            }
            std::thread::sleep(WRITES_EVERY);
        }
    })
}

/// The peer: a thread that looks at the value each millisecond, and does nothing else.
fn watcher(shared: &Arc<Shared>) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        while !shared.ends() {
            if shared.value.load(Ordering::Acquire) == 1 && shared.seen.load(Ordering::Relaxed) == 0 {
                shared.seen.store(shared.now(), Ordering::Release);
            }
            std::thread::sleep(LOOKS_EVERY);
        }
    })
}

/// Waits for the first verdict above γ of a row that ended after the jump; when it was received, by the monotonic
/// clock.
async fn until_told(shared: &Shared, events: &mut Streaming<HookEvent>) -> Result<u64> {
    loop {
        let event = tokio::time::timeout(PATIENCE, events.message()).await.context("no verdict came in time")??;
        let received = shared.now();
        let event = event.context("the hook has ended")?;
        let written = shared.written_unix();
        if written != 0 && event.at_unix_ns >= written && event.score > event.gamma {
            return Ok(received);
        }
    }
}

/// Waits until no verdict has come for the time of some rows.
async fn until_rest(events: &mut Streaming<HookEvent>) -> Result<()> {
    while let Ok(event) = tokio::time::timeout(REST, events.message()).await {
        event?.context("the hook has ended")?;
    }
    Ok(())
}

/// Milliseconds from a write until the hook has a verdict above γ, and until the peer has seen the value.
async fn jump(shared: &Shared, events: &mut Streaming<HookEvent>) -> Result<(f64, f64)> {
    shared.order();
    let received = until_told(shared, events).await?;
    let mut looks = tokio::time::interval(LOOKS_EVERY);
    while shared.seen.load(Ordering::Acquire) == 0 {
        looks.tick().await;
    }
    let (written, seen) = (shared.written.load(Ordering::Acquire), shared.seen.load(Ordering::Acquire));
    shared.jumps.store(false, Ordering::Release);
    until_rest(events).await?;
    let ms = |at: u64| at.saturating_sub(written) as f64 / 1e6;
    Ok((ms(received), ms(seen)))
}

async fn jumps(shared: &Shared, socket: &Path) -> Result<Vec<(f64, f64)>> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
    let mut client = OperatorsClient::new(endpoint.connect_lazy());
    let request = RegisterHookRequest { min_share: 1.0, ..RegisterHookRequest::default() };
    let mut events = client.register_hook(request).await?.into_inner();
    until_rest(&mut events).await?;
    let mut all = Vec::with_capacity(JUMPS);
    for _ in 0..JUMPS {
        all.push(jump(shared, &mut events).await?);
    }
    Ok(all)
}

/// The value of which the share `of` is not above it, and the largest one, of one side.
fn tail(side: impl Iterator<Item = f64>, of: f64) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = side.collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (of * sorted.len() as f64).ceil() as usize;
    Some((*sorted.get(rank.saturating_sub(1))?, *sorted.last()?))
}

/// From a write to the verdict in a hook.
pub fn write_to_hook(name: &str) -> Result<Figure> {
    let folder = tempfile::Builder::new().prefix("uview-figures-").tempdir()?;
    let program = build(folder.path())?;
    let case = Case { services: 0, interval_ms: 1, busy: false };
    let agents = Agents::start(case, program, folder.path(), "")?;
    let run = folder.path().join("run");
    let shared = Arc::new(Shared::new());
    let threads = [service(&shared, &run.join("services.sock")), watcher(&shared)];
    let measured = agents.all_armed(Case { services: 1, ..case }, ARMED_WITHIN).and_then(|()| {
        std::thread::sleep(SETTLES_WITHIN);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(jumps(&shared, &run.join("operators.sock")))
    });
    shared.ends.store(true, Ordering::Relaxed);
    for thread in threads {
        if thread.join().is_err() {
            bail!("a thread of the figure panicked");
        }
    }
    let pairs = measured?;
    let pair = Pair::of(&pairs).context("there are jumps")?;
    let (most, largest) = tail(pairs.iter().map(|pair| pair.0), MOST_OF).context("there are jumps")?;
    let (peer_most, peer_largest) = tail(pairs.iter().map(|pair| pair.1), MOST_OF).context("there are jumps")?;
    let note = format!(
        "{JUMPS} writes: median {:.2} ms, 99th percentile {most:.2} ms, the largest {largest:.2} ms; of the peer {:.2}, \
         {peer_most:.2} and {peer_largest:.2} ms; beyond the peer {:.2} ms in the median",
        pair.ours,
        pair.peer,
        median(pairs.iter().map(|(ours, peer)| ours - peer))
    );
    let peer = "a thread of the service that looks at the value each millisecond, and does nothing else";
    let figure = Figure::new(name, "ms", peer, pair, Goal::Stated);
    Ok(figure.judged("99th percentile < 5 ms", most < MAX, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred = || (1..=100).rev().map(f64::from);

        assert_eq!(tail(hundred(), MOST_OF), Some((99.0, 100.0)));
        assert_eq!(tail([3.0].into_iter(), MOST_OF), Some((3.0, 3.0)));
        assert_eq!(tail([].into_iter(), MOST_OF), None);
    }

    #[test]
    fn a_jump_is_ordered_once_the_last_one_is_forgotten() {
        let shared = Shared::new();
        shared.seen.store(shared.now(), Ordering::Relaxed);
        shared.written_unix.store(1, Ordering::Relaxed);

        shared.order();

        assert!(shared.jumps.load(Ordering::Relaxed));
        assert_eq!((shared.written_unix(), shared.seen.load(Ordering::Relaxed)), (0, 0));
    }
}
