//! TS-PCSA: a PCSA with a time stamp in place of each bit.

use core::ops::Range;

use super::cells::Cells;
use super::distinct::{Cardinality, Estimate, EstimateError, MergeError, Tally, alike, same, within};
use super::fresh::Comparison;
use super::hash::Splitter;
use super::ranges::{Count, probabilistic};
use super::settings::{Pruning, Rounding, Settings, SettingsError, TsPcsaSettings};
use crate::digest::Digest;

/// TS-PCSA and, with offsets, TS-PCSA+, for every window of at least four slots up to W. See the [module](super).
#[derive(Clone, Debug)]
pub struct TsPcsa {
    pub(super) settings: TsPcsaSettings,
    splitter: Splitter,
    /// K cells for each register, in turn: a flag in the lowest bit, above it the slot modulo 2ᵇ⁻¹.
    pub(super) cells: Cells,
    /// The cell for items of the latest time's slot.
    stamp: u32,
    /// First time with another stamp.
    next_ns: u64,
    /// First time at which an insertion has more to do than to write its stamp.
    due_ns: u64,
    pub(super) latest_ns: u64,
    pub(super) pruned_ns: u64,
    pub(super) tally: Tally,
}

/// For each register, the largest age in slots that is still in the window.
#[derive(Clone, Copy, Debug)]
struct AgeLimits {
    /// Whole slots, without an offset, and the rest as numerator of a fraction.
    whole: i64,
    rest: i128,
    denominator: i128,
    /// The offset of register j is j times `step`, less `half`; 0 without offsets.
    step: i128,
    half: i128,
}

impl AgeLimits {
    /// Below 0 if every age is too large.
    #[inline]
    fn of(&self, register: usize) -> i64 {
        // The offset is at most half a slot.
        let rest = self.rest + register as i128 * self.step - self.half;
        self.whole - i64::from(rest < 0) + i64::from(rest >= self.denominator)
    }

    /// The first of `registers` behind this one that has another limit. Limits never fall: there are at most three.
    fn end(&self, register: usize, registers: usize) -> usize {
        let limit = self.of(register);
        let (mut same, mut other) = (register, registers);
        while other - same > 1 {
            let middle = same.midpoint(other);
            if self.of(middle) == limit { same = middle } else { other = middle }
        }
        other
    }
}

impl TsPcsa {
    /// An empty synopsis.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the settings are impossible.
    pub fn new(settings: TsPcsaSettings) -> Result<Self, SettingsError> {
        let settings = settings.checked()?;
        let Settings { registers, start_ns, .. } = settings.common;
        let mut found = Self {
            splitter: Splitter::new(&settings.common),
            cells: Cells::new(registers * settings.positions, settings.bits),
            stamp: 0,
            next_ns: 0,
            due_ns: 0,
            latest_ns: start_ns,
            pruned_ns: start_ns,
            tally: Tally::default(),
            settings,
        };
        found.begin_slot(start_ns);
        Ok(found)
    }

    /// The synopsis' settings.
    #[must_use]
    pub const fn stamping(&self) -> &TsPcsaSettings {
        &self.settings
    }

    /// What a data plane combines digests with by XOR before it mixes them (`p4/`); `None` for
    /// [`super::Hash::Ready32`].
    #[must_use]
    pub fn mixer(&self) -> Option<u64> {
        self.splitter.constant()
    }

    /// Removes stale time stamps, at least every `prune_ns` with [`Pruning::ByTimer`]. After a longer time stale ones
    /// can no longer be told: all is forgotten, and [`Tally::overdue`] counts it. O(m K).
    pub fn prune(&mut self, now_ns: u64) {
        self.maintain(now_ns.max(self.latest_ns));
    }

    const fn slot_of(&self, now_ns: u64) -> u64 {
        now_ns / self.settings.slot_ns
    }

    /// The slot that ages are counted from: one later than the current one, since times are rounded up, too.
    const fn reference(&self, now_ns: u64) -> u64 {
        self.slot_of(now_ns).saturating_add(1)
    }

