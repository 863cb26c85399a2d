//! Whether a replica lives.

use wire::time::Nanos;

/// Looks without a sign of life below which nobody is called silent, however short the heartbeat's period.
const LEAST_LOOKS: u32 = 2;

/// What is known of one replica's life.
///
/// A replica gives a sign of life when one of its heartbeat words has changed; one without any such word, when one of its regions could
/// be read. It is silent when it gave none for `limit`, and in at least two looks. Time counts from the first look on, so that a replica
/// whose regions are still being attached is not judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Liveness {
    last_sign: Option<Nanos>,
    looks: u32,
    silent: bool,
}

/// What a look has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// It fell silent.
    FellSilent,
    /// It speaks again.
    Spoke,
}

impl Liveness {
    /// One look at `now`.
    pub(crate) fn look(&mut self, now: Nanos, sign: bool, limit: Nanos) -> Change {
        let since = *self.last_sign.get_or_insert(now);
        if sign {
            self.last_sign = Some(now);
            self.looks = 0;
            return if core::mem::take(&mut self.silent) { Change::Spoke } else { Change::None };
        }
        self.looks = self.looks.saturating_add(1);
        let overdue = now.since(since).is_some_and(|length| length >= limit) && self.looks >= LEAST_LOOKS;
        if overdue && !self.silent {
            self.silent = true;
            return Change::FellSilent;
        }
        Change::None
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
    fn a_replica_is_silent_after_three_periods_and_speaks_with_the_next_heartbeat() {
        let mut replica = Liveness::default();
        let mut look = |millis, sign| replica.look(Nanos::from_millis(millis), sign, LIMIT);

        assert_eq!(look(0, true), Change::None);
        assert_eq!(look(100, false), Change::None);
        assert_eq!(look(200, false), Change::None);
        assert_eq!(look(300, false), Change::FellSilent);
        assert_eq!(look(400, false), Change::None);
        assert_eq!(look(500, true), Change::Spoke);
        assert_eq!(look(600, true), Change::None);
    }

    #[test]
    fn one_late_look_calls_nobody_silent() {
        let mut replica = Liveness::default();
        let mut look = |millis, sign| replica.look(Nanos::from_millis(millis), sign, LIMIT);

        assert_eq!(look(0, true), Change::None);
        assert_eq!(look(60_000, false), Change::None);
        assert_eq!(look(120_000, false), Change::FellSilent);
    }

    #[test]
    fn time_counts_from_the_first_look() {
        let mut replica = Liveness::default();

        assert_eq!(replica.look(Nanos::from_secs(500), false, LIMIT), Change::None);
        assert_eq!(replica.look(Nanos::from_secs(500), false, LIMIT), Change::None);
        assert!(!replica.is_silent());
        assert_eq!(replica.look(Nanos::from_secs(501), false, LIMIT), Change::FellSilent);
        assert!(replica.is_silent());
    }
}
