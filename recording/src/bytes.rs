//! Numbers and texts as bytes. Integers are LEB128, signed ones zigzag'd.

/// Something is not there, or not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

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

/// What is left to be read.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("its length"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed("its length"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn float(&mut self) -> Result<f64, Malformed> {
        self.array().map(f64::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed("a number"))
    }

    /// A number of things, at most `most`.
    pub(crate) fn size(&mut self, most: usize, what: &'static str) -> Result<usize, Malformed> {
        let found = self.number()?;
        usize::try_from(found).ok().filter(|size| *size <= most).ok_or(Malformed(what))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(crate) fn text(&mut self, most: usize, what: &'static str) -> Result<String, Malformed> {
        let length = self.size(most, what)?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed(what))
    }

    /// Nothing may be left over.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("its length")) }
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
        assert_eq!(Reader::new(&[9]).size(8, "rows"), Err(Malformed("rows")));
        assert_eq!(Reader::new(&[3, b'a']).text(8, "a title"), Err(Malformed("its length")));
        assert_eq!(Reader::new(&[1, 0xff]).text(8, "a title"), Err(Malformed("a title")));
        assert!(Reader::new(&[0]).end().is_err());
    }
}
