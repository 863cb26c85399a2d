//! Coding of one column of a block. All codings that fit are tried, and the smallest is kept. Exact to the bit, except
//! that every NaN is the same.

use crate::bytes::{FormatError, Reader, put_number, put_signed};

/// The coding in the first byte of a column, without [`WITH_MISSING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Coding {
    /// All values are missing.
    Absent = 0,
    /// The same value in all rows.
    Constant = 1,
    /// Numerators over a power of ten.
    Decimal = 2,
    /// Numerators over a power of ten and the value of the column before.
    Quotient = 3,
    /// Indexes into a list of values.
    Dictionary = 4,
    /// XOR with the value before, one plane per byte.
    Planes = 5,
}

impl Coding {
    fn of(code: u8) -> Result<Self, FormatError> {
        let all = [Self::Absent, Self::Constant, Self::Decimal, Self::Quotient, Self::Dictionary, Self::Planes];
        all.into_iter().find(|coding| *coding as u8 == code).ok_or(FormatError("a column's coding"))
    }
}

/// A bitmap follows: whether the value of each row is present.
const WITH_MISSING: u8 = 0x80;
/// Numerators are differences from the one before.
const DIFFERENCES: u8 = 0x80;
/// The highest power of ten: nanoseconds in a second.
const MAX_DIGITS: u8 = 9;
/// Integers up to this are exact in a double.
const EXACT: f64 = (1_u64 << 53) as f64;
/// Numerators are not used if more than one value in this many does not fit.
const MIN_EXACT: usize = 4;
/// Maximum size of a dictionary.
const MAX_WORDS: usize = 256;

/// Appends `values`, one per row. `before` is the previous column of the block; empty for the first one.
pub(crate) fn encode(values: &[f64], before: &[f64], out: &mut Vec<u8>) {
    let rows: Vec<usize> = (0..values.len()).filter(|row| !values[*row].is_nan()).collect();
    let there: Vec<f64> = rows.iter().map(|row| values[*row]).collect();
    let Some(&first) = there.first() else {
        out.push(Coding::Absent as u8);
        return;
    };
    let with_missing = if there.len() < values.len() { WITH_MISSING } else { 0 };
    let mut put = |coding: Coding, body: &[u8]| {
        out.push(coding as u8 | with_missing);
        if with_missing != 0 {
            out.extend(bitmap(values));
        }
        out.extend_from_slice(body);
    };
    if there.iter().all(|value| value.to_bits() == first.to_bits()) {
        return put(Coding::Constant, &first.to_le_bytes());
    }
    let mut candidates = vec![(Coding::Planes, planes(&there))];
    candidates.extend(dictionary(&there).map(|body| (Coding::Dictionary, body)));
    candidates.extend(numerators(&there, None).into_iter().map(|body| (Coding::Decimal, body)));
    if !before.is_empty() {
        let below: Vec<f64> = rows.iter().map(|row| before[*row]).collect();
        candidates.extend(numerators(&there, Some(&below)).into_iter().map(|body| (Coding::Quotient, body)));
    }
    let best = candidates.iter().min_by(|a, b| packed(&a.1).total_cmp(&packed(&b.1)));
    if let Some((coding, body)) = best {
        put(*coding, body);
    }
}

/// Decodes a column of `rows` values, written by [`encode`].
pub(crate) fn decode(reader: &mut Reader<'_>, rows: usize, before: &[f64]) -> Result<Vec<f64>, FormatError> {
    let tag = reader.byte()?;
    let coding = Coding::of(tag & !WITH_MISSING)?;
    let mut values = vec![f64::NAN; rows];
    if coding == Coding::Absent {
        return Ok(values);
    }
    let bits = if tag & WITH_MISSING == 0 { None } else { Some(reader.take(rows.div_ceil(8))?) };
    let is_there = |row: &usize| bits.is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1);
    let places: Vec<usize> = (0..rows).filter(is_there).collect();
    let there = match coding {
        Coding::Absent => Vec::new(),
        Coding::Constant => vec![reader.float()?; places.len()],
        Coding::Planes => from_planes(reader.take(8 * places.len())?, places.len()),
        Coding::Dictionary => from_dictionary(reader, places.len())?,
        Coding::Decimal => from_numerators(reader, &vec![1.0; places.len()])?,
        Coding::Quotient if before.is_empty() => return Err(FormatError("the coding of the first column")),
        Coding::Quotient => {
            let below: Vec<f64> = places.iter().map(|row| before[*row]).collect();
            from_numerators(reader, &below)?
        }
    };
    for (row, value) in places.into_iter().zip(there) {
        values[row] = if value.is_nan() { f64::NAN } else { value };
    }
    Ok(values)
}

