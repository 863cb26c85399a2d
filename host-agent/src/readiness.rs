//! Whether the agent is ready (`/readyz`): it can do its work, and those who were there before are there again.
//!
//! Ready means: a worker that takes LMAPs is connected and has acknowledged its configuration (one that is drained, or
//! about to end, takes none); and services that a previous run had are
//! back or gone. A run keeps no list of them. Their clients try again after 2.5 s at the latest, so that 3 s without a
//! new one say that all are back. Where services keep coming, 30 s since the start are enough. Once all are back, later
//! ones change nothing.

use core::sync::atomic::{AtomicBool, Ordering};

use wire::time::Nanos;

use crate::control_plane::WorkerReadiness;

/// Longer than a client's longest pause between two attempts to connect (2 s).
const QUIET: Nanos = Nanos::from_secs(3);
/// Time since the start after which nobody is waited for.
const LONGEST: Nanos = Nanos::from_secs(30);

/// What the node says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// It shuts down.
    pub(crate) draining: bool,
    /// Numbers of workers.
    pub(crate) workers: WorkerReadiness,
    /// Time since the start.
    pub(crate) now: Nanos,
    /// When the latest service connected; zero if none has.
    pub(crate) last_service: Nanos,
}

/// Remembers that the services of before are back.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    settled: AtomicBool,
}

impl Readiness {
    /// Why the agent is not ready; `None` if it is.
    pub(crate) fn missing(&self, facts: Facts) -> Option<&'static str> {
        let Facts { draining, workers, now, last_service } = facts;
        let quiet = now.since(last_service).is_some_and(|length| length >= QUIET);
        if quiet || now >= LONGEST {
            self.settled.store(true, Ordering::Relaxed);
        }
        if draining {
            Some("it shuts down")
        } else if workers.connected == 0 {
            Some("no worker is connected")
        } else if workers.taking == 0 {
            Some("every connected worker is drained or about to end")
        } else if workers.configured == 0 {
            Some("no worker has acknowledged its configuration")
        } else if !self.settled.load(Ordering::Relaxed) {
            Some("services of the previous run may still come back")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: WorkerReadiness = WorkerReadiness { connected: 1, taking: 1, configured: 1 };
    const READY: Facts =
        Facts { draining: false, workers: WORKERS, now: Nanos::from_secs(3), last_service: Nanos::ZERO };

    #[test]
    fn what_is_missing_is_named() {
        let missing = |facts| Readiness::default().missing(facts);

        assert_eq!(missing(READY), None);
        assert_eq!(missing(Facts { draining: true, ..READY }), Some("it shuts down"));
        let with = |connected, taking| {
            missing(Facts { workers: WorkerReadiness { connected, taking, configured: 0 }, ..READY })
        };
        assert_eq!(with(0, 0), Some("no worker is connected"));
        assert_eq!(with(1, 0), Some("every connected worker is drained or about to end"));
        assert_eq!(with(1, 1), Some("no worker has acknowledged its configuration"));
    }

    #[test]
    fn services_of_before_are_waited_for_until_none_has_come_for_a_while() {
        let at =
            |ms, last_ms| Facts { now: Nanos::from_millis(ms), last_service: Nanos::from_millis(last_ms), ..READY };
        let readiness = Readiness::default();
        let waits = Some("services of the previous run may still come back");

        assert_eq!(readiness.missing(at(2999, 0)), waits);
        assert_eq!(readiness.missing(at(5000, 2500)), waits);
        assert_eq!(readiness.missing(at(5500, 2500)), None);
        assert_eq!(readiness.missing(at(5600, 5600)), None, "a new service changes nothing");
        assert_eq!(Readiness::default().missing(at(29_999, 29_000)), waits);
        assert_eq!(Readiness::default().missing(at(30_000, 29_999)), None);
    }
}
