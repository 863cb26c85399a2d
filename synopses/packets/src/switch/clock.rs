//! From a switch's time to that of its machine. The time of live packets counts from the start of the switch, so two
//! switches have no epoch in common, and their sums cannot be subtracted as they are.

/// How far the clock of a switch's machine is ahead of the switch's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchClock {
    /// What is added to the switch's times, in nanoseconds modulo 2⁶⁴.
    pub offset_ns: u64,
    /// Largest error of that in nanoseconds. The error of the machine's clock comes on top.
    pub uncertainty_ns: u64,
}

impl SwitchClock {
    /// From three answers of a switch, in microseconds: its time since 1970, and its time since its start before and
    /// after that.
    #[must_use]
    pub fn measured([before_us, epoch_us, after_us]: [u64; 3]) -> Self {
        let apart_us = after_us.abs_diff(before_us);
        let middle_us = before_us.min(after_us) + apart_us / 2;
        Self {
            offset_ns: epoch_us.wrapping_sub(middle_us).wrapping_mul(1_000),
            // Answers are whole microseconds, rounded down.
            uncertainty_ns: apart_us.div_ceil(2).saturating_add(1).saturating_mul(1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_taken_in_the_middle_and_is_known_to_half_of_what_the_question_took() {
        let clock = SwitchClock::measured([1_000, 5_000_060, 1_101]);
        assert_eq!(clock, SwitchClock { offset_ns: 4_999_010_000, uncertainty_ns: 52_000 });
        assert_eq!(SwitchClock::measured([7, 7, 7]), SwitchClock { offset_ns: 0, uncertainty_ns: 1_000 });
    }

    #[test]
    fn a_clock_behind_the_switch_is_a_negative_offset_modulo_two_to_the_64() {
        let clock = SwitchClock::measured([2_000, 1_000, 2_000]);
        assert_eq!(1_000_000, 2_000_000_u64.wrapping_add(clock.offset_ns));
        // Set back between the answers, and answers of somebody who lies.
        assert_eq!(SwitchClock::measured([30, 1_000, 10]).uncertainty_ns, 11_000);
        assert_eq!(SwitchClock::measured([0, 0, u64::MAX]).uncertainty_ns, u64::MAX);
    }
}
