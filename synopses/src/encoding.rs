//! The common header of all encodings, with type and checksum.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | `uvS\n`; the line end detects a conversion as text |
//! | 1 | version of the encoding, 1 |
//! | 1 | kind of synopsis |
//! | 4 | length of the payload |
//! | 4 | CRC-32 of version, kind and payload |
//! | … | payload: little-endian words, counts and places as LEB128 |
//!
//! The checksum detects accidental changes only. Against forgery, authenticate the channel.

use alloc::vec::Vec;

use thiserror::Error;

const MAGIC: [u8; 4] = *b"uvS\n";
const VERSION: u8 = 1;
/// Length of the header in bytes.
const HEAD: usize = 14;

/// The kind of synopsis in an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    /// A [`crate::fridge::Fridge`].
    Fridge = 1,
    /// Several fridges, [`crate::fridge::Fridges`].
    Fridges = 2,
    /// A [`crate::fridge::Histogram`].
    Histogram = 3,
    /// A [`crate::finecomb::FineComb`].
    FineComb = 4,
    /// An [`crate::rda::Rda`].
    Rda = 5,
    /// Counters of differences, [`crate::rda::XorCounters`].
    XorCounters = 6,
    /// A [`crate::rap::Rap`].
    Rap = 7,
    /// A [`crate::rap::SpaceSaving`].
    SpaceSaving = 8,
    /// A [`crate::rap::Precision`].
    Precision = 9,
    /// A [`crate::rap::DWayRap`].
    DWayRap = 10,
    /// A [`crate::reordering::Reordering`].
    Reordering = 11,
    /// A [`crate::reordering::PrefixTally`].
    PrefixTally = 12,
    /// A [`crate::cardinality::Hll`].
    Hll = 13,
    /// A [`crate::cardinality::LogLog`].
    LogLog = 14,
    /// A [`crate::cardinality::Pcsa`].
    Pcsa = 15,
    /// A [`crate::cardinality::StHll`].
    StHll = 16,
    /// A [`crate::cardinality::SlidingHll`].
    SlidingHll = 17,
    /// A [`crate::cardinality::TsPcsa`].
    TsPcsa = 18,
    /// A [`crate::disaggregated::Fragment`].
    Fragment = 19,
    /// A [`crate::disaggregated::PathTable`].
    PathTable = 20,
}

/// All kinds of synopses.
pub const KINDS: [Kind; 20] = [
    Kind::Fridge,
    Kind::Fridges,
    Kind::Histogram,
    Kind::FineComb,
    Kind::Rda,
    Kind::XorCounters,
    Kind::Rap,
    Kind::SpaceSaving,
    Kind::Precision,
    Kind::DWayRap,
    Kind::Reordering,
    Kind::PrefixTally,
    Kind::Hll,
    Kind::LogLog,
    Kind::Pcsa,
    Kind::StHll,
    Kind::SlidingHll,
    Kind::TsPcsa,
    Kind::Fragment,
    Kind::PathTable,
];

/// Why bytes were not decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes do not begin with the magic number.
    #[error("not a synopsis: the first bytes are {0:02x?}")]
    Magic([u8; 4]),
    /// The encoding is of a later version. Update the reader.
    #[error("encoded in version {0}, this reader knows {VERSION}")]
    Version(u8),
    /// The encoding holds another kind of synopsis.
    #[error("an encoding of kind {found}, expected {expected:?}")]
    Kind {
        /// Kind in the header.
        found: u8,
        /// The kind that was requested.
        expected: Kind,
    },
    /// The bytes are truncated, or followed by others.
    #[error("{found} bytes, expected {expected}")]
    Length {
        /// Number of bytes.
        found: usize,
        /// Expected number of bytes, at least.
        expected: usize,
    },
    /// The bytes were changed.
    #[error("the checksum is {found:08x}, the bytes give {expected:08x}")]
    Checksum {
        /// Checksum in the header.
        found: u32,
        /// Checksum of the bytes.
        expected: u32,
    },
    /// Larger than the caller's limit. Decode with a higher limit if that much memory is available.
    #[error("{what}: {found}, the limit is {most}")]
    TooLarge {
        /// Name of the quantity.
        what: &'static str,
        /// Value in the encoding.
        found: u64,
        /// The caller's limit.
        most: u64,
    },
    /// The other end has other settings, so the two cannot be compared.
    #[error("encoded with other settings than this end has: size, probabilities, sampling or seed")]
    Parameters,
    /// A value outside its valid range.
    #[error("{0} is out of range")]
    Field(&'static str),
}

