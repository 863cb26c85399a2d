//! Several fridges, each for another range of delays.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::combination::MAX_FRIDGES;
use super::distribution::Sample;
use super::settings::{ALWAYS, Duplicates, SettingsError, slots, threshold, tick};
use super::slot::{Prints, ticks_since};
use super::tally::{Report, Tally};
use crate::digest::{Digest, Mixer, place};

/// Size and probability of one of several fridges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FridgeSpec {
    /// M, at least 2.
    pub slots: usize,
    /// p, above 0. The sum over all fridges is at most 1.
    pub probability: f64,
}

/// The stamp of a pending request. The counter of its own fridge is not enough, because a sample's weight needs its
/// chance in all fridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The number of all requests. 12 bytes per slot. Counts copies of requests that did not enter, too, although they
    /// evict nothing.
    Arrivals,
    /// The numbers of requests that entered each of N fridges. 8 + 4 N bytes per slot. Not affected by copies.
    Accepted,
}

/// Settings of [`Fridges`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The fridges, from 1 to 16.
    pub fridges: Vec<FridgeSpec>,
    /// The stamp of a pending request.
    pub stamp: Stamp,
    /// Handling of retransmitted requests.
    pub duplicates: Duplicates,
    /// A tick is 2^`tick_shift` nanoseconds, at most 2³².
    pub tick_shift: u32,
    /// Seed of slots and coins, a new one for each generation.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let fridges =
            vec![FridgeSpec { slots: 1 << 11, probability: 0.5 }, FridgeSpec { slots: 1 << 11, probability: 0.05 }];
        Self { fridges, stamp: Stamp::Arrivals, duplicates: Duplicates::Overwrite, tick_shift: 10, seed: 0 }
    }
}

/// One of several fridges, a section of the table.
#[derive(Clone, Copy, Debug)]
struct Shelf {
    /// Upper end of its range of coins. The range begins at the end of the previous fridge's.
    below: u64,
    base: u32,
    slots: u32,
    probability: f64,
    /// −ln of the chance to survive one count.
    per_count: f64,
}

/// Numbers that follow from the settings of [`Fridges`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Upper end of each fridge's range of coins, from 1 to 2³². It begins at the end of the one before, or at 0.
    pub below: Box<[u64]>,
    /// The number that the seed became, from which fridges, slots and fingerprints are derived.
    pub mixer: u64,
}

/// How samples of several fridges with [`Stamp::Arrivals`] are weighted, as by [`super::Combination::HtTotal`]: all
/// that is needed of the fridges where a data plane takes the samples.
#[derive(Clone, Debug)]
pub struct Weighing {
    shelves: Box<[Shelf]>,
    tick_shift: u32,
}

impl Weighing {
    /// That of these fridges, with a tick of 2^`tick_shift` nanoseconds.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the fridges or the tick are invalid.
    pub fn new(fridges: Vec<FridgeSpec>, tick_shift: u32) -> Result<Self, SettingsError> {
        tick(tick_shift)?;
        let shelves = shelves(&Settings { fridges, stamp: Stamp::Arrivals, ..Settings::default() })?;
        Ok(Self { shelves: shelves.into_boxed_slice(), tick_shift })
    }

    /// The probability with which a request enters one of the fridges.
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.shelves.iter().map(|shelf| shelf.probability).sum()
    }

    /// The sample of a request that was answered after `ticks` and survived `arrivals`, whichever fridge it was in.
    /// Counts it in `tally`.
    pub fn sample(&self, ticks: u32, arrivals: u32, tally: &mut Tally) -> Sample {
        tally.matched += 1;
        let ln_weight = tally.clamped(ln_total(&self.shelves, |_| arrivals));
        Sample { delay_ns: u64::from(ticks) << self.tick_shift, weight: libm::exp(ln_weight) }
    }
}

/// A pending request, without its stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingRequest {
    pub(super) print: u32,
    pub(super) tick: u32,
}

/// Several fridges in one table. A hash of the digest decides which one a request enters, if any. See the
/// [module](super).
#[derive(Clone, Debug)]
pub struct Fridges {
    pub(super) settings: Settings,
    shelves: Box<[Shelf]>,
    pub(super) pending: Box<[PendingRequest]>,
    /// `counters.len()` for each slot.
    pub(super) stamps: Box<[u32]>,
    /// One counter of arrivals, or one per fridge.
    pub(super) counters: Box<[u32]>,
    pub(super) tally: Tally,
    mixer: Mixer,
    prints: Prints,
}

struct Spot {
    shelf: usize,
    index: usize,
    print: u32,
}

