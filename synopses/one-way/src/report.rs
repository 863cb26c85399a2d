//! The report of an interval: delay, loss, and flags for figures that cannot be trusted.

use core::fmt;
use core::ops::BitOr;

use wire::time::Nanos;

use crate::clock::{ClockOffset, ClockState};
use crate::end_counters::EndCounters;

/// Conditions that limit what figures mean. A set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u32);

impl Flags {
    /// A report without any flag.
    pub const NONE: Self = Self(0);
    /// The other end sent no data in time.
    pub const NO_PEER_DATA: Self = Self(1);
    /// The ends used different parameters. Nothing was compared.
    pub const PARAMETER_MISMATCH: Self = Self(1 << 1);
    /// Not every difference was found. The loss is a lower bound.
    pub const INCOMPLETE: Self = Self(1 << 2);
    /// Some packets' arrival times are missing, or packets exceeded the memory budget.
    pub const PARTIAL: Self = Self(1 << 3);
    /// An end missed packets that passed, or may have: they cannot be told from lost ones. RDA: also if the receiver
    /// missed packets of the next interval, in which those of this one arrive that are late.
    pub const MISSED: Self = Self(1 << 4);
    /// A NIC or kernel merged packets (TSO, GSO, GRO), so the ends saw different ones.
    pub const OVERSIZED: Self = Self(1 << 5);
    /// Packets arrived before they were sent, or the clocks differ by more than the configured bound.
    pub const SUSPECT_CLOCK: Self = Self(1 << 6);
    /// One end or both saw no packets.
    pub const EMPTY: Self = Self(1 << 7);
    /// The next interval is unknown, so lost packets may have been late.
    pub const UNSETTLED: Self = Self(1 << 8);
    /// At each end, half of all packets are unknown to the other end: a device changes them, or the ends watch
    /// different streams.
    pub const UNRELATED: Self = Self(1 << 9);
    /// The estimated variance was below 0 and was set to 0.
    pub const CLAMPED: Self = Self(1 << 10);
    /// Mean and deviation are computed from less than a quarter of the packets.
    pub const THIN: Self = Self(1 << 11);
    /// LDA only: without digests, and with counts that differ, a bucket may have lost one packet and gained another.
    pub const UNCHECKED: Self = Self(1 << 12);
    /// Only a sample of the flows was measured.
    pub const SAMPLED: Self = Self(1 << 13);
    /// An end's clock is not synchronised. The clocks' difference is bounded only by the configured bound and by what
    /// the messages measure. Figures are kept, because two agents on one machine share one clock.
    pub const UNSYNCHRONISED: Self = Self(1 << 14);

    /// All flags with their names.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::NO_PEER_DATA, "no_peer_data"),
        (Self::PARAMETER_MISMATCH, "parameter_mismatch"),
        (Self::INCOMPLETE, "incomplete"),
        (Self::PARTIAL, "partial"),
        (Self::MISSED, "missed"),
        (Self::OVERSIZED, "oversized"),
        (Self::SUSPECT_CLOCK, "suspect_clock"),
        (Self::EMPTY, "empty"),
        (Self::UNSETTLED, "unsettled"),
        (Self::UNRELATED, "unrelated"),
        (Self::CLAMPED, "clamped"),
        (Self::THIN, "thin"),
        (Self::UNCHECKED, "unchecked"),
        (Self::SAMPLED, "sampled"),
        (Self::UNSYNCHRONISED, "unsynchronised"),
    ];

    /// Flags with which a delay is not trusted.
    const DELAY: Self = Self(
        Self::NO_PEER_DATA.0
            | Self::PARAMETER_MISMATCH.0
            | Self::OVERSIZED.0
            | Self::SUSPECT_CLOCK.0
            | Self::UNRELATED.0
            | Self::THIN.0
            | Self::UNCHECKED.0,
    );
    /// Flags with which a loss is not trusted.
    const LOSS: Self =
        Self(Self::DELAY.0 & !Self::THIN.0 | Self::INCOMPLETE.0 | Self::PARTIAL.0 | Self::MISSED.0 | Self::UNSETTLED.0);

    /// Whether any of `others` is set.
    #[must_use]
    pub const fn any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// These flags, and `others` if `condition` holds.
    #[must_use]
    pub const fn with(self, others: Self, condition: bool) -> Self {
        Self(if condition { self.0 | others.0 } else { self.0 })
    }

    /// Flags that follow from both ends' packet counters.
    #[must_use]
    pub(crate) fn of(ours: &EndCounters, theirs: &EndCounters) -> Self {
        Self::NONE
            .with(Self::MISSED, ours.missed > 0 || theirs.missed > 0)
            .with(Self::PARTIAL, ours.overflowed > 0 || theirs.overflowed > 0)
            .with(Self::OVERSIZED, ours.oversized > 0 || theirs.oversized > 0)
            .with(Self::PARAMETER_MISMATCH, ours.sampled != theirs.sampled)
            .with(Self::SAMPLED, ours.sampled != u32::MAX)
            .with(Self::EMPTY, ours.packets == 0 || theirs.packets == 0)
    }

    /// RDA: flags of the interval before the one that both ends counted. Packets of it that were delivered after it had
    /// ended are in no interval. What was sent in it and arrived in the next one settles its loss, if the receiver has
    /// that next one whole.
    #[must_use]
    pub(crate) fn of_previous(ours: &EndCounters, theirs: &EndCounters) -> Self {
        Self::NONE
            .with(Self::MISSED, ours.late > 0 || theirs.late > 0 || theirs.missed > 0)
            .with(Self::PARTIAL, theirs.overflowed > 0)
            .with(Self::OVERSIZED, theirs.oversized > 0)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, name) in Self::ALL.into_iter().filter(|(flag, _)| self.any(*flag)) {
            write!(f, "{separator}{name}")?;
            separator = " ";
        }
        Ok(())
    }
}

