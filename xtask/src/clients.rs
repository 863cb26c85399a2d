//! Clients that nobody here wrote: OpenTelemetry's SDKs for Python, Node and Rust as their users install them, set by their environment alone, in a
//! small shop whose services call each other. Its OTLP goes to a receiver directly, then through uview, which is put between, killed and started
//! again under load, while the shop runs on.

mod agents;
mod load;
mod receiver;
mod rust_service;
pub mod shop;
mod tap;
mod tools;
mod traces;

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use otlp::Signal;

use agents::{Agents, Traces};
use load::Outcome;
use receiver::{Came, Message, Receiver};
use shop::{Endpoint, PATHS, Shop, free};
use tap::Tap;
use tools::Tools;
use traces::{Spans, byte_equal};

pub use tools::missing;

use crate::clock::{Stopwatch, unix_ns};
use crate::proto::workspace;
use crate::release::Programs;

/// How long visitors come in each part.
const VISITS: Duration = Duration::from_secs(10);
/// A visitor's answer may be so much later than without uview: what two runs without it differ by on a machine that does other things, too.
const LATER: f64 = 1.5;
const LATER_BY: Duration = Duration::from_millis(10);
/// What was sent comes within this: a batch waits for 5 s, and a channel of gRPC tries again after up to 20 s.
const ARRIVES: Duration = Duration::from_mins(1);
/// Detectors are armed within this: after 120 rows, 12 s, where there is nothing else to do.
const ARMED: Duration = Duration::from_mins(2);
/// Where an operation's requests go is known after this: a batch waits for 5 s, and paths are learnt from traces that have been there for 10 s.
const LEARNING: Duration = Duration::from_secs(20);
/// How much slower payment becomes.
const FAULT: Duration = Duration::from_millis(180);
/// uview is away for so long, each time.
const AWAY: Duration = Duration::from_secs(3);

/// Arguments of `cargo xtask clients`.
#[derive(Debug, clap::Args)]
pub struct ClientsArgs {
    /// The program to try; else one is built.
    #[arg(long, value_name = "FILE")]
    uview: Option<PathBuf>,
    /// Be the service of Rust at this port.
    #[arg(long, hide = true)]
    service: Option<u16>,
}

/// Tries it, or is a part of it.
///
/// # Errors
///
/// Says what did not hold.
pub fn run(args: ClientsArgs) -> Result<()> {
    if let Some(port) = args.service {
        return rust_service::serve(port);
    }
    if let Some(why) = missing() {
        println!("NOT RUN: clients of Python, Node and Rust: {why}");
        return Ok(());
    }
    let uview = match args.uview {
        Some(path) => path.canonicalize().with_context(|| format!("{}", path.display()))?,
        None => Programs::build()?.path("uview")?.to_owned(),
    };
    try_with(&uview)
}

/// The same, with the programs that CI has built.
///
/// # Errors
///
/// Says what did not hold.
pub fn check(programs: &Programs) -> Result<()> {
    try_with(programs.path("uview")?)
}

fn try_with(uview: &Path) -> Result<()> {
    let tools = Tools::install()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(play(uview, &tools))
}

/// Everything, in parts, while the shop runs on.
async fn play(uview: &Path, tools: &Tools) -> Result<()> {
    let folder = workspace().join("target/clients/run");
    // What the last run said. There may have been none.
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let [grpc, http] = free()?;
    let (endpoint, came) = (Endpoint { grpc, http }, Came::default());
    let upstream = Receiver::at(anywhere(), came.clone()).await?;
    let agents = Agents::prepare(uview, &folder, upstream.address).await?;
    let direct = Direct::at(endpoint, &came).await?;
    let shop = Shop::open(tools, endpoint, &folder).await?;
    let mut stage = Stage { shop, agents, endpoint, came };

    let before = stage.visited("before uview is there", VISITS).await?;
    direct.end().await;
    stage.everything_arrives().await?;
    let between = stage.a_fault_is_told().await?;
    let killed = stage.uview_dies().await?;
    let direct = Direct::at(endpoint, &stage.came).await?;
    let after = stage.visited("after uview is gone", VISITS).await?;
    direct.end().await;
    stage.shop.runs()?;
    judge([&before, &after], [("uview is between", &between), ("uview is killed twice", &killed)])
}

