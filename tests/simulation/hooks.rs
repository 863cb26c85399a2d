//! Two hooks on one host agent: a quick one that takes everything at once, and a slow one that loses its oldest.

use std::collections::BTreeSet;

use host_agent::control_plane::Event;
use host_agent::dispatch::{Dispatch, Filter};
use wire::id::HookId;
use wire::time::Nanos;

const SLOW_QUEUE: usize = 4;
const SLOW_PAUSE: Nanos = Nanos::from_millis(400);

#[derive(Debug, Default)]
struct Account {
    taken: u64,
    lost: u64,
    last: u64,
}

/// Both hooks and what came of everything that was dispatched.
#[derive(Debug)]
pub struct Hooks {
    dispatch: Dispatch,
    quick: HookId,
    slow: HookId,
    offered: u64,
    accounts: [Account; 2],
    next: Nanos,
}

impl Hooks {
    pub fn new() -> Self {
        let mut dispatch = Dispatch::new(2);
        let all = || Filter { lmaps: BTreeSet::new(), min_share: 0.0 };
        let quick = dispatch.register(all(), 1024).expect("there is room");
        let slow = dispatch.register(all(), SLOW_QUEUE).expect("there is room");
        Self { dispatch, quick, slow, offered: 0, accounts: Default::default(), next: Nanos::ZERO }
    }

    pub fn dispatch(&mut self, event: Event) {
        self.offered += 1;
        self.dispatch.dispatch(event);
    }

    /// The quick hook takes all that waits, the slow one takes one now and then.
    pub fn step(&mut self, now: Nanos) {
        while self.take(0) {}
        assert_eq!(self.accounts[0].taken, self.offered, "a slow hook delays nobody");
        if self.next <= now {
            self.next = now.plus(SLOW_PAUSE);
            self.take(1);
        }
    }

    fn take(&mut self, which: usize) -> bool {
        let Some(taken) = self.dispatch.take([self.quick, self.slow][which]) else { return false };
        let account = &mut self.accounts[which];
        assert_eq!(taken.sequence, account.last + taken.lost + 1, "what is missing is said");
        account.taken += 1;
        account.lost += taken.lost;
        account.last = taken.sequence;
        true
    }

    /// Takes what still waits: all that was offered was taken or lost. Returns what the slow hook lost.
    pub fn close(mut self) -> u64 {
        while self.take(1) {}
        for account in &self.accounts {
            assert_eq!(account.taken + account.lost, self.offered, "every verdict is taken or counted as lost");
        }
        self.accounts[1].lost
    }
}
