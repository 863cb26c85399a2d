//! Helper processes: services, and a Prometheus-like scraper with its exporters. Each ends with its parent.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use support::clock::Stopwatch;

use super::metric_set::{self, COUNTERS, GAUGES, HISTOGRAMS, Noise};
use super::obvious;
use super::prometheus::{Exposition, Scraper};
use crate::rdma::{self, GuestProgram};

/// Interval of writes in busy services: each metric is written once per interval, 125 times per second.
const TURN: Duration = Duration::from_millis(8);

/// The kinds of helper processes.
#[derive(Debug, clap::Subcommand)]
pub enum Helper {
    /// Run a service with a hundred metrics.
    Service {
        /// Name of the service.
        #[arg(long)]
        name: String,
        /// Socket of the host agent for services.
        #[arg(long)]
        socket: PathBuf,
        /// Write every metric 125 times a second, not never.
        #[arg(long)]
        busy: bool,
    },
    /// Serve the hundred metrics of several services as Prometheus text; print the addresses as a line of JSON.
    Exporters {
        /// How many services.
        #[arg(long)]
        services: usize,
        /// Write every metric 125 times a second, not never.
        #[arg(long)]
        busy: bool,
    },
    /// Scrape these addresses; print an empty line after the first round, and the counts as a line of JSON at the end.
    Scraper {
        /// Milliseconds between two rounds.
        #[arg(long)]
        interval_ms: u32,
        /// How long to scrape, in seconds.
        #[arg(long)]
        seconds: u64,
        /// Maximal number of rounds.
        #[arg(long, default_value_t = u64::MAX)]
        rounds: u64,
        /// Addresses to scrape.
        addresses: Vec<SocketAddr>,
    },
    /// Read files of cgroups each second, as the obvious code does, for ever.
    CgroupReader {
        /// A file that names them, as JSON.
        #[arg(long)]
        list: PathBuf,
    },
    /// Run a program of `cargo lab rdma` in a virtual machine.
    Guest {
        #[command(subcommand)]
        part: GuestProgram,
    },
}

/// Counts of a scraper's rounds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rounds {
    /// Rounds that were done.
    pub done: u64,
    /// Skipped because earlier rounds took too long.
    pub late: u64,
}

/// Runs the helper process until it ends.
///
/// # Errors
///
/// It cannot start, or its parent has ended.
pub fn run(part: Helper) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    ensure!(getppid().is_some_and(|parent| parent.as_raw_nonzero().get() > 1), "the parent is gone");
    match part {
        Helper::Service { name, socket, busy } => service(&name, socket, busy),
        Helper::Exporters { services, busy } => exporters(services, busy),
        Helper::Scraper { interval_ms, seconds, rounds, addresses } => {
            let plan = Plan {
                interval: Duration::from_millis(interval_ms.into()),
                length: Duration::from_secs(seconds),
                rounds,
            };
            scraper(plan, &addresses)
        }
        Helper::CgroupReader { list } => obvious::read(&list),
        Helper::Guest { part } => rdma::be(part),
    }
}

/// Calls `write` on schedule, forever; only sleeps unless `busy`.
fn keep_writing(busy: bool, mut write: impl FnMut()) -> ! {
    let clock = Stopwatch::start();
    let mut turns = 0;
    loop {
        if !busy {
            std::thread::park();
            continue;
        }
        while TURN * turns < clock.elapsed() {
            write();
            turns += 1;
        }
        std::thread::sleep((TURN * turns).saturating_sub(clock.elapsed()));
    }
}

fn service(name: &str, socket: PathBuf, busy: bool) -> ! {
    let client = client::connect(client::Service::new(name).socket(socket));
    let counter = |at| {
        let (name, route) = metric_set::counter(at);
        client.counter(&name).label("route", &route).unit("{request}").register()
    };
    let counters: Vec<_> = (0..COUNTERS).map(counter).collect();
    let gauges: Vec<_> = (0..GAUGES).map(|at| client.gauge(&metric_set::gauge(at)).register()).collect();
    let histogram = |at| client.histogram(&metric_set::histogram(at)).unit("s").parts_per_unit(1000).register();
    let histograms: Vec<_> = (0..HISTOGRAMS).map(histogram).collect();
    let mut noise = Noise(u64::from(std::process::id()) | 1 << 40);
    keep_writing(busy, || {
        for counter in &counters {
            counter.add(noise.draw());
        }
        for gauge in &gauges {
            gauge.set(noise.draw() as f64);
        }
        for histogram in &histograms {
            histogram.observe(noise.draw());
        }
    })
}

fn exporters(services: usize, busy: bool) -> Result<()> {
    let expositions: Vec<_> = (0..services).map(|_| Arc::new(Exposition::new())).collect();
    let addresses: Vec<_> = expositions.iter().map(Exposition::serve).collect::<io::Result<_>>()?;
    println!("{}", serde_json::to_string(&addresses)?);
    let mut noise = Noise(1 << 40);
    keep_writing(busy, || expositions.iter().for_each(|exposition| exposition.write(&mut noise)))
}

/// Parameters of a scraper.
#[derive(Clone, Copy, Debug)]
struct Plan {
    interval: Duration,
    length: Duration,
    rounds: u64,
}

fn scraper(plan: Plan, addresses: &[SocketAddr]) -> Result<()> {
    let Plan { interval, length, rounds: most } = plan;
    let mut scrapers: Vec<_> = addresses.iter().map(|at| Scraper::connect(*at)).collect::<io::Result<_>>()?;
    let clock = Stopwatch::start();
    let (mut rounds, mut next) = (Rounds::default(), Duration::ZERO);
    while clock.elapsed() < length && rounds.done < most {
        std::thread::sleep(next.saturating_sub(clock.elapsed()));
        for scraper in &mut scrapers {
            scraper.request()?;
        }
        for scraper in &mut scrapers {
            let samples = scraper.read_response().context("a scrape")?;
            ensure!(samples >= COUNTERS + GAUGES + HISTOGRAMS, "{samples} samples only");
        }
        if rounds.done == 0 {
            println!();
            io::stdout().flush()?;
        }
        rounds.done += 1;
        // Absolute deadlines; missed rounds are counted and not repeated.
        let late = clock.elapsed().saturating_sub(next).as_nanos() / interval.as_nanos().max(1);
        rounds.late += late as u64;
        next += interval * (late as u32 + 1);
    }
    println!("{}", serde_json::to_string(&rounds)?);
    Ok(())
}
