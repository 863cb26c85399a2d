//! `p4/ts-pcsa`.

use packets::identity;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::cardinality::{Cardinality as _, Hash, Pruning, Rounding, Settings, Tally, TsPcsa, TsPcsaSettings};
use synopses::digest::{DigestKey, DigestKind};

use crate::encoding::Reader;
use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;

/// Slots of the program come again after so many.
const SLOTS: u64 = 1 << 31;

/// The settings that the compiled program has: a window of 4 ms, so that packets are late, and too late.
#[must_use]
pub fn settings() -> TsPcsaSettings {
    let common = Settings { registers: 64, window_ns: 1 << 22, start_ns: 0, hash: Hash::Seeded(0x0075_bc5a) };
    TsPcsaSettings {
        slot_ns: 1 << 18,
        bits: 7,
        rounding: Rounding::Up,
        pruning: Pruning::OnInsert,
        ..TsPcsaSettings::plain(common)
    }
}

/// The same with values that are derived from digests of this kind. For hardware positions are a power of two.
#[must_use]
pub fn settings_of(kind: DigestKind) -> TsPcsaSettings {
    let settings = settings();
    let hash = match settings.common.hash {
        Hash::Seeded(seed) => Hash::Seeded(kind.seed(seed)),
        Hash::Ready32 => Hash::Ready32,
    };
    let positions = match kind {
        DigestKind::Products => settings.positions,
        DigestKind::Hardware => settings.positions.next_power_of_two(),
    };
    TsPcsaSettings { common: Settings { hash, ..settings.common }, positions, ..settings }
}

/// The program's constants, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(kind: DigestKind) -> Result<Constants, ConstantsError> {
    programs::ts_pcsa(settings_of(kind), &key(kind))
}

/// The library's synopsis, with the registers that the program would have.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    key: DigestKey,
    synopsis: TsPcsa,
    empty: TsPcsa,
    stamps: Vec<u64>,
    latest_ns: u64,
}

impl Reference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, ConstantsError> {
        let synopsis = TsPcsa::new(settings_of(constants.kind()))?;
        let stamps = vec![0; cells(&synopsis).len()];
        let (frames, empty) = (Frames::new(constants), synopsis.clone());
        Ok(Self { frames, key: key(constants.kind()), synopsis, empty, stamps, latest_ns: 0 })
    }
}

/// The cells, from their encoding (`synopses/src/cardinality/codec.rs`): a flag, above it the slot.
fn cells(synopsis: &TsPcsa) -> Vec<u32> {
    let TsPcsaSettings { common, positions, bits, .. } = *synopsis.stamping();
    let encoded = synopsis.encode();
    let mut reader = Reader::of(&encoded);
    // Registers, window, start.
    for _ in 0..3 {
        reader.number();
    }
    // Bits of the hash, and its seed.
    reader.skip(1 + 8);
    // Positions, slot, four settings of a byte, time between prunings.
    reader.number();
    reader.number();
    reader.skip(4);
    // With four counts, and the times of the latest item and pruning.
    for _ in 0..1 + 4 + 2 {
        reader.number();
    }
    let bytes = reader.rest();
    let cell = |at: usize| {
        let bit = at * bits as usize;
        let word = bytes.get(bit / 8..).and_then(<[u8]>::first_chunk::<4>).map_or(0, |word| u32::from_le_bytes(*word));
        word >> (bit % 8) & ((1 << bits) - 1)
    };
    (0..common.registers * positions).map(cell).collect()
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        let Some(packet) = self.frames.count(captured) else { return };
        let flow = identity::flow(&packet, &self.key);
        self.synopsis.insert(flow, captured.time_ns);
        self.latest_ns = self.latest_ns.max(captured.time_ns);
        // Where the item is: the only cell that is set if it is the only one.
        let mut alone = self.empty.clone();
        alone.insert(flow, captured.time_ns);
        let (alone, cells) = (cells(&alone), cells(&self.synopsis));
        let slot = captured.time_ns.div_ceil(settings().slot_ns);
        for (at, cell) in alone.into_iter().enumerate().filter(|(_, cell)| *cell != 0) {
            // A packet that is too late changes nothing, one that is late only what is older.
            if cells[at] == cell && self.latest_ns - captured.time_ns <= settings().common.window_ns {
                self.stamps[at] = ((slot % SLOTS) << 1) | 1;
            }
        }
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        let Tally { inserted, late, dropped, .. } = self.synopsis.tally();
        let [low, high] = [self.latest_ns & 0xffff_ffff, self.latest_ns >> 32];
        for (name, value) in
            [("inserted", inserted), ("late", late), ("dropped", dropped), ("latest_low", low), ("latest_high", high)]
        {
            registers.insert(name.to_owned(), vec![value]);
        }
        registers.insert("stamps".to_owned(), self.stamps.clone());
        registers
    }

    fn is_loaded_from(&self, registers: &Registers) -> bool {
        let mut pruned = self.synopsis.clone();
        pruned.prune(self.latest_ns);
        load(registers, self.key.kind()).is_some_and(|loaded| loaded.encode() == pruned.encode())
    }
}

/// What a control plane makes of a switch's registers.
pub(crate) fn load(registers: &Registers, kind: DigestKind) -> Option<TsPcsa> {
    let one = |name: &str| registers.get(name)?.first().copied();
    let latest_ns = one("latest_high")? << 32 | one("latest_low")?;
    let newest = latest_ns.div_ceil(settings().slot_ns);
    let slot = |stamp: &u64| (stamp & 1 == 1).then(|| newest.wrapping_sub(newest.wrapping_sub(stamp >> 1) % SLOTS));
    let slots: Vec<_> = registers.get("stamps")?.iter().map(slot).collect();
    let tally = Tally { inserted: one("inserted")?, late: one("late")?, dropped: one("dropped")?, overdue: 0 };
    TsPcsa::of_slots(settings_of(kind), tally, latest_ns, &slots).ok()
}
