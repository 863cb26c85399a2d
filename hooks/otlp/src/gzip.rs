//! Decompression of gzip, bounded in memory and in work. Pure.
//!
//! A limit of the output bounds neither: a stream of empty members, or a member of empty blocks, yields nothing and
//! costs a table per 10 bits. So members are bounded in number, blocks by the output, and the output by the input.
//! Senders are far from all three: compressors write one member, whose blocks are of kilobytes.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// Most bytes of output per byte of input, above [`RATIO_FLOOR`]. Spans reach 20; records that each have ids of their
/// own and the same stack trace of 16 KiB reach 350. Deflate ends at 1,032.
pub const MAX_RATIO: usize = 512;
/// So many bytes of output are taken whatever the ratio.
pub const RATIO_FLOOR: usize = 4 << 20;
/// Most members of one stream.
pub const MAX_MEMBERS: usize = 256;
/// Fewest bytes of output per block, on average, after the first [`FREE_BLOCKS`].
pub const BYTES_PER_BLOCK: usize = 128;
/// So many blocks are taken whatever they yield.
pub const FREE_BLOCKS: usize = 1_024;
/// Decompression step before more memory is reserved: at least this, later as much as was decompressed already.
pub(crate) const STEP: usize = 64 << 10;

const FLAGS: u32 = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;
/// Magic number and method (deflate) of a member.
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const HEADER_BYTES: usize = 10;
const TRAILER_BYTES: usize = 8;

/// Why a stream is not decompressed. `E` is the error of the memory's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GzipError<E> {
    /// Over the size limit; the output is discarded.
    #[error("the request is longer than {0} bytes when decompressed")]
    TooLarge(usize),
    /// Over [`MAX_RATIO`].
    #[error(
        "{compressed} bytes of gzip decompress to more than {limit}: at most {MAX_RATIO} bytes per byte are taken, or {RATIO_FLOOR}"
    )]
    Ratio {
        /// Bytes of the input.
        compressed: usize,
        /// Bytes of output that are taken for it.
        limit: usize,
    },
    /// Over [`MAX_MEMBERS`].
    #[error("gzip with more than {MAX_MEMBERS} members: compress the request as one")]
    Members,
    /// Less than [`BYTES_PER_BLOCK`] per block.
    #[error("gzip of {blocks} blocks for {bytes} bytes: at least {BYTES_PER_BLOCK} bytes per block are needed")]
    Blocks {
        /// Blocks so far.
        blocks: usize,
        /// Bytes of output so far.
        bytes: usize,
    },
    /// There is no memory for more.
    #[error(transparent)]
    Memory(E),
    /// Not gzip, cut short, or another checksum.
    #[error("not gzip: {0}")]
    Malformed(&'static str),
}

/// Decompresses `compressed`, at most `limit` bytes. Stops as soon as a bound is exceeded. `reserve` is asked for
/// memory before it is used: 64 KiB at first, and no more than twice the output and that.
///
/// # Errors
///
/// [`GzipError`], with the bound that was exceeded.
pub fn unpack<E>(
    compressed: &[u8],
    limit: usize,
    reserve: impl FnMut(usize) -> Result<(), E>,
) -> Result<Vec<u8>, GzipError<E>> {
    let ratio = compressed.len().saturating_mul(MAX_RATIO).max(RATIO_FLOOR);
    let mut output = Output { bytes: Vec::new(), length: 0, blocks: 0, limit, ratio, reserve };
    let mut input = compressed;
    for _ in 0..MAX_MEMBERS {
        input = member(input, &mut output, compressed.len())?;
        if input.is_empty() {
            output.bytes.truncate(output.length);
            return Ok(output.bytes);
        }
    }
    Err(GzipError::Members)
}

/// What was decompressed so far.
struct Output<R> {
    /// Longer than what was decompressed, by what may be written next.
    bytes: Vec<u8>,
    length: usize,
    blocks: usize,
    limit: usize,
    /// Limit by the length of the input.
    ratio: usize,
    reserve: R,
}

impl<R> Output<R> {
    /// Checks the length; makes room for more if there is none.
    fn make_room<E>(&mut self, compressed: usize) -> Result<(), GzipError<E>>
    where
        R: FnMut(usize) -> Result<(), E>,
    {
        let limit = self.limit.min(self.ratio);
        if self.length > limit {
            let excess = if self.limit <= self.ratio {
                GzipError::TooLarge(self.limit)
            } else {
                GzipError::Ratio { compressed, limit: self.ratio }
            };
            return Err(excess);
        }
        if self.length == self.bytes.len() {
            // One byte over the limit, to notice an excess.
            let step = STEP.max(self.length).min(limit - self.length + 1);
            (self.reserve)(step).map_err(GzipError::Memory)?;
            self.bytes.reserve_exact(step);
            self.bytes.resize(self.length + step, 0);
        }
        Ok(())
    }

