//! Compares all time stamps of a register at once, each in a field of a word.

/// Bits of a word that a field can be in, wherever in a byte the first one begins.
const SURE_BITS: usize = 57;

/// Finds the fresh ones of several cells side by side: a field of b bits has a flag in its lowest bit, and the slot
/// modulo 2ᵇ⁻¹ above it. An age is at most a limit, the same for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    /// b, from 2 to 24.
    bits: u32,
    fields: usize,
    /// The lowest bit of each field.
    ones: u64,
    /// The same, and the bit behind the last field.
    ends: u64,
    /// All but the highest bit of each field.
    slots: u64,
    /// The slot that ages are counted from, in each field, with the highest bit set.
    reference: u64,
    /// The largest age of a fresh cell, likewise.
    limit: u64,
}

impl Comparison {
    /// Compares at most `positions` cells of `bits` bits. Registers are one behind the other, without gaps.
    pub(super) fn new(bits: u32, positions: usize, reference: u64, limit: u64) -> Self {
        let register = positions * bits as usize;
        // A register begins at a multiple of this within a byte, so that less than a byte is missing.
        let begins = 1_usize << register.trailing_zeros().min(3);
        let fields = ((SURE_BITS - 1 + begins) / bits as usize).min(positions);
        let ones = (0..fields).fold(0_u64, |ones, field| ones | 1 << (field * bits as usize));
        let (guards, largest) = (ones << (bits - 1), (1 << (bits - 1)) - 1);
        Self {
            bits,
            fields,
            ones,
            // None if the fields fill a word.
            ends: ones | 1_u64.checked_shl(fields as u32 * bits).unwrap_or_default(),
            slots: guards - ones,
            reference: (ones * (reference & largest)) | guards,
            limit: (ones * limit.min(largest)) | guards,
        }
    }

    /// Number of cells that are compared; the other ones of a register are the caller's.
    pub(super) const fn fields(&self) -> usize {
        self.fields
    }

    /// The lowest bits of all fields.
    pub(super) const fn ones(&self) -> u64 {
        self.ones
    }

    /// The lowest bit of each field whose cell is fresh.
    #[inline]
    pub(super) const fn fresh(&self, word: u64) -> u64 {
        // The highest bits are set, so that nothing is borrowed from the next field.
        let ages = (self.reference - (word >> 1 & self.slots)) & self.slots;
        (self.limit - ages) >> (self.bits - 1) & word & self.ones
    }

    /// Bits before the first cell that is not fresh: b times the run.
    #[inline]
    pub(super) fn place(&self, fresh: u64) -> u64 {
        u64::from((fresh ^ self.ends).trailing_zeros())
    }

    /// The runs of all registers, each of which is one of `words`, and the number of registers without a fresh
    /// cell. Not inlined, so that the loop has the processor's registers to itself.
    #[inline(never)]
    pub(super) fn runs(self, words: impl Iterator<Item = u64>) -> (u64, usize) {
        // Places are added up, and divided once.
        let (mut places, mut empty) = (0, 0);
        for word in words {
            let fresh = self.fresh(word);
            places += self.place(fresh);
            empty += usize::from(fresh == 0);
        }
        (places / u64::from(self.bits), empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_are_compared_as_cells_are(
            bits in 2_u32..=24,
            positions in 1_usize..=60,
            word in any::<u64>(),
            reference in any::<u64>(),
            limit in 0_u64..40,
        ) {
            let comparison = Comparison::new(bits, positions, reference, limit);
            let mask = (1_u64 << (bits - 1)) - 1;
            let is_fresh = |field: &usize| {
                let cell = word >> (field * bits as usize) & ((1 << bits) - 1);
                cell & 1 == 1 && reference.wrapping_sub(cell >> 1) & mask <= limit
            };

            let fresh = comparison.fresh(word);
            for field in 0..comparison.fields() {
                let lowest = fresh >> (field * bits as usize) & 1;
                prop_assert_eq!(lowest == 1, is_fresh(&field), "field {}", field);
            }
            prop_assert_eq!(fresh & !comparison.ones(), 0);
            let run = (0..comparison.fields()).take_while(is_fresh).count();
            prop_assert_eq!(comparison.place(fresh), run as u64 * u64::from(bits));
            prop_assert_eq!(comparison.runs([word, 0].into_iter()), (run as u64, 1 + usize::from(fresh == 0)));
        }
    }

    #[test]
    fn as_many_fields_are_compared_as_a_word_has_wherever_a_register_begins() {
        let fields = |bits, positions| Comparison::new(bits, positions, 0, 0).fields();

        // Registers of 60 bits begin at half a byte, those of 72 at a byte, those of 55 anywhere.
        assert_eq!([fields(6, 10), fields(6, 12), fields(5, 11), fields(24, 60)], [10, 10, 11, 2]);
    }
}
