//! Tests with unmodified clients: OpenTelemetry's SDKs for Python, Node and Rust as their users install them,
//! configured only by environment variables, in a small shop whose services call each other. They send OTLP to a
//! receiver directly, then through uview, which is inserted, killed and restarted under load while the shop runs.

mod agents;
pub mod load;
mod logs;
pub mod receiver;
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

use agent_runtime::clock::unix_now;
use anyhow::{Context as _, Result, ensure};
use otlp::Signal;
use support::clock::Stopwatch;

use agents::{Agents, Traces};
use load::Outcome;
use receiver::{Message, MessageLog, Receiver};
use shop::{Endpoint, PATHS, Shop, free};
use tap::Tap;
use tools::Tools;
use traces::{Spans, byte_equal};

pub use tools::missing;

use support::programs::Programs;
use support::workspace;

/// Length of the load in each phase.
const VISITS: Duration = Duration::from_secs(10);
/// Allowed increase of the response time with uview, as a factor: two runs without uview on a busy machine differ by as
/// much.
const LATER: f64 = 1.5;
/// Allowed increase in addition to the factor.
const LATER_BY: Duration = Duration::from_millis(10);
/// Limit for sent data to arrive: a batch is sent after 5 s, and a gRPC channel reconnects after up to 20 s.
const ARRIVES: Duration = Duration::from_mins(1);
/// Limit for arming the detectors; it takes 120 rows, 12 s, on an idle machine.
const ARMED: Duration = Duration::from_mins(2);
/// Time for learning the paths of operations: a batch is sent after 5 s, and paths are learnt from traces that have
/// been buffered for 10 s.
const LEARNING: Duration = Duration::from_secs(20);
/// Additional latency of payment during the fault.
const FAULT: Duration = Duration::from_millis(180);
/// Allowed number of repeated requests in a phase: a client whose response is lost sends the request again.
const MAX_REPEATED: usize = 4;
/// How long uview is down, each time.
const AWAY: Duration = Duration::from_secs(3);

/// Arguments of `cargo lab clients`.
#[derive(Debug, clap::Args)]
pub struct ClientsArgs {
    /// The program to test [default: a new build].
    #[arg(long, value_name = "FILE")]
    uview: Option<PathBuf>,
    /// Run the Rust service at this port.
    #[arg(long, hide = true)]
    service: Option<u16>,
}

/// Runs the tests, or the Rust service.
///
/// # Errors
///
/// A check failed, or a process did not start.
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

fn try_with(uview: &Path) -> Result<()> {
    let tools = Tools::install()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(play(uview, &tools))
}

/// All phases, while the shop runs.
async fn play(uview: &Path, tools: &Tools) -> Result<()> {
    let folder = workspace().join("target/clients/run");
    // The logs of the last run, if there was one.
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let [grpc, http] = free()?;
    let (endpoint, received) = (Endpoint { grpc, http }, MessageLog::default());
    let upstream = Receiver::at(anywhere(), received.clone()).await?;
    let agents = Agents::prepare(uview, &folder, upstream.address).await?;
    let direct = DirectReceivers::at(endpoint, &received).await?;
    let shop = Shop::open(tools, endpoint, &folder).await?;
    let mut testbed = Testbed { shop, agents, endpoint, received };

    let before = testbed.visited("before uview starts", VISITS).await?;
    direct.end().await;
    testbed.everything_arrives().await?;
    testbed.logs_follow_their_traces().await?;
    let between = testbed.fault_is_reported().await?;
    let killed = testbed.uview_dies().await?;
    let direct = DirectReceivers::at(endpoint, &testbed.received).await?;
    let after = testbed.visited("after uview has ended", VISITS).await?;
    direct.end().await;
    testbed.shop.runs()?;
    judge([&before, &after], [("uview is between", &between), ("uview is killed twice", &killed)])
}

const fn anywhere() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

/// Receivers at the addresses that uview will take over.
struct DirectReceivers([Receiver; 2]);

impl DirectReceivers {
    async fn at(endpoint: Endpoint, received: &MessageLog) -> Result<Self> {
        let Endpoint { grpc, http } = endpoint;
        Ok(Self([Receiver::at(grpc, received.clone()).await?, Receiver::at(http, received.clone()).await?]))
    }

    async fn end(self) {
        for receiver in self.0 {
            receiver.end().await;
        }
    }
}

/// The shop, the agents and the received data.
struct Testbed {
    shop: Shop,
    agents: Agents,
    endpoint: Endpoint,
    /// Messages at the upstream.
    received: MessageLog,
}