    /// Counts a block that ended.
    const fn end_block<E>(&mut self) -> Result<(), GzipError<E>> {
        self.blocks += 1;
        let (blocks, bytes) = (self.blocks, self.length);
        if blocks > FREE_BLOCKS && (blocks - FREE_BLOCKS).saturating_mul(BYTES_PER_BLOCK) > bytes {
            return Err(GzipError::Blocks { blocks, bytes });
        }
        Ok(())
    }
}

/// Decompresses the first member of `input`. Returns what follows it.
fn member<'i, E, R: FnMut(usize) -> Result<(), E>>(
    input: &'i [u8],
    output: &mut Output<R>,
    compressed: usize,
) -> Result<&'i [u8], GzipError<E>> {
    let mut input = after_header(input).map_err(GzipError::Malformed)?;
    let began = output.length;
    let mut state = DecompressorOxide::new();
    loop {
        output.make_room(compressed)?;
        // A member's blocks refer to its own output only.
        let (_, own) = output.bytes.split_at_mut(began);
        let (status, read, written) = decompress(&mut state, input, own, output.length - began, FLAGS);
        input = input.get(read..).unwrap_or_default();
        output.length += written;
        match status {
            TINFLStatus::HasMoreOutput => {}
            TINFLStatus::BlockBoundary => output.end_block()?,
            TINFLStatus::Done => break,
            TINFLStatus::NeedsMoreInput | TINFLStatus::FailedCannotMakeProgress => {
                return Err(GzipError::Malformed("it is cut short"));
            }
            _ => return Err(GzipError::Malformed("a block is broken")),
        }
    }
    output.make_room(compressed)?;
    let (trailer, rest) =
        input.split_first_chunk::<TRAILER_BYTES>().ok_or(GzipError::Malformed("its checksum is cut short"))?;
    let own = output.bytes.get(began..output.length).unwrap_or_default();
    let expected = [crc32fast::hash(own).to_le_bytes(), (own.len() as u32).to_le_bytes()];
    if trailer[..4] != expected[0] || trailer[4..] != expected[1] {
        return Err(GzipError::Malformed("its checksum or length is wrong"));
    }
    Ok(rest)
}

