//! `p4/fridges`: handshakes, in several fridges by intervals.

use packets::pair::Pair;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::{DigestKey, DigestKind};
use synopses::fridge::{Duplicates, FridgeSpec, Fridges, FridgesSettings, Report, Stamp};

use crate::encoding::Reader;
use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;

/// Slots of the ring of reports.
const REPORTS: usize = 1024;

/// The settings that the compiled program has: three fridges of few slots, of which one is no power of two, and which
/// one request in eight does not enter.
#[must_use]
pub fn settings() -> FridgesSettings {
    let part = |slots, probability| FridgeSpec { slots, probability };
    FridgesSettings {
        fridges: vec![part(128, 0.5), part(100, 0.25), part(64, 0.125)],
        stamp: Stamp::Arrivals,
        duplicates: Duplicates::Overwrite,
        tick_shift: 10,
        seed: 0x0f1d_9e5e,
    }
}

/// The same with values that are derived from digests of this kind. For hardware slots are powers of two.
#[must_use]
pub fn settings_of(kind: DigestKind) -> FridgesSettings {
    let mut settings = settings();
    if kind == DigestKind::Hardware {
        for fridge in &mut settings.fridges {
            fridge.slots = fridge.slots.next_power_of_two();
        }
    }
    FridgesSettings { seed: kind.seed(settings.seed), ..settings }
}

/// The program's constants, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(kind: DigestKind) -> Result<Constants, ConstantsError> {
    programs::fridges(&settings_of(kind), &key(kind))
}

/// The library's fridges, with the registers that the program would have.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    fridges: Fridges,
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
            fridges: Fridges::new(settings_of(constants.kind()))?,
            key: key(constants.kind()),
            report_ticks: vec![0; REPORTS],
            report_insertions: vec![0; REPORTS],
        })
    }

    /// Does what the library does with a frame. Returns a sample if it is a response to a pending request.
    pub fn insert(&mut self, captured: &Captured) -> Option<Report> {
        let packet = self.frames.count(captured)?;
        let roles = Pair::Handshake.roles(&packet, &self.key);
        if let Some(digest) = roles.request {
            self.fridges.insert(digest, captured.time_ns);
        }
        self.fridges.match_response(roles.response?, captured.time_ns)
    }

    /// The fridges as they are now.
    #[must_use]
    pub const fn fridges(&self) -> &Fridges {
        &self.fridges
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        let at = self.fridges.tally().matched as usize % REPORTS;
        if let Some(report) = self.insert(captured) {
            self.report_ticks[at] = report.delay_ns >> self.fridges.settings().tick_shift;
            self.report_insertions[at] = u64::from(report.insertions);
        }
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        let tally = self.fridges.tally();
        for (name, count) in [
            ("insertions", tally.admitted),
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
        put_slots(&self.fridges, &mut registers);
        registers
    }
}

/// The slots and the counter of arrivals, from the fridges' encoding (`synopses/src/fridge/codec.rs`).
fn put_slots(fridges: &Fridges, registers: &mut Registers) {
    let encoded = fridges.encode();
    let mut reader = Reader::of(&encoded);
    let mut slots = 0;
    for _ in 0..reader.number() {
        slots += reader.number() as usize;
        // Its probability.
        reader.skip(8);
    }
    // Three settings of a byte, seed.
    reader.skip(3 + 8);
    registers.insert("arrivals".to_owned(), vec![reader.word()]);
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
}
