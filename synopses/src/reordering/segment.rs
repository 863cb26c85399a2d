//! TCP segments, and the definitions of out of order.

use crate::digest::Digest;

/// Differences of sequence numbers above this are no reordering: the largest window of TCP (RFC 7323).
const WINDOW: u32 = 1 << 30;

/// A source prefix: the leading bits of an address, or a digest of them. What it stands for is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(pub u64);

/// The control flag of a segment that matters for its sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// None of the others.
    None,
    /// The first one of a connection. Takes a sequence number.
    Syn,
    /// The last one of a direction. Takes a sequence number.
    Fin,
    /// Aborts the connection. Ignored.
    Reset,
}

/// A TCP segment of the watched direction. Fragments have to be left out; so has traffic behind segmentation offload,
/// which hides reordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Prefix of the source.
    pub prefix: Prefix,
    /// Digest of the flow's addresses and ports.
    pub flow: Digest,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Bytes of payload. A segment without payload is ignored, unless it is a SYN.
    pub payload: u32,
    /// Control flag of the segment.
    pub control: Control,
}

/// When a packet is out of order. Sequence numbers are compared modulo 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// Definition 1: its sequence number is below that of the packet before it.
    BelowPredecessor,
    /// Definition 2: its sequence number is above the one expected after the packet before it.
    AboveExpected,
    /// Definition 3: its sequence number is below the largest one so far.
    BelowMaximum,
}

/// What a packet is, compared with the packets of its flow before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// In order, by the definition.
    InOrder,
    /// Out of order, by the definition.
    OutOfOrder,
    /// A jump of more than the largest window: neither, and the flow starts anew.
    Jump,
    /// Asks whether the other end is alive. Known to [`Definition::AboveExpected`] only; for the others it is in order.
    KeepAlive,
}

impl Segment {
    /// Whether it is watched: it has payload, and does not begin or abort a connection.
    #[inline]
    pub(super) const fn is_watched(&self) -> bool {
        self.payload > 0 && !matches!(self.control, Control::Syn | Control::Reset)
    }

    /// The flow's digest, which is not 0.
    #[inline]
    pub(super) const fn fingerprint(&self) -> u64 {
        if self.flow.0 == 0 { 1 } else { self.flow.0 }
    }
}

impl Definition {
    /// What a flow's state is after its first packet: one number.
    #[inline]
    #[must_use]
    pub const fn first(self, segment: &Segment) -> u32 {
        match self {
            Self::BelowPredecessor | Self::BelowMaximum => segment.sequence,
            Self::AboveExpected => {
                let flag = matches!(segment.control, Control::Syn | Control::Fin) as u32;
                segment.sequence.wrapping_add(segment.payload).wrapping_add(flag)
            }
        }
    }