fn bitmap(values: &[f64]) -> Vec<u8> {
    let byte = |rows: &[f64]| {
        let bits = rows.iter().enumerate().map(|(bit, value)| u8::from(!value.is_nan()) << bit);
        bits.fold(0, |byte, bit| byte | bit)
    };
    values.chunks(8).map(byte).collect()
}

/// Estimates the compressed size of `bytes`: their entropy, plus one byte per distinct value.
fn packed(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let all = bytes.len() as f64;
    let of = |count: &u32| 1.0 + f64::from(*count) * (all / f64::from(*count)).log2() / 8.0;
    counts.iter().filter(|count| **count > 0).map(of).sum()
}

fn planes(values: &[f64]) -> Vec<u8> {
    let mut out = vec![0; 8 * values.len()];
    let mut before = 0;
    for (place, value) in values.iter().enumerate() {
        let bits = value.to_bits() ^ before;
        before = value.to_bits();
        for (plane, byte) in bits.to_be_bytes().into_iter().enumerate() {
            out[plane * values.len() + place] = byte;
        }
    }
    out
}

fn from_planes(planes: &[u8], count: usize) -> Vec<f64> {
    let mut before = 0;
    let value = |place: usize| {
        let bits = (0..8).fold(0, |bits, plane| bits << 8 | u64::from(planes[plane * count + place]));
        before ^= bits;
        f64::from_bits(before)
    };
    (0..count).map(value).collect()
}

fn dictionary(values: &[f64]) -> Option<Vec<u8>> {
    let mut words: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
    words.sort_unstable();
    words.dedup();
    if words.len() > MAX_WORDS || 2 * words.len() > values.len() {
        return None;
    }
    let mut out = Vec::new();
    put_number(&mut out, words.len() as u64);
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    out.extend(values.iter().map(|value| words.partition_point(|word| *word < value.to_bits()) as u8));
    Some(out)
}

fn from_dictionary(reader: &mut Reader<'_>, count: usize) -> Result<Vec<f64>, FormatError> {
    let size = reader.size(MAX_WORDS, "the size of a dictionary")?;
    let words = (0..size).map(|_| reader.float()).collect::<Result<Vec<_>, _>>()?;
    let word = |place: &u8| words.get(usize::from(*place)).copied().ok_or(FormatError("a place in a dictionary"));
    reader.take(count)?.iter().map(word).collect()
}

/// Values as numerators over 10ᵈ, times the value `below` if there is one. Values that do not fit are stored as they
/// are.
struct Numerators {
    digits: u8,
    whole: Vec<i64>,
    others: Vec<(usize, f64)>,
}

fn value_of(numerator: i64, below: f64, digits: u8) -> f64 {
    // The order in which a mean is computed: a sum over a count, then converted to the metric's unit.
    numerator as f64 / below / 10_f64.powi(i32::from(digits))
}

impl Numerators {
    fn of(values: &[f64], below: Option<&[f64]>, digits: u8) -> Self {
        let scale = 10_f64.powi(i32::from(digits));
        let mut out = Self { digits, whole: Vec::new(), others: Vec::new() };
        for (place, &value) in values.iter().enumerate() {
            let below = below.map_or(1.0, |below| below[place]);
            let numerator = (value * scale * below).round();
            let exact =
                numerator.abs() <= EXACT && value_of(numerator as i64, below, digits).to_bits() == value.to_bits();
            if exact { out.whole.push(numerator as i64) } else { out.others.push((place, value)) }
        }
        out
    }

    fn encode(&self, differences: bool) -> Vec<u8> {
        let mut out = vec![self.digits | if differences { DIFFERENCES } else { 0 }];
        put_number(&mut out, self.others.len() as u64);
        for (place, value) in &self.others {
            put_number(&mut out, *place as u64);
            out.extend(value.to_le_bytes());
        }
        let mut before = 0;
        for &numerator in &self.whole {
            put_signed(&mut out, if differences { numerator.wrapping_sub(before) } else { numerator });
            before = numerator;
        }
        out
    }
}

/// With the least digits that leave the fewest values over; as they are, and as differences.
fn numerators(values: &[f64], below: Option<&[f64]>) -> Vec<Vec<u8>> {
    let mut best: Option<Numerators> = None;
    for digits in 0..=MAX_DIGITS {
        let found = Numerators::of(values, below, digits);
        let done = found.others.is_empty();
        if best.as_ref().is_none_or(|best| found.others.len() < best.others.len()) {
            best = Some(found);
        }
        if done {
            break;
        }
    }
    let best = best.filter(|best| MIN_EXACT * best.others.len() <= values.len());
    best.map_or_else(Vec::new, |best| vec![best.encode(false), best.encode(true)])
}

