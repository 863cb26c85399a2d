//! Two hooks on one host agent: a quick one that takes every verdict at once, and a slow one that loses its oldest.

use std::collections::BTreeSet;

use host_agent::control_plane::Event;
use host_agent::dispatch::{Dispatch, Filter};
use wire::id::HookId;
use wire::time::Nanos;

const SLOW_QUEUE: usize = 4;
const SLOW_PAUSE: Nanos = Nanos::from_millis(400);

#[derive(Debug, Default)]
struct HookLedger {
    taken: u64,
    lost: u64,
    last: u64,
}

/// Both hooks, with counts of all dispatched verdicts.
#[derive(Debug)]
pub struct Hooks {
    dispatch: Dispatch,
    quick: HookId,
    slow: HookId,
    offered: u64,
    ledgers: [HookLedger; 2],
    next: Nanos,
}

impl Hooks {
    pub fn new() -> Self {
        let mut dispatch = Dispatch::new(2);
        let all = || Filter { lmaps: BTreeSet::new(), min_share: 0.0, ..Filter::default() };
        let quick = dispatch.register(all(), 1024).expect("there is room");
        let slow = dispatch.register(all(), SLOW_QUEUE).expect("there is room");
        Self { dispatch, quick, slow, offered: 0, ledgers: Default::default(), next: Nanos::ZERO }
    }

    pub fn dispatch(&mut self, event: Event) {
        self.offered += 1;
        self.dispatch.dispatch(event);
    }

    /// The quick hook takes all queued verdicts, the slow one takes one from time to time.
    pub fn step(&mut self, now: Nanos) {
        while self.take(0) {}
        assert_eq!(self.ledgers[0].taken, self.offered, "a slow hook does not delay the quick one");
        if self.next <= now {
            self.next = now.plus(SLOW_PAUSE);
            self.take(1);
        }
    }

    fn take(&mut self, which: usize) -> bool {
        let Some(taken) = self.dispatch.take([self.quick, self.slow][which]) else { return false };
        let ledger = &mut self.ledgers[which];
        assert_eq!(taken.sequence, ledger.last + taken.lost + 1, "gaps in the sequence are reported as lost");
        ledger.taken += 1;
        ledger.lost += taken.lost;
        ledger.last = taken.sequence;
        true
    }

    /// Drains both queues, and checks that every verdict was taken or lost. Returns the slow hook's losses.
    pub fn close(mut self) -> u64 {
        while self.take(1) {}
        for ledger in &self.ledgers {
            assert_eq!(ledger.taken + ledger.lost, self.offered, "every verdict is taken or counted as lost");
        }
        self.ledgers[1].lost
    }
}