    /// Compares a packet with the flow's state, and moves the state on.
    #[inline]
    #[must_use]
    pub const fn advance(self, state: &mut u32, segment: &Segment) -> Event {
        let ahead = segment.sequence.wrapping_sub(*state) as i32;
        if ahead.unsigned_abs() > WINDOW {
            *state = self.first(segment);
            return Event::Jump;
        }
        match self {
            Self::BelowPredecessor => {
                *state = segment.sequence;
                if ahead < 0 { Event::OutOfOrder } else { Event::InOrder }
            }
            Self::AboveExpected => {
                if segment.payload <= 1 && ahead == -1 {
                    return Event::KeepAlive;
                }
                *state = self.first(segment);
                if ahead > 0 { Event::OutOfOrder } else { Event::InOrder }
            }
            Self::BelowMaximum => {
                if ahead < 0 {
                    return Event::OutOfOrder;
                }
                *state = segment.sequence;
                Event::InOrder
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const ALL: [Definition; 3] = [Definition::BelowPredecessor, Definition::AboveExpected, Definition::BelowMaximum];

    fn events(definition: Definition, sequences: &[u32], payload: u32) -> Vec<Event> {
        let segment =
            |sequence| Segment { prefix: Prefix(1), flow: Digest(1), sequence, payload, control: Control::None };
        let mut state = definition.first(&segment(sequences[0]));
        sequences[1..].iter().map(|sequence| definition.advance(&mut state, &segment(*sequence))).collect()
    }

    #[test]
    fn packets_out_of_order_are_counted_as_the_three_definitions_say() {
        for (units, expected) in [
            (&[1, 2, 3, 5, 4, 6][..], [1, 2, 1]),
            (&[1, 2, 5, 3, 4, 6], [1, 2, 2]),
            (&[5, 4, 3, 2, 1], [4, 0, 4]),
            (&[1, 3, 5, 7], [0, 3, 0]),
            (&[1, 1, 1], [0, 0, 0]),
            (&[1, 2, 3, 2, 3, 4], [1, 0, 1]),
        ] {
            // Anywhere, also across the wrap, and with any payload.
            for (start, payload) in [(0, 1_000), (u32::MAX - 2_500, 1_000), (0_u32.wrapping_sub(3), 2)] {
                let sequences: Vec<_> = units.iter().map(|unit| start.wrapping_add(unit * payload)).collect();
                let counts = ALL.map(|definition| {
                    let events = events(definition, &sequences, payload);
                    events.iter().filter(|event| **event == Event::OutOfOrder).count()
                });
                assert_eq!(counts, expected, "{units:?} from {start}");
            }
        }
    }

    #[test]
    fn a_jump_beyond_the_largest_window_is_no_event() {
        for far in [WINDOW + 10, 1 << 31, u32::MAX - WINDOW] {
            for definition in ALL {
                let after = events(definition, &[0, far, far.wrapping_add(9)], 9);
                assert_eq!(after, [Event::Jump, Event::InOrder], "{definition:?}, {far}");
            }
        }
        assert_eq!(events(Definition::BelowPredecessor, &[WINDOW, 0], 1), [Event::OutOfOrder]);
    }

    #[test]
    fn keep_alives_and_repeated_segments_are_no_events() {
        for definition in ALL {
            // After a segment of one byte at 100 comes the keep-alive at 100 again, then the connection goes on at 101.
            let quiet = events(definition, &[99, 100, 100, 101], 1);
            assert!(!quiet.contains(&Event::OutOfOrder), "{definition:?}: {quiet:?}");
        }
        assert_eq!(events(Definition::AboveExpected, &[99, 100, 100], 1)[1], Event::KeepAlive);
    }

    #[test]
    fn keep_alives_after_a_long_segment_are_no_events() {
        let segment = |sequence, payload| Segment {
            prefix: Prefix(1),
            flow: Digest(1),
            sequence,
            payload,
            control: Control::None,
        };
        for definition in ALL {
            let mut state = definition.first(&segment(1_000, 500));
            // A byte that was sent before, twice, and the connection goes on.
            let rest = [segment(1_499, 1), segment(1_499, 1), segment(1_500, 500), segment(2_000, 500)];
            let events = rest.map(|next| definition.advance(&mut state, &next));
            assert!(!events.contains(&Event::OutOfOrder), "{definition:?}: {events:?}");
            let keep_alives = if definition == Definition::AboveExpected { Event::KeepAlive } else { Event::InOrder };
            assert_eq!(events[..2], [keep_alives; 2], "{definition:?}");
        }
    }

    #[test]
    fn syn_and_fin_take_a_sequence_number() {
        let segment =
            |sequence, payload, control| Segment { prefix: Prefix(1), flow: Digest(1), sequence, payload, control };
        let mut state = Definition::AboveExpected.first(&segment(7, 0, Control::Syn));

        assert_eq!(state, 8);
        let data = segment(8, 100, Control::Fin);
        assert_eq!((Definition::AboveExpected.advance(&mut state, &data), state), (Event::InOrder, 109));
        assert!(data.is_watched() && !segment(7, 9, Control::Syn).is_watched());
        assert!(!segment(7, 9, Control::Reset).is_watched() && !segment(7, 0, Control::None).is_watched());
    }
}
