//! ST-HLL: a HyperLogLog of which one register after the other is reset, so that registers have all ages up to 2W.

use alloc::boxed::Box;
use alloc::vec;

use super::distinct::{Cardinality, Estimate, EstimateError, MergeError, Tally, alike, same};
use super::hash::Splitter;
use super::ranges::{Count, alpha, inverse_power, likelihood, published, staggered};
use super::settings::{Age, Correction, Settings, SettingsError, StHllSettings};
use crate::digest::Digest;

/// ST-HLL and, if registers are skipped, ST-HLL+. See the [module](super).
#[derive(Clone, Debug)]
pub struct StHll {
    pub(super) settings: StHllSettings,
    splitter: Splitter,
    /// The largest rank since the reset. Register r is reset in each slot s with s mod m = r.
    pub(super) registers: Box<[u8]>,
    /// τ, nanoseconds of a slot.
    slot_ns: u64,
    /// The slot up to which registers are reset.
    pub(super) slot: u64,
    /// First time of the next slot.
    next_ns: u64,
    pub(super) tally: Tally,
}

/// A register as an estimate sees it.
#[derive(Clone, Copy, Debug)]
struct AgedRegister {
    /// Its age by m, in nanoseconds.
    share: f64,
    rank: u8,
}

impl StHll {
    /// An empty synopsis.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the settings are impossible.
    pub fn new(settings: StHllSettings) -> Result<Self, SettingsError> {
        let settings = settings.checked()?;
        let mut found = Self {
            splitter: Splitter::new(&settings.common),
            registers: vec![0; settings.common.registers].into_boxed_slice(),
            slot_ns: settings.slot_ns(),
            slot: 0,
            next_ns: 0,
            tally: Tally::default(),
            settings,
        };
        found.go_to(found.slot_of(settings.common.start_ns));
        Ok(found)
    }

    /// The synopsis' settings.
    #[must_use]
    pub const fn stagger(&self) -> &StHllSettings {
        &self.settings
    }

    /// The window in nanoseconds as it is: mτ/2, where τ is rounded up.
    #[must_use]
    pub const fn effective_window_ns(&self) -> u64 {
        (self.settings.common.registers as u64 / 2).saturating_mul(self.slot_ns)
    }

    /// The ranks of all registers. Register r was reset last in the latest slot s with s mod m = r.
    #[must_use]
    pub const fn ranks(&self) -> &[u8] {
        &self.registers
    }

    /// The slot up to which registers are reset, counted from the origin.
    #[must_use]
    pub const fn slot(&self) -> u64 {
        self.slot
    }

    /// What a data plane combines digests with by XOR before it mixes them (`p4/`); `None` for
    /// [`super::Hash::Ready32`].
    #[must_use]
    pub fn mixer(&self) -> Option<u64> {
        self.splitter.constant()
    }

