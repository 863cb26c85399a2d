//! What an end counts of an interval's packets.

/// Packet counters of one end for one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndCounters {
    /// Packets without duplicates. FineComb and LDA count duplicates, too.
    pub packets: u64,
    /// Further copies of packets, not counted as packets.
    pub duplicates: u64,
    /// Packets over the memory budget.
    pub overflowed: u64,
    /// Packets that the kernel dropped, or that were not collected for another reason. Of a few it is not known in
    /// which interval they passed: they count for each in which they may have.
    pub missed: u64,
    /// Packets of the previous interval that were delivered after it had ended. They are not in its `packets`. Packets
    /// of still older intervals, and all late packets of FineComb and LDA, count as `missed`.
    pub late: u64,
    /// Packets larger than the link's MTU. One of the next interval may be among them.
    pub oversized: u64,
    /// Sampled share of flows, as a multiple of 2⁻³² less one.
    pub sampled: u32,
}

impl Default for EndCounters {
    fn default() -> Self {
        Self { packets: 0, duplicates: 0, overflowed: 0, missed: 0, late: 0, oversized: 0, sampled: u32::MAX }
    }
}
