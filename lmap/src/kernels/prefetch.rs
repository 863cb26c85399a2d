//! Memory that is needed soon, asked for ahead of its use.
//!
//! Rows of many detectors wait for memory more than for arithmetic. Lines that are asked for together are on the way
//! together; a row by itself asks for an array when it is done with the one before.

/// Asks for the first `lines` cache lines of `values`, and waits for none of them. It changes nothing but time. Where
/// the instruction is not known, on other machines than x86-64, it does nothing. O(lines).
#[inline]
pub fn prefetch<T>(values: &[T], lines: usize) {
    ask(values, lines);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn ask<T>(values: &[T], lines: usize) {
    use crate::aligned::LINE;
    use core::arch::x86_64::_MM_HINT_T0;
    use pulp::core_arch::x86::Sse;

    let Some(sse) = Sse::try_new().filter(|_| !values.is_empty()) else { return };
    let start = values.as_ptr().cast::<i8>();
    // Values may begin within a line.
    let within = start.addr() % LINE;
    let first = start.wrapping_sub(within);
    for line in 0..(within + size_of_val(values)).div_ceil(LINE).min(lines) {
        sse._mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(LINE * line));
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn ask<T>(_: &[T], _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_lines_of_any_values_may_be_asked_for_and_stay_as_they_are() {
        let values: Vec<u16> = (0..1_000).collect();
        for lines in [0, 1, 9, usize::MAX] {
            for range in [0..1, 3..40, 0..1_000] {
                prefetch(&values[range], lines);
            }
            prefetch::<u64>(&[], lines);
        }

        assert!(values.iter().copied().eq(0..1_000));
    }
}