    fn rounded(&self, time_ns: u64) -> u64 {
        let slot_ns = self.settings.slot_ns;
        match self.settings.rounding {
            Rounding::Closest => ((2 * u128::from(time_ns) + u128::from(slot_ns)) / (2 * u128::from(slot_ns))) as u64,
            Rounding::Down => time_ns / slot_ns,
            Rounding::Up => time_ns.div_ceil(slot_ns),
        }
    }

    /// 2ᵇ⁻¹ − 1.
    const fn slot_mask(&self) -> u32 {
        (1 << (self.settings.bits - 1)) - 1
    }

    const fn stamp_of(&self, slot: u64) -> u32 {
        (slot as u32 & self.slot_mask()) << 1 | 1
    }

    /// Age in slots before the reference; `None` for a cell without an item.
    #[inline]
    const fn age(&self, cell: u32, reference: u64) -> Option<u32> {
        if cell & 1 == 1 { Some((reference as u32).wrapping_sub(cell >> 1) & self.slot_mask()) } else { None }
    }

    /// Whether a cell's age is within the limit.
    #[inline]
    fn is_fresh(&self, cell: u32, reference: u64, limit: i64) -> bool {
        self.age(cell, reference).is_some_and(|age| i64::from(age) <= limit)
    }

    /// Takes the stamp of a time.
    #[cold]
    pub(super) fn begin_slot(&mut self, now_ns: u64) {
        let (slot, slot_ns) = (self.rounded(now_ns), self.settings.slot_ns);
        self.stamp = self.stamp_of(slot);
        let begins_ns = slot.saturating_mul(slot_ns);
        self.next_ns = match self.settings.rounding {
            Rounding::Closest => begins_ns.saturating_add(slot_ns - slot_ns / 2),
            Rounding::Down => begins_ns.saturating_add(slot_ns),
            Rounding::Up => begins_ns.saturating_add(1),
        };
        self.due_ns = self.next_ns.min(self.pruned_ns.saturating_add(self.settings.prune_ns).saturating_add(1));
    }

    /// Prunes, or takes the next stamp, before an item that is not before the latest time. So long a pause that slot
    /// numbers may have come round is longer than a slot, and ends behind `due_ns`.
    #[cold]
    fn catch_up(&mut self, now_ns: u64) {
        let Settings { window_ns, .. } = self.settings.common;
        let is_pause = now_ns - self.latest_ns > window_ns + self.settings.slot_ns;
        if now_ns - self.pruned_ns > self.settings.prune_ns || is_pause && self.settings.pruning == Pruning::OnInsert {
            self.maintain(now_ns);
        } else {
            self.begin_slot(now_ns);
        }
    }

    /// The limits of age at a time for a window. An item counts if its slot, plus its register's offset of −τ/2 to τ/2,
    /// is not before the window.
    fn limits(&self, now_ns: u64, window_ns: u64) -> AgeLimits {
        let (slot_ns, doubled) = (i128::from(self.settings.slot_ns), 2 * (self.settings.common.registers as i128 - 1));
        let since = i128::from(self.reference(now_ns)) * slot_ns - i128::from(now_ns) + i128::from(window_ns);
        let (numerator, denominator) = (doubled * since, doubled * slot_ns);
        let (step, half) = if self.settings.offsets { (2 * slot_ns, doubled / 2 * slot_ns) } else { (0, 0) };
        let whole = numerator.div_euclid(denominator) as i64;
        AgeLimits { whole, rest: numerator.rem_euclid(denominator), denominator, step, half }
    }

