//! `p4/finecomb-sender` and the part of `p4/finecomb-receiver` that both have.

use packets::identity;
use synopses::digest::{Digest, DigestKey};
use synopses::finecomb::{FineComb, Settings, SettingsError};

use crate::encoding::Reader;
use crate::fridge::key;
use crate::frames::{Captured, Frames};
use crate::programs::Constant;
use crate::registers::Registers;

/// Ethernet's kind of a frame that begins an interval (`shared/headers.p4`).
pub const SYNC: [u8; 2] = [0x88, 0xb6];

/// The settings that the compiled programs have.
#[must_use]
pub fn settings() -> Settings {
    Settings::one_bank(64, 0.6, 8, 0x00c0_4b00)
}

/// The programs' constants, for `constants.p4`.
///
/// # Errors
///
/// [`SettingsError`] if the settings are not possible.
pub fn constants() -> Result<Vec<Constant>, SettingsError> {
    let settings = settings();
    let of = FineComb::new(&settings)?.constants();
    let mut constants = vec![("BUCKETS".to_owned(), 32, settings.buckets as u64)];
    constants.extend(settings.banks.iter().map(|bank| ("STASH".to_owned(), 32, bank.stash as u64)));
    constants.extend(of.samples.iter().map(|(_, more)| ("SAMPLED".to_owned(), 64, *more)));
    constants.extend(["SAMPLE", "ROW", "VALUE"].into_iter().zip(of.mixers).map(|(name, mixer)| (name.to_owned(), 64, mixer)));
    let words = key().secret_words().into_iter().take(16).enumerate();
    constants.extend(words.map(|(at, word)| (format!("SECRET_{at}"), 64, word)));
    Ok(constants)
}

/// The number in a frame that begins an interval.
#[must_use]
pub fn begins(captured: &Captured) -> Option<u32> {
    let behind = captured.bytes.get(12..)?.strip_prefix(&SYNC)?;
    behind.first_chunk::<4>().map(|number| u32::from_be_bytes(*number))
}

/// The library's buckets of both parities.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    key: DigestKey,
    interval: u32,
    number: u64,
    parities: [FineComb; 2],
}

impl Reference {
    /// Before the first frame.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the settings are not possible.
    pub fn new() -> Result<Self, SettingsError> {
        let empty = FineComb::new(&settings())?;
        let parities = [empty.clone(), empty];
        Ok(Self { frames: Frames::default(), key: key(), interval: 0, number: 0, parities })
    }

    /// Does what the library does with a frame. Returns the digest of its packet.
    pub fn insert(&mut self, captured: &Captured) -> Option<Digest> {
        let packet = self.frames.count(captured);
        if let Some(number) = begins(captured) {
            let later = number.wrapping_sub(self.interval);
            if later != 0 && later < 1 << 31 {
                self.interval = number;
            }
        }
        let digest = identity::digest(&packet?, &self.key);
        self.number += 1;
        self.parities[self.interval as usize % 2].insert(digest, captured.time_ns);
        Some(digest)
    }

    /// Number of the interval.
    #[must_use]
    pub const fn interval(&self) -> u32 {
        self.interval
    }
}

impl crate::programs::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        self.insert(captured);
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        registers.insert("interval".to_owned(), vec![u64::from(self.interval)]);
        registers.insert("number".to_owned(), vec![self.number]);
        registers.insert("packets".to_owned(), self.parities.iter().map(FineComb::packets).collect());
        for finecomb in &self.parities {
            put_buckets(finecomb, &mut registers);
        }
        registers
    }
}

/// Adds the buckets, from their encoding (`synopses/src/finecomb/codec.rs`).
fn put_buckets(finecomb: &FineComb, registers: &mut Registers) {
    let encoded = finecomb.encode();
    let mut reader = Reader::of(&encoded);
    let buckets = reader.number();
    reader.skip(1);
    for _ in 0..reader.number() {
        reader.skip(8);
        reader.number();
        reader.skip(8);
    }
    reader.skip(4);
    reader.number();
    for _ in 0..buckets {
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
