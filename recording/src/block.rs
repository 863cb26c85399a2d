//! Frames: what a file begins with, and what every block is wrapped in.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// The line end shows a file that was changed as if it were text.
const MAGIC: [u8; 8] = *b"uvROWS\r\n";
pub(crate) const VERSION: u32 = 1;
/// Magic and version.
pub(crate) const START: usize = 12;
/// Kind, length, checksum.
const HEAD: usize = 9;
/// A block's payload is never longer than this once it is inflated: 2²⁰ values in the widest coding, and what describes them.
pub(crate) const MOST_PAYLOAD: usize = 24 << 20;
/// As small as it gets without the exhaustive search.
const LEVEL: u8 = 8;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// What is recorded.
    Head = 1,
    /// Rows.
    Rows = 2,
    /// Spans of time.
    Labels = 3,
    /// The end.
    End = 4,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Self::Head, Self::Rows, Self::Labels, Self::End].into_iter().find(|kind| *kind as u8 == code)
    }
}

/// Whether `bytes` begin as a recording does, of whatever version.
#[must_use]
pub fn is_recording(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// What a file begins with.
pub(crate) fn start() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

/// The version that `bytes` begin with; `None` if they are no recording.
pub(crate) fn version(bytes: &[u8]) -> Option<u32> {
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let version = rest.first_chunk::<4>()?;
    (*magic == MAGIC).then(|| u32::from_le_bytes(*version))
}

/// `payload` as a block. What it says is the caller's matter: for the encoder, and for tests that write what no encoder does.
#[must_use]
pub fn write(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let packed = compress_to_vec(payload, LEVEL);
    let length = (packed.len() as u32).to_le_bytes();
    let checksum = checksum(kind as u8, length, &packed).to_le_bytes();
    [&[kind as u8][..], &length, &checksum, &packed].concat()
}

fn checksum(kind: u8, length: [u8; 4], packed: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [&[kind][..], &length, packed] {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The first block of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is whole: its kind, its payload, how many bytes it takes.
    Whole(Kind, Vec<u8>, usize),
    /// It is whole and of no kind that this release knows.
    Unknown(u8),
    /// It is whole and cannot be inflated: nobody wrote that.
    NotDeflated,
    /// A bit is wrong; the next block may begin after so many bytes.
    Damaged(usize),
    /// The bytes end inside of it.
    Cut,
}

/// Looks at the first block of `bytes`, which are not empty.
pub(crate) fn first(bytes: &[u8]) -> Found {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Found::Cut };
    let [code, l0, l1, l2, l3, c0, c1, c2, c3] = *head;
    let length = [l0, l1, l2, l3];
    let size = u32::from_le_bytes(length) as usize;
    let Some(packed) = rest.get(..size) else { return Found::Cut };
    if checksum(code, length, packed) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Found::Damaged(HEAD + size);
    }
    let Some(kind) = Kind::of(code) else { return Found::Unknown(code) };
    match decompress_to_vec_with_limit(packed, MOST_PAYLOAD) {
        Ok(payload) => Found::Whole(kind, payload, HEAD + size),
        Err(_) => Found::NotDeflated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_whole_damaged_or_cut() {
        let block = write(Kind::Rows, b"payload");
        let mut damaged = block.clone();
        damaged[HEAD] ^= 1;

        assert_eq!(first(&block), Found::Whole(Kind::Rows, b"payload".to_vec(), block.len()));
        assert_eq!(first(&damaged), Found::Damaged(block.len()));
        for cut in 1..block.len() {
            assert_eq!(first(&block[..cut]), Found::Cut, "{cut} bytes");
        }
    }

    #[test]
    fn a_payload_that_unfolds_without_end_is_refused() {
        let bomb = write(Kind::Rows, &vec![0; MOST_PAYLOAD + 1]);

        assert_eq!(first(&bomb), Found::NotDeflated);
    }
}
