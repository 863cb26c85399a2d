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
    /// The highest bit of each field.
    guards: u64,
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
            guards,
            slots: guards - ones,
            reference: (ones * (reference & largest)) | guards,
            limit: (ones * limit.min(largest)) | guards,
        }
    }

    /// Number of cells that are compared; the other ones of a register are the caller's.
    pub(super) const fn fields(&self) -> usize {
        self.fields
    }

    /// The highest bits of all fields.
    pub(super) const fn guards(&self) -> u64 {
        self.guards
    }

    /// The highest bit of each field whose cell is fresh.
    #[inline]
    pub(super) const fn fresh(&self, word: u64) -> u64 {
        // The highest bits are set, so that nothing is borrowed from the next field.
        let ages = (self.reference - (word >> 1 & self.slots)) & self.slots;
        (self.limit - ages) & word << (self.bits - 1) & self.guards
    }

    /// A 1 in each field before the first cell that is not fresh.
    #[inline]
    pub(super) const fn run(&self, fresh: u64) -> u64 {
        let stale = fresh ^ self.guards;
        (stale.wrapping_sub(1) & !stale & self.guards) >> (self.bits - 1)
    }

    /// How many words of [`Self::run`] can be added before a field is full.
    pub(super) const fn most_runs(&self) -> usize {
        (1 << self.bits) - 1
    }

    /// The sum of all fields.
    pub(super) fn sum(&self, word: u64) -> u64 {
        (0..self.fields).map(|field| word >> (field * self.bits as usize) & ((1 << self.bits) - 1)).sum()
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
                let guard = 1 << (field * bits as usize + bits as usize - 1);
                prop_assert_eq!(fresh & guard == guard, is_fresh(&field), "field {}", field);
            }
            prop_assert_eq!(fresh & !comparison.guards(), 0);
            let run = (0..comparison.fields()).take_while(is_fresh).count();
            prop_assert_eq!(comparison.sum(comparison.run(fresh)), run as u64);
        }
    }

    #[test]
    fn as_many_fields_are_compared_as_a_word_has_wherever_a_register_begins() {
        let fields = |bits, positions| Comparison::new(bits, positions, 0, 0).fields();

        // Registers of 60 bits begin at half a byte, those of 72 at a byte, those of 55 anywhere.
        assert_eq!([fields(6, 10), fields(6, 12), fields(5, 11), fields(24, 60)], [10, 10, 11, 2]);
    }
}
