//! Counts of packets of which the interval is not known.

/// A count of packets that passed in some interval from the one that ends next to `until`.
///
/// The kernel tells how many frames it has dropped, and not when. Of each interval in which they may have passed, they
/// are counted: at least one of these has wrong figures, and none of them may be without its flag.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnplacedCount {
    packets: u64,
    /// The last interval in which they may have passed.
    until: u64,
}

impl UnplacedCount {
    /// Counts packets of an interval that is not closed yet, and is `until` at the latest.
    pub(crate) fn add(&mut self, packets: u64, until: u64) {
        if packets > 0 {
            self.packets = self.packets.saturating_add(packets);
            self.until = self.until.max(until);
        }
    }

    /// Closes `interval`, and returns how many packets of it may be among those counted. Intervals are closed in order.
    pub(crate) const fn close(&mut self, interval: u64) -> u64 {
        let packets = self.packets;
        if self.until <= interval {
            self.packets = 0;
        }
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_count_for_each_interval_in_which_they_may_have_passed_and_for_no_later_one() {
        let mut count = UnplacedCount::default();
        count.add(0, 9);
        assert_eq!([3, 4].map(|interval| count.close(interval)), [0, 0], "no packet has no interval");
        count.add(2, 5);
        count.add(1, 6);
        assert_eq!([5, 6, 7].map(|interval| count.close(interval)), [3, 3, 0]);
        // By a clock that was set back, they passed long ago.
        count.add(4, 1);
        assert_eq!([8, 9].map(|interval| count.close(interval)), [4, 0]);
    }
}