const fn anywhere() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

/// The receiver where uview will be.
struct Direct([Receiver; 2]);

impl Direct {
    async fn at(endpoint: Endpoint, came: &Came) -> Result<Self> {
        let Endpoint { grpc, http } = endpoint;
        Ok(Self([Receiver::at(grpc, came.clone()).await?, Receiver::at(http, came.clone()).await?]))
    }

    async fn end(self) {
        for receiver in self.0 {
            receiver.end().await;
        }
    }
}

/// What all parts need.
struct Stage {
    shop: Shop,
    agents: Agents,
    endpoint: Endpoint,
    /// What the upstream has.
    came: Came,
}

impl Stage {
    /// Visitors come for `length`, and each one's trace arrives whole.
    async fn visited(&mut self, when: &str, length: Duration) -> Result<Outcome> {
        self.reached(unix_ns()).await.with_context(|| format!("{when}, spans do not arrive"))?;
        let since = unix_ns();
        let outcome = load::visit(self.shop.frontend, length).await;
        let until = unix_ns();
        let clock = Stopwatch::start();
        loop {
            let whole = self.whole(since..until)?;
            if whole == outcome.requests() {
                break;
            }
            let wanted = outcome.requests();
            ensure!(clock.elapsed() < ARRIVES, "{when}, {whole} of {wanted} requests have a whole trace upstream");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("{when}: {} requests, as many whole traces upstream", outcome.requests());
        Ok(outcome)
    }

    /// How many whole traces came of requests within this time.
    fn whole(&self, within: Range<u64>) -> Result<usize> {
        let spans = Spans::of(&self.came.all())?;
        Ok(spans.whole().iter().filter(|trace| within.contains(&trace.root.start_time_unix_nano)).count())
    }

    /// Waits until whole traces arrive of requests on either way that came after `since`. Says for how long.
    async fn reached(&mut self, since: u64) -> Result<Duration> {
        let clock = Stopwatch::start();
        for (route, _) in PATHS {
            loop {
                load::get(self.shop.frontend, route).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
                let spans = Spans::of(&self.came.all())?;
                let whole = spans.whole();
                if whole.iter().any(|trace| trace.root.start_time_unix_nano > since && trace.root.name.ends_with(route))
                {
                    break;
                }
                ensure!(clock.elapsed() < ARRIVES, "no trace of {route} is whole after {ARRIVES:?}");
                self.shop.runs()?;
            }
        }
        Ok(clock.elapsed())
    }

    /// What clients say is overheard, and held against what the upstream has.
    async fn everything_arrives(&mut self) -> Result<()> {
        let [grpc, http] = free()?;
        let host = self.agents.host(Endpoint { grpc, http }, Traces::All).await?;
        let overheard = Came::default();
        let witness = Receiver::at(anywhere(), overheard.clone()).await?;
        self.came.clear();
        let taps = [
            Tap::between(self.endpoint.grpc, grpc, witness.address).await?,
            Tap::between(self.endpoint.http, http, witness.address).await?,
        ];
        self.visited("uview is between and keeps all traces", VISITS).await?;
        let clock = Stopwatch::start();
        while let Err(error) = same(&self.came.all(), &overheard.all()) {
            if clock.elapsed() > ARRIVES {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("as the clients sent it: {}", same(&self.came.all(), &overheard.all())?);
        for tap in taps {
            tap.end().await;
        }
        host.kill();
        Ok(())
    }

    /// With the policies that are on by default, payment becomes slow, and a trace says so. Gives how long visitors waited before that.
    async fn a_fault_is_told(&mut self) -> Result<Outcome> {
        let host = self.agents.host(self.endpoint, Traces::Matter).await?;
        let clock = Stopwatch::start();
        // The NIC agent may still count detectors of the host agent before.
        while clock.elapsed() < LEARNING || self.agents.armed().await? < Shop::services() {
            load::visit(self.shop.frontend, Duration::from_secs(1)).await;
            let armed = self.agents.armed().await?;
            ensure!(clock.elapsed() < ARMED, "{armed} of {} services are watched", Shop::services());
        }
        let usual = load::visit(self.shop.frontend, VISITS).await;
        self.came.clear();
        load::get(self.shop.payment, &format!("/slow?ms={}", FAULT.as_millis())).await?;
        let clock = Stopwatch::start();
        let reason = loop {
            load::visit(self.shop.frontend, Duration::from_secs(1)).await;
            let spans = Spans::of(&self.came.all())?;
            let told = |trace: &traces::Trace<'_>| {
                let reason = trace
                    .reason()
                    .filter(|reason| reason.contains("payment: score ") && reason.contains(" ms, expected "))?;
                Some(reason.to_owned())
            };
            if let Some(reason) = spans.whole().iter().find_map(told) {
                break reason;
            }
            let said =
                || spans.traces().iter().filter_map(|trace| trace.reason().map(str::to_owned)).collect::<BTreeSet<_>>();
            ensure!(clock.elapsed() < ARRIVES, "no whole trace says why payment is slow, but for {:?}", said());
        };
        println!(
            "payment takes {FAULT:?} longer: {:.1} s later a whole trace is upstream whose root says: {reason}",
            clock.elapsed().as_secs_f64()
        );
        load::get(self.shop.payment, "/slow?ms=0").await?;
        host.kill();
        Ok(usual)
    }

    /// uview is killed and started again, twice, under load.
    async fn uview_dies(&mut self) -> Result<Outcome> {
        let mut host = self.agents.host(self.endpoint, Traces::All).await?;
        self.reached(unix_ns()).await.context("before uview is killed, spans do not arrive")?;
        let mut outcome = Outcome::default();
        for _ in 0..2 {
            outcome.add(load::visit(self.shop.frontend, AWAY).await);
            host.kill();
            outcome.add(load::visit(self.shop.frontend, AWAY).await);
            let (started, visits) =
                tokio::join!(self.agents.host(self.endpoint, Traces::All), load::visit(self.shop.frontend, AWAY));
            host = started?;
            outcome.add(visits);
        }
        let after = self.reached(unix_ns()).await.context("after uview was killed and is back")?;
        println!(
            "uview was killed twice and is back: {:.1} s later new traces of all services arrive",
            after.as_secs_f64()
        );
        self.visited("after that", Duration::from_secs(5)).await?;
        host.kill();
        Ok(outcome)
    }
}

/// Metrics and logs byte for byte, spans one by one. Says how many.
fn same(came: &[Message], sent: &[Message]) -> Result<String> {
    let metrics = byte_equal(came, sent, Signal::Metrics)?;
    let logs = byte_equal(came, sent, Signal::Logs)?;
    let (came, sent) = (Spans::of(came)?, Spans::of(sent)?);
    came.as_sent(&sent)?;
    ensure!(metrics > 0 && logs > 0, "{metrics} requests of metrics and {logs} of logs: clients have sent too little");
    Ok(format!("{metrics} requests of metrics and {logs} of logs, byte for byte, and {} spans", sent.count()))
}

/// Prints what visitors waited, and judges it.
fn judge(without: [&Outcome; 2], with: [(&str, &Outcome); 2]) -> Result<()> {
    let p99 = |outcome: &Outcome| outcome.quantile(0.99);
    let tell = |when: &str, outcome: &Outcome| {
        let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
        let (requests, median) = (outcome.requests(), ms(outcome.quantile(0.5)));
        let (p99, most) = (ms(p99(outcome)), ms(outcome.quantile(1.0)));
        println!(
            "{when:24} {requests:5} requests, {} failed, p50 {median:.1} ms, p99 {p99:.1} ms, at most {most:.1} ms",
            outcome.failed
        );
    };
    for (when, outcome) in ["without uview, before", "without uview, after"].into_iter().zip(without).chain(with) {
        tell(when, outcome);
    }
    let bar = without.map(p99).into_iter().max().unwrap_or_default().mul_f64(LATER) + LATER_BY;
    for (when, outcome) in with {
        ensure!(outcome.failed == 0, "{} visitors got no answer while {when}", outcome.failed);
        let p99 = p99(outcome);
        ensure!(p99 <= bar, "p99 is {p99:?} while {when}, more than {bar:?}");
    }
    Ok(())
}