    /// Resets the registers whose turn has come. Insertions and estimates need no call of it; a switch has a timer.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        let (slot, registers) = (self.slot_of(now_ns), self.registers.len() as u64);
        if slot - self.slot >= registers {
            self.registers.fill(0);
        } else {
            for reset in self.slot + 1..=slot {
                self.registers[(reset & (registers - 1)) as usize] = 0;
            }
        }
        self.go_to(slot);
    }

    const fn slot_of(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.settings.origin_ns) / self.slot_ns
    }

    /// Goes to a slot without touching the registers.
    pub(super) const fn go_to(&mut self, slot: u64) {
        self.slot = slot;
        let since_origin = slot.saturating_add(1).saturating_mul(self.slot_ns);
        self.next_ns = self.settings.origin_ns.saturating_add(since_origin);
    }

    /// First time of the current slot.
    const fn begins_ns(&self) -> u64 {
        self.settings.origin_ns + self.slot * self.slot_ns
    }

    /// The largest rank, for checks of decoded registers.
    pub(super) const fn most(&self) -> u8 {
        self.splitter.most()
    }

    /// Registers that are not skipped, the youngest first, as they are at a time that is not before the current slot.
    fn kept(&self, now_ns: u64) -> impl Iterator<Item = AgedRegister> + Clone {
        let (slot, registers, tau) = (self.slot_of(now_ns), self.registers.len(), self.slot_ns as f64);
        let lived = now_ns.saturating_sub(self.settings.common.start_ns) as f64;
        let since_reset = (now_ns - self.settings.origin_ns - slot * self.slot_ns) as f64;
        let offset = match self.settings.age {
            Age::Exact => since_reset,
            Age::EndOfSlot => tau,
            Age::MidSlot => tau / 2.0,
        };
        // Registers are a power of two, so that this is exact, and so are products with it.
        let part = 1.0 / registers as f64;
        // Slots that began since the last reset: their registers count as empty.
        let passed = u32::try_from(slot - self.slot).unwrap_or(u32::MAX);
        let (latest, mask) = (slot as u32, registers as u32 - 1);
        // A register that was reset `back` slots ago has seen these and the current one.
        (self.settings.skipped as u32..registers as u32).map(move |back| {
            let window_ns = (f64::from(back) * tau + offset).min(lived);
            let rank = if back < passed { 0 } else { self.registers[(latest.wrapping_sub(back) & mask) as usize] };
            AgedRegister { share: window_ns * part, rank }
        })
    }

    /// Items in the window.
    fn count(&self, now_ns: u64) -> Count {
        let (registers, window) = (self.registers.len(), self.effective_window_ns() as f64);
        let kept = registers - self.settings.skipped;
        if self.settings.correction == Correction::Likelihood {
            let terms = self.kept(now_ns).map(|one| (one.share * inverse_power(one.rank), one.rank > 0));
            return Count::of(likelihood(&terms) * window, super::Range::Middle);
        }
        let (mut sum, mut empty) = (0.0, 0);
        for one in self.kept(now_ns) {
            sum += one.share * inverse_power(one.rank);
            empty += usize::from(one.rank == 0);
        }
        if sum <= 0.0 {
            return Count::NONE;
        }
        let raw = alpha(registers) * kept as f64 / sum * window;
        match self.settings.correction {
            Correction::Published => published(raw, &self.settings.common, kept, empty),
            Correction::Staggered if empty == kept => Count::NONE,
            Correction::Staggered if empty > 0 => {
                let few = staggered(&self.kept(now_ns).map(|one| one.share), empty) * window;
                if few <= 5.0 * registers as f64 {
                    Count::of(few, super::Range::Small)
                } else {
                    Count::of(raw, super::Range::Middle)
                }
            }
            _ => Count::of(raw, super::Range::Middle),
        }
    }
}

impl Cardinality for StHll {
    #[inline]
    fn insert(&mut self, digest: Digest, now_ns: u64) {
        if now_ns >= self.next_ns {
            self.tick(now_ns);
        }
        let begins_ns = self.begins_ns();
        if now_ns < begins_ns {
            if begins_ns - now_ns > self.slot_ns {
                self.tally.dropped = self.tally.dropped.saturating_add(1);
                return;
            }
            self.tally.late = self.tally.late.saturating_add(1);
        }
        self.tally.inserted = self.tally.inserted.saturating_add(1);
        let (register, rank) = self.splitter.split(digest);
        let register = &mut self.registers[register];
        *register = rank.max(*register);
    }

    fn estimate(&self, now_ns: u64, window_ns: u64) -> Result<Estimate, EstimateError> {
        let (only_ns, effective_ns) = (self.settings.common.window_ns, self.effective_window_ns());
        if window_ns != only_ns && window_ns != effective_ns {
            return Err(EstimateError::FixedWindow { asked_ns: window_ns, only_ns });
        }
        let now_ns = now_ns.max(self.begins_ns());
        let Count { items, range, saturated } = self.count(now_ns);
        let warm = now_ns.saturating_sub(self.settings.common.start_ns) >= 2 * effective_ns;
        Ok(Estimate { count: items, rate: items * 1e9 / effective_ns as f64, range, saturated, warm })
    }

    fn settings(&self) -> &Settings {
        &self.settings.common
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn reset(&mut self, now_ns: u64) {
        let now_ns = now_ns.max(self.settings.origin_ns);
        self.settings.common.start_ns = now_ns;
        self.registers.fill(0);
        self.tally = Tally::default();
        self.go_to(self.slot_of(now_ns));
    }

    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        alike(&self.settings.common, &other.settings.common)?;
        same("origin in nanoseconds", self.settings.origin_ns, other.settings.origin_ns)?;
        if other.slot > self.slot {
            self.tick(other.begins_ns());
        }
        let (passed, mask) = (self.slot - other.slot, self.registers.len() as u64 - 1);
        for (register, (ours, theirs)) in (0..).zip(self.registers.iter_mut().zip(&other.registers)) {
            // What was reset since their last slot no longer counts.
            let is_reset = (self.slot.wrapping_sub(register) & mask) < passed;
            *ours = if is_reset { *ours } else { *theirs.max(ours) };
        }
        self.settings.common.start_ns = self.settings.common.start_ns.max(other.settings.common.start_ns);
        self.tally.add(other.tally);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.registers)
    }
}

#[cfg(test)]
mod tests;
