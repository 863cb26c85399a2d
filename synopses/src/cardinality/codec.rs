//! Encoding of cardinality synopses.

use alloc::vec::Vec;

use super::baseline::{Bins, Hll, LogLog, Pcsa, Registers};
use super::distinct::Tally;
use super::settings::{
    Age, Correction, Hash, MAX_REGISTERS, Pruning, Rounding, Settings, StHllSettings, TsPcsaSettings,
};
use super::sliding::{MAX_ENTRIES, SlidingHll};
use super::staggered::StHll;
use super::stamped::TsPcsa;
use crate::encoding::{DecodeError, Kind, Reader, open, put_number, seal};

/// A register of one or eight bytes.
trait Fixed: Copy {
    fn put(self, out: &mut Vec<u8>);
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

impl Fixed for u8 {
    fn put(self, out: &mut Vec<u8>) {
        out.push(self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.byte()
    }
}

impl Fixed for u64 {
    fn put(self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.word64()
    }
}

macro_rules! baseline_codec {
    ($synopsis:ty, $kind:expr, $bytes:literal) => {
        impl $synopsis {
            #[doc = concat!("Encodes the registers, ", $bytes, " each. Contains the seed: keep it secret.")]
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                seal($kind, &bins(self))
            }

            /// Decodes a synopsis of at most `most_registers` registers, a bound for its memory.
            ///
            /// # Errors
            ///
            /// [`DecodeError`] if the bytes are invalid.
            pub fn decode(bytes: &[u8], most_registers: usize) -> Result<Self, DecodeError> {
                read_bins(open($kind, bytes)?, most_registers)
            }
        }
    };
}

baseline_codec!(Hll, Kind::Hll, "a byte");
baseline_codec!(LogLog, Kind::LogLog, "a byte");
baseline_codec!(Pcsa, Kind::Pcsa, "eight bytes");

fn bins<R: Registers<Register: Fixed>>(bins: &Bins<R>) -> Vec<u8> {
    let mut out = Vec::new();
    put_settings(&mut out, &bins.settings);
    put_tally(&mut out, bins.tally);
    put_number(&mut out, bins.latest_ns);
    bins.registers.iter().for_each(|register| register.put(&mut out));
    out
}

fn read_bins<R: Registers<Register: Fixed>>(
    mut reader: Reader<'_>,
    most_registers: usize,
) -> Result<Bins<R>, DecodeError> {
    let settings = settings(&mut reader, most_registers)?;
    let mut found = Bins::<R>::new(settings).map_err(|_| IMPOSSIBLE)?;
    found.tally = tally(&mut reader)?;
    let latest_ns = time(&mut reader, settings.start_ns)?;
    found.begin(latest_ns);
    let most = found.most();
    for register in &mut found.registers {
        *register = Fixed::read(&mut reader)?;
        if !R::is_possible(*register, most) {
            return Err(RANK);
        }
    }
    reader.end()?;
    Ok(found)
}

impl StHll {
    /// Encodes settings and registers, a byte each. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_settings(&mut out, &self.settings.common);
        put_number(&mut out, self.settings.skipped as u64);
        put_number(&mut out, self.settings.origin_ns);
        out.extend([self.settings.age as u8, self.settings.correction as u8]);
        put_tally(&mut out, self.tally);
        put_number(&mut out, self.slot);
        out.extend(&self.registers);
        seal(Kind::StHll, &out)
    }

