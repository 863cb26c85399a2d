//! A path with delay and loss: sends traffic over it, and compares the measurements with the path's parameters.
//! tests/rdma/vm/agents/netem.sh sets up the path.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use support::clock::Stopwatch;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Ports for datagrams and for connections.
const DATAGRAMS: u16 = 6_000;
const CONNECTIONS: u16 = 6_001;
/// Groups of datagrams per second.
const GROUPS: u32 = 100;
/// Timeout of a connection: its first packet may be lost once, not twice.
const PATIENCE: Duration = Duration::from_secs(4);
/// Allowed ranges of the measurements, as factors of the path's parameters. A guest with an emulated processor stalls
/// at times, which increases delays and deviations and never decreases them.
const DELAY: (f64, f64) = (0.97, 1.6);
const DEVIATION: (f64, f64) = (0.85, 4.0);
/// Allowed range of the loss, for some ten thousand packets.
const LOSS: (f64, f64) = (0.6, 1.4);
/// Required number of intervals of both agents.
const INTERVALS: usize = 5;

/// Parameters of the path in one direction.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Path {
    /// Mean and median delay in milliseconds.
    #[arg(long)]
    delay_ms: f64,
    /// Maximal deviation of the delay in milliseconds, uniformly distributed.
    #[arg(long)]
    jitter_ms: f64,
    /// Share of lost packets, 0 to 1.
    #[arg(long)]
    loss: f64,
}

/// Files with the measurements.
#[derive(Clone, Debug, clap::Args)]
pub struct Measured {
    #[command(flatten)]
    path: Path,
    /// Output of `uview synopsis fridge --json`.
    #[arg(long)]
    fridge: PathBuf,
    /// Logs of NIC agents, as JSON.
    #[arg(long)]
    logs: Vec<PathBuf>,
}

/// Results of one agent for the path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AgentResults {
    intervals: usize,
    mean_ms: f64,
    deviation_ms: f64,
    loss: f64,
}

fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Receives datagrams and connections forever.
///
/// # Errors
///
/// The ports are in use.
pub fn sink() -> Result<()> {
    block_on(async {
        let _datagrams = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DATAGRAMS)).await?;
        let connections = TcpListener::bind((Ipv4Addr::UNSPECIFIED, CONNECTIONS)).await?;
        loop {
            drop(connections.accept().await?);
        }
    })
}

