//! Encoding of buckets and tallies. Empty ones are left out.

use alloc::vec::Vec;

use super::heavy::{Heavy, HeavyFlows, NONE};
use super::hybrid::Reordering;
use super::report::Counters;
use super::sampling::{EMPTY, Sample, SamplingArray};
use super::segment::{Definition, Prefix};
use super::settings::{Reports, Settings, Split};
use super::tally::{PrefixTally, Sums};
use crate::encoding::{DecodeError, Kind, Reader, open, put_number, seal};
use crate::rap::{Admission, HeavyHitters as _, Rap};

impl Reordering {
    /// Encodes the whole state, about 28 bytes per bucket in use. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_settings(&mut out, &self.settings);
        let mut counters = self.counters;
        counters.words().into_iter().for_each(|word| put_number(&mut out, *word));
        if let Some(heavy) = &self.heavy {
            out.extend(heavy.coins.drawn.to_le_bytes());
            put_places(
                &mut out,
                &heavy.records,
                |record| record.count == 0,
                |out, record| {
                    put_words(out, [record.flow, record.prefix.0]);
                    put_halves(out, [record.count, record.checked, record.events, record.state]);
                },
            );
        }
        if let Some(samples) = &self.samples {
            put_places(
                &mut out,
                &samples.records,
                |record| record.flow == 0,
                |out, record| {
                    put_words(out, [record.flow, record.prefix.0]);
                    put_halves(out, [record.state, record.tick]);
                    put_number(out, record.packets.into());
                    put_number(out, record.events.into());
                },
            );
        }
        seal(Kind::Reordering, &out)
    }

    /// Decodes a state of at most `most_buckets` buckets, a bound for its memory.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_buckets: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::Reordering, bytes)?;
        let settings = settings(&mut reader, most_buckets)?;
        let mut found = Self::new(settings).map_err(|_| DecodeError::Field("the settings of reordering"))?;
        found.counters = counters(&mut reader)?;
        if let Some(heavy) = &mut found.heavy {
            fill_heavy(&mut reader, heavy)?;
        }
        if let Some(samples) = &mut found.samples {
            fill_samples(&mut reader, samples)?;
        }
        reader.end()?;
        Ok(found)
    }
}

fn put_words<const N: usize>(out: &mut Vec<u8>, words: [u64; N]) {
    out.extend(words.into_iter().flat_map(u64::to_le_bytes));
}

fn put_halves<const N: usize>(out: &mut Vec<u8>, words: [u32; N]) {
    out.extend(words.into_iter().flat_map(u32::to_le_bytes));
}

fn put_places<T>(out: &mut Vec<u8>, records: &[T], empty: impl Fn(&T) -> bool, put: impl Fn(&mut Vec<u8>, &T)) {
    let used = records.iter().enumerate().filter(|(_, record)| !empty(record));
    put_number(out, used.clone().count() as u64);
    let mut next = 0;
    for (place, record) in used {
        put_number(out, (place - next) as u64);
        put(out, record);
        next = place + 1;
    }
}

fn put_settings(out: &mut Vec<u8>, settings: &Settings) {
    put_number(out, settings.buckets as u64);
    let (code, share) = match settings.split {
        Split::SamplingOnly => (0, 0.0),
        Split::HeavyOnly => (1, 0.0),
        Split::Hybrid(share) => (2, share),
    };
    out.extend([code, settings.definition as u8, settings.admission as u8, settings.reports as u8]);
    out.push(settings.tick_shift as u8);
    out.extend(share.to_le_bytes());
    out.extend(settings.heavy_share.to_le_bytes());
    put_number(out, settings.timeout_ns);
    put_number(out, settings.most_packets.into());
    put_number(out, settings.least_events.into());
    put_number(out, settings.stages as u64);
    out.extend(settings.seed.to_le_bytes());
}

