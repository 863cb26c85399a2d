//! The start of a file, and the frame of a block.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// The line end detects a file that was converted as text.
const MAGIC: [u8; 8] = *b"uvROWS\r\n";
pub(crate) const VERSION: u32 = 1;
/// Magic and version.
pub(crate) const START: usize = 12;
/// Kind, length, checksum.
const HEAD: usize = 9;
/// Maximum length of an inflated payload: 2²⁰ values in the widest coding, and their description.
pub(crate) const MAX_PAYLOAD: usize = 24 << 20;
/// Deflate level: the best one without exhaustive search.
const LEVEL: u8 = 8;

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Service, interval and columns: [`Head`](crate::Head).
    Head = 1,
    /// Up to 512 rows.
    Rows = 2,
    /// Labelled spans of time: [`Span`](crate::Span).
    Labels = 3,
    /// The end of the recording, with the number of rows.
    End = 4,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Self::Head, Self::Rows, Self::Labels, Self::End].into_iter().find(|kind| *kind as u8 == code)
    }
}

/// Whether `bytes` begin like a recording, of any version.
#[must_use]
pub fn is_recording(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The first bytes of a file: magic and version.
pub(crate) fn start() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

/// The format version of `bytes`; `None` if they are not a recording.
pub(crate) fn version(bytes: &[u8]) -> Option<u32> {
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let version = rest.first_chunk::<4>()?;
    (*magic == MAGIC).then(|| u32::from_le_bytes(*version))
}

/// Frames `payload` as a block. The payload is not validated: tests write blocks that no encoder would.
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

/// The result of reading the first block of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BlockScan {
    /// The block is whole: kind, payload, and length in bytes.
    Whole(Kind, Vec<u8>, usize),
    /// The block is whole, but of a kind that this release does not know.
    Unknown(u8),
    /// The checksum is right, but the payload cannot be inflated: not written by an encoder.
    NotDeflated,
    /// The checksum is wrong; the next block may begin after this many bytes.
    Damaged(usize),
    /// The bytes end inside the block.
    Cut,
}

/// Reads the first block of `bytes`, which are not empty.
pub(crate) fn first(bytes: &[u8]) -> BlockScan {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return BlockScan::Cut };
    let [code, l0, l1, l2, l3, c0, c1, c2, c3] = *head;
    let length = [l0, l1, l2, l3];
    let size = u32::from_le_bytes(length) as usize;
    let Some(packed) = rest.get(..size) else { return BlockScan::Cut };
    if checksum(code, length, packed) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return BlockScan::Damaged(HEAD + size);
    }
    let Some(kind) = Kind::of(code) else { return BlockScan::Unknown(code) };
    match decompress_to_vec_with_limit(packed, MAX_PAYLOAD) {
        Ok(payload) => BlockScan::Whole(kind, payload, HEAD + size),
        Err(_) => BlockScan::NotDeflated,
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

        assert_eq!(first(&block), BlockScan::Whole(Kind::Rows, b"payload".to_vec(), block.len()));
        assert_eq!(first(&damaged), BlockScan::Damaged(block.len()));
        for cut in 1..block.len() {
            assert_eq!(first(&block[..cut]), BlockScan::Cut, "{cut} bytes");
        }
    }

    #[test]
    fn a_payload_that_unfolds_without_end_is_refused() {
        let bomb = write(Kind::Rows, &vec![0; MAX_PAYLOAD + 1]);

        assert_eq!(first(&bomb), BlockScan::NotDeflated);
    }
}