/// Prepends the header to a payload. Public for tests of decoders: a fuzzer cannot guess a checksum.
#[must_use]
pub fn seal(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + payload.len());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, kind as u8]);
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(checksum(kind, payload).to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn checksum(kind: Kind, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[VERSION, kind as u8]);
    hasher.update(payload);
    hasher.finalize()
}

pub(crate) fn open(expected: Kind, bytes: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut head = Reader(bytes);
    let magic = head.array()?;
    if magic != MAGIC {
        return Err(DecodeError::Magic(magic));
    }
    let [version, kind] = head.array()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    if kind != expected as u8 {
        return Err(DecodeError::Kind { found: kind, expected });
    }
    let length = head.word32()? as usize;
    let found = head.word32()?;
    if head.0.len() != length {
        return Err(DecodeError::Length { found: bytes.len(), expected: length.saturating_add(HEAD) });
    }
    match checksum(expected, head.0) {
        sum if sum == found => Ok(head),
        sum => Err(DecodeError::Checksum { found, expected: sum }),
    }
}

pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads the rest of a payload.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let cut = DecodeError::Length { found: self.0.len(), expected: N };
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(cut)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Skips these bytes if they are next. False if they are not.
    pub(crate) fn skip(&mut self, bytes: &[u8]) -> bool {
        let rest = self.0.strip_prefix(bytes);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Reads this many bytes.
    pub(crate) fn bytes(&mut self, length: u64) -> Result<&[u8], DecodeError> {
        let cut = DecodeError::Length { found: self.0.len(), expected: usize::try_from(length).unwrap_or(usize::MAX) };
        let taken = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = taken.ok_or(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn word32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn word64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a finite, non-negative number.
    pub(crate) fn amount(&mut self, what: &'static str) -> Result<f64, DecodeError> {
        let found = self.array().map(f64::from_le_bytes)?;
        if found.is_finite() && found >= 0.0 { Ok(found) } else { Err(DecodeError::Field(what)) }
    }

    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(DecodeError::Field("a number of more than 64 bits"))
    }

    /// Reads a size, at most `most`.
    pub(crate) fn size(&mut self, most: usize, what: &'static str) -> Result<usize, DecodeError> {
        let (found, most) = (self.number()?, most as u64);
        if found <= most { Ok(found as usize) } else { Err(DecodeError::TooLarge { what, found, most }) }
    }

    /// Reads the gap after index `previous` and returns the next index, below `size`.
    pub(crate) fn place(&mut self, previous: Option<usize>, size: usize) -> Result<usize, DecodeError> {
        let first = previous.map_or(0, |place| place + 1);
        let gap = usize::try_from(self.number()?).ok();
        let place = gap.and_then(|gap| first.checked_add(gap)).filter(|place| *place < size);
        place.ok_or(DecodeError::Field("a place beyond the end"))
    }

    /// Fails if there are bytes left.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Length { found: self.0.len(), expected: 0 }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn a_payload_comes_back_and_no_change_goes_unnoticed() {
        let bytes = seal(Kind::Histogram, b"payload");

        assert_eq!(open(Kind::Histogram, &bytes).and_then(|mut reader| reader.array()), Ok(*b"payload"));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert!(open(Kind::Histogram, &changed).is_err(), "byte {at}");
            assert!(open(Kind::Histogram, &bytes[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut bytes = seal(Kind::Histogram, b"");
        let of = |bytes: &[u8], kind| open(kind, bytes).unwrap_err().to_string();

        assert_eq!(of(&bytes, Kind::Fridge), "an encoding of kind 3, expected Fridge");
        bytes[4] = 2;
        assert_eq!(of(&bytes, Kind::Histogram), "encoded in version 2, this reader knows 1");
        assert_eq!(of(b"text", Kind::Fridge), "not a synopsis: the first bytes are [74, 65, 78, 74]");
        let most = DecodeError::TooLarge { what: "slots", found: 10, most: 9 };
        assert_eq!(most.to_string(), "slots: 10, the limit is 9");
    }

    #[test]
    fn numbers_of_every_size_come_back() {
        for number in [0, 1, 127, 128, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut reader = Reader(&bytes);

            assert_eq!((reader.number(), reader.end()), (Ok(number), Ok(())));
        }
        assert!(Reader(&[0xff; 11]).number().is_err());
        assert!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number().is_err());
    }
}
