//! A slot, which holds one pending request.

use super::settings::Duplicates;

/// Marks a repeated request, which gives no sample with [`Duplicates::Discard`]. Fingerprints have 31 bits then.
const AMBIGUOUS: u32 = 1 << 31;
/// Differences from here on mean that the clock went back.
const BACKWARDS: u32 = 1 << 31;

/// A slot of 12 bytes. It is empty if its fingerprint is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) print: u32,
    pub(super) tick: u32,
    pub(super) stamp: u32,
}

/// The bits of a slot's first word that are the fingerprint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prints(u32);

impl Prints {
    pub(super) const fn new(duplicates: Duplicates) -> Self {
        Self(if matches!(duplicates, Duplicates::Discard) { !AMBIGUOUS } else { u32::MAX })
    }

    /// The fingerprint of some random bits, never 0.
    pub(super) const fn of(self, random: u32) -> u32 {
        let print = random & self.0;
        if print == 0 { 1 } else { print }
    }

    pub(super) const fn matches(self, slot: u32, print: u32) -> bool {
        slot & self.0 == print
    }

    pub(super) const fn ambiguous(self, slot: u32) -> bool {
        slot & !self.0 != 0
    }

    pub(super) const fn mark(self, slot: &mut u32) {
        *slot |= !self.0;
    }
}

/// Ticks between `then` and `now`, both modulo 2³²; `None` if the clock went back.
pub(super) const fn ticks_since(then: u32, now: u32) -> Option<u32> {
    let ticks = now.wrapping_sub(then);
    if ticks >= BACKWARDS { None } else { Some(ticks) }
}