fn settings(reader: &mut Reader<'_>, most_buckets: usize) -> Result<Settings, DecodeError> {
    let buckets = reader.size(most_buckets, "buckets")?;
    let [split, definition, admission, reports, tick_shift] = reader.array()?;
    let share = reader.amount("a share of buckets")?;
    Ok(Settings {
        buckets,
        split: match split {
            0 => Split::SamplingOnly,
            1 => Split::HeavyOnly,
            2 => Split::Hybrid(share),
            _ => return Err(DecodeError::Field("a split")),
        },
        definition: match definition {
            0 => Definition::BelowPredecessor,
            1 => Definition::AboveExpected,
            2 => Definition::BelowMaximum,
            _ => return Err(DecodeError::Field("a definition")),
        },
        admission: Admission::of(admission).ok_or(DecodeError::Field("a law of admission"))?,
        reports: match reports {
            0 => Reports::Suspicious,
            1 => Reports::Always,
            _ => return Err(DecodeError::Field("the reports to be sent")),
        },
        tick_shift: tick_shift.into(),
        heavy_share: reader.amount("a share of events")?,
        timeout_ns: reader.number()?,
        most_packets: reader.size(u16::MAX.into(), "packets of a record")? as u16,
        least_events: reader.size(u16::MAX.into(), "events of a record")? as u16,
        stages: reader.size(most_buckets, "stages")?,
        seed: reader.word64()?,
    })
}

fn counters(reader: &mut Reader<'_>) -> Result<Counters, DecodeError> {
    let mut counters = Counters::default();
    for word in counters.words() {
        *word = reader.number()?;
        // Counts go on from here.
        if *word > 1 << 62 {
            return Err(DecodeError::Field("a count"));
        }
    }
    Ok(counters)
}

fn fill_heavy(reader: &mut Reader<'_>, heavy: &mut HeavyFlows) -> Result<(), DecodeError> {
    heavy.coins.drawn = reader.word64()?;
    let (size, mut last) = (heavy.records.len(), None);
    for _ in 0..reader.size(size, "heavy flows")? {
        let at = reader.place(last, size)?;
        let (flow, prefix) = (reader.word64()?, Prefix(reader.word64()?));
        let [count, checked, events, state] = [reader.word32()?, reader.word32()?, reader.word32()?, reader.word32()?];
        let record = Heavy { flow, prefix, count, checked, events, state };
        let placed = heavy.places(prefix).any(|place| place == at);
        if !(placed && count > NONE.count && flow != NONE.flow && checked <= count && events <= checked) {
            return Err(DecodeError::Field("a heavy flow"));
        }
        heavy.records[at] = record;
        last = Some(at);
    }
    Ok(())
}

fn fill_samples(reader: &mut Reader<'_>, samples: &mut SamplingArray) -> Result<(), DecodeError> {
    let (size, mut last) = (samples.records.len(), None);
    for _ in 0..reader.size(size, "samples")? {
        let at = reader.place(last, size)?;
        let (flow, prefix) = (reader.word64()?, Prefix(reader.word64()?));
        let [state, tick] = [reader.word32()?, reader.word32()?];
        let packets = reader.size(u16::MAX.into(), "packets of a record")? as u16;
        let events = reader.size(packets.into(), "events of a record")? as u16;
        if flow == EMPTY.flow || samples.bucket(prefix) != at {
            return Err(DecodeError::Field("the place of a sample"));
        }
        samples.records[at] = Sample { flow, prefix, state, tick, packets, events };
        last = Some(at);
    }
    Ok(())
}

impl PrefixTally {
    /// Encodes the tally, 20 to 50 bytes per prefix. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let table = self.prefixes.encode();
        put_number(&mut out, self.dropped);
        put_number(&mut out, table.len() as u64);
        out.extend(table);
        for sums in self.prefixes.entries().filter_map(|entry| self.sums_of(Prefix(entry.digest.0))) {
            for sum in [sums.packets, sums.out_of_order, sums.reports] {
                put_number(&mut out, sum);
            }
        }
        seal(Kind::PrefixTally, &out)
    }

    /// Decodes a tally of at most `most_prefixes` prefixes.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_prefixes: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::PrefixTally, bytes)?;
        let dropped = reader.number()?;
        let length = reader.number()?;
        let prefixes = Rap::decode(reader.bytes(length)?, most_prefixes)?;
        let mut tally = Self::new(prefixes.settings().entries, prefixes.settings().seed)
            .map_err(|_| DecodeError::Field("a number of prefixes"))?;
        (tally.prefixes, tally.dropped) = (prefixes, dropped);
        // A decoded table has its entries in this order.
        for (sums, entry) in tally.sums.iter_mut().zip(tally.prefixes.entries()) {
            let [packets, out_of_order, reports] = [reader.number()?, reader.number()?, reader.number()?];
            if out_of_order > packets || reports == 0 {
                return Err(DecodeError::Field("the sums of a prefix"));
            }
            *sums = Sums { prefix: entry.digest.0, packets, out_of_order, reports };
        }
        reader.end()?;
        Ok(tally)
    }
}

#[cfg(test)]
mod tests;
