//! Settings of cardinality synopses, and their checks.

use thiserror::Error;

/// Minimum number of registers.
pub const MIN_REGISTERS: usize = 1 << 4;
/// Maximum number of registers.
pub const MAX_REGISTERS: usize = 1 << 16;
/// The longest window, 146 years.
pub const MAX_WINDOW_NS: u64 = 1 << 62;
/// Most bits of a time stamp.
const MAX_BITS: u32 = 24;

/// How the hash of an item comes from its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// 64 bits, from the digest and this seed. Keep it secret: who knows it can craft items that all count as one.
    Seeded(u64),
    /// The lower 32 bits of the digest as they are, for hashes of one's own. Good up to 10⁸ items.
    Ready32,
}

/// What all cardinality synopses have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// m, number of registers: a power of two from [`MIN_REGISTERS`] to [`MAX_REGISTERS`].
    pub registers: usize,
    /// W, window in nanoseconds, at least 1 and at most [`MAX_WINDOW_NS`]. A baseline begins a bin at each multiple.
    pub window_ns: u64,
    /// Time from which on items are inserted, in nanoseconds of a clock that never goes back.
    pub start_ns: u64,
    /// Where the hash comes from.
    pub hash: Hash,
}

impl Default for Settings {
    fn default() -> Self {
        Self { registers: 1 << 9, window_ns: 1_000_000_000, start_ns: 0, hash: Hash::Seeded(0) }
    }
}

/// How the estimate of a [`super::StHll`] with few items per register is corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Not at all: 16 % too much at 2.5 items per register, and never 0.
    None,
    /// Linear counting below 2.5 m as if all registers had one age, as published; for 32-bit hashes the large range.
    Published,
    /// Linear counting with the registers' ages, up to 5 m.
    Staggered,
    /// Maximum likelihood, for any number of items. Costs two exponentials per register.
    Likelihood,
}

impl Correction {
    /// The correction with this code, its place in the list.
    pub(super) const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 => Some(Self::Published),
            2 => Some(Self::Staggered),
            3 => Some(Self::Likelihood),
            _ => None,
        }
    }
}

/// The age that a register of a [`super::StHll`] is taken to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The time since its reset.
    Exact,
    /// That at the end of the current slot, as published.
    EndOfSlot,
    /// That in the middle of the current slot.
    MidSlot,
}

impl Age {
    /// The age with this code, its place in the list.
    pub(super) const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Exact),
            1 => Some(Self::EndOfSlot),
            2 => Some(Self::MidSlot),
            _ => None,
        }
    }
}

/// Settings of a [`super::StHll`]. One register is reset every 2W/m, rounded up to whole nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StHllSettings {
    /// Registers, window, start and hash.
    pub common: Settings,
    /// Number of the youngest registers that an estimate leaves out, below m: 0 for ST-HLL, m/8 for ST-HLL+.
    pub skipped: usize,
    /// Time of slot 0, at most the start. Synopses can be merged if it is the same moment: 0 of a shared clock.
    pub origin_ns: u64,
    /// Age of a register.
    pub age: Age,
    /// Correction for few items.
    pub correction: Correction,
}

impl StHllSettings {
    /// ST-HLL+ with m/8 registers skipped.
    #[must_use]
    pub const fn plus(common: Settings) -> Self {
        Self { skipped: common.registers / 8, ..Self::plain(common) }
    }

    /// ST-HLL, which skips no register.
    #[must_use]
    pub const fn plain(common: Settings) -> Self {
        Self { common, skipped: 0, origin_ns: 0, age: Age::Exact, correction: Correction::Likelihood }
    }

    /// τ, nanoseconds between two resets.
    pub(super) const fn slot_ns(&self) -> u64 {
        (2 * self.common.window_ns).div_ceil(self.common.registers as u64)
    }

    pub(super) fn checked(self) -> Result<Self, SettingsError> {
        let Settings { registers, window_ns, start_ns, .. } = self.common.checked()?;
        if window_ns < (registers / 2) as u64 {
            return Err(SettingsError::Window { window_ns, least: (registers / 2) as u64 });
        }
        if self.skipped >= registers {
            return Err(SettingsError::Skipped { skipped: self.skipped, registers });
        }
        if start_ns < self.origin_ns {
            return Err(SettingsError::Start { start_ns, origin_ns: self.origin_ns });
        }
        Ok(self)
    }
}

impl Default for StHllSettings {
    fn default() -> Self {
        Self::plus(Settings::default())
    }
}

/// How an item's time becomes a slot number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the closest slot, the later one at half.
    Closest,
    /// To the slot before: counts too little, by τ/2W.
    Down,
    /// To the slot after: counts too much, by τ/2W.
    Up,
}

impl Rounding {
    /// The rounding with this code, its place in the list.
    pub(super) const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Closest),
            1 => Some(Self::Down),
            2 => Some(Self::Up),
            _ => None,
        }
    }
}

