//! `p4/reordering-samples` and `p4/reordering`.

use packets::flows::segment;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::{DigestKey, DigestKind};
use synopses::rap::Admission;
use synopses::reordering::{Counters, Reordering, Reports, Settings, Split};

use crate::encoding::Reader;
use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;

/// Slots of the ring of reports.
const REPORTS: usize = 1024;
/// Columns of the ring.
const REPORTED: [&str; 4] = ["report_prefixes_low", "report_prefixes_high", "report_packets", "report_events"];

/// The settings of the compiled program that only samples: few buckets, which change hands often.
#[must_use]
pub fn sampling() -> Settings {
    let (buckets, timeout_ns, seed) = (32, 1 << 23, 0x004e_04de);
    Settings { buckets, timeout_ns, most_packets: 3, least_events: 1, seed, ..Settings::default() }
}

/// The settings of the compiled program with heavy flows.
#[must_use]
pub fn hybrid() -> Settings {
    let (split, reports) = (Split::Hybrid(0.5), Reports::Always);
    Settings { split, reports, admission: Admission::PowerOfTwo, least_events: 2, buckets: 64, ..sampling() }
}

/// These settings with values that are derived from digests of this kind.
#[must_use]
pub const fn of_kind(settings: Settings, kind: DigestKind) -> Settings {
    Settings { seed: kind.seed(settings.seed), ..settings }
}

/// The constants of one of the programs, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(settings: Settings, kind: DigestKind) -> Result<Constants, ConstantsError> {
    let settings = of_kind(settings, kind);
    match settings.split {
        Split::SamplingOnly => programs::samples(settings, &key(kind)),
        _ => programs::heavy_flows(settings, &key(kind)),
    }
}

/// The library's synopsis, and its reports in a ring.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    key: DigestKey,
    synopsis: Reordering,
    reports: [Vec<u64>; 4],
}

impl Reference {
    /// Before the first frame of a program with these settings and constants. Values are derived from digests of the
    /// kind that the constants have.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(settings: Settings, constants: &Constants) -> Result<Self, ConstantsError> {
        let reports = core::array::from_fn(|_| vec![0; REPORTS]);
        let kind = constants.kind();
        let (frames, synopsis) = (Frames::new(constants), Reordering::new(of_kind(settings, kind))?);
        Ok(Self { frames, key: key(kind), synopsis, reports })
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        let Some(packet) = self.frames.count(captured) else { return };
        let Some(segment) = segment(&packet, &self.key) else { return };
        let at = self.synopsis.counters().reports as usize % REPORTS;
        if let Some(report) = self.synopsis.insert(&segment, captured.time_ns) {
            let [low, high] = halves(report.prefix.0);
            let words = [low, high, report.packets.into(), report.out_of_order.into()];
            self.reports.iter_mut().zip(words).for_each(|(column, word)| column[at] = word);
        }
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        let Counters { segments, ignored, monitored, admitted, evicted, reports, jumps, clock_anomalies } =
            self.synopsis.counters();
        for (name, count) in [
            ("segments", segments),
            ("ignored", ignored),
            ("monitored", monitored),
            ("admitted", admitted),
            ("evicted", evicted),
            ("reports", reports),
            ("jumps", jumps),
            ("clock_anomalies", clock_anomalies),
        ] {
            registers.insert(name.to_owned(), vec![count]);
        }
        for (name, column) in REPORTED.iter().zip(&self.reports) {
            registers.insert((*name).to_owned(), column.clone());
        }
        put_records(&self.synopsis, &mut registers);
        registers
    }
}

pub(crate) const fn halves(word: u64) -> [u64; 2] {
    [word & 0xffff_ffff, word >> 32]
}

/// Columns of a heavy flow, and of a sample, in the order of their encodings.
const HEAVY: [&str; 8] =
    ["flows_low", "flows_high", "prefixes_low", "prefixes_high", "counts", "checked", "events", "states"];
const SAMPLE: [&str; 8] =
    ["flows_low", "flows_high", "prefixes_low", "prefixes_high", "states", "ticks", "packets", "events"];

/// Adds all records, from their encoding (`synopses/src/reordering/codec.rs`).
fn put_records(synopsis: &Reordering, registers: &mut Registers) {
    let encoded = synopsis.encode();
    let of = synopsis.constants();
    let mut reader = Reader::of(&encoded);
    // Buckets, five settings of a byte, two shares, timeout, packets, events, stages, seed.
    reader.number();
    reader.skip(5 + 16);
    for _ in 0..4 {
        reader.number();
    }
    reader.skip(8);
    for _ in 0..8 {
        reader.number();
    }
    if of.rows > 0 {
        registers.insert("drawn_low".to_owned(), vec![reader.word()]);
        registers.insert("drawn_high".to_owned(), vec![reader.word()]);
        let rows = records(&mut reader, 2 * of.rows, 8);
        for (stage, rows) in rows.chunks(of.rows).enumerate() {
            put(&format!("heavy{stage}"), HEAVY, rows, registers);
        }
    }
    put("sample", SAMPLE, &records(&mut reader, of.buckets, 6), registers);
}

/// Records of eight numbers, of which the first `words` have 32 bits.
fn records(reader: &mut Reader<'_>, size: usize, words: usize) -> Vec<[u64; 8]> {
    let (mut records, mut at) = (vec![[0; 8]; size], 0);
    for _ in 0..reader.number() {
        at += reader.number() as usize;
        for (place, number) in records[at].iter_mut().enumerate() {
            *number = if place < words { reader.word() } else { reader.number() };
        }
        at += 1;
    }
    records
}

fn put(of: &str, columns: [&str; 8], records: &[[u64; 8]], registers: &mut Registers) {
    for (place, column) in columns.iter().enumerate() {
        registers.insert(format!("{of}_{column}"), records.iter().map(|record| record[place]).collect());
    }
}
