//! Requests to the shop at a steady rate, independent of responses (open loop), with their response times.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use support::clock::Stopwatch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Requests per second that keep a machine of two cores far from saturation.
const PER_SECOND: u32 = 20;
/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Paths of the requests, in turn.
const ROUTES: [&str; 2] = ["/pay", "/list"];

/// Response times and failures of requests.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Response times of successful requests from their due times, ascending.
    pub took: Vec<Duration>,
    /// Number of failed requests.
    pub failed: usize,
}

impl Outcome {
    pub const fn requests(&self) -> usize {
        self.took.len() + self.failed
    }

    /// The quantile of response times; zero without any.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let place = (self.took.len() as f64 * quantile).ceil() as usize;
        self.took.get(place.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub fn add(&mut self, other: Self) {
        self.took.extend(other.took);
        self.took.sort_unstable();
        self.failed += other.failed;
    }
}

/// Sends requests to the shop at `address` for `length`, and waits for the last responses.
pub async fn visit(address: SocketAddr, length: Duration) -> Outcome {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
    // A late request includes its lateness in its response time.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut visits, mut outcome, clock) = (JoinSet::new(), Outcome::default(), Stopwatch::start());
    let mut number: u32 = 0;
    let first = clock.elapsed();
    loop {
        let due = first + Duration::from_secs(1) / PER_SECOND * number;
        if due >= length {
            break;
        }
        ticks.tick().await;
        let route = ROUTES[number as usize % ROUTES.len()];
        visits.spawn(async move {
            let answered = get(address, route).await;
            (answered.is_ok(), clock.elapsed().saturating_sub(due))
        });
        number += 1;
    }
    while let Some(visit) = visits.join_next().await {
        match visit {
            Ok((true, took)) => outcome.took.push(took),
            _ => outcome.failed += 1,
        }
    }
    outcome.took.sort_unstable();
    outcome
}

/// Requests `path` from `address`, and returns the response.
///
/// # Errors
///
/// No response in time, or a status other than 200.
pub async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        let head = format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        let status = response.split(' ').nth(1).unwrap_or_default();
        ensure!(status == "200", "{path} at {address} returned status {status:?}");
        Ok(response)
    };
    tokio::time::timeout(PATIENCE, asking).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_what_so_many_took_at_most() {
        let took = (1..=200).map(Duration::from_millis).collect();
        let outcome = Outcome { took, failed: 3 };

        assert_eq!(outcome.quantile(0.99), Duration::from_millis(198));
        assert_eq!((outcome.quantile(1.0), outcome.requests()), (Duration::from_millis(200), 203));
        assert_eq!(Outcome::default().quantile(0.99), Duration::ZERO);
    }
}
