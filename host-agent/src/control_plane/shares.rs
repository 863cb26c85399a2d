//! What each owner holds of the node: connections, services, series, regions, and how often it registers.

use std::collections::BTreeMap;

use agent_runtime::shares::{ShareError, Shares};
use wire::id::Owner;
use wire::layout::RegionSize;
use wire::name::ServiceName;
use wire::time::Nanos;

use super::refusal::{HelloRefusal, SeriesRefusal};
use super::replica::Replica;
use super::settings::Limits;

/// A bound of the node of which each owner has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    Connections,
    Services,
    Series,
    Regions,
    RegionBytes,
    Registrations,
    SeriesRegistrations,
}

impl Bound {
    /// All bounds, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Connections,
        Self::Services,
        Self::Series,
        Self::Regions,
        Self::RegionBytes,
        Self::Registrations,
        Self::SeriesRegistrations,
    ];

    /// Its value of the label `bound` in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Services => "services",
            Self::Series => "series",
            Self::Regions => "regions",
            Self::RegionBytes => "region_bytes",
            Self::Registrations => "registrations",
            Self::SeriesRegistrations => "series_registrations",
        }
    }
}

/// How long a refusal is shown in the status.
const SHOWN: Nanos = Nanos::from_secs(600);

/// What all owners hold. Whatever is refused is counted and kept for the status.
#[derive(Debug)]
pub struct NodeShares {
    connections: Shares<Owner>,
    services: Shares<Owner>,
    series: Shares<Owner>,
    regions: Shares<Owner>,
    region_bytes: Shares<Owner>,
    /// Replicas of each owner in each service: a service counts once for each of its owners.
    names: BTreeMap<(Owner, ServiceName), usize>,
    registrations: Rates,
    series_registrations: Rates,
    /// The time of the event that is being handled.
    now: Nanos,
    refused: BTreeMap<Bound, u64>,
    /// The last refusal of each bound, and when it was.
    last: BTreeMap<Bound, (Nanos, String)>,
}

impl NodeShares {
    pub const fn new(limits: &Limits) -> Self {
        let Limits { services, series, regions, region_bytes, .. } = *limits;
        Self {
            connections: Shares::new("service connections", "services.limits.connections", limits.connections as u64),
            services: Shares::new("services", "services.limits.services", services as u64),
            series: Shares::new("series", "services.limits.series", series as u64),
            regions: Shares::new("regions", "services.limits.regions", regions as u64),
            region_bytes: Shares::new("bytes of regions", "services.limits.region_bytes", region_bytes),
            names: BTreeMap::new(),
            registrations: Rates::new(limits.registrations_per_s, limits.connections),
            series_registrations: Rates::new(limits.series_per_s, series),
            now: Nanos::ZERO,
            refused: BTreeMap::new(),
            last: BTreeMap::new(),
        }
    }

    /// `owner` opens a connection.
    pub fn connect(&mut self, owner: Owner) -> Result<(), ShareError<Owner>> {
        let taken = self.connections.take(owner, 1);
        self.noted(Bound::Connections, taken)
    }

    /// A connection of `owner` is closed.
    pub fn disconnect(&mut self, owner: Owner) {
        self.connections.release(&owner, 1);
    }

    /// `owner` registers a replica of `service`.
    pub fn join(&mut self, owner: Owner, service: &ServiceName) -> Result<(), HelloRefusal> {
        let taken = self.registrations.take(self.now, owner);
        let taken = taken.map_err(|TooFast { limit, wait }| HelloRefusal::Rate { owner, limit, wait });
        self.noted(Bound::Registrations, taken)?;
        let key = (owner, service.clone());
        if !self.names.contains_key(&key) {
            let taken = self.services.take(owner, 1);
            self.noted(Bound::Services, taken)?;
        }
        *self.names.entry(key).or_default() += 1;
        Ok(())
    }

    /// A replica of `owner` has left, with all that it held but its regions, which workers may still read.
    pub fn leave(&mut self, owner: Owner, replica: &Replica) {
        self.series.release(&owner, replica.own_series());
        if let Some(ring) = replica.span_ring() {
            self.release_region(owner, ring);
        }
        let key = (owner, replica.service.clone());
        let Some(replicas) = self.names.get_mut(&key) else { return };
        *replicas -= 1;
        if *replicas == 0 {
            self.names.remove(&key);
            self.services.release(&owner, 1);
        }
    }

    /// Checks whether `owner` may register a region of `size`.
    pub fn check_region(&mut self, owner: Owner, size: RegionSize) -> Result<(), ShareError<Owner>> {
        let checked = self.regions.check(owner, 1);
        self.noted(Bound::Regions, checked)?;
        let checked = self.region_bytes.check(owner, size.bytes() as u64);
        self.noted(Bound::RegionBytes, checked)
    }

    /// `owner` has registered a region of `size`.
    pub fn add_region(&mut self, owner: Owner, size: RegionSize) {
        self.regions.add(owner, 1);
        self.region_bytes.add(owner, size.bytes() as u64);
    }

