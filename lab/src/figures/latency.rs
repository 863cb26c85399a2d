//! Time from a write into shared memory until a hook has the verdict, with rows of a millisecond.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use anyhow::{Context as _, Result, bail};
use tonic::Streaming;
use tonic::transport::Endpoint;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{HookEvent, RegisterHookRequest};

use super::agents::{Agents, Case, build};
use super::pair::{Pair, median};
use super::{Figure, Goal};

/// Writes that are followed.
const JUMPS: usize = 41;
/// What a service measures otherwise; the first of them jumps.
const GAUGES: usize = 10;
const CALM: f64 = 100.0;
const JUMP: f64 = 100_000.0;
/// Time between two writes of the service, and between two looks of the peer.
const WRITES_EVERY: Duration = Duration::from_micros(500);
const LOOKS_EVERY: Duration = Duration::from_millis(1);
/// The last fit is at 2,000 rows.
const SETTLES_WITHIN: Duration = Duration::from_secs(8);
const ARMED_WITHIN: Duration = Duration::from_secs(30);
/// A verdict that does not come.
const PATIENCE: Duration = Duration::from_secs(10);
/// In milliseconds, as asked.
const MAX: f64 = 5.0;

/// What the service, the peer and the hook share. Times are nanoseconds since 1970; 0: not yet.
#[derive(Debug, Default)]
struct Shared {
    jumps: AtomicBool,
    ends: AtomicBool,
    /// The value that was written last, for the peer.
    value: AtomicU64,
    written: AtomicU64,
    seen: AtomicU64,
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

/// The service, which jumps when it is told to.
fn service(shared: &Arc<Shared>, socket: &Path) -> JoinHandle<()> {
    let service = client::Service::new("jumper").socket(socket).without_process_metrics();
    let (uview, shared) = (client::connect(service), Arc::clone(shared));
    std::thread::spawn(move || {
        let gauges: Vec<_> = (0..GAUGES).map(|at| uview.gauge(&format!("gauge.{at}")).register()).collect();
        let mut random = 1_u64;
        while !shared.ends() {
            for (at, gauge) in gauges.iter().enumerate() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let calm = CALM + (random >> 33) as f64 / f64::from(1_u32 << 31);
                let jumps = at == 0 && shared.jumps.load(Ordering::Acquire);
                gauge.set(if jumps { JUMP } else { calm });
                if at == 0 {
                    shared.value.store(u64::from(jumps), Ordering::Release);
                    if jumps && shared.written.load(Ordering::Relaxed) == 0 {
                        shared.written.store(unix_now().0, Ordering::Release);
                    }
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
                shared.seen.store(unix_now().0, Ordering::Release);
            }
            std::thread::sleep(LOOKS_EVERY);
        }
    })
}

/// When the first event that `fits` has come.
async fn until(events: &mut Streaming<HookEvent>, fits: impl Fn(&HookEvent) -> bool) -> Result<u64> {
    loop {
        let event = tokio::time::timeout(PATIENCE, events.message()).await.context("no verdict came in time")??;
        let event = event.context("the hook has ended")?;
        if fits(&event) {
            return Ok(unix_now().0);
        }
    }
}

/// Milliseconds from a write until the hook has a verdict above γ, and until the peer has seen the value.
async fn jump(shared: &Shared, events: &mut Streaming<HookEvent>) -> Result<(f64, f64)> {
    shared.seen.store(0, Ordering::Relaxed);
    shared.written.store(0, Ordering::Relaxed);
    shared.jumps.store(true, Ordering::Release);
    let arrived = until(events, |event| {
        let written = shared.written.load(Ordering::Acquire);
        written != 0 && event.at_unix_ns >= written && event.score > event.gamma
    });
    let arrived = arrived.await?;
    let mut looks = tokio::time::interval(LOOKS_EVERY);
    while shared.seen.load(Ordering::Acquire) == 0 {
        looks.tick().await;
    }
    let (written, seen) = (shared.written.load(Ordering::Acquire), shared.seen.load(Ordering::Acquire));
    shared.jumps.store(false, Ordering::Release);
    until(events, |event| event.episode == "ended").await?;
    let ms = |at: u64| at.saturating_sub(written) as f64 / 1e6;
    Ok((ms(arrived), ms(seen)))
}

async fn jumps(shared: &Shared, socket: &Path) -> Result<Vec<(f64, f64)>> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
    let mut client = OperatorsClient::new(endpoint.connect_lazy());
    let request = RegisterHookRequest { min_share: 1.0, ..RegisterHookRequest::default() };
    let mut events = client.register_hook(request).await?.into_inner();
    let mut all = Vec::with_capacity(JUMPS);
    for _ in 0..JUMPS {
        all.push(jump(shared, &mut events).await?);
    }
    Ok(all)
}

/// From a write to the verdict in a hook.
pub fn write_to_hook(name: &str) -> Result<Figure> {
    let folder = tempfile::Builder::new().prefix("uview-figures-").tempdir()?;
    let program = build(folder.path())?;
    let case = Case { services: 0, interval_ms: 1, busy: false };
    let agents = Agents::start(case, program, folder.path(), "")?;
    let run = folder.path().join("run");
    let shared = Arc::new(Shared::default());
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
    let mut pairs = measured?;
    let pair = Pair::of(&pairs).context("there are jumps")?;
    pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
    let largest = pairs.last().map_or(0.0, |pair| pair.0);
    let note = format!(
        "{JUMPS} writes; the largest {largest:.2} ms; beyond the peer {:.2} ms in the median",
        median(pairs.iter().map(|(ours, peer)| ours - peer))
    );
    let peer = "a thread of the service that looks at the value each millisecond, and does nothing else";
    let figure = Figure::new(name, "ms", peer, pair, Goal::Stated);
    let met = figure.value < MAX;
    Ok(super::hooks::judged(figure, "< 5 ms", met, note))
}
