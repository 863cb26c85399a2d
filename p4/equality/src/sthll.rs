//! `p4/st-hll`.

use packets::identity;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::cardinality::{Cardinality as _, Hash, Settings, StHll, StHllSettings, Tally};
use synopses::digest::{DigestKey, DigestKind};

use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;
use crate::reordering::halves;

/// The settings that the compiled program has: slots of 2^20 ns, so that registers are reset all the time.
#[must_use]
pub fn settings() -> StHllSettings {
    let common = Settings { registers: 64, window_ns: 1 << 25, start_ns: 0, hash: Hash::Seeded(0x057a_99e2) };
    StHllSettings::plus(common)
}

/// The same with values that are derived from digests of this kind.
#[must_use]
pub fn settings_of(kind: DigestKind) -> StHllSettings {
    let settings = settings();
    let hash = match settings.common.hash {
        Hash::Seeded(seed) => Hash::Seeded(kind.seed(seed)),
        Hash::Ready32 => Hash::Ready32,
    };
    StHllSettings { common: Settings { hash, ..settings.common }, ..settings }
}

/// The program's constants, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(kind: DigestKind) -> Result<Constants, ConstantsError> {
    programs::st_hll(settings_of(kind), &key(kind))
}

/// The library's synopsis, with the registers that the program would have.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    key: DigestKey,
    synopsis: StHll,
    laps_and_ranks: Vec<u64>,
}

impl Reference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, ConstantsError> {
        let synopsis = StHll::new(settings_of(constants.kind()))?;
        let laps_and_ranks = vec![0; synopsis.ranks().len()];
        Ok(Self { frames: Frames::new(constants), key: key(constants.kind()), synopsis, laps_and_ranks })
    }
}

/// The lap of a register in `slot`, of so many registers, where a word has it: the slot of its last reset with 32 bits,
/// less the lowest ones, which are the register's number.
const fn lap(register: usize, slot: u64, registers: usize) -> u64 {
    slot.wrapping_sub(register as u64) & 0xffff_ffff & !(registers as u64 - 1)
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        let Some(packet) = self.frames.count(captured) else { return };
        let mut before = self.synopsis.clone();
        before.tick(captured.time_ns);
        self.synopsis.insert(identity::flow(&packet, &self.key), captured.time_ns);
        let (slot, registers) = (self.synopsis.slot(), before.ranks().len());
        let ranks = before.ranks().iter().zip(self.synopsis.ranks()).zip(&mut self.laps_and_ranks);
        for (register, ((_, rank), word)) in ranks.enumerate().filter(|(_, ((before, rank), _))| rank > before) {
            *word = lap(register, slot, registers) | u64::from(*rank);
        }
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        let Tally { inserted, late, dropped, .. } = self.synopsis.tally();
        let [low, high] = halves(self.synopsis.slot());
        for (name, value) in
            [("inserted", inserted), ("late", late), ("dropped", dropped), ("slot_low", low), ("slot_high", high)]
        {
            registers.insert(name.to_owned(), vec![value]);
        }
        registers.insert("laps_and_ranks".to_owned(), self.laps_and_ranks.clone());
        registers
    }

    fn is_loaded_from(&self, registers: &Registers) -> bool {
        load(registers, self.key.kind()).is_some_and(|loaded| loaded.encode() == self.synopsis.encode())
    }
}

/// What a control plane makes of a switch's registers.
fn load(registers: &Registers, kind: DigestKind) -> Option<StHll> {
    let one = |name: &str| registers.get(name)?.first().copied();
    let (slot, words) = (one("slot_high")? << 32 | one("slot_low")?, registers.get("laps_and_ranks")?);
    let rank = |(register, word): (usize, &u64)| {
        let rank = word ^ lap(register, slot, words.len());
        // Of another lap: the register was reset since.
        if rank < words.len() as u64 { rank as u8 } else { 0 }
    };
    let ranks: Vec<u8> = words.iter().enumerate().map(rank).collect();
    let tally = Tally { inserted: one("inserted")?, late: one("late")?, dropped: one("dropped")?, overdue: 0 };
    StHll::of_ranks(settings_of(kind), tally, slot, &ranks).ok()
}