    /// Decodes a synopsis of at most `most_registers` registers, a bound for its memory.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_registers: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::StHll, bytes)?;
        let common = settings(&mut reader, most_registers)?;
        let skipped = reader.size(common.registers, "skipped registers")?;
        let origin_ns = reader.number()?;
        let [age, correction] = reader.array()?;
        let settings = StHllSettings {
            common,
            skipped,
            origin_ns,
            age: Age::of(age).ok_or(DecodeError::Field("an age"))?,
            correction: Correction::of(correction).ok_or(DecodeError::Field("a correction"))?,
        };
        let (tally, slot) = (tally(&mut reader)?, reader.number()?);
        let ranks = reader.bytes(common.registers as u64)?;
        let found = Self::of_ranks(settings, tally, slot, ranks)?;
        reader.end()?;
        Ok(found)
    }

    /// A synopsis with the ranks of a data plane that did the same (`p4/`), in a slot counted from the origin. Ranks of
    /// registers that were reset since are 0.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Field`] if settings, slot or a rank are impossible, or the number of ranks is another one.
    pub fn of_ranks(settings: StHllSettings, tally: Tally, slot: u64, ranks: &[u8]) -> Result<Self, DecodeError> {
        let mut found = Self::new(settings).map_err(|_| IMPOSSIBLE)?;
        found.tally = tally;
        let begins_ns = slot.checked_mul(settings.slot_ns()).and_then(|since| since.checked_add(settings.origin_ns));
        if slot < found.slot || begins_ns.is_none() {
            return Err(DecodeError::Field("a slot"));
        }
        found.go_to(slot);
        if ranks.len() != found.registers.len() || ranks.iter().any(|rank| *rank > found.most()) {
            return Err(RANK);
        }
        found.registers.copy_from_slice(ranks);
        Ok(found)
    }
}

impl SlidingHll {
    /// Encodes the lists, 2 to 11 bytes per entry. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_settings(&mut out, &self.settings);
        put_tally(&mut out, self.tally);
        put_number(&mut out, self.latest_ns);
        for list in &self.lists {
            put_number(&mut out, list.iter().count() as u64);
            for (time_ns, rank) in list.iter() {
                put_number(&mut out, self.latest_ns - time_ns);
                out.push(rank);
            }
        }
        seal(Kind::SlidingHll, &out)
    }

    /// Decodes a synopsis of at most `most_registers` registers, a bound for its memory.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_registers: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::SlidingHll, bytes)?;
        let settings = settings(&mut reader, most_registers)?;
        let mut found = Self::new(settings).map_err(|_| IMPOSSIBLE)?;
        found.tally = tally(&mut reader)?;
        found.latest_ns = time(&mut reader, settings.start_ns)?;
        let most = found.most();
        for register in 0..settings.registers {
            let mut last: Option<(u64, u8)> = None;
            for _ in 0..reader.size(MAX_ENTRIES, "entries of a register")? {
                let time_ns = found.latest_ns.checked_sub(reader.number()?);
                let (time_ns, rank) = (time_ns.ok_or(DecodeError::Field("a time"))?, reader.byte()?);
                // Of two entries of one time the larger says it all: times rise.
                let follows = last.is_none_or(|(before_ns, larger)| before_ns < time_ns && rank < larger);
                if !((1..=most).contains(&rank) && follows) {
                    return Err(DecodeError::Field("the order of entries"));
                }
                found.put(register, (time_ns, rank));
                last = Some((time_ns, rank));
            }
        }
        reader.end()?;
        Ok(found)
    }
}

