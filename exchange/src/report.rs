//! What is known of an interval, and what cannot be vouched for.

use core::fmt;
use core::ops::BitOr;

use crate::clock::{ClockOffset, ClockState};
use crate::message::Seen;

/// What stands beside figures. Several at once are possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u32);

impl Flags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The other end said nothing in time.
    pub const NO_PEER_DATA: Self = Self(1);
    /// The ends did not do the same: nothing was compared.
    pub const PARAMETER_MISMATCH: Self = Self(1 << 1);
    /// Not every difference was found: loss is at least this.
    pub const INCOMPLETE: Self = Self(1 << 2);
    /// Some packets' times of arrival were not told, or not all packets had room.
    pub const PARTIAL: Self = Self(1 << 3);
    /// Packets passed that an end did not get to see: loss cannot be told from that.
    pub const MISSED: Self = Self(1 << 4);
    /// A card or kernel put packets together (TSO, GSO, GRO): the ends saw different ones.
    pub const OVERSIZED: Self = Self(1 << 5);
    /// Packets arrived before they were sent, or the ends' clocks differ by more than was promised.
    pub const SUSPECT_CLOCK: Self = Self(1 << 6);
    /// No packets at one end or at both.
    pub const EMPTY: Self = Self(1 << 7);
    /// What became of the next interval is not known: what looks lost may have been late.
    pub const UNSETTLED: Self = Self(1 << 8);
    /// Half of all packets, at either end, are unknown to the other: they are changed on the way, or not of one stream.
    pub const UNRELATED: Self = Self(1 << 9);
    /// The variance came out below 0.
    pub const CLAMPED: Self = Self(1 << 10);
    /// Mean and deviation rest on less than a quarter of the packets.
    pub const THIN: Self = Self(1 << 11);
    /// Without digests (LDA), and counts differ: packets may have taken each other's place.
    pub const UNCHECKED: Self = Self(1 << 12);
    /// Not all flows were looked at.
    pub const SAMPLED: Self = Self(1 << 13);
    /// Nobody keeps an end's clock: how far the two differ is bounded by what the operator promised and what messages tell, and by nothing else. Two
    /// agents on one machine have one clock, so nothing is missing for this.
    pub const UNSYNCHRONISED: Self = Self(1 << 14);

    /// All of them, by name.
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

    /// With which a delay is not to be acted upon.
    const DELAY: Self = Self(
        Self::NO_PEER_DATA.0
            | Self::PARAMETER_MISMATCH.0
            | Self::OVERSIZED.0
            | Self::SUSPECT_CLOCK.0
            | Self::UNRELATED.0
            | Self::THIN.0
            | Self::UNCHECKED.0,
    );
    /// With which a loss is not.
    const LOSS: Self =
        Self(Self::DELAY.0 & !Self::THIN.0 | Self::INCOMPLETE.0 | Self::PARTIAL.0 | Self::MISSED.0 | Self::UNSETTLED.0);

    /// Whether any of `others` is among these.
    #[must_use]
    pub const fn any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// These, and `others` if `so`.
    #[must_use]
    pub const fn with(self, others: Self, so: bool) -> Self {
        Self(if so { self.0 | others.0 } else { self.0 })
    }

    /// What follows from what each end said of its own packets.
    #[must_use]
    pub(crate) fn of(ours: &Seen, theirs: &Seen) -> Self {
        Self::NONE
            .with(Self::MISSED, ours.missed > 0 || theirs.missed > 0)
            .with(Self::PARTIAL, ours.refused > 0 || theirs.refused > 0)
            .with(Self::OVERSIZED, ours.oversized > 0 || theirs.oversized > 0)
            .with(Self::PARAMETER_MISMATCH, ours.sampled != theirs.sampled)
            .with(Self::SAMPLED, ours.sampled != u32::MAX)
            .with(Self::EMPTY, ours.packets == 0 || theirs.packets == 0)
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
        let mut between = "";
        for (_, name) in Self::ALL.into_iter().filter(|(flag, _)| self.any(*flag)) {
            write!(f, "{between}{name}")?;
            between = " ";
        }
        Ok(())
    }
}

/// One interval. What is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Which one.
    pub interval: u64,
    /// Mean of the one-way delay in nanoseconds. Below 0 where clocks differ.
    pub mean_ns: Option<f64>,
    /// Its standard deviation.
    pub deviation_ns: Option<f64>,
    /// Lost packets as a share of those sent. FineComb's may be below 0 where more came than were sent.
    pub loss: Option<f64>,
    /// Packets that the sender saw.
    pub sent: Option<u64>,
    /// Packets that the receiver saw.
    pub received: Option<u64>,
    /// Packets on which mean and deviation rest.
    pub packets: u64,
    /// Lost packets.
    pub lost: u64,
    /// Arrived one interval later.
    pub late: u64,
    /// Arrived without having been sent in this interval or the one before.
    pub odd: u64,
    /// The clocks.
    pub clock: Option<ClockOffset>,
    /// Nanoseconds by which the two clocks differ at the most, as both kernels say.
    pub clock_error_ns: Option<u64>,
    /// What cannot be vouched for.
    pub flags: Flags,
}

impl Report {
    /// Of nothing.
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

    /// The mean, where it can be acted upon.
    #[must_use]
    pub fn trusted_mean_ns(&self) -> Option<f64> {
        self.mean_ns.filter(|_| !self.flags.any(Flags::DELAY))
    }

    /// The deviation, where it can be acted upon.
    #[must_use]
    pub fn trusted_deviation_ns(&self) -> Option<f64> {
        self.deviation_ns.filter(|_| !self.flags.any(Flags::DELAY | Flags::CLAMPED))
    }

    /// The loss, where it can be acted upon.
    #[must_use]
    pub fn trusted_loss(&self) -> Option<f64> {
        self.loss.filter(|_| !self.flags.any(Flags::LOSS))
    }

    /// Marks what clocks say: packets that arrive before they were sent, or two clocks further apart than `bound_ns`; and what both kernels say of theirs.
    pub(crate) fn judge_clock(&mut self, bound_ns: u64, kept: ClockState) {
        let early = self.mean_ns.is_some_and(|mean| mean < -(bound_ns as f64));
        let apart = self.clock.is_some_and(|clock| clock.exceeds(bound_ns));
        self.clock_error_ns = if let ClockState::Within(error_ns) = kept { Some(error_ns) } else { None };
        let unsynchronised = kept == ClockState::Unsynchronised;
        self.flags = self.flags.with(Flags::SUSPECT_CLOCK, early || apart).with(Flags::UNSYNCHRONISED, unsynchronised);
    }
}
