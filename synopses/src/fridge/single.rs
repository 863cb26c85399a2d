//! A single fridge.

use alloc::boxed::Box;
use alloc::vec;

use super::settings::{ALWAYS, Coin, Counter, Duplicates, Settings, SettingsError, threshold};
use super::slot::{Prints, Slot, ticks_since};
use super::tally::{Report, Tally};
use crate::digest::{Digest, Mixer, place};

/// A single fridge: M slots, each for one pending request. See the [module](super).
#[derive(Clone, Debug)]
pub struct Fridge {
    pub(super) settings: Settings,
    pub(super) slots: Box<[Slot]>,
    /// The insertion counter. Stamps are its lower half, which is correct for fewer than 2³² insertions between request
    /// and response.
    pub(super) insertions: u64,
    /// State of [`Coin::Random`].
    pub(super) coins: u64,
    pub(super) tally: Tally,
    threshold: u64,
    mixer: Mixer,
    flips: Mixer,
    prints: Prints,
    weighing: Weighing,
}

/// How samples of a fridge are weighted: all that is needed of it where a data plane takes the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighing {
    /// −ln p and −ln of the chance to survive one count.
    entry: f64,
    per_count: f64,
    tick_shift: u32,
}

impl Weighing {
    /// That of a fridge with these settings. Allocates nothing.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let settings = settings.checked()?;
        let (probability, slots) = (threshold(settings.probability)? as f64 / ALWAYS as f64, settings.slots as f64);
        let evicting = match settings.counter {
            Counter::Accepted => 1.0 / slots,
            Counter::Arrivals => probability / slots,
        };
        let (entry, per_count) = (-libm::log(probability), -libm::log1p(-evicting));
        Ok(Self { entry, per_count, tick_shift: settings.tick_shift })
    }

    /// The sample of a request that was answered after `ticks` and survived `insertions`. Counts it in `tally`.
    pub fn report(&self, ticks: u32, insertions: u32, tally: &mut Tally) -> Report {
        tally.matched += 1;
        let ln_weight = tally.clamped(self.ln_weight(insertions));
        let delay_ns = u64::from(ticks) << self.tick_shift;
        Report { fridge: 0, delay_ns, insertions, ln_weight, ln_total: ln_weight }
    }

    fn ln_weight(&self, insertions: u32) -> f64 {
        self.entry + f64::from(insertions) * self.per_count
    }
}

/// Numbers that follow from a fridge's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// p × 2³², from 1 to 2³².
    pub threshold: u64,
    /// The number that the seed became, from which slots, coins and fingerprints are derived.
    pub mixer: u64,
}

/// Slot, fingerprint and coin of a request.
struct Spot {
    index: usize,
    print: u32,
    coin: u32,
}

impl Fridge {
    /// An empty fridge.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let weighing = Weighing::new(settings)?;
        let threshold = threshold(settings.probability)?;
        Ok(Self {
            settings,
            slots: vec![Slot::default(); settings.slots].into_boxed_slice(),
            insertions: 0,
            coins: 0,
            tally: Tally::default(),
            threshold,
            mixer: Mixer::new(settings.seed, 1),
            flips: Mixer::new(settings.seed, 2),
            prints: Prints::new(settings.duplicates),
            weighing,
        })
    }

    /// The fridge's settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// p, rounded to a multiple of 2⁻³².
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.threshold as f64 / ALWAYS as f64
    }

    /// What a data plane needs beside the settings to do the same (`p4/fridge`).
    #[must_use]
    pub const fn constants(&self) -> Constants {
        Constants { threshold: self.threshold, mixer: self.mixer.constant() }
    }

    /// Counts of events so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Bytes of the slots.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Adds a request at `now_ns`, of a clock that does not go back. If it enters, it evicts the request in its slot.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.tally.requests += 1;
        let spot = self.spot(digest);
        let tick = self.tick(now_ns);
        let slot = self.slots[spot.index];
        if self.prints.matches(slot.print, spot.print) {
            self.insert_again(&spot, tick);
            return;
        }
        // A request that does not enter touches no slot, and counts as an arrival only.
        let enters = u64::from(self.coin(spot.coin)) < self.threshold;
        self.insertions += u64::from(enters || self.settings.counter == Counter::Arrivals);
        if enters {
            self.tally.admitted += 1;
            self.tally.evicted += u64::from(slot.print != 0);
            self.slots[spot.index] = Slot { print: spot.print, tick, stamp: self.insertions as u32 };
        }
    }

    /// A copy of a pending request. It is never counted, because it cannot evict another request.
    #[cold]
    fn insert_again(&mut self, spot: &Spot, tick: u32) {
        self.tally.duplicate_requests += 1;
        match self.settings.duplicates {
            Duplicates::Overwrite => {
                let enters = u64::from(self.coin(spot.coin)) < self.threshold;
                let slot = &mut self.slots[spot.index];
                // If the copy does not enter, the older one must not stay, or a request would have several chances.
                *slot = if enters {
                    Slot { print: slot.print, tick, stamp: self.insertions as u32 }
                } else {
                    Slot::default()
                };
            }
            Duplicates::KeepFirst => {}
            Duplicates::Discard => self.prints.mark(&mut self.slots[spot.index].print),
        }
    }

    /// Matches a response at `now_ns` with its request. Returns a sample if the request is still pending. Removes the
    /// request in any case.
    #[inline]
    pub fn match_response(&mut self, digest: Digest, now_ns: u64) -> Option<Report> {
        self.tally.responses += 1;
        let spot = self.spot(digest);
        let slot = self.slots[spot.index];
        if !self.prints.matches(slot.print, spot.print) {
            self.tally.unmatched += 1;
            return None;
        }
        self.slots[spot.index] = Slot::default();
        if self.prints.ambiguous(slot.print) {
            self.tally.ambiguous += 1;
            return None;
        }
        let Some(ticks) = ticks_since(slot.tick, self.tick(now_ns)) else {
            self.tally.clock_anomaly += 1;
            return None;
        };
        let insertions = (self.insertions as u32).wrapping_sub(slot.stamp);
        Some(self.weighing.report(ticks, insertions, &mut self.tally))
    }

    #[inline]
    fn spot(&self, digest: Digest) -> Spot {
        let random = self.mixer.mix(digest);
        Spot {
            index: place((random >> 32) as u32, self.slots.len() as u32) as usize,
            print: self.prints.of(self.mixer.fingerprint(digest)),
            coin: random as u32,
        }
    }

    #[inline]
    fn coin(&mut self, hashed: u32) -> u32 {
        match self.settings.coin {
            Coin::HashSplit => hashed,
            Coin::Random => {
                self.coins += 1;
                self.flips.mix_number(self.coins) as u32
            }
        }
    }

    const fn tick(&self, now_ns: u64) -> u32 {
        (now_ns >> self.settings.tick_shift) as u32
    }
}

#[cfg(test)]
mod tests;
