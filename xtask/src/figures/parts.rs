//! What `agents-cpu` needs as processes of their own: services, and a Prometheus-like scraper with what it scrapes. Each ends with its
//! parent.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::hundred::{self, COUNTERS, GAUGES, HISTOGRAMS, Noise};
use super::prometheus::{Exposition, Scraper};
use crate::clock::Stopwatch;
use crate::rdma::{self, GuestPart};

/// Busy: every metric is written once per turn, 125 times a second.
const TURN: Duration = Duration::from_millis(8);

/// One of the processes.
#[derive(Debug, clap::Subcommand)]
pub enum Part {
    /// Be a service that registers a hundred metrics.
    Service {
        /// Its name.
        #[arg(long)]
        name: String,
        /// Where the host agent listens.
        #[arg(long)]
        socket: PathBuf,
        /// Write every metric 125 times a second, not never.
        #[arg(long)]
        busy: bool,
    },
    /// Expose the hundred metrics of so many services as Prometheus text; print the addresses as a line of JSON.
    Exporters {
        /// How many services.
        #[arg(long)]
        services: usize,
        /// Write every metric 125 times a second, not never.
        #[arg(long)]
        busy: bool,
    },
    /// Scrape these addresses for so long; print what came of it as a line of JSON after an empty one at the first round's end.
    Scraper {
        /// Milliseconds between two rounds.
        #[arg(long)]
        interval_ms: u32,
        /// How long.
        #[arg(long)]
        seconds: u64,
        /// So often at most.
        #[arg(long, default_value_t = u64::MAX)]
        rounds: u64,
        /// What to scrape.
        addresses: Vec<SocketAddr>,
    },
    /// Be one of the programs of `cargo xtask rdma` in a virtual machine.
    Guest {
        #[command(subcommand)]
        part: GuestPart,
    },
}

/// What became of a scraper's rounds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rounds {
    /// Done.
    pub done: u64,
    /// Left out since those before took too long.
    pub late: u64,
}

/// Is the part until it ends.
///
/// # Errors
///
/// It cannot be, or was left alone.
pub fn run(part: Part) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    ensure!(getppid().is_some_and(|parent| parent.as_raw_nonzero().get() > 1), "the parent is gone");
    match part {
        Part::Service { name, socket, busy } => service(&name, socket, busy),
        Part::Exporters { services, busy } => exporters(services, busy),
        Part::Scraper { interval_ms, seconds, rounds, addresses } => {
            let plan = Plan {
                interval: Duration::from_millis(interval_ms.into()),
                length: Duration::from_secs(seconds),
                rounds,
            };
            scraper(plan, &addresses)
        }
        Part::Guest { part } => rdma::be(part),
    }
}

/// Calls `write` as often as it should have been called by now, for ever; never, unless `busy`.
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
        let (name, route) = hundred::counter(at);
        client.counter(&name).label("route", &route).unit("{request}").register()
    };
    let counters: Vec<_> = (0..COUNTERS).map(counter).collect();
    let gauges: Vec<_> = (0..GAUGES).map(|at| client.gauge(&hundred::gauge(at)).register()).collect();
    let histogram = |at| client.histogram(&hundred::histogram(at)).unit("s").parts_per_unit(1000).register();
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

/// How a scraper scrapes.
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
            scraper.ask()?;
        }
        for scraper in &mut scrapers {
            let samples = scraper.take().context("a scrape")?;
            ensure!(samples >= COUNTERS + GAUGES + HISTOGRAMS, "{samples} samples only");
        }
        if rounds.done == 0 {
            println!();
            io::stdout().flush()?;
        }
        rounds.done += 1;
        // Absolute deadlines; what is missed is counted and not made up for.
        let late = clock.elapsed().saturating_sub(next).as_nanos() / interval.as_nanos().max(1);
        rounds.late += late as u64;
        next += interval * (late as u32 + 1);
    }
    println!("{}", serde_json::to_string(&rounds)?);
    Ok(())
}