    /// A region of `owner` is dropped.
    pub fn release_region(&mut self, owner: Owner, size: RegionSize) {
        self.regions.release(&owner, 1);
        self.region_bytes.release(&owner, size.bytes() as u64);
    }

    /// `owner` registers a series, which counts as `weight`. One that it retires soon after costs work all the same:
    /// hence the rate.
    pub fn take_series(&mut self, owner: Owner, weight: u64) -> Result<(), SeriesRefusal> {
        let checked = self.series.check(owner, weight);
        self.noted(Bound::Series, checked)?;
        let taken = self.series_registrations.take(self.now, owner);
        let taken = taken.map_err(|TooFast { limit, wait }| SeriesRefusal::Rate { owner, limit, wait });
        self.noted(Bound::SeriesRegistrations, taken)?;
        self.series.add(owner, weight);
        Ok(())
    }

    /// The places of series that `owner` has retired are free again.
    pub fn release_series(&mut self, owner: Owner, series: u64) {
        self.series.release(&owner, series);
    }

    /// What was refused since the start, by bound.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Bound::ALL.into_iter().map(|bound| (bound.name(), self.refused.get(&bound).copied().unwrap_or(0)))
    }

    /// What all owners hold together of each bound but rates, and what there is of it.
    pub fn held(&self) -> [(Bound, u64, u64); 5] {
        let of = |bound, shares: &Shares<Owner>| (bound, shares.used(), shares.limit());
        [
            of(Bound::Connections, &self.connections),
            of(Bound::Services, &self.services),
            of(Bound::Series, &self.series),
            of(Bound::Regions, &self.regions),
            of(Bound::RegionBytes, &self.region_bytes),
        ]
    }

    /// Lines for the status: the last refusal of each bound. A flood of other problems does not push them out.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.last.iter().map(|(bound, (_, why))| {
            let refused = self.refused.get(bound).copied().unwrap_or(0);
            format!("refused over a share of {}, {refused} times since the start: {why}", bound.name())
        })
    }

    /// Sets the time of what follows.
    pub const fn set_time(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Forgets refusals that are no longer news.
    pub fn expire(&mut self, now: Nanos) {
        self.now = now;
        self.last.retain(|_, (at, _)| now.since(*at).is_none_or(|ago| ago < SHOWN));
    }

    /// Counts an error, and keeps it for the status.
    fn noted<E: core::error::Error>(&mut self, bound: Bound, outcome: Result<(), E>) -> Result<(), E> {
        if let Err(error) = &outcome {
            *self.refused.entry(bound).or_default() += 1;
            self.last.insert(bound, (self.now, error.to_string()));
        }
        outcome
    }
}

/// An owner registers faster than `limit` per second, and may do so again after `wait`.
#[derive(Debug)]
struct TooFast {
    limit: u32,
    wait: Nanos,
}

/// Token buckets, one for each owner that has registered lately.
#[derive(Debug)]
struct Rates {
    per_s: u32,
    /// Registrations that an owner may do at once: all that it can have, as after a restart of the agent.
    burst: u64,
    /// When each bucket is full again.
    full: BTreeMap<Owner, Nanos>,
}

impl Rates {
    const fn new(per_s: u32, burst: usize) -> Self {
        Self { per_s, burst: burst as u64, full: BTreeMap::new() }
    }

    /// Takes a token of `owner`.
    fn take(&mut self, now: Nanos, owner: Owner) -> Result<(), TooFast> {
        if !self.full.contains_key(&owner) {
            // Only then does the map grow.
            self.full.retain(|_, full| *full > now);
        }
        let token = Nanos(1_000_000_000 / u64::from(self.per_s.max(1)));
        let full = self.full.get(&owner).copied().unwrap_or(now).max(now).plus(token);
        let most = now.plus(Nanos(token.0.saturating_mul(self.burst.max(1))));
        if let Some(wait) = full.since(most).filter(|wait| *wait > Nanos::ZERO) {
            return Err(TooFast { limit: self.per_s, wait });
        }
        self.full.insert(owner, full);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Owner = Owner::User(1000);
    const BOB: Owner = Owner::User(1001);

    #[test]
    fn an_owner_registers_a_burst_and_then_at_its_rate_whatever_others_do() {
        let mut rates = Rates::new(10, 3);
        let mut at = |millis: u64, owner| rates.take(Nanos::from_millis(millis), owner).is_ok();

        assert_eq!([0, 0, 0, 0].map(|now| at(now, ALICE)), [true, true, true, false]);
        assert!(at(0, BOB));
        assert_eq!([99, 100, 150, 200, 10_000].map(|now| at(now, ALICE)), [false, true, false, true, true]);
        assert_eq!([10_000; 3].map(|now| at(now, ALICE)), [true, true, false]);
    }

    #[test]
    fn owners_without_debts_are_forgotten() {
        let mut rates = Rates::new(10, 3);
        for uid in 0..1000 {
            rates.take(Nanos::from_secs(u64::from(uid)), Owner::User(uid)).unwrap();
        }
        assert_eq!(rates.full.len(), 1);
    }
}
