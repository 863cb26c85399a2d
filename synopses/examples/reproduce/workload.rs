//! Synthetic traffic with known delays.

use std::f64::consts::TAU;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Says that an event is a response.
const RESPONSE: u32 = 1 << 31;

/// Requests and responses in the order of their times, and the true delays of the pairs in it.
pub struct Trace {
    events: Vec<(u64, u32)>,
    /// Delays in nanoseconds, in ascending order.
    pub delays: Vec<u64>,
    pub requests: usize,
    pub length_s: f64,
}

#[derive(Clone, Copy)]
pub enum Event {
    Request(u32),
    Response(u32),
}

impl Trace {
    pub fn events(&self) -> impl Iterator<Item = (u64, Event)> {
        self.events.iter().map(|&(at, id)| {
            let event = if id & RESPONSE == 0 { Event::Request(id) } else { Event::Response(id & !RESPONSE) };
            (at, event)
        })
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }
}

struct Source {
    random: ChaCha8Rng,
    events: Vec<(u64, u32)>,
    delays: Vec<(u64, u64)>,
    requests: u32,
}

impl Source {
    fn new(seed: u64) -> Self {
        Self { random: ChaCha8Rng::seed_from_u64(seed), events: Vec::new(), delays: Vec::new(), requests: 0 }
    }

    fn uniform(&mut self) -> f64 {
        self.random.random()
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// exp(µ + σ N).
    fn log_normal(&mut self, mu: f64, sigma: f64) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        (mu + sigma * radius * (TAU * self.uniform()).cos()).exp()
    }

    fn request(&mut self, at_ms: f64, delay_ms: Option<f64>) {
        let at = (at_ms * 1e6) as u64;
        self.events.push((at, self.requests));
        if let Some(delay) = delay_ms {
            let delay = (delay * 1e6) as u64;
            self.events.push((at + delay, self.requests | RESPONSE));
            self.delays.push((at + delay, delay));
        }
        self.requests += 1;
    }

    /// The trace with every response, also those after the last request.
    fn whole(mut self, end_ms: f64) -> Trace {
        self.events.sort_unstable();
        let mut delays: Vec<u64> = self.delays.iter().map(|(_, delay)| *delay).collect();
        delays.sort_unstable();
        Trace { events: self.events, delays, requests: self.requests as usize, length_s: end_ms / 1e3 }
    }

    /// The trace as a capture ends: without the responses after `end_ms`, whose pairs are not in it.
    fn cut(mut self, end_ms: f64) -> Trace {
        let end = (end_ms * 1e6) as u64;
        self.events.retain(|event| event.0 <= end);
        self.delays.retain(|(at, _)| *at <= end);
        self.whole(end_ms)
    }
}

/// Like the published trace of an ISP: 6.1 million requests in 11.4 s.
pub fn isp_like() -> Trace {
    let mut source = Source::new(1);
    let mut at = 0.0;
    for _ in 0..6_100_000 {
        at += source.exponential() * 11_400.0 / 6.1e6;
        let delay = source.log_normal(3.209, 1.302);
        let answered = source.uniform() < 0.13;
        source.request(at, answered.then_some(delay));
    }
    source.cut(at)
}

/// A million requests a second, two of five answered, log-uniform delays from 1 ms to `longest_ms`. It has all
/// responses: half a million of 1.25 million requests, as published.
pub fn log_uniform(requests: u32, longest_ms: f64) -> Trace {
    let mut source = Source::new(2);
    for number in 0..requests {
        let delay = (source.uniform() * longest_ms.ln()).exp();
        let answered = source.uniform() < 0.4;
        source.request(f64::from(number) / 1e3, answered.then_some(delay));
    }
    source.whole(f64::from(requests) / 1e3)
}

/// Bursts in which delays are six times as long.
pub fn bursts() -> Trace {
    let mut source = Source::new(3);
    let mut at = 0.0;
    while at < 10_000.0 {
        let burst = at % 1_000.0 < 100.0;
        at += source.exponential() / if burst { 2_000.0 } else { 200.0 };
        let delay = source.log_normal(20.0_f64.ln(), 0.8) * if burst { 6.0 } else { 1.0 };
        let answered = source.uniform() < 0.13;
        source.request(at, answered.then_some(delay));
    }
    source.cut(10_000.0)
}