    /// Removes what is stale at a time that is not before the latest one.
    #[cold]
    fn maintain(&mut self, now_ns: u64) {
        let window_ns = self.settings.common.window_ns;
        match self.settings.pruning {
            Pruning::ByTimer if now_ns - self.pruned_ns > self.settings.prune_ns => {
                self.cells.clear();
                self.tally.overdue = self.tally.overdue.saturating_add(1);
            }
            // Nothing of the window is left, and slot numbers may have come round.
            Pruning::OnInsert if now_ns - self.latest_ns > window_ns + self.settings.slot_ns => self.cells.clear(),
            _ => {
                let (limits, reference) = (self.limits(now_ns, window_ns), self.reference(now_ns));
                for register in 0..self.settings.common.registers {
                    let limit = limits.of(register);
                    for at in self.positions(register) {
                        if !self.is_fresh(self.cells.get(at), reference, limit) {
                            self.cells.set(at, 0);
                        }
                    }
                }
            }
        }
        (self.pruned_ns, self.latest_ns) = (now_ns, now_ns);
        self.begin_slot(now_ns);
    }

    /// Sets the cells that are fresh at the latest time. False if a slot is later than that allows.
    pub(super) fn set_slots(&mut self, slots: &[Option<u64>]) -> bool {
        let (window_ns, reference) = (self.settings.common.window_ns, self.reference(self.latest_ns));
        let limits = self.limits(self.latest_ns, window_ns);
        for (at, slot) in slots.iter().enumerate().filter_map(|(at, slot)| Some((at, (*slot)?))) {
            let Some(age) = reference.checked_sub(slot) else { return false };
            if i64::try_from(age).is_ok_and(|age| age <= limits.of(at / self.settings.positions)) {
                self.cells.set(at, self.stamp_of(slot));
            }
        }
        true
    }

    /// The cells of a register.
    const fn positions(&self, register: usize) -> Range<usize> {
        let first = register * self.settings.positions;
        first..first + self.settings.positions
    }

    /// The cell of an item.
    #[inline]
    fn cell(&self, digest: Digest) -> usize {
        let (register, rank) = self.splitter.split(digest);
        register * self.settings.positions + usize::from(rank).min(self.settings.positions) - 1
    }

    /// An item from before the latest time: a newer stamp stays.
    #[cold]
    fn insert_late(&mut self, digest: Digest, time_ns: u64) {
        if self.latest_ns - time_ns > self.settings.common.window_ns {
            self.tally.dropped = self.tally.dropped.saturating_add(1);
            return;
        }
        self.tally.late = self.tally.late.saturating_add(1);
        self.tally.inserted = self.tally.inserted.saturating_add(1);
        let (at, stamp) = (self.cell(digest), self.stamp_of(self.rounded(time_ns)));
        let reference = self.reference(self.latest_ns);
        let age = |cell| self.age(cell, reference);
        if age(self.cells.get(at)).is_none_or(|there| age(stamp).is_some_and(|new| new < there)) {
            self.cells.set(at, stamp);
        }
    }

    /// Runs of fresh positions of all registers together, and the number of registers with no fresh position.
    pub(super) fn runs(&self, now_ns: u64, window_ns: u64) -> (u64, usize) {
        let (limits, reference) = (self.limits(now_ns, window_ns), self.reference(now_ns));
        let registers = self.settings.common.registers;
        let (mut runs, mut empty, mut begin) = (0, 0, 0);
        while begin < registers {
            let end = limits.end(begin, registers);
            let (more, none) = self.runs_of(begin..end, reference, limits.of(begin));
            (runs, empty, begin) = (runs + more, empty + none, end);
        }
        (runs, empty)
    }

