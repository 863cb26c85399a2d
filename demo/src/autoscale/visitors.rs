//! Requests to several replicas in turn, at a growing rate that does not depend on responses (open loop).

use core::net::SocketAddr;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use axum::http::Method;
use tokio::time::{Instant, sleep_until};

use crate::clock::runtime_now;
use crate::graph::{Errand, Service};
use crate::http::HttpClient;
use crate::noise::Noise;

const PATIENCE: Duration = Duration::from_secs(3);
/// Maximal requests in flight; further ones are not sent.
const AT_ONCE: u64 = 512;

/// The replicas that get requests, and the request rate.
#[derive(Debug)]
pub(super) struct Visitors {
    noise: Noise,
    targets: Vec<SocketAddr>,
    turn: usize,
    per_second: f64,
    /// Growth of the rate in requests per second, each second, and since when.
    growth: Option<(f64, Instant)>,
    sent: u64,
    failed: u64,
    in_flight: u64,
}

impl Visitors {
    pub(super) fn new(seed: u64, per_second: f64) -> Rc<RefCell<Self>> {
        let noise = Noise::new(seed, "visitors");
        let (targets, growth) = (Vec::new(), None);
        Rc::new(RefCell::new(Self { noise, targets, turn: 0, per_second, growth, sent: 0, failed: 0, in_flight: 0 }))
    }

    /// Adds a replica.
    pub(super) fn open(&mut self, target: SocketAddr) {
        self.targets.push(target);
    }

    /// From now on the rate grows by `growth` requests per second each second.
    pub(super) fn grow(&mut self, growth: f64) {
        self.growth = Some((growth, runtime_now()));
    }

    /// Requests sent, and how many of them failed.
    pub(super) fn sent(&self) -> (u64, u64) {
        (self.sent, self.failed)
    }

    fn rate(&self, now: Instant) -> f64 {
        let more = self.growth.map_or(0.0, |(growth, since)| growth * (now - since).as_secs_f64());
        self.per_second + more
    }

    /// The next request: its address, its path and query, and the time until the one after it.
    fn next(&mut self, now: Instant) -> Option<(SocketAddr, String, Duration)> {
        let gap = Duration::from_secs_f64(self.noise.exponential() / self.rate(now));
        let errand = if self.noise.uniform() < 0.35 { Errand::Buy } else { Errand::Browse };
        self.turn += 1;
        let target = *self.targets.get(self.turn % self.targets.len().max(1))?;
        Some((target, format!("{}?key={}", Service::Cart.path(errand), self.noise.number()), gap))
    }
}

/// Sends requests for as long as it is polled.
pub(super) async fn send(visitors: Rc<RefCell<Visitors>>) {
    let http = HttpClient::new(PATIENCE);
    let mut due = runtime_now();
    loop {
        sleep_until(due).await;
        let next = visitors.borrow_mut().next(due);
        let Some((target, path, gap)) = next else { return };
        due += gap;
        if visitors.borrow().in_flight >= AT_ONCE {
            continue;
        }
        visitors.borrow_mut().sent += 1;
        visitors.borrow_mut().in_flight += 1;
        let (http, visitors) = (http.clone(), visitors.clone());
        tokio::task::spawn_local(async move {
            let fine = http.request(Method::GET, target, &path).await.is_fine();
            let mut visitors = visitors.borrow_mut();
            visitors.in_flight -= 1;
            visitors.failed += u64::from(!fine);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn replicas_take_turns_and_the_load_grows_in_a_straight_line() {
        let visitors = Visitors::new(3, 20.0);
        let mut visitors = visitors.borrow_mut();
        let [one, two] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        visitors.open(one);
        visitors.open(two);
        let start = runtime_now();
        visitors.grow(2.0);

        let targets: Vec<_> = (0..4).filter_map(|_| visitors.next(start)).map(|(target, ..)| target).collect();

        assert_eq!(targets, [two, one, two, one]);
        assert_eq!(visitors.rate(start), 20.0);
        assert_eq!(visitors.rate(start + Duration::from_secs(30)), 80.0);
    }
}
