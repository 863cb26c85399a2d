//! Nodes where nothing goes wrong but what a test does.

use nic_agent::Fetching;

use super::*;

/// Interval of the LMAPs. A detector that learns anew takes 20 rows here, two seconds.
pub(super) const INTERVAL: Nanos = Nanos::from_millis(100);
/// Time until every model has been handed over: workers do that each second here.
pub(super) const HANDED_OVER: Nanos = Nanos::from_secs(2);
/// Time for a step to come.
pub(super) const WITHIN: Nanos = Nanos::from_secs(15);

/// A verdict of an armed detector.
#[derive(Debug)]
pub(super) struct Judgement {
    /// When the host agent dispatched it.
    pub(super) at: Nanos,
    pub(super) service: ServiceName,
    /// Time of its row, by the worker's wall clock.
    pub(super) row_unix_ns: u64,
}

impl World {
    /// A node where nothing goes wrong by itself: `services` services that are judged, two workers that read by
    /// `fetching`. Queue pairs break only with an agent.
    pub(super) fn quiet(fetching: Fetching, seed: u64, services: usize) -> Self {
        let mut world = Self::judged_by(fetching, seed, services, Nanos::from_secs(1));
        world.for_a_while(HANDED_OVER);
        world
    }

    /// One that reads shared memory, at the moment when all services are judged. Workers hand models over each
    /// `models_every`.
    pub(super) fn quiet_with(seed: u64, services: usize, models_every: Nanos) -> Self {
        Self::judged_by(Fetching::Memory, seed, services, models_every)
    }

    fn judged_by(fetching: Fetching, seed: u64, services: usize, models_every: Nanos) -> Self {
        // The lowest bits are of the workers' transports.
        let mut world = Self::new(seed << WORKERS | if fetching == Fetching::Memory { (1 << WORKERS) - 1 } else { 0 });
        world.is_quiet = true;
        world.fabric.be_quiet();
        world.workers.iter_mut().for_each(|end| end.node.delay_reads(true));
        world.models_every = models_every;
        world.interval = Interval::new(INTERVAL).expect("between a millisecond and an hour");
        world.host = Host::new(1, world.interval, 0.0, models_every, world.fabric.clone());
        world.host.is_quiet = true;
        world.host.control.want_verdicts_from(0.0);
        for at in 0..services {
            world.start_service(at);
        }
        let limit = world.now.plus(WITHIN);
        world.until("all are judged", limit, |world| (0..services).all(|at| world.is_judged(at, Nanos::ZERO)));
        world
    }

    pub(super) fn start_service(&mut self, at: usize) {
        self.replicas += 1;
        self.services[at].service = Some(Service::new(at as u64 % SERVICES, self.replicas, 4));
    }

    pub(super) fn until(&mut self, what: &str, limit: Nanos, fits: impl Fn(&Self) -> bool) {
        while !fits(self) {
            assert!(self.now < limit, "it does not come to this: {what}");
            self.step();
        }
    }

    pub(super) fn for_a_while(&mut self, length: Nanos) {
        let end = self.now.plus(length);
        while self.now < end {
            self.step();
        }
    }

    /// Whether the service at `at` was judged after `since`.
    pub(super) fn is_judged(&self, at: usize, since: Nanos) -> bool {
        let service = name(at as u64);
        self.judged.iter().rev().any(|judged| judged.at > since && judged.service == service)
    }

    /// The longest time without a verdict of the service at `at`, from its last one before `since` until now.
    pub(super) fn gap(&self, at: usize, since: Nanos) -> Nanos {
        let service = name(at as u64);
        let of = self.judged.iter().filter(|judged| judged.service == service).map(|judged| judged.at);
        let of: Vec<_> = of.chain([self.now]).collect();
        let after = of.windows(2).filter(|pair| pair[1] >= since);
        after.map(|pair| pair[1].since(pair[0]).unwrap_or(Nanos::ZERO)).max().unwrap_or(Nanos::NEVER)
    }

    /// The longest time between two judged rows of the service at `at` whose verdicts came after `since`.
    pub(super) fn row_gap(&self, at: usize, since: Nanos) -> Nanos {
        let service = name(at as u64);
        let of = self.judged.iter().filter(|judged| judged.at >= since && judged.service == service);
        let of: Vec<_> = of.map(|judged| judged.row_unix_ns).collect();
        of.windows(2).map(|pair| Nanos(pair[1].saturating_sub(pair[0]))).max().unwrap_or(Nanos::NEVER)
    }

    /// The worker of each service in the list.
    pub(super) fn placed(&self) -> Vec<u32> {
        self.host.control.list().lmaps.into_iter().map(|lmap| lmap.worker).collect()
    }
}
