//! `p4/precision`.

use core::num::NonZeroU64;

use packets::identity;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::{DigestKey, DigestKind};
use synopses::encoding::{DecodeError, Kind, seal};
use synopses::rap::{Admission, HeavyHitters as _, Precision, WaySettings};

use crate::encoding::Reader;
use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;

/// The settings that the compiled program has: fewer entries than flows, and rows that are no power of two.
#[must_use]
pub const fn settings() -> WaySettings {
    WaySettings { ways: 2, rows: 50, admission: Admission::PowerOfTwo, seed: 0x0094_ec15 }
}

/// The same with values that are derived from digests of this kind. For hardware rows are a power of two.
#[must_use]
pub const fn settings_of(kind: DigestKind) -> WaySettings {
    let settings = settings();
    let rows = match kind {
        DigestKind::Products => settings.rows,
        DigestKind::Hardware => settings.rows.next_power_of_two(),
    };
    WaySettings { rows, seed: kind.seed(settings.seed), ..settings }
}

/// The program's constants, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(kind: DigestKind) -> Result<Constants, ConstantsError> {
    programs::precision(settings_of(kind), &key(kind))
}

/// The library's table of flows.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    key: DigestKey,
    table: Precision,
}

impl Reference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, ConstantsError> {
        let kind = constants.kind();
        Ok(Self { frames: Frames::new(constants), key: key(kind), table: Precision::new(settings_of(kind))? })
    }

    /// The same if so many coins were drawn before.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the encoding has another form.
    pub fn after_coins(self, drawn: u64) -> Result<Self, DecodeError> {
        let encoded = self.table.encode();
        let mut payload = Reader::of(&encoded).rest().to_vec();
        // Behind ways and rows, which have a byte each, the law of admission and the seed.
        payload[11..19].copy_from_slice(&drawn.to_le_bytes());
        let settings = settings_of(self.key.kind());
        let entries = settings.ways * settings.rows;
        Ok(Self { table: Precision::decode(&seal(Kind::Precision, &payload), entries)?, ..self })
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        let Some(packet) = self.frames.count(captured) else { return };
        self.table.insert_weighted(identity::flow(&packet, &self.key), NonZeroU64::MIN);
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        let tally = self.table.tally();
        for (name, count) in [("inserted", tally.inserted), ("rejected", tally.rejected)] {
            registers.insert(name.to_owned(), vec![count]);
        }
        put_entries(&self.table, &mut registers);
        registers
    }
}

/// Adds all entries, and the number of coins, from their encoding (`synopses/src/rap/codec.rs`).
fn put_entries(table: &Precision, registers: &mut Registers) {
    let encoded = table.encode();
    let mut reader = Reader::of(&encoded);
    let (ways, rows) = (reader.number() as usize, reader.number() as usize);
    // Law of admission, seed.
    reader.skip(1 + 8);
    registers.insert("drawn_low".to_owned(), vec![reader.word()]);
    registers.insert("drawn_high".to_owned(), vec![reader.word()]);
    // What was inserted and rejected.
    reader.number();
    reader.number();
    let (mut entries, mut at) = (vec![[0; 4]; ways * rows], 0);
    for _ in 0..reader.number() {
        at += reader.number() as usize;
        entries[at] = [reader.word(), reader.word(), reader.number(), reader.number()];
        at += 1;
    }
    for (stage, entries) in entries.chunks(rows).enumerate() {
        for (place, column) in ["flows_low", "flows_high", "counts", "since"].into_iter().enumerate() {
            let column = format!("stage{stage}_{column}");
            registers.insert(column, entries.iter().map(|entry| entry[place]).collect());
        }
    }
}