    /// The same of these registers, which have one limit. Positions are compared side by side, as many as fit.
    fn runs_of(&self, Range { start, end }: Range<usize>, reference: u64, limit: i64) -> (u64, usize) {
        let TsPcsaSettings { positions, bits, .. } = self.settings;
        let Ok(largest) = u64::try_from(limit) else { return (0, end - start) };
        let comparison = Comparison::new(bits, positions, reference, largest);
        let words = (start..end).map(|register| self.cells.bits_from(register * positions));
        let fields = comparison.fields();
        if fields == positions {
            return comparison.runs(words);
        }
        let is_fresh = |at: &usize| self.is_fresh(self.cells.get(*at), reference, limit);
        let (mut places, mut runs, mut empty) = (0, 0, 0);
        for (register, word) in (start..end).zip(words) {
            let (fresh, first) = (comparison.fresh(word), register * positions);
            places += comparison.place(fresh);
            if fresh == 0 {
                empty += usize::from(!(first + fields..first + positions).any(|at| is_fresh(&at)));
            } else if fresh == comparison.ones() {
                runs += (first + fields..first + positions).take_while(is_fresh).count() as u64;
            }
        }
        (runs + places / u64::from(bits), empty)
    }
}

impl Cardinality for TsPcsa {
    #[inline]
    fn insert(&mut self, digest: Digest, now_ns: u64) {
        if now_ns < self.latest_ns {
            self.insert_late(digest, now_ns);
            return;
        }
        if now_ns >= self.due_ns {
            self.catch_up(now_ns);
        }
        self.latest_ns = now_ns;
        self.tally.inserted = self.tally.inserted.saturating_add(1);
        let at = self.cell(digest);
        self.cells.set(at, self.stamp);
    }

    fn estimate(&self, now_ns: u64, window_ns: u64) -> Result<Estimate, EstimateError> {
        let TsPcsaSettings { common, slot_ns, pruning, prune_ns, .. } = self.settings;
        within(window_ns, 4 * slot_ns, common.window_ns)?;
        let now_ns = now_ns.max(self.latest_ns);
        let since_ns = now_ns - self.pruned_ns;
        if pruning == Pruning::ByTimer && since_ns > prune_ns {
            return Err(EstimateError::Overdue { since_ns, most_ns: prune_ns });
        }
        let count = if now_ns - self.latest_ns > common.window_ns + slot_ns {
            Count::NONE
        } else {
            let (runs, empty) = self.runs(now_ns, window_ns);
            probabilistic(runs, common.registers, empty)
        };
        Ok(Estimate {
            count: count.items,
            rate: count.items * 1e9 / window_ns as f64,
            range: count.range,
            saturated: false,
            warm: now_ns.saturating_sub(common.start_ns) >= window_ns,
        })
    }

    fn settings(&self) -> &Settings {
        &self.settings.common
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn reset(&mut self, now_ns: u64) {
        self.settings.common.start_ns = now_ns;
        (self.latest_ns, self.pruned_ns) = (now_ns, now_ns);
        self.cells.clear();
        self.tally = Tally::default();
        self.begin_slot(now_ns);
    }

    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        let (ours, theirs) = (&self.settings, &other.settings);
        alike(&ours.common, &theirs.common)?;
        same("positions", ours.positions as u64, theirs.positions as u64)?;
        same("nanoseconds of a slot", ours.slot_ns, theirs.slot_ns)?;
        same("rounding", ours.rounding as u64, theirs.rounding as u64)?;
        if other.latest_ns > self.latest_ns {
            self.maintain(other.latest_ns);
        }
        let (reference, there) = (self.reference(self.latest_ns), other.reference(other.latest_ns));
        let limits = self.limits(self.latest_ns, self.settings.common.window_ns);
        for register in 0..self.settings.common.registers {
            for at in self.positions(register) {
                let Some(age) = other.age(other.cells.get(at), there) else { continue };
                // As old as it is by our time; too old if even the difference is.
                let age = u64::from(age).saturating_add(reference - there);
                let is_fresh = i64::try_from(age).is_ok_and(|age| age <= limits.of(register));
                let is_newer = self.age(self.cells.get(at), reference).is_none_or(|ours| age < u64::from(ours));
                if is_fresh && is_newer {
                    let stamp = self.stamp_of(reference.wrapping_sub(age));
                    self.cells.set(at, stamp);
                }
            }
        }
        self.settings.common.start_ns = self.settings.common.start_ns.max(other.settings.common.start_ns);
        self.tally.add(other.tally);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.cells.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