fn from_numerators(reader: &mut Reader<'_>, below: &[f64]) -> Result<Vec<f64>, FormatError> {
    let tag = reader.byte()?;
    let digits = tag & !DIFFERENCES;
    if digits > MAX_DIGITS {
        return Err(FormatError("the digits of a column"));
    }
    let count = reader.size(below.len(), "the number of a column's exceptions")?;
    let mut values = vec![None; below.len()];
    for _ in 0..count {
        let place = reader.size(below.len().saturating_sub(1), "the place of an exception")?;
        values[place] = Some(reader.float()?);
    }
    let mut before = 0_i64;
    let value = |(value, below): (Option<f64>, &f64)| {
        if let Some(value) = value {
            return Ok(value);
        }
        let read = reader.signed()?;
        before = if tag & DIFFERENCES == 0 { read } else { before.wrapping_add(read) };
        Ok(value_of(before, *below, digits))
    };
    values.into_iter().zip(below).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn assert_comes_back(values: &[f64], before: &[f64]) -> usize {
        let mut bytes = Vec::new();
        encode(values, before, &mut bytes);
        let mut reader = Reader::new(&bytes);
        let found = decode(&mut reader, values.len(), before).unwrap();
        assert_eq!(reader.end(), Ok(()));
        for (found, value) in found.iter().zip(values) {
            let same = found.to_bits() == value.to_bits() || (found.is_nan() && value.is_nan());
            assert!(same, "{found} instead of {value}");
        }
        bytes.len()
    }

    fn coding_of(values: &[f64], before: &[f64]) -> Coding {
        let mut bytes = Vec::new();
        encode(values, before, &mut bytes);
        Coding::of(bytes[0] & !WITH_MISSING).unwrap()
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (-1000_i32..1000).prop_map(f64::from),
            4 => (0_u32..1_000_000).prop_map(|micros| f64::from(micros) / 1e6),
            2 => any::<f64>(),
            2 => prop::sample::select(vec![f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, 5e-324, -0.0, 0.0]),
        ]
    }

    proptest! {
        #[test]
        fn any_values_come_back_to_the_bit(rows in prop::collection::vec((value(), value()), 1..200)) {
            let (values, before): (Vec<f64>, Vec<f64>) = rows.into_iter().unzip();

            assert_comes_back(&values, &[]);
            assert_comes_back(&values, &before);
        }

        #[test]
        fn any_bytes_decode_to_values_or_to_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), rows in 1_usize..64) {
            let _ = decode(&mut Reader::new(&bytes), rows, &vec![2.0; rows]);
        }
    }

    #[test]
    fn what_metrics_are_made_of_has_the_coding_that_was_made_for_it() {
        let wave = |row: u64| (row * 7919) % 523 + 40;
        let counts: Vec<f64> = (0..512).map(|row| (wave(row) % 30 + 1) as f64).collect();
        let means: Vec<f64> = (0..512).zip(&counts).map(|(row, count)| wave(row) as f64 * 37.0 / count / 1e6).collect();
        let percentiles: Vec<f64> =
            (0..512).map(|row| [1.1e-3, 1.4e-3, 1.9e-3][wave(row) as usize % 3] / 3.0).collect();
        let seconds: Vec<f64> = (0..512).map(|row| wave(row) as f64 / 100.0).collect();
        let odd: Vec<f64> = (0..512).map(|row| (wave(row) as f64).sqrt()).collect();

        assert_eq!(coding_of(&[3.0; 9], &[]), Coding::Constant);
        assert_eq!(coding_of(&[f64::NAN; 9], &[]), Coding::Absent);
        assert_eq!(coding_of(&counts, &[]), Coding::Decimal);
        assert_eq!(coding_of(&seconds, &counts), Coding::Decimal);
        assert_eq!(coding_of(&means, &counts), Coding::Quotient);
        assert_eq!(coding_of(&percentiles, &counts), Coding::Dictionary);
        assert_eq!(coding_of(&odd, &counts), Coding::Planes);
    }

    #[test]
    fn a_few_values_that_are_no_fractions_do_not_spoil_the_others() {
        let mut values: Vec<f64> = (0..200).map(|row| f64::from(row * row % 91)).collect();
        values[17] = 1.0 / 3.0;
        values[19] = f64::NAN;

        assert_eq!(coding_of(&values, &[]), Coding::Decimal);
        assert!(assert_comes_back(&values, &[]) < 400, "planes would take 1,600 bytes");
    }
}