impl Fridges {
    /// Empty fridges.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        tick(settings.tick_shift)?;
        let shelves = shelves(&settings)?;
        let all = shelves.iter().map(|shelf| shelf.slots as usize).sum::<usize>();
        slots(all)?;
        let counters = if settings.stamp == Stamp::Arrivals { 1 } else { shelves.len() };
        Ok(Self {
            pending: vec![PendingRequest::default(); all].into_boxed_slice(),
            stamps: vec![0; all * counters].into_boxed_slice(),
            counters: vec![0; counters].into_boxed_slice(),
            tally: Tally::default(),
            mixer: Mixer::new(settings.seed, 3),
            prints: Prints::new(settings.duplicates),
            shelves: shelves.into_boxed_slice(),
            settings,
        })
    }

    /// The fridges' settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The probabilities, rounded to multiples of 2⁻³².
    pub fn probabilities(&self) -> impl Iterator<Item = f64> {
        self.shelves.iter().map(|shelf| shelf.probability)
    }

    /// What a data plane needs beside the settings to do the same (`p4/fridges`).
    #[must_use]
    pub fn constants(&self) -> Constants {
        let below = self.shelves.iter().map(|shelf| shelf.below).collect();
        Constants { below, mixer: self.mixer.constant() }
    }

    /// Counts of events so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Bytes of slots, stamps and counters.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.pending) + size_of_val(&*self.stamps) + size_of_val(&*self.counters)
    }

    /// Adds a request at `now_ns`, of a clock that does not go back.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.tally.requests += 1;
        let arrivals = self.settings.stamp == Stamp::Arrivals;
        let Some(spot) = self.spot(digest) else {
            self.counters[0] = self.counters[0].wrapping_add(u32::from(arrivals));
            return;
        };
        let tick = self.tick(now_ns);
        let pending = self.pending[spot.index];
        if self.prints.matches(pending.print, spot.print) {
            // Not counted, because it cannot evict another request. By the hash, all copies of a request enter.
            self.tally.duplicate_requests += 1;
            match self.settings.duplicates {
                Duplicates::Overwrite => self.put(&spot, tick),
                Duplicates::KeepFirst => {}
                Duplicates::Discard => self.prints.mark(&mut self.pending[spot.index].print),
            }
            return;
        }
        let counter = if arrivals { 0 } else { spot.shelf };
        self.counters[counter] = self.counters[counter].wrapping_add(1);
        self.tally.admitted += 1;
        self.tally.evicted += u64::from(pending.print != 0);
        self.put(&spot, tick);
    }

    fn put(&mut self, spot: &Spot, tick: u32) {
        self.pending[spot.index] = PendingRequest { print: spot.print, tick };
        let from = spot.index * self.counters.len();
        self.stamps[from..from + self.counters.len()].copy_from_slice(&self.counters);
    }

    /// Matches a response at `now_ns` with its request. Returns a sample if the request is still pending. Removes the
    /// request in any case.
    #[inline]
    pub fn match_response(&mut self, digest: Digest, now_ns: u64) -> Option<Report> {
        self.tally.responses += 1;
        let is_pending = |spot: &Spot| self.prints.matches(self.pending[spot.index].print, spot.print);
        let Some(spot) = self.spot(digest).filter(is_pending) else {
            self.tally.unmatched += 1;
            return None;
        };
        let pending = core::mem::take(&mut self.pending[spot.index]);
        if self.prints.ambiguous(pending.print) {
            self.tally.ambiguous += 1;
            return None;
        }
        let Some(ticks) = ticks_since(pending.tick, self.tick(now_ns)) else {
            self.tally.clock_anomaly += 1;
            return None;
        };
        self.tally.matched += 1;
        Some(self.report(&spot, u64::from(ticks) << self.settings.tick_shift))
    }

    fn report(&mut self, spot: &Spot, delay_ns: u64) -> Report {
        let from = spot.index * self.counters.len();
        let stamps = &self.stamps[from..from + self.counters.len()];
        // With a counter of arrivals all fridges have the same x.
        let survived = |shelf: usize| {
            let counter = shelf.min(stamps.len() - 1);
            self.counters[counter].wrapping_sub(stamps[counter])
        };
        let insertions = survived(spot.shelf);
        let own = self.shelves[spot.shelf].ln_chance(insertions);
        let total = ln_total(&self.shelves, survived);
        let clamped = self.tally.weight_clamped;
        let ln_total = self.tally.clamped(total);
        let ln_weight = self.tally.clamped(-own);
        self.tally.weight_clamped = self.tally.weight_clamped.min(clamped + 1); // one sample, one count
        Report { fridge: spot.shelf as u8, delay_ns, insertions, ln_weight, ln_total }
    }

    #[inline]
    fn spot(&self, digest: Digest) -> Option<Spot> {
        let random = self.mixer.mix(digest);
        let coin = random & (ALWAYS - 1);
        let (shelf, found) = self.shelves.iter().enumerate().find(|(_, shelf)| coin < shelf.below)?;
        Some(Spot {
            shelf,
            index: (found.base + place((random >> 32) as u32, found.slots)) as usize,
            print: self.prints.of(self.mixer.fingerprint(digest)),
        })
    }

    const fn tick(&self, now_ns: u64) -> u32 {
        (now_ns >> self.settings.tick_shift) as u32
    }
}