/// Delay and loss of one interval. Unknown values are `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Number of the interval in its run, from 0.
    pub interval: u64,
    /// Mean one-way delay in nanoseconds. Negative if the clocks differ by more than the delay.
    pub mean_ns: Option<f64>,
    /// Standard deviation of the one-way delay in nanoseconds.
    pub deviation_ns: Option<f64>,
    /// Lost packets as a share of sent packets. FineComb's may be negative if more packets arrived than were sent.
    pub loss: Option<f64>,
    /// Packets that the sender saw.
    pub sent: Option<u64>,
    /// Packets that the receiver saw.
    pub received: Option<u64>,
    /// Packets that mean and deviation are computed from.
    pub packets: u64,
    /// Number of lost packets.
    pub lost: u64,
    /// Packets that arrived one interval later.
    pub late: u64,
    /// Packets that arrived but were sent neither in this interval nor in the one before.
    pub odd: u64,
    /// Measured offset of the clocks.
    pub clock: Option<ClockOffset>,
    /// Largest possible difference of the two clocks in nanoseconds, from both kernels.
    pub clock_error_ns: Option<u64>,
    /// Conditions that limit what these figures mean.
    pub flags: Flags,
}

impl Report {
    /// A report without figures.
    #[must_use]
    pub const fn unknown(interval: u64, flags: Flags) -> Self {
        Self {
            interval,
            mean_ns: None,
            deviation_ns: None,
            loss: None,
            sent: None,
            received: None,
            packets: 0,
            lost: 0,
            late: 0,
            odd: 0,
            clock: None,
            clock_error_ns: None,
            flags,
        }
    }

    /// The mean, unless a flag says not to trust it.
    #[must_use]
    pub fn trusted_mean_ns(&self) -> Option<f64> {
        self.mean_ns.filter(|_| !self.flags.any(Flags::DELAY))
    }

    /// The deviation, unless a flag says not to trust it.
    #[must_use]
    pub fn trusted_deviation_ns(&self) -> Option<f64> {
        self.deviation_ns.filter(|_| !self.flags.any(Flags::DELAY | Flags::CLAMPED))
    }

    /// The loss, unless a flag says not to trust it.
    #[must_use]
    pub fn trusted_loss(&self) -> Option<f64> {
        self.loss.filter(|_| !self.flags.any(Flags::LOSS))
    }

    /// Sets the clock error and the clock flags: packets arrived before they were sent, the clocks differ by more than
    /// `bound`, or a clock is not synchronised. `state` is that of both clocks together.
    pub(crate) fn flag_clock(&mut self, bound: Nanos, state: ClockState) {
        let early = self.mean_ns.is_some_and(|mean| mean < -(bound.0 as f64));
        let apart = self.clock.is_some_and(|clock| clock.exceeds(bound));
        self.clock_error_ns = if let ClockState::Synchronised(error_ns) = state { Some(error_ns) } else { None };
        let unsynchronised = state == ClockState::Unsynchronised;
        self.flags = self.flags.with(Flags::SUSPECT_CLOCK, early || apart).with(Flags::UNSYNCHRONISED, unsynchronised);
    }
}
