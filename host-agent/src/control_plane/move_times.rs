//! When LMAPs are next moved: to workers that have less to do, and off drained ones.

use wire::time::Nanos;

/// The times of the next moves; none if nothing is to be moved.
#[derive(Debug, Default)]
pub(super) struct MoveTimes {
    rebalance: Option<Nanos>,
    drain: Option<Nanos>,
}

impl MoveTimes {
    /// LMAPs are moved to workers that have less to do, and not before `at`: others may join until then.
    pub(super) fn rebalance_at(&mut self, at: Nanos) {
        self.rebalance = Some(self.rebalance.map_or(at, |before| before.max(at)));
    }

    /// Not all could be moved to workers that have less to do: again at `at`, unless a time is set.
    pub(super) fn rebalance_again(&mut self, at: Nanos) {
        self.rebalance.get_or_insert(at);
    }

    /// Whether LMAPs are to be moved to workers that have less to do by `now`. Then the time is over.
    pub(super) fn take_rebalance(&mut self, now: Nanos) -> bool {
        self.rebalance.take_if(|at| *at <= now).is_some()
    }

    /// LMAPs of drained workers are moved at `at`, or before.
    pub(super) fn drain_by(&mut self, at: Nanos) {
        self.drain = Some(self.drain.map_or(at, |before| before.min(at)));
    }

    /// Not all could be moved off drained workers: again at `at`, unless a time is set.
    pub(super) fn drain_again(&mut self, at: Nanos) {
        self.drain.get_or_insert(at);
    }

    /// Whether LMAPs of drained workers are to be moved by `now`. Then the time is over.
    pub(super) fn take_drain(&mut self, now: Nanos) -> bool {
        self.drain.take_if(|at| *at <= now).is_some()
    }

    /// The earlier of both times.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.rebalance.into_iter().chain(self.drain).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_worker_delays_a_rebalance_and_an_earlier_order_hastens_a_drain() {
        let mut times = MoveTimes::default();
        assert_eq!((times.next(), times.take_rebalance(Nanos::NEVER)), (None, false));

        times.rebalance_at(Nanos(5));
        times.rebalance_at(Nanos(7));
        times.rebalance_again(Nanos(1));
        times.drain_by(Nanos(9));
        times.drain_by(Nanos(8));
        times.drain_again(Nanos(2));

        assert_eq!(times.next(), Some(Nanos(7)));
        assert!(!times.take_rebalance(Nanos(6)) && times.take_rebalance(Nanos(7)) && !times.take_rebalance(Nanos(7)));
        assert!(!times.take_drain(Nanos(7)) && times.take_drain(Nanos(8)));
        assert_eq!(times.next(), None);
    }
}