/// Sends `per_second` datagrams per second to `to`, and opens connections one after the other, for `seconds`.
///
/// # Errors
///
/// No socket can be created, or sending fails.
pub fn send(to: IpAddr, seconds: f64, per_second: u32) -> Result<()> {
    block_on(async {
        let began = Stopwatch::start();
        let goes_on = || began.elapsed().as_secs_f64() < seconds;
        let datagrams = async {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
            let mut ticks = interval(Duration::from_secs(1) / GROUPS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut number = 0_u64;
            while goes_on() {
                ticks.tick().await;
                for _ in 0..per_second / GROUPS {
                    number += 1;
                    socket.send_to(&[number.to_be_bytes(); 8].concat(), (to, DATAGRAMS)).await?;
                }
            }
            anyhow::Ok(number)
        };
        let connections = async {
            let mut made = 0;
            while goes_on() {
                // Losses on the path may make a connection fail.
                let tried = timeout(PATIENCE, TcpStream::connect(SocketAddr::new(to, CONNECTIONS))).await;
                made += u64::from(matches!(tried, Ok(Ok(_))));
            }
            anyhow::Ok(made)
        };
        let (sent, made) = tokio::try_join!(datagrams, connections)?;
        println!("{sent} datagrams and {made} connections in {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    })
}

/// Prints the measurements and the path's parameters.
///
/// # Errors
///
/// They differ, or there are no measurements.
pub fn judge(measured: &Measured) -> Result<()> {
    let Measured { path, fridge, logs } = measured;
    let read = |file: &PathBuf| fs::read_to_string(file).with_context(|| file.display().to_string());
    let (median_ms, samples) = median(&serde_json::from_str(&read(fridge)?)?)?;
    println!("fridge: a median of {median_ms:.2} ms of {samples} handshakes; the path: {:.1} ms", path.delay_ms);
    let mut faults = within("the median of handshakes", median_ms, path.delay_ms, DELAY);
    for file in logs {
        let results = agent_results(&read(file)?)?;
        println!(
            "{}: in {} intervals a mean of {:.2} ms, a deviation of {:.2} ms, {:.2} % lost; the path: {:.1} ms, {:.2} ms, {:.2} %",
            file.display(),
            results.intervals,
            results.mean_ms,
            results.deviation_ms,
            results.loss * 100.0,
            path.delay_ms,
            path.deviation_ms(),
            path.loss * 100.0
        );
        faults.extend(within("the mean delay", results.mean_ms, path.delay_ms, DELAY));
        faults.extend(within("the deviation", results.deviation_ms, path.deviation_ms(), DEVIATION));
        faults.extend(within("the loss", results.loss, path.loss, LOSS));
    }
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}

impl Path {
    /// Standard deviation of the uniform distribution.
    fn deviation_ms(&self) -> f64 {
        self.jitter_ms / 3.0_f64.sqrt()
    }
}

/// An error if `found` / `expected` is not in `bar`.
fn within(what: &str, found: f64, expected: f64, bar: (f64, f64)) -> Vec<String> {
    // A NaN is not within anything.
    if (bar.0..=bar.1).contains(&(found / expected)) {
        return Vec::new();
    }
    vec![format!("{what} is {found:.4}, not {expected:.4} times {} to {}", bar.0, bar.1)]
}

/// The median in milliseconds, and the number of samples.
fn median(view: &Value) -> Result<(f64, u64)> {
    let quantiles = view["quantiles"].as_array().context("the fridge printed no quantiles")?;
    let half = quantiles.iter().find(|quantile| quantile["share"] == 0.5).context("the fridge printed no median")?;
    let median_ns = half["delay_ns"].as_f64().context("the fridge's median is no number")?;
    Ok((median_ns / 1e6, view["samples"].as_u64().unwrap_or(0)))
}

/// Results from the intervals of an agent's log without flags; ignores the flag for an unsynchronised clock.
fn agent_results(log: &str) -> Result<AgentResults> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // A guest's clock is not synchronised, but both ends have the same one.
    let trusted = |line: &Value| matches!(line["flags"].as_str(), Some("" | "unsynchronised"));
    let results = lines.filter(|line| line["message"] == "an interval was compared" && trusted(line));
    let all: Vec<[f64; 4]> = results
        .filter_map(|line| {
            let of = |name: &str| line[name].as_f64();
            Some([of("mean_ns")? / 1e6, of("deviation_ns")? / 1e6, of("lost")?, of("sent")?])
        })
        .collect();
    ensure!(all.len() >= INTERVALS, "{} intervals were compared without a doubt, {INTERVALS} are needed", all.len());
    let middle = |at: usize| {
        let mut values: Vec<f64> = all.iter().map(|row| row[at]).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let sum = |at: usize| all.iter().map(|row| row[at]).sum::<f64>();
    Ok(AgentResults { intervals: all.len(), mean_ms: middle(0), deviation_ms: middle(1), loss: sum(2) / sum(3) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(flags: &str, mean_ms: u64, lost: u64) -> String {
        format!(
            r#"{{"message":"an interval was compared","flags":"{flags}","mean_ns":{},"deviation_ns":3e6,"lost":{lost},"sent":1000}}"#,
            mean_ms * 1_000_000
        )
    }

    #[test]
    fn only_intervals_without_a_flag_count() {
        let good =
            [18, 19, 20, 21, 22].map(|mean| line(if mean == 20 { "unsynchronised" } else { "" }, mean, mean - 10));
        let good = good.join("\n");
        let lines = format!("{good}\nno JSON\n{{\"message\":\"other\"}}\n{}", line("partial", 900, 900));

        let results = agent_results(&lines).expect("there are enough");

        assert_eq!(results, AgentResults { intervals: 5, mean_ms: 20.0, deviation_ms: 3.0, loss: 0.01 });
        let few = super::agent_results(&line("", 20, 10)).expect_err("one is not enough");
        assert!(few.to_string().contains("1 intervals"), "{few}");
    }

    #[test]
    fn what_is_far_from_the_path_is_named() {
        assert!(within("it", 21.9, 20.0, DELAY).is_empty());
        assert_eq!(within("it", 19.0, 20.0, DELAY), ["it is 19.0000, not 20.0000 times 0.97 to 1.6"]);
        assert_eq!(within("it", 33.0, 20.0, DELAY).len(), 1);
        assert_eq!(within("it", f64::NAN, 20.0, DELAY).len(), 1);
    }

    #[test]
    fn the_median_is_that_of_the_fridge() {
        let view = serde_json::json!({"samples": 7, "quantiles": [
            {"share": 0.5, "delay_ns": 2.1e7}, {"share": 0.9, "delay_ns": 9e7},
        ]});

        assert_eq!(median(&view).expect("it is there"), (21.0, 7));
        assert!(median(&serde_json::json!({"quantiles": []})).is_err());
    }
}