impl Testbed {
    /// Sends load for `length`, and waits until the trace of each request has arrived whole.
    async fn visited(&mut self, when: &str, length: Duration) -> Result<Outcome> {
        self.reached(unix_now().0).await.with_context(|| format!("{when}, spans do not arrive"))?;
        let since = unix_now().0;
        let outcome = load::visit(self.shop.frontend, length).await;
        let until = unix_now().0;
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

    /// Number of whole traces received of requests within this time.
    fn whole(&self, within: Range<u64>) -> Result<usize> {
        let spans = Spans::of(&self.received.all())?;
        Ok(spans.whole().iter().filter(|trace| within.contains(&trace.root.start_time_unix_nano)).count())
    }

    /// Waits until a whole trace of each path has arrived for a request after `since`. Returns how long that took.
    async fn reached(&mut self, since: u64) -> Result<Duration> {
        let clock = Stopwatch::start();
        for (route, _) in PATHS {
            loop {
                load::get(self.shop.frontend, route).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
                let spans = Spans::of(&self.received.all())?;
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

    /// Records what clients send, and compares it with the data at the upstream.
    async fn everything_arrives(&mut self) -> Result<()> {
        let [grpc, http] = free()?;
        let host = self.agents.host(Endpoint { grpc, http }, Traces::All).await?;
        let recorded = MessageLog::default();
        let witness = Receiver::at(anywhere(), recorded.clone()).await?;
        self.received.clear();
        let taps = [
            Tap::between(self.endpoint.grpc, grpc, witness.address).await?,
            Tap::between(self.endpoint.http, http, witness.address).await?,
        ];
        self.visited("uview is between and keeps all traces", VISITS).await?;
        let clock = Stopwatch::start();
        while let Err(error) = same(&self.received.all(), &recorded.all()) {
            if clock.elapsed() > ARRIVES {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("identical to what the clients sent: {}", same(&self.received.all(), &recorded.all())?);
        for tap in taps {
            tap.end().await;
        }
        host.kill();
        Ok(())
    }

    /// A fifth of all traces is kept. Log records of these arrive as clients sent them, and no others.
    async fn logs_follow_their_traces(&mut self) -> Result<()> {
        let [grpc, http] = free()?;
        let host = self.agents.host(Endpoint { grpc, http }, Traces::WithLogs).await?;
        let recorded = MessageLog::default();
        let witness = Receiver::at(anywhere(), recorded.clone()).await?;
        self.received.clear();
        let taps = [
            Tap::between(self.endpoint.grpc, grpc, witness.address).await?,
            Tap::between(self.endpoint.http, http, witness.address).await?,
        ];
        load::visit(self.shop.frontend, VISITS).await;
        let clock = Stopwatch::start();
        let outcome = loop {
            // Clients send a batch after up to five seconds, some when they reconnect.
            tokio::time::sleep(Duration::from_secs(1)).await;
            match logs::as_sent(&self.received.all(), &recorded.all()) {
                Err(error) if clock.elapsed() > ARRIVES => return Err(error),
                Err(_) => {}
                Ok(outcome) => break outcome,
            }
        };
        println!("uview keeps the logs of kept traces: {outcome}");
        for tap in taps {
            tap.end().await;
        }
        host.kill();
        Ok(())
    }

    /// With the default policies, payment becomes slow, and a trace with that reason is kept. Returns the response
    /// times before the fault.
    async fn fault_is_reported(&mut self) -> Result<Outcome> {
        let host = self.agents.host(self.endpoint, Traces::Matter).await?;
        let clock = Stopwatch::start();
        // The NIC agent may still count detectors of the previous host agent.
        while clock.elapsed() < LEARNING || self.agents.armed().await? < Shop::services() {
            load::visit(self.shop.frontend, Duration::from_secs(1)).await;
            let armed = self.agents.armed().await?;
            ensure!(clock.elapsed() < ARMED, "{armed} of {} services are watched", Shop::services());
        }
        let usual = load::visit(self.shop.frontend, VISITS).await;
        self.received.clear();
        load::get(self.shop.payment, &format!("/slow?ms={}", FAULT.as_millis())).await?;
        let clock = Stopwatch::start();
        let reason = loop {
            load::visit(self.shop.frontend, Duration::from_secs(1)).await;
            let spans = Spans::of(&self.received.all())?;
            let payment_reason = |trace: &traces::Trace<'_>| {
                let reason = trace
                    .reason()
                    .filter(|reason| reason.contains("payment: score ") && reason.contains(" ms, expected "))?;
                Some(reason.to_owned())
            };
            if let Some(reason) = spans.whole().iter().find_map(payment_reason) {
                break reason;
            }
            let reasons =
                || spans.traces().iter().filter_map(|trace| trace.reason().map(str::to_owned)).collect::<BTreeSet<_>>();
            ensure!(clock.elapsed() < ARRIVES, "no whole trace says why payment is slow, but for {:?}", reasons());
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
        self.reached(unix_now().0).await.context("before uview is killed, spans do not arrive")?;
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
        let after = self.reached(unix_now().0).await.context("after uview was killed and is back")?;
        println!(
            "uview was killed twice and is back: {:.1} s later new traces of all services arrive",
            after.as_secs_f64()
        );
        self.visited("after that", Duration::from_secs(5)).await?;
        host.kill();
        Ok(outcome)
    }
}

/// Compares metrics and logs byte by byte, spans one by one. Returns how many.
fn same(received: &[Message], sent: &[Message]) -> Result<String> {
    let metrics = byte_equal(received, sent, Signal::Metrics)?;
    let logs = byte_equal(received, sent, Signal::Logs)?;
    let (received, sent) = (Spans::of(received)?, Spans::of(sent)?);
    received.as_sent(&sent)?;
    let repeated = metrics.repeated + logs.repeated;
    let (metrics, logs) = (metrics.messages, logs.messages);
    ensure!(metrics > 0 && logs > 0, "{metrics} requests of metrics and {logs} of logs: clients have sent too little");
    // A lost response explains one or two, not many.
    ensure!(repeated <= MAX_REPEATED, "{repeated} requests of metrics and logs were sent or came more often than once");
    let spans = sent.count();
    Ok(format!(
        "{metrics} requests of metrics and {logs} of logs, byte for byte ({repeated} repeated), and {spans} spans"
    ))
}

/// Prints the response times, and checks them.
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
        ensure!(outcome.failed == 0, "{} requests failed while {when}", outcome.failed);
        let p99 = p99(outcome);
        ensure!(p99 <= bar, "p99 is {p99:?} while {when}, more than {bar:?}");
    }
    Ok(())
}
