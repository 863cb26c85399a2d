//! The faults of the simulated shop: those of `uview demo`, and some of single operations.

use super::shop::{MILLI, SECOND, Scene, Service, mix};

/// A kind of fault, with the demo's amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Another process uses the processor: work takes three times as long.
    CpuHog,
    /// Every request takes 80 ms longer.
    Latency,
    /// 3 of 10 requests fail.
    Errors,
    /// Memory grows, and work takes up to six times as long.
    Leak,
    /// The service is stopped for the duration of the fault.
    Hang,
}

/// A planned fault with its times.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub name: &'static str,
    pub kind: Kind,
    pub service: Service,
    /// The only affected operation; `None` for all.
    pub operation: Option<&'static str>,
    /// Start in nanoseconds since the beginning.
    pub start: u64,
    /// End in nanoseconds since the beginning.
    pub end: u64,
}

/// Name, kind, service or [`ANY`], operation, seconds.
pub type PlannedFault = (&'static str, Kind, Service, Option<&'static str>, u64);
/// A service chosen by the seed.
pub const ANY: Service = Service::MAX;

/// Seconds between the starts of two faults, as in the publication's chapter 4.
pub const EVERY: u64 = 120;

/// All faults once after `from` nanoseconds. The seed determines their order and the service with the CPU hog.
pub fn plan(scene: &Scene, seed: u64, from: u64) -> Vec<Fault> {
    let mut order: Vec<usize> = (0..scene.plan.len()).collect();
    order.sort_by_key(|place| mix(seed ^ (*place as u64) << 40 ^ 0xF00D));
    let fault = |(slot, place): (usize, usize)| {
        let (name, kind, service, operation, lasts) = scene.plan[place];
        let drawn = mix(seed ^ 0xBEEF ^ (place as u64) << 32);
        let service = if service == ANY { (drawn >> 8) as usize % scene.services.len() } else { service };
        // A random time within twenty seconds.
        let start = from + slot as u64 * EVERY * SECOND + 20 * SECOND + drawn % (20 * SECOND);
        Fault { name, kind, service, operation, start, end: start + lasts * SECOND }
    };
    order.into_iter().enumerate().map(fault).collect()
}

impl Fault {
    /// Whether it affects `operation` of `service`.
    pub fn is_of(&self, service: Service, operation: &str) -> bool {
        self.service == service && self.operation.is_none_or(|only| only == operation)
    }

    pub fn is_on(&self, service: Service, operation: &str, now: u64) -> bool {
        self.is_of(service, operation) && (self.start..self.end).contains(&now)
    }

    /// Factor by which work takes longer.
    pub fn slower(&self, service: Service, operation: &str, now: u64) -> f64 {
        match self.kind {
            _ if !self.is_on(service, operation, now) => 1.0,
            Kind::CpuHog => 3.0,
            Kind::Leak => 1.0 + 5.0 * (now - self.start) as f64 / (self.end - self.start) as f64,
            Kind::Latency | Kind::Errors | Kind::Hang => 1.0,
        }
    }

    /// Additional delay of a request in nanoseconds.
    pub fn later(&self, service: Service, operation: &str, now: u64) -> u64 {
        if self.kind == Kind::Latency && self.is_on(service, operation, now) { 80 * MILLI } else { 0 }
    }

    /// The share of requests that fail.
    pub fn failing(&self, service: Service, operation: &str, now: u64) -> f64 {
        if self.kind == Kind::Errors && self.is_on(service, operation, now) { 0.3 } else { 0.0 }
    }
}