/// Who removes stale time stamps, before their numbers come round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruning {
    /// The synopsis, at an insertion. Time stamps often need a bit more.
    OnInsert,
    /// The caller, by [`super::TsPcsa::prune`] at least this often; after a longer time all is forgotten and counted.
    ByTimer,
}

impl Pruning {
    /// The pruning with this code, its place in the list.
    pub(super) const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::OnInsert),
            1 => Some(Self::ByTimer),
            _ => None,
        }
    }
}

/// Settings of a [`super::TsPcsa`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TsPcsaSettings {
    /// Registers, window, start and hash.
    pub common: Settings,
    /// K, positions per register, from 1 to 60: log₂(n/m) + 4 for n items. With fewer, large counts are cut.
    pub positions: usize,
    /// τ, nanoseconds of a slot. W is a multiple of it, 4 times at least.
    pub slot_ns: u64,
    /// b, bits of a time stamp with its flag, at most 24, at least [`TsPcsaSettings::least_bits`].
    pub bits: u32,
    /// Offsets that differ by register, which smooth the estimate: true for TS-PCSA+.
    pub offsets: bool,
    /// Rounding of times.
    pub rounding: Rounding,
    /// Who removes stale time stamps.
    pub pruning: Pruning,
    /// a W, the longest time between two prunings in nanoseconds, at least 1 and at most 2⁶².
    pub prune_ns: u64,
}

impl TsPcsaSettings {
    /// TS-PCSA+ with eight slots in a window, and 10 positions: for up to 64 m items in a window.
    #[must_use]
    pub const fn plus(common: Settings) -> Self {
        let slot_ns = common.window_ns / 8;
        Self {
            common,
            positions: 10,
            slot_ns,
            bits: 6,
            offsets: true,
            rounding: Rounding::Closest,
            pruning: Pruning::OnInsert,
            prune_ns: common.window_ns / 2,
        }
    }

    /// TS-PCSA, without offsets.
    #[must_use]
    pub const fn plain(common: Settings) -> Self {
        Self { offsets: false, ..Self::plus(common) }
    }

    /// The least b with which no stale time stamp is taken for a fresh one, up to 127; `None` if τ is 0.
    #[must_use]
    pub fn least_bits(&self) -> Option<u32> {
        let (window, prune, slot) =
            (u128::from(self.common.window_ns), u128::from(self.prune_ns), u128::from(self.slot_ns));
        let doubled = match self.pruning {
            Pruning::ByTimer => 2 * (window + prune) + 5 * slot,
            Pruning::OnInsert => 2 * (2 * window + prune) + 8 * slot,
        };
        (slot > 0).then(|| 1 + doubled.div_ceil(2 * slot).next_power_of_two().trailing_zeros())
    }

    pub(super) fn checked(self) -> Result<Self, SettingsError> {
        let Settings { window_ns, .. } = self.common.checked()?;
        let Self { positions, slot_ns, bits, prune_ns, .. } = self;
        if !(1..=60).contains(&positions) {
            return Err(SettingsError::Positions(positions));
        }
        if !(slot_ns > 0 && window_ns.is_multiple_of(slot_ns) && window_ns / slot_ns >= 4) {
            return Err(SettingsError::Slot { slot_ns, window_ns });
        }
        if !(1..=MAX_WINDOW_NS).contains(&prune_ns) {
            return Err(SettingsError::Prune(prune_ns));
        }
        let least = self.least_bits().unwrap_or(u32::MAX);
        if !(least..=MAX_BITS).contains(&bits) {
            return Err(SettingsError::Bits { bits, least });
        }
        Ok(self)
    }
}

impl Default for TsPcsaSettings {
    fn default() -> Self {
        Self::plus(Settings { registers: 1 << 8, ..Settings::default() })
    }
}

/// Invalid settings of a cardinality synopsis.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Not a power of two, too few or too many.
    #[error("{0} registers, a power of two from {MIN_REGISTERS} to {MAX_REGISTERS} is possible")]
    Registers(usize),
    /// No window, or one that cannot be divided among the registers.
    #[error("a window of {window_ns} ns, from {least} to 2^62 are possible")]
    Window {
        /// The window asked for.
        window_ns: u64,
        /// The shortest possible one.
        least: u64,
    },
    /// All registers would be skipped.
    #[error("{skipped} of {registers} registers are to be skipped, fewer than all are possible")]
    Skipped {
        /// Registers to be skipped.
        skipped: usize,
        /// Number of registers.
        registers: usize,
    },
    /// Items would come before slot 0.
    #[error("a start at {start_ns} ns, at least the origin, {origin_ns}, is possible")]
    Start {
        /// The start asked for.
        start_ns: u64,
        /// Time of slot 0.
        origin_ns: u64,
    },
    /// Invalid number of positions.
    #[error("{0} positions per register, from 1 to 60 are possible")]
    Positions(usize),
    /// The window is no multiple of the slot.
    #[error("slots of {slot_ns} ns, a divisor of the window, {window_ns} ns, at most a quarter of it, is possible")]
    Slot {
        /// The slot asked for.
        slot_ns: u64,
        /// The window W.
        window_ns: u64,
    },
    /// Time stamps would come round while they are valid.
    #[error("time stamps of {bits} bits, from {least} to {MAX_BITS} are possible; longer slots need fewer")]
    Bits {
        /// The bits asked for.
        bits: u32,
        /// The fewest that are sound.
        least: u32,
    },
    /// Nothing would ever be pruned, or always.
    #[error("pruned every {0} ns, from 1 to 2^62 is possible")]
    Prune(u64),
}