/// What follows the header of a member (RFC 1952).
fn after_header(input: &[u8]) -> Result<&[u8], &'static str> {
    const CUT: &str = "a header is cut short";
    let (header, mut rest) = input.split_first_chunk::<HEADER_BYTES>().ok_or(CUT)?;
    let flags = header[3];
    if header[..3] != MAGIC || flags & 0xe0 != 0 {
        return Err("a member does not begin like gzip");
    }
    if flags & 4 != 0 {
        let (length, more) = rest.split_first_chunk::<2>().ok_or(CUT)?;
        rest = more.get(usize::from(u16::from_le_bytes(*length))..).ok_or(CUT)?;
    }
    // Name and comment, each ended by a zero.
    for flag in [8, 16] {
        if flags & flag != 0 {
            let end = rest.iter().position(|byte| *byte == 0).ok_or(CUT)?;
            rest = rest.get(end + 1..).ok_or(CUT)?;
        }
    }
    // A checksum of the header, which says nothing about the content.
    if flags & 2 != 0 { rest.get(2..).ok_or(CUT) } else { Ok(rest) }
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;
    use std::io::Write as _;

    use flate2::write::GzEncoder;
    use flate2::{Compression, GzBuilder};
    use proptest::prelude::*;

    use super::*;

    /// Unpacks with unlimited memory.
    fn unlimited(compressed: &[u8], limit: usize) -> Result<Vec<u8>, GzipError<Infallible>> {
        unpack(compressed, limit, |_| Ok(()))
    }

    fn packed(bytes: &[u8], level: Compression) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), level);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// A member without output: `blocks` in front of the last one.
    fn empty_blocks(blocks: &[u8]) -> Vec<u8> {
        let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        let last = [1, 0, 0, 0xff, 0xff];
        [&header[..], blocks, &last, &[0; 8]].concat()
    }

    #[test]
    fn more_members_than_any_sender_writes_are_refused_at_once() {
        let empty = packed(b"", Compression::fast());
        let most = empty.repeat(MAX_MEMBERS);
        let many = empty.repeat(800_000);

        assert_eq!(unlimited(&most, 10).unwrap(), b"");
        assert_eq!(unlimited(&many, 16 << 20), Err(GzipError::Members));
    }

    #[test]
    fn blocks_that_yield_nothing_are_refused_after_the_first_thousand() {
        // Stored and empty: five bytes each, on byte boundaries.
        let stored = |blocks: usize| empty_blocks(&[0, 0, 0, 0xff, 0xff].repeat(blocks));
        // Fixed codes, ten bits each: four of them, and the next begins on a byte boundary.
        let fixed = empty_blocks(&[0x02, 0x08, 0x20, 0x80, 0x00].repeat(100_000));

        assert_eq!(unlimited(&stored(FREE_BLOCKS), 10).unwrap(), b"");
        let refused = unlimited(&stored(FREE_BLOCKS + 1), 10);
        assert_eq!(refused, Err(GzipError::Blocks { blocks: FREE_BLOCKS + 1, bytes: 0 }));
        assert_eq!(unlimited(&fixed, 10), Err(GzipError::Blocks { blocks: FREE_BLOCKS + 1, bytes: 0 }));
    }

    #[test]
    fn blocks_of_a_sender_that_flushes_often_are_taken() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut expected = Vec::new();
        for number in 0..20_000_u32 {
            let line = format!("{number:0150}\n");
            encoder.write_all(line.as_bytes()).unwrap();
            encoder.flush().unwrap();
            expected.extend_from_slice(line.as_bytes());
        }
        let packed = encoder.finish().unwrap();

        // A flush ends one block and writes an empty one.
        let refused = matches!(unlimited(&packed, 16 << 20), Err(GzipError::Blocks { .. }));
        assert!(refused, "two blocks for 151 bytes are too many");
        let half: Vec<u8> = expected.iter().copied().take(1_000 * 151 / 2).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        for line in half.chunks(302) {
            encoder.write_all(line).unwrap();
            encoder.flush().unwrap();
        }
        assert_eq!(unlimited(&encoder.finish().unwrap(), 16 << 20).unwrap(), half);
    }

    #[test]
    fn output_is_bounded_by_the_input() {
        let zeros = vec![0; RATIO_FLOOR];
        assert_eq!(unlimited(&packed(&zeros, Compression::best()), 16 << 20).unwrap(), zeros);

        let more = packed(&vec![0; 8 << 20], Compression::best());
        let limit = (more.len() * MAX_RATIO).max(RATIO_FLOOR);
        let refused = unlimited(&more, 16 << 20);
        assert_eq!(refused, Err(GzipError::Ratio { compressed: more.len(), limit }));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("at most 512 bytes per byte") && text.len() < 200, "{text}");
    }

    #[test]
    fn headers_with_everything_in_them_are_read() {
        let all = GzBuilder::new().extra(vec![1; 300]).filename("name").comment("comment").mtime(7);
        let mut encoder = all.write(Vec::new(), Compression::fast());
        encoder.write_all(b"hello").unwrap();
        let mut whole = encoder.finish().unwrap();

        assert_eq!(unlimited(&whole, 10).unwrap(), b"hello");
        let last = whole.len() - 1;
        whole[last] ^= 1;
        assert_eq!(unlimited(&whole, 10), Err(GzipError::Malformed("its checksum or length is wrong")));
        whole[last] ^= 1;
        for length in 0..whole.len() {
            assert!(matches!(unlimited(&whole[..length], 10), Err(GzipError::Malformed(_))), "{length}");
        }
        whole.push(0);
        assert!(matches!(unlimited(&whole, 10), Err(GzipError::Malformed(_))), "something follows");
    }

    #[test]
    fn memory_is_asked_for_before_it_is_used_and_not_for_more_than_twice_the_output() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        let mut asked = 0;
        let unpacked: Result<_, GzipError<Infallible>> =
            unpack(&packed(&bytes, Compression::fast()), 16 << 20, |more| {
                asked += more;
                Ok(())
            });
        assert_eq!(unpacked.unwrap(), bytes);
        assert!((bytes.len()..=2 * bytes.len() + STEP).contains(&asked), "{asked}");

        let refused = unpack(&packed(&bytes, Compression::fast()), 16 << 20, |_| Err("no memory"));
        assert_eq!(refused, Err(GzipError::Memory("no memory")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn what_was_packed_is_unpacked(
            parts in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..70_000), 1..4),
            level in 0_u32..10,
        ) {
            let packed: Vec<u8> = parts.iter().flat_map(|part| packed(part, Compression::new(level))).collect();

            prop_assert_eq!(unlimited(&packed, 1 << 20).unwrap(), parts.concat());
        }
    }
}
