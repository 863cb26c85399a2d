//! `p4/finecomb-sender` and `p4/finecomb-receiver`.

use packets::identity;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::{Digest, DigestKey, DigestKind};
use synopses::finecomb::{FineComb, Receiver, Settings, StashedPacket};

use crate::begun::{Begun, begins};
use crate::encoding::Reader;
use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;

/// The settings that the compiled programs have.
#[must_use]
pub fn settings() -> Settings {
    Settings::one_bank(64, 0.6, 8, 0x00c0_4b00)
}

/// These settings with values that are derived from digests of this kind.
#[must_use]
pub fn of_kind(settings: Settings, kind: DigestKind) -> Settings {
    Settings { seed: kind.seed(settings.seed), ..settings }
}

/// The programs' constants, those of the receiver or of the sender, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(receives: bool, kind: DigestKind) -> Result<Constants, ConstantsError> {
    programs::finecomb(&of_kind(settings(), kind), receives, &key(kind))
}

/// What a frame was.
enum Event {
    Sync,
    Packet(Digest),
    Other,
}

/// The library's buckets of every other interval.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    key: DigestKey,
    begun: Begun,
    number: u64,
    parities: [FineComb; 2],
}

impl Reference {
    /// Before the first frame of a program with these settings and constants. Values are derived from digests of the
    /// kind that the constants have.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(settings: Settings, constants: &Constants) -> Result<Self, ConstantsError> {
        let empty = FineComb::new(&of_kind(settings, constants.kind()))?;
        let parities = [empty.clone(), empty];
        let (frames, key) = (Frames::new(constants), key(constants.kind()));
        Ok(Self { frames, key, begun: Begun::default(), number: 0, parities })
    }

    /// Does what the library does with a frame. Returns what it was.
    fn insert(&mut self, captured: &Captured) -> Event {
        let packet = self.frames.count(captured);
        if self.begun.take(captured) {
            return Event::Sync;
        }
        let Some(packet) = packet else { return Event::Other };
        let digest = identity::digest(&packet, &self.key);
        self.number += 1;
        self.parities[self.begun.parity()].insert(digest, captured.time_ns);
        Event::Packet(digest)
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        self.insert(captured);
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        self.begun.put(&mut registers);
        registers.insert("number".to_owned(), vec![self.number]);
        registers.insert("packets".to_owned(), self.parities.iter().map(FineComb::packets).collect());
        for finecomb in &self.parities {
            put_buckets(finecomb, &mut registers);
        }
        registers
    }
}

/// Adds the buckets, from their encoding (`synopses/src/finecomb/codec.rs`).
pub fn put_buckets(finecomb: &FineComb, registers: &mut Registers) {
    let encoded = finecomb.encode();
    let mut reader = Reader::of(&encoded);
    let buckets = reader.number();
    reader.skip(1);
    let banks = reader.number();
    for _ in 0..banks {
        reader.skip(8);
        reader.number();
        reader.skip(8);
    }
    reader.skip(4);
    reader.number();
    for _ in 0..banks * buckets {
        let count = reader.number();
        let mut words = [count, 0, 0, 0, 0];
        if count > 0 {
            words[1..].iter_mut().for_each(|word| *word = reader.word());
        }
        for (name, word) in ["counts", "sums_low", "sums_high", "values_low", "values_high"].into_iter().zip(words) {
            registers.entry(name.to_owned()).or_default().push(word);
        }
    }
}

/// Ends of intervals whose stashes there are.
const ENDS: usize = 4;
/// Registers of a stashed packet.
const COLUMNS: [&str; 6] = ["values_low", "values_high", "times_low", "times_high", "rows", "numbers"];

/// The library's receiver.
#[derive(Clone, Debug)]
pub struct ReceiverReference {
    buckets: Reference,
    receiver: Receiver,
    /// Registers of the lists before and after the ends of intervals, as far as they are known.
    before: List,
    after: List,
}

/// A list of stashed packets for each end.
#[derive(Clone, Debug)]
struct List {
    counts: [u64; ENDS],
    columns: [Vec<u64>; 6],
}

impl List {
    fn new(most: usize) -> Self {
        Self { counts: [0; ENDS], columns: core::array::from_fn(|_| vec![0; ENDS * most]) }
    }

    /// Writes the packets of an end. What is behind them stays as it was.
    fn put(&mut self, end: usize, packets: &[StashedPacket]) {
        let first = end % ENDS * self.columns[0].len() / ENDS;
        for (at, packet) in packets.iter().enumerate() {
            let StashedPacket { digest, time_ns, row, number } = *packet;
            let halves = |word: u64| [word & 0xffff_ffff, word >> 32];
            let ([low, high], [early, late]) = (halves(digest), halves(time_ns));
            let words = [low, high, early, late, u64::from(row), number];
            for (column, word) in self.columns.iter_mut().zip(words) {
                column[first + at] = word;
            }
        }
    }

    fn registers(&self, name: &str, registers: &mut Registers) {
        registers.insert(format!("{name}_count"), self.counts.to_vec());
        for (column, entries) in COLUMNS.iter().zip(&self.columns) {
            registers.insert(format!("{name}_{column}"), entries.clone());
        }
    }
}

impl ReceiverReference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, ConstantsError> {
        let settings = settings();
        let most = settings.banks.first().map_or(0, |bank| bank.stash);
        let (before, after) = (List::new(most), List::new(most));
        let receiver = Receiver::new(&of_kind(settings.clone(), constants.kind()))?;
        Ok(Self { buckets: Reference::new(settings, constants)?, receiver, before, after })
    }

    /// Writes down what is stashed at both ends of the current interval.
    fn keep(&mut self) {
        // As if the interval ended now.
        let mut ended = self.receiver.clone();
        ended.sync();
        let Some(interval) = ended.take() else { return };
        let end = self.buckets.begun.count() + 1;
        for stash in interval.start() {
            self.after.put(end - 1, stash.after);
            self.after.counts[(end - 1) % ENDS] = stash.after.len() as u64;
        }
        for stash in interval.end() {
            self.before.put(end, stash.before);
        }
        let mut buckets = Registers::new();
        put_buckets(interval.finecomb(), &mut buckets);
        self.before.counts[end % ENDS] = buckets.get("counts").map_or(0, |counts| counts.iter().sum());
    }
}

impl model::Reference for ReceiverReference {
    fn process(&mut self, captured: &Captured) {
        // The frame may begin an interval: what is stashed until now is needed.
        if begins(captured).is_some() {
            self.keep();
        }
        match self.buckets.insert(captured) {
            Event::Sync => {
                self.receiver.sync();
                let end = (self.buckets.begun.count() + 1) % ENDS;
                (self.before.counts[end], self.after.counts[end]) = (0, 0);
            }
            Event::Packet(digest) => self.receiver.insert(digest, captured.time_ns),
            Event::Other => {}
        }
    }

    fn registers(&self) -> Registers {
        let mut registers = self.buckets.registers();
        let mut now = self.clone();
        now.keep();
        now.before.registers("before", &mut registers);
        now.after.registers("after", &mut registers);
        registers
    }
}
