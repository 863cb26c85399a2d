//! An array of numbers of few bits, without gaps.

use alloc::boxed::Box;
use alloc::vec;

/// Numbers of at most 24 bits each. The array has three bytes more than they need, so that each is within a word.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    bytes: Box<[u8]>,
    bits: usize,
}

impl Cells {
    /// This many numbers of `bits` bits, from 1 to 24. All are 0.
    pub(super) fn new(many: usize, bits: u32) -> Self {
        let bits = bits as usize;
        Self { bytes: vec![0; (many * bits).div_ceil(8) + 3].into_boxed_slice(), bits }
    }

    const fn mask(&self) -> u32 {
        (1 << self.bits) - 1
    }

    fn word(&self, byte: usize) -> u32 {
        let word = self.bytes[byte..].first_chunk().copied().unwrap_or_default();
        u32::from_le_bytes(word)
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> u32 {
        let bit = at * self.bits;
        self.word(bit / 8) >> (bit % 8) & self.mask()
    }

    /// The bits from number `at` on, its own lowest: 64, less those of its first byte that lie before it. Behind the
    /// end bits are 0.
    #[inline]
    pub(super) fn bits_from(&self, at: usize) -> u64 {
        let bit = at * self.bits;
        let rest = self.bytes.get(bit / 8..).unwrap_or_default();
        let bytes = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        u64::from_le_bytes(bytes) >> (bit % 8)
    }

    #[inline]
    pub(super) fn set(&mut self, at: usize, value: u32) {
        let bit = at * self.bits;
        let kept = self.word(bit / 8) & !(self.mask() << (bit % 8));
        let word = kept | (value & self.mask()) << (bit % 8);
        if let Some(bytes) = self.bytes[bit / 8..].first_chunk_mut() {
            *bytes = word.to_le_bytes();
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// All cells, in the order of places.
    pub(super) const fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) const fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_stay_apart() {
        for bits in 1..=24 {
            let (many, mask) = (100, (1_u32 << bits) - 1);
            let value = |at: usize| (at as u32).wrapping_mul(0x9e37_79b9) & mask;
            let mut cells = Cells::new(many, bits);
            (0..many).rev().for_each(|at| cells.set(at, !0));
            (0..many).for_each(|at| cells.set(at, value(at)));

            assert!((0..many).all(|at| cells.get(at) == value(at)), "{bits} bits");
            let first = |at: usize| cells.bits_from(at) as u32 & mask;
            assert!((0..many).all(|at| first(at) == value(at)), "{bits} bits");
            assert_eq!(cells.bits_from(many + 64), 0, "there is nothing behind the end");
            assert_eq!(cells.memory_bytes(), (many * bits as usize).div_ceil(8) + 3);
            cells.clear();
            assert!((0..many).all(|at| cells.get(at) == 0));
        }
    }
}
