//! The liveness of a replica.

use wire::time::Nanos;

/// Fewest observations without a heartbeat before a replica is silent, however short the heartbeat's period.
const MIN_OBSERVATIONS: u32 = 2;

/// The liveness of one replica.
///
/// A replica is alive in an observation if one of its heartbeat words has changed; without any such word, if one of its
/// regions could be read. It is silent if it was not alive for `limit`, in at least two observations. Time counts from
/// the first observation, so a replica whose regions are still being attached is not judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Liveness {
    last_alive: Option<Nanos>,
    observations: u32,
    overdue: bool,
    silent: bool,
}

/// How an observation has changed the liveness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The liveness has not changed.
    None,
    /// The replica fell silent.
    FellSilent,
    /// The replica recovered.
    Recovered,
}

impl Liveness {
    /// Takes an observation at `now`; `alive` says whether the replica was alive in it.
    pub(crate) fn observe(&mut self, now: Nanos, alive: bool, limit: Nanos) -> Change {
        let since = *self.last_alive.get_or_insert(now);
        let length = now.since(since).unwrap_or_default();
        self.overdue = !alive && length >= Nanos(limit.0 / 2);
        if alive {
            self.last_alive = Some(now);
            self.observations = 0;
            return if core::mem::take(&mut self.silent) { Change::Recovered } else { Change::None };
        }
        self.observations = self.observations.saturating_add(1);
        if length >= limit && self.observations >= MIN_OBSERVATIONS && !self.silent {
            self.silent = true;
            return Change::FellSilent;
        }
        Change::None
    }

    /// Whether it was not alive for half of the limit at the last observation, and is not silent. Of three heartbeats
    /// that are one and a half: rows may come more often than heartbeats.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue && !self.silent
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Nanos = Nanos::from_millis(300);

    #[test]
    fn a_replica_is_silent_after_three_periods_and_recovers_with_the_next_heartbeat() {
        let mut replica = Liveness::default();
        let mut observation = |millis, alive| replica.observe(Nanos::from_millis(millis), alive, LIMIT);

        assert_eq!(observation(0, true), Change::None);
        assert_eq!(observation(100, false), Change::None);
        assert_eq!(observation(200, false), Change::None);
        assert_eq!(observation(300, false), Change::FellSilent);
        assert_eq!(observation(400, false), Change::None);
        assert_eq!(observation(500, true), Change::Recovered);
        assert_eq!(observation(600, true), Change::None);
    }

    #[test]
    fn a_heartbeat_is_overdue_after_one_and_a_half_periods_however_often_it_is_looked_for() {
        for every in [10, 50, 100] {
            let mut replica = Liveness::default();
            let mut overdue = |millis, alive| {
                _ = replica.observe(Nanos::from_millis(millis), alive, LIMIT);
                replica.is_overdue()
            };

            assert!(!overdue(0, true));
            let first = (every..300).step_by(every as usize).find(|millis| overdue(*millis, false));
            assert_eq!(first, Some(150_u64.next_multiple_of(every)), "every {every} ms");
            assert!(!overdue(300, false), "it is silent by then");
            assert!(!overdue(400, true) && !overdue(410, false));
        }
    }

    #[test]
    fn one_late_look_calls_nobody_silent() {
        let mut replica = Liveness::default();
        let mut observation = |millis, alive| replica.observe(Nanos::from_millis(millis), alive, LIMIT);

        assert_eq!(observation(0, true), Change::None);
        assert_eq!(observation(60_000, false), Change::None);
        assert_eq!(observation(120_000, false), Change::FellSilent);
    }

    #[test]
    fn time_counts_from_the_first_look() {
        let mut replica = Liveness::default();

        assert_eq!(replica.observe(Nanos::from_secs(500), false, LIMIT), Change::None);
        assert_eq!(replica.observe(Nanos::from_secs(500), false, LIMIT), Change::None);
        assert!(!replica.is_silent());
        assert_eq!(replica.observe(Nanos::from_secs(501), false, LIMIT), Change::FellSilent);
        assert!(replica.is_silent());
    }
}