impl Shelf {
    /// ln q, the chance to be there after so many counts.
    fn ln_chance(&self, survived: u32) -> f64 {
        libm::log(self.probability) - f64::from(survived) * self.per_count
    }
}

/// −ln Σ qₖ of a request that has survived so many counts in each fridge.
fn ln_total(shelves: &[Shelf], survived: impl Fn(usize) -> u32) -> f64 {
    let ln_chance = |(place, shelf): (usize, &Shelf)| shelf.ln_chance(survived(place));
    // Relative to the largest one, or all of them would underflow for long delays.
    let most = shelves.iter().enumerate().map(ln_chance).fold(f64::NEG_INFINITY, f64::max);
    let chances: f64 = shelves.iter().enumerate().map(|each| libm::exp(ln_chance(each) - most)).sum();
    -most - libm::log(chances)
}

fn shelves(settings: &Settings) -> Result<Vec<Shelf>, SettingsError> {
    if !(1..=MAX_FRIDGES).contains(&settings.fridges.len()) {
        return Err(SettingsError::Fridges(settings.fridges.len()));
    }
    let (mut sum, mut before, mut base) = (0.0, 0, 0_u32);
    let mut shelves = Vec::with_capacity(settings.fridges.len());
    for spec in &settings.fridges {
        let slots = slots(spec.slots)?;
        threshold(spec.probability)?;
        sum += spec.probability;
        // Sums of decimal fractions come out a little above 1.
        if sum > 1.0 + 1e-9 {
            return Err(SettingsError::Sum(settings.fridges.iter().map(|spec| spec.probability).sum()));
        }
        let below = (libm::round(sum * ALWAYS as f64) as u64).min(ALWAYS);
        if below == before {
            return Err(SettingsError::Probability(spec.probability));
        }
        let probability = (below - before) as f64 / ALWAYS as f64;
        let evicting = match settings.stamp {
            Stamp::Arrivals => probability / f64::from(slots),
            Stamp::Accepted => 1.0 / f64::from(slots),
        };
        shelves.push(Shelf { below, base, slots, probability, per_count: -libm::log1p(-evicting) });
        before = below;
        base += slots;
    }
    Ok(shelves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fridge::{Counter, Fridge, Settings as One};

    fn fridges(parts: &[(usize, f64)], stamp: Stamp) -> Result<Fridges, SettingsError> {
        let fridges = parts.iter().map(|&(slots, probability)| FridgeSpec { slots, probability }).collect();
        Fridges::new(Settings { fridges, stamp, tick_shift: 0, ..Settings::default() })
    }

    #[test]
    fn impossible_fridges_are_refused() {
        let refused = |parts: &[(usize, f64)]| fridges(parts, Stamp::Arrivals).err();

        assert_eq!(refused(&[]), Some(SettingsError::Fridges(0)));
        assert_eq!(refused(&[(8, 0.05); 17]), Some(SettingsError::Fridges(17)));
        assert_eq!(refused(&[(8, 0.75), (8, 0.5)]), Some(SettingsError::Sum(1.25)));
        assert_eq!(refused(&[(8, 0.75), (1, 0.25)]), Some(SettingsError::Slots(1)));
        assert_eq!(refused(&[(8, 0.75), (8, 0.0)]), Some(SettingsError::Probability(0.0)));
        assert_eq!(refused(&[(1 << 24, 0.5), (2, 0.5)]), Some(SettingsError::Slots((1 << 24) + 2)));
        // The sum of ten tenths is slightly above or below 1.
        assert_eq!(refused(&[(8, 0.1); 10]), None);
    }

    #[test]
    fn probabilities_are_those_of_the_intervals() {
        let fridges = fridges(&[(8, 0.3), (8, 0.03)], Stamp::Arrivals).expect("possible");

        let used: Vec<f64> = fridges.probabilities().collect();

        assert!((used[0] - 0.3).abs() < 1e-9 && (used[1] - 0.03).abs() < 1e-9, "{used:?}");
        assert_eq!(fridges.memory_bytes(), 16 * 12 + 4);
    }

    #[test]
    fn samples_that_are_taken_elsewhere_have_the_same_weights() {
        let parts = [(64, 0.5), (100, 0.03)];
        let mut fridges = fridges(&parts, Stamp::Arrivals).expect("possible");
        let specs = parts.map(|(slots, probability)| FridgeSpec { slots, probability });
        let weighing = Weighing::new(specs.to_vec(), 0).expect("possible");
        let (mut tally, mut samples) = (Tally::default(), 0);
        for number in 0..10_000 {
            fridges.insert(Digest(number), number);
            let report = number.checked_sub(40).and_then(|asked| fridges.match_response(Digest(asked), number));
            if let Some(report) = report {
                let sample = weighing.sample(report.delay_ns as u32, report.insertions, &mut tally);
                assert_eq!((sample.delay_ns, sample.weight), (report.delay_ns, report.total_weight()));
                samples += 1;
            }
        }

        assert!(samples > 1_000 && tally == Tally { matched: samples, ..Tally::default() }, "{samples}: {tally:?}");
        assert!((weighing.probability() - fridges.probabilities().sum::<f64>()).abs() < 1e-12);
        assert_eq!(*fridges.constants().below, [1 << 31, (0.53 * ALWAYS as f64).round() as u64]);
        assert_eq!(Weighing::new(Vec::new(), 0).err(), Some(SettingsError::Fridges(0)));
        assert_eq!(Weighing::new(specs.to_vec(), 33).err(), Some(SettingsError::Tick(33)));
    }

    #[test]
    fn one_of_one_is_a_single_fridge() {
        for (stamp, counter) in [(Stamp::Arrivals, Counter::Arrivals), (Stamp::Accepted, Counter::Accepted)] {
            let mut several = fridges(&[(64, 0.5)], stamp).expect("possible");
            let mut one =
                Fridge::new(One { slots: 64, probability: 0.5, counter, ..One::default() }).expect("possible");
            let (mut ours, mut single) = (Vec::new(), Vec::new());
            for number in 0..100_000 {
                several.insert(Digest(number), number);
                one.insert(Digest(number), number << 10);
                if let Some(asked) = number.checked_sub(64) {
                    ours.extend(several.match_response(Digest(asked), number));
                    single.extend(one.match_response(Digest(asked), number << 10));
                }
            }

            // Their hashes differ, so that only sums can be compared: both estimate 99,936.
            for weights in [&ours, &single].map(|reports| reports.iter().map(Report::total_weight).sum::<f64>()) {
                assert!((weights / 99_936.0 - 1.0).abs() < 0.05, "{stamp:?}: {weights}");
            }
            assert!(ours.iter().all(|report| (report.weight() / report.total_weight() - 1.0).abs() < 1e-12));
        }
    }

    #[test]
    fn a_copy_of_a_waiting_request_is_no_insertion() {
        for stamp in [Stamp::Arrivals, Stamp::Accepted] {
            let mut fridges = fridges(&[(64, 0.5), (64, 0.5)], stamp).expect("possible");
            fridges.insert(Digest(1), 100);
            fridges.insert(Digest(1), 350);

            assert_eq!(fridges.counters.iter().sum::<u32>(), 1);
            assert!(fridges.match_response(Digest(1), 400).is_some_and(|report| report.delay_ns == 50));
            assert_eq!(fridges.match_response(Digest(1), 400), None);
            let tally = fridges.tally();
            assert_eq!((tally.duplicate_requests, tally.matched, tally.unmatched), (1, 1, 1));
        }
    }

    #[test]
    fn a_very_long_wait_is_clamped_and_counted_once() {
        let mut fridges = fridges(&[(2, 0.5), (2, 0.5)], Stamp::Arrivals).expect("possible");
        fridges.insert(Digest(1), 0);
        fridges.counters[0] += 10_000;

        let report = fridges.match_response(Digest(1), 1).expect("still there");

        assert!((libm::log(report.total_weight()) - 60.0).abs() < 1e-9);
        assert_eq!(fridges.tally().weight_clamped, 1);
        fridges.insert(Digest(2), 5);
        assert_eq!(fridges.match_response(Digest(2), 4), None);
        assert_eq!(fridges.tally().clock_anomaly, 1);
    }
}