impl TsPcsa {
    /// Encodes the time stamps, without gaps. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let TsPcsaSettings { common, positions, slot_ns, bits, offsets, rounding, pruning, prune_ns } = self.settings;
        let mut out = Vec::new();
        put_settings(&mut out, &common);
        put_number(&mut out, positions as u64);
        put_number(&mut out, slot_ns);
        out.extend([bits as u8, offsets.into(), rounding as u8, pruning as u8]);
        put_number(&mut out, prune_ns);
        put_tally(&mut out, self.tally);
        put_number(&mut out, self.latest_ns);
        put_number(&mut out, self.pruned_ns);
        out.extend(self.cells.bytes());
        seal(Kind::TsPcsa, &out)
    }

    /// Decodes a synopsis of at most `most_registers` registers, a bound for its memory: 180 bytes each at most.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_registers: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::TsPcsa, bytes)?;
        let common = settings(&mut reader, most_registers)?;
        let positions = reader.size(60, "positions")?;
        let slot_ns = reader.number()?;
        let [bits, offsets, rounding, pruning] = reader.array()?;
        let settings = TsPcsaSettings {
            common,
            positions,
            slot_ns,
            bits: bits.into(),
            offsets: match offsets {
                0 => false,
                1 => true,
                _ => return Err(DecodeError::Field("offsets")),
            },
            rounding: Rounding::of(rounding).ok_or(DecodeError::Field("a rounding"))?,
            pruning: Pruning::of(pruning).ok_or(DecodeError::Field("a pruning"))?,
            prune_ns: reader.number()?,
        };
        let mut found = Self::new(settings).map_err(|_| IMPOSSIBLE)?;
        found.tally = tally(&mut reader)?;
        found.latest_ns = time(&mut reader, common.start_ns)?;
        found.pruned_ns = time(&mut reader, common.start_ns)?;
        // The latest insertion pruned if it was time.
        if found.latest_ns.checked_sub(found.pruned_ns).is_none_or(|since| since > settings.prune_ns) {
            return Err(DecodeError::Field("a time of pruning"));
        }
        found.begin_slot(found.latest_ns);
        let bytes = found.cells.bytes_mut();
        bytes.copy_from_slice(reader.bytes(bytes.len() as u64)?);
        reader.end()?;
        Ok(found)
    }

    /// A synopsis with the slots of a data plane that did the same (`p4/`) until `latest_ns`: for each position of each
    /// register in turn the slot of its latest item, time divided by τ and rounded as the settings say. It is pruned.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Field`] if settings, time or a slot are impossible, or the number of slots is another one.
    pub fn of_slots(
        settings: TsPcsaSettings,
        tally: Tally,
        latest_ns: u64,
        slots: &[Option<u64>],
    ) -> Result<Self, DecodeError> {
        let mut found = Self::new(settings).map_err(|_| IMPOSSIBLE)?;
        if slots.len() != settings.common.registers * settings.positions {
            return Err(DecodeError::Field("a number of positions"));
        }
        found.tally = tally;
        (found.latest_ns, found.pruned_ns) = (latest_ns, latest_ns);
        found.begin_slot(latest_ns);
        if latest_ns < settings.common.start_ns || !found.set_slots(slots) {
            return Err(DecodeError::Field("a time"));
        }
        Ok(found)
    }
}

const IMPOSSIBLE: DecodeError = DecodeError::Field("the settings of a cardinality synopsis");
const RANK: DecodeError = DecodeError::Field("a rank");

fn put_settings(out: &mut Vec<u8>, settings: &Settings) {
    put_number(out, settings.registers as u64);
    put_number(out, settings.window_ns);
    put_number(out, settings.start_ns);
    match settings.hash {
        Hash::Seeded(seed) => {
            out.push(64);
            out.extend(seed.to_le_bytes());
        }
        Hash::Ready32 => out.push(32),
    }
}

fn settings(reader: &mut Reader<'_>, most_registers: usize) -> Result<Settings, DecodeError> {
    let registers = reader.size(most_registers.min(MAX_REGISTERS), "registers")?;
    let (window_ns, start_ns) = (reader.number()?, reader.number()?);
    let hash = match reader.byte()? {
        64 => Hash::Seeded(reader.word64()?),
        32 => Hash::Ready32,
        _ => return Err(DecodeError::Field("a hash")),
    };
    Ok(Settings { registers, window_ns, start_ns, hash })
}

fn put_tally(out: &mut Vec<u8>, tally: Tally) {
    for count in [tally.inserted, tally.late, tally.dropped, tally.overdue] {
        put_number(out, count);
    }
}

fn tally(reader: &mut Reader<'_>) -> Result<Tally, DecodeError> {
    let [inserted, late] = [reader.number()?, reader.number()?];
    let [dropped, overdue] = [reader.number()?, reader.number()?];
    if late > inserted { Err(DecodeError::Field("a count")) } else { Ok(Tally { inserted, late, dropped, overdue }) }
}

/// A time that is not before the start.
fn time(reader: &mut Reader<'_>, start_ns: u64) -> Result<u64, DecodeError> {
    let time_ns = reader.number()?;
    if time_ns >= start_ns { Ok(time_ns) } else { Err(DecodeError::Field("a time before the start")) }
}

#[cfg(test)]
mod tests;
