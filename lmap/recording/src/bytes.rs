//! Numbers and texts as bytes. Integers are LEB128; signed ones are zigzag-encoded.

/// A part of a block is missing or invalid; says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FormatError(pub(crate) &'static str);

pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)) as u64);
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads the remaining bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FormatError("its length"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(FormatError("its length"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, FormatError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn float(&mut self) -> Result<f64, FormatError> {
        self.array().map(f64::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Result<u64, FormatError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(FormatError("a number"))
    }

    /// Reads a count of at most `most`.
    pub(crate) fn size(&mut self, most: usize, what: &'static str) -> Result<usize, FormatError> {
        let found = self.number()?;
        usize::try_from(found).ok().filter(|size| *size <= most).ok_or(FormatError(what))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, FormatError> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(crate) fn text(&mut self, most: usize, what: &'static str) -> Result<String, FormatError> {
        let length = self.size(most, what)?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| FormatError(what))
    }

    /// Checks that no bytes are left.
    pub(crate) fn end(&self) -> Result<(), FormatError> {
        if self.0.is_empty() { Ok(()) } else { Err(FormatError("its length")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_come_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            for signed in [number as i64, (number as i64).wrapping_neg()] {
                let mut bytes = Vec::new();
                put_number(&mut bytes, number);
                put_signed(&mut bytes, signed);
                let mut reader = Reader::new(&bytes);

                assert_eq!((reader.number(), reader.signed(), reader.end()), (Ok(number), Ok(signed), Ok(())));
            }
        }
    }

    #[test]
    fn what_is_cut_or_too_large_is_refused() {
        assert!(Reader::new(&[0x80, 0x80]).number().is_err());
        assert!(Reader::new(&[0xff; 11]).number().is_err());
        assert_eq!(Reader::new(&[9]).size(8, "rows"), Err(FormatError("rows")));
        assert_eq!(Reader::new(&[3, b'a']).text(8, "a title"), Err(FormatError("its length")));
        assert_eq!(Reader::new(&[1, 0xff]).text(8, "a title"), Err(FormatError("a title")));
        assert!(Reader::new(&[0]).end().is_err());
    }
}
