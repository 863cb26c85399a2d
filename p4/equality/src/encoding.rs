//! Reads the library's encodings, whose forms are in `synopses/src/encoding.rs`. They come from this process: one that
//! ends too early reads as zeros, which no comparison survives. And writes numbers as they have them.

/// Bytes of the header.
const HEAD: usize = 14;

/// The rest of an encoding.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn of(encoding: &'a [u8]) -> Self {
        Self(encoding.get(HEAD..).unwrap_or_default())
    }

    pub(crate) fn skip(&mut self, bytes: usize) {
        self.0 = self.0.get(bytes..).unwrap_or_default();
    }

    /// What is not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// A little-endian number of 32 bits.
    pub(crate) fn word(&mut self) -> u64 {
        let word = self.0.first_chunk::<4>().map_or(0, |word| u32::from_le_bytes(*word));
        self.skip(4);
        u64::from(word)
    }

    /// A number of as many bytes as it needs.
    pub(crate) fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.0.first().copied().unwrap_or_default();
            self.skip(1);
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }
}

/// Appends a number, in as many bytes as it needs.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
