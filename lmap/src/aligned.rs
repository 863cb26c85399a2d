//! Arrays aligned to a cache line, since vector loads across two lines cost twice.

use std::ops::{Deref, DerefMut, Range};

/// Bytes of a cache line, and of the widest vector.
pub(crate) const LINE: usize = 64;

/// A fixed number of values; the first is at the start of a cache line. 24 bytes: a detector has a dozen of these
/// heads, and a round reads most of them.
#[derive(Debug)]
pub(crate) struct AlignedOf<T> {
    /// The values, and `SLACK` more, before them and after.
    values: Box<[T]>,
    start: usize,
}

/// Double precision: for everything that is learnt.
pub(crate) type Aligned = AlignedOf<f64>;
/// Single precision: for what scores read.
pub(crate) type Narrow = AlignedOf<f32>;

impl<T> AlignedOf<T> {
    /// Maximum number of values to skip up to the next line.
    const SLACK: usize = LINE / size_of::<T>() - 1;

    fn range(&self) -> Range<usize> {
        self.start..self.start + (self.values.len() - Self::SLACK)
    }
}

macro_rules! zeros {
    ($number:ty) => {
        impl AlignedOf<$number> {
            /// `len` zeros. The memory is not touched before it is used.
            pub(crate) fn zeros(len: usize) -> Self {
                let values = vec![0.0; len + Self::SLACK].into_boxed_slice();
                // `align_offset` may return a larger number for "unknown": then nothing is skipped, which only costs
                // speed.
                let start = Some(values.as_ptr().align_offset(LINE)).filter(|&skip| skip <= Self::SLACK).unwrap_or(0);
                Self { values, start }
            }
        }

        impl Clone for AlignedOf<$number> {
            fn clone(&self) -> Self {
                let mut out = Self::zeros(self.len());
                out.copy_from_slice(self);
                out
            }
        }
    };
}

zeros!(f64);
zeros!(f32);

impl From<&[f64]> for Aligned {
    fn from(values: &[f64]) -> Self {
        let mut out = Self::zeros(values.len());
        out.copy_from_slice(values);
        out
    }
}

impl<T> Deref for AlignedOf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[self.range()]
    }
}

impl<T> DerefMut for AlignedOf<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let range = self.range();
        &mut self.values[range]
    }
}

impl<T: PartialEq> PartialEq for AlignedOf<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_begin_a_cache_line_and_so_do_those_of_a_copy() {
        for len in [0, 1, 8, 1_000] {
            let (mut values, mut narrow) = (Aligned::zeros(len), Narrow::zeros(len));
            values.iter_mut().zip(0..).for_each(|(value, at)| *value = f64::from(at));
            narrow.iter_mut().zip(0_u16..).for_each(|(value, at)| *value = f32::from(at));

            let (copy, narrow_copy) = (values.clone(), narrow.clone());

            assert_eq!((&copy, &narrow_copy), (&values, &narrow));
            assert_eq!((copy.len(), narrow_copy.len()), (len, len));
            if !cfg!(miri) {
                assert!([&values, &copy].iter().all(|values| values.as_ptr().addr().is_multiple_of(LINE)));
                assert!([&narrow, &narrow_copy].iter().all(|values| values.as_ptr().addr().is_multiple_of(LINE)));
            }
        }
    }
}
