//! Numbers that begin on a cache line, so that no vector of eight lies on two: loads across lines cost twice.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest vector.
const LINE: usize = 64;
/// Numbers that may have to be skipped to reach the next line.
const SLACK: usize = LINE / size_of::<f64>() - 1;

/// A fixed number of values, of which the first begins a cache line.
#[derive(Debug)]
pub(crate) struct Aligned {
    values: Vec<f64>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeros. The memory is not touched before it is used.
    pub(crate) fn zeros(len: usize) -> Self {
        let values = vec![0.0; len + SLACK];
        // An answer beyond the slack would mean "cannot say": then nothing is skipped, and only speed is lost.
        let start = Some(values.as_ptr().align_offset(LINE)).filter(|&skip| skip <= SLACK).unwrap_or(0);
        Self { values, start, len }
    }
}

impl From<&[f64]> for Aligned {
    fn from(values: &[f64]) -> Self {
        let mut out = Self::zeros(values.len());
        out.copy_from_slice(values);
        out
    }
}

impl Deref for Aligned {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.values[self.start..self.start + self.len]
    }
}

impl Clone for Aligned {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl PartialEq for Aligned {
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
            let mut values = Aligned::zeros(len);
            values.iter_mut().zip(0..).for_each(|(value, at)| *value = f64::from(at));

            let copy = values.clone();

            assert_eq!(copy, values);
            assert_eq!(copy.len(), len);
            if !cfg!(miri) {
                assert!([&values, &copy].iter().all(|values| values.as_ptr().addr().is_multiple_of(LINE)));
            }
        }
    }
}
