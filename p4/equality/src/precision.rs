//! `p4/precision`.

use packets::identity;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::{DigestKey, DigestKind};
use synopses::rap::{Admission, EpochPrecision, EpochSettings, Precision, WaySettings};

use crate::encoding::Reader;
use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;
use crate::reordering::halves;

/// What the registers of an entry are called, behind the name of its stage.
const COLUMNS: [&str; 5] = ["flows_low", "flows_high", "counts", "since", "epochs"];

/// The registers of an entry, in the order of their names.
type Entry = [u64; COLUMNS.len()];

/// The settings that the compiled program has: epochs of some twenty frames, fewer entries than flows, and rows that
/// are no power of two.
#[must_use]
pub const fn settings() -> EpochSettings {
    let table = WaySettings { ways: 2, rows: 6, admission: Admission::PowerOfTwo, seed: 0x0094_ec15 };
    EpochSettings { table, epoch_shift: 21 }
}

/// The same with values that are derived from digests of this kind. For hardware rows are a power of two.
#[must_use]
pub const fn settings_of(kind: DigestKind) -> EpochSettings {
    let EpochSettings { table, epoch_shift } = settings();
    let rows = match kind {
        DigestKind::Products => table.rows,
        DigestKind::Hardware => table.rows.next_power_of_two(),
    };
    EpochSettings { table: WaySettings { rows, seed: kind.seed(table.seed), ..table }, epoch_shift }
}

/// The program's constants, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(kind: DigestKind) -> Result<Constants, ConstantsError> {
    programs::precision(settings_of(kind), &key(kind))
}

/// The library's tables of flows, with the registers that the program would have.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    key: DigestKey,
    tables: EpochPrecision,
    /// The latest entries at each place that are of no table any more: of even epochs, and of odd ones.
    left: [Vec<Entry>; 2],
}

impl Reference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, ConstantsError> {
        let kind = constants.kind();
        let settings = settings_of(kind);
        let left = vec![[0; COLUMNS.len()]; settings.table.ways * settings.table.rows];
        Ok(Self {
            frames: Frames::new(constants),
            key: key(kind),
            tables: EpochPrecision::new(settings)?,
            left: [left.clone(), left],
        })
    }

    /// The same if so many coins were drawn before.
    #[must_use]
    pub fn after_coins(self, drawn: u64) -> Self {
        Self { tables: self.tables.after_coins(drawn), ..self }
    }

    /// The library's tables by now.
    #[must_use]
    pub const fn tables(&self) -> &EpochPrecision {
        &self.tables
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        let Some(packet) = self.frames.count(captured) else { return };
        let epoch = self.tables.epoch(captured.time_ns);
        let parity = (epoch & 1) as usize;
        let (latest, table) = self.tables.tables()[parity];
        if epoch > latest {
            // The library empties it; registers stay.
            for (at, entry) in Contents::of(latest, table).entries {
                self.left[parity][at] = entry;
            }
        }
        self.tables.insert(identity::flow(&packet, &self.key), captured.time_ns);
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        let tables = self.tables.tables();
        let contents = tables.map(|(epoch, table)| Contents::of(epoch, table));
        let mut put = |name: &str, entries: Vec<u64>| drop(registers.insert(name.to_owned(), entries));
        for (half, name) in ["epochs_low", "epochs_high"].into_iter().enumerate() {
            put(name, tables.iter().map(|(epoch, _)| halves(*epoch)[half]).collect());
        }
        put("epoch_inserted", contents.iter().map(|table| table.inserted).collect());
        put("epoch_rejected", contents.iter().map(|table| table.rejected).collect());
        put("dropped", vec![self.tables.dropped()]);
        // Both tables have the same number.
        let [low, high] = contents[0].drawn;
        put("drawn_low", vec![low]);
        put("drawn_high", vec![high]);
        let mut sets = self.left.clone();
        for (set, table) in sets.iter_mut().zip(&contents) {
            for (at, entry) in &table.entries {
                set[*at] = *entry;
            }
        }
        let rows = settings_of(self.key.kind()).table.rows;
        for stage in 0..settings().table.ways {
            for (place, column) in COLUMNS.into_iter().enumerate() {
                let entries = sets.iter().flat_map(|set| set.iter().skip(stage * rows).take(rows));
                put(&format!("stage{stage}_{column}"), entries.map(|entry| entry[place]).collect());
            }
        }
        registers
    }
}

/// What the encoding of a table says (`synopses/src/rap/codec.rs`).
struct Contents {
    /// Halves of the number of coins.
    drawn: [u64; 2],
    inserted: u64,
    rejected: u64,
    /// Entries in use, and their places.
    entries: Vec<(usize, Entry)>,
}

impl Contents {
    /// That of a table of an epoch.
    fn of(epoch: u64, table: &Precision) -> Self {
        let encoded = table.encode();
        let mut reader = Reader::of(&encoded);
        // Ways and rows, law of admission, seed.
        reader.number();
        reader.number();
        reader.skip(1 + 8);
        let drawn = [reader.word(), reader.word()];
        let (inserted, rejected) = (reader.number(), reader.number());
        let (mut entries, mut next) = (Vec::new(), 0);
        for _ in 0..reader.number() {
            let at = next + reader.number() as usize;
            let entry = [reader.word(), reader.word(), reader.number(), reader.number(), halves(epoch)[0]];
            entries.push((at, entry));
            next = at + 1;
        }
        Self { drawn, inserted, rejected, entries }
    }
}
