//! `p4/fridge`: handshakes.

use packets::pair::Pair;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::{DigestKey, DigestKind};
use synopses::fridge::{Fridge, Settings};

use crate::encoding::Reader;
use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;

/// Slots of the ring of reports.
const REPORTS: usize = 1024;

/// The settings that the compiled program has: small, so that requests evict each other.
#[must_use]
pub fn settings() -> Settings {
    Settings { slots: 256, probability: 0.75, seed: 0x0f1d_9e00, ..Settings::default() }
}

/// The same with values that are derived from digests of this kind.
#[must_use]
pub fn settings_of(kind: DigestKind) -> Settings {
    Settings { seed: kind.seed(settings().seed), ..settings() }
}

/// The program's constants, with digests of the first kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants() -> Result<Constants, ConstantsError> {
    constants_of(DigestKind::Products)
}

/// The program's constants, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants_of(kind: DigestKind) -> Result<Constants, ConstantsError> {
    programs::fridge(settings_of(kind), &key(kind))
}

/// The library's fridge, with the registers that the program would have.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    fridge: Fridge,
    key: DigestKey,
    report_ticks: Vec<u64>,
    report_insertions: Vec<u64>,
}

impl Reference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, ConstantsError> {
        Ok(Self {
            frames: Frames::new(constants),
            fridge: Fridge::new(settings_of(constants.kind()))?,
            key: key(constants.kind()),
            report_ticks: vec![0; REPORTS],
            report_insertions: vec![0; REPORTS],
        })
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        let Some(packet) = self.frames.count(captured) else { return };
        let roles = Pair::Handshake.roles(&packet, &self.key);
        if let Some(digest) = roles.request {
            self.fridge.insert(digest, captured.time_ns);
        }
        if let Some(digest) = roles.response {
            let at = self.fridge.tally().matched as usize % REPORTS;
            if let Some(report) = self.fridge.match_response(digest, captured.time_ns) {
                self.report_ticks[at] = report.delay_ns >> settings().tick_shift;
                self.report_insertions[at] = u64::from(report.insertions);
            }
        }
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        let tally = self.fridge.tally();
        for (name, count) in [
            ("requests", tally.requests),
            ("duplicates", tally.duplicate_requests),
            ("evicted", tally.evicted),
            ("responses", tally.responses),
            ("matched", tally.matched),
            ("unmatched", tally.unmatched),
            ("clock_anomaly", tally.clock_anomaly),
        ] {
            registers.insert(name.to_owned(), vec![count]);
        }
        registers.insert("report_ticks".to_owned(), self.report_ticks.clone());
        registers.insert("report_insertions".to_owned(), self.report_insertions.clone());
        put_slots(&self.fridge, &mut registers);
        registers
    }
}

/// The slots and the insertion counter, from the fridge's encoding (`synopses/src/fridge/codec.rs`).
fn put_slots(fridge: &Fridge, registers: &mut Registers) {
    let encoded = fridge.encode();
    let mut reader = Reader::of(&encoded);
    let slots = reader.number() as usize;
    // Probability, four settings of a byte, seed.
    reader.skip(8 + 4 + 8);
    let insertions = reader.word() | reader.word() << 32;
    reader.skip(8);
    for _ in 0..10 {
        reader.number();
    }
    let mut columns = [vec![0; slots], vec![0; slots], vec![0; slots]];
    let mut at = 0;
    for _ in 0..reader.number() {
        at += reader.number() as usize;
        for column in &mut columns {
            column[at] = reader.word();
        }
        at += 1;
    }
    for (name, column) in ["prints", "ticks", "stamps"].into_iter().zip(columns) {
        registers.insert(name.to_owned(), column);
    }
    registers.insert("insertions".to_owned(), vec![insertions]);
}