impl Settings {
    pub(super) fn checked(self) -> Result<Self, SettingsError> {
        let Self { registers, window_ns, .. } = self;
        if !(registers.is_power_of_two() && (MIN_REGISTERS..=MAX_REGISTERS).contains(&registers)) {
            return Err(SettingsError::Registers(registers));
        }
        if !(1..=MAX_WINDOW_NS).contains(&window_ns) {
            return Err(SettingsError::Window { window_ns, least: 1 });
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_are_possible() {
        assert_eq!(StHllSettings::default().checked(), Ok(StHllSettings::default()));
        assert_eq!(TsPcsaSettings::default().checked(), Ok(TsPcsaSettings::default()));
    }

    #[test]
    fn registers_are_a_power_of_two_within_bounds() {
        for registers in [0, 1, 8, 15, 17, 1_000, 1 << 17, usize::MAX] {
            let settings = Settings { registers, ..Settings::default() };
            assert_eq!(settings.checked(), Err(SettingsError::Registers(registers)));
        }
        for registers in [16, 1 << 16] {
            assert!(Settings { registers, ..Settings::default() }.checked().is_ok());
        }
    }

    #[test]
    fn a_window_has_a_nanosecond_for_every_reset() {
        let of = |window_ns| StHllSettings::plain(Settings { window_ns, ..Settings::default() });

        assert_eq!(of(0).checked(), Err(SettingsError::Window { window_ns: 0, least: 1 }));
        assert_eq!(of(255).checked(), Err(SettingsError::Window { window_ns: 255, least: 256 }));
        assert!(of(256).checked().is_ok() && of(MAX_WINDOW_NS).checked().is_ok());
        assert_eq!((of(256).slot_ns(), of(257).slot_ns()), (1, 2));
        let skipped = StHllSettings { skipped: 512, ..of(1_000) };
        assert_eq!(skipped.checked(), Err(SettingsError::Skipped { skipped: 512, registers: 512 }));
        let early = StHllSettings { origin_ns: 5, ..of(1_000) };
        assert_eq!(early.checked(), Err(SettingsError::Start { start_ns: 0, origin_ns: 5 }));
    }

    #[test]
    fn time_stamps_have_as_many_bits_as_the_table_says() {
        let common = Settings { window_ns: 1 << 20, ..Settings::default() };
        let least = |slots: u64, pruning| {
            let slot_ns = common.window_ns / slots;
            TsPcsaSettings { slot_ns, pruning, ..TsPcsaSettings::plus(common) }.least_bits()
        };

        assert_eq!((least(8, Pruning::ByTimer), least(16, Pruning::ByTimer)), (Some(5), Some(6)));
        assert_eq!((least(8, Pruning::OnInsert), least(16, Pruning::OnInsert)), (Some(6), Some(7)));
        let prune_ns = common.window_ns;
        let whole = TsPcsaSettings { slot_ns: 1 << 16, prune_ns, ..TsPcsaSettings::plus(common) };
        // (1 + a) W/τ is 32, a power of two: the published number of bits is one too few.
        assert_eq!(TsPcsaSettings { pruning: Pruning::ByTimer, ..whole }.least_bits(), Some(7));
    }

    #[test]
    fn an_error_names_the_least_possible_value() {
        let plus = TsPcsaSettings::plus(Settings::default());

        assert_eq!(TsPcsaSettings { bits: 5, ..plus }.checked(), Err(SettingsError::Bits { bits: 5, least: 6 }));
        for slot_ns in [0, 3, 500_000_000, 1_000_000_000] {
            let refused = TsPcsaSettings { slot_ns, bits: 24, ..plus }.checked();
            assert_eq!(refused, Err(SettingsError::Slot { slot_ns, window_ns: 1_000_000_000 }));
        }
        for positions in [0, 61] {
            let refused = TsPcsaSettings { positions, ..plus }.checked();
            assert_eq!(refused, Err(SettingsError::Positions(positions)));
        }
        assert_eq!(TsPcsaSettings { prune_ns: 0, ..plus }.checked(), Err(SettingsError::Prune(0)));
    }
}
