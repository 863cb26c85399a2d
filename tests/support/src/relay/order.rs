//! The relay's own log of the order in which TCP segments leave it, read from their bytes independently of the tested
//! code.

use std::collections::{BTreeMap, HashMap};

/// The segments of one source prefix (/24), with payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOrder {
    /// How many left.
    pub sent: u64,
    /// Those of them whose sequence number was below that of the segment of the same flow before them.
    pub out_of_order: u64,
}

/// What the relay notes of the order of segments.
#[derive(Debug, Default)]
pub(super) struct OrderLog {
    /// The last sequence number of each flow: addresses and ports.
    flows: HashMap<[u8; 12], u32>,
    pub(super) prefixes: BTreeMap<[u8; 3], SegmentOrder>,
}

/// Flow and sequence number of a TCP segment with payload over IPv4 without options.
fn segment(frame: &[u8]) -> Option<([u8; 12], u32)> {
    const IP: usize = 14;
    const TCP: usize = IP + 20;
    if frame.get(12..15)? != [8, 0, 0x45] || *frame.get(23)? != 6 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes(*frame.get(IP + 2..)?.first_chunk()?));
    let headers = 20 + usize::from(frame.get(TCP + 12)? >> 4) * 4;
    let flow = *frame.get(IP + 12..)?.first_chunk()?;
    let sequence = u32::from_be_bytes(*frame.get(TCP + 4..)?.first_chunk()?);
    (length > headers).then_some((flow, sequence))
}

impl OrderLog {
    /// A frame leaves the relay.
    pub(super) fn sent(&mut self, frame: &[u8]) {
        let Some((flow, sequence)) = segment(frame) else { return };
        let before = self.flows.insert(flow, sequence);
        let of = self.prefixes.entry([flow[0], flow[1], flow[2]]).or_default();
        of.sent += 1;
        // Sequence numbers wrap.
        of.out_of_order += u64::from(before.is_some_and(|before| sequence.wrapping_sub(before) >= 1 << 31));
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn a_segment_below_the_one_before_it_in_its_flow_is_out_of_order() {
        let mut log = OrderLog::default();
        for (client, sequence, payload) in [
            (1, u32::MAX - 9, 10),
            (2, 50, 10),
            (1, 0, 10),
            (1, 20, 10),
            (2, 60, 10),
            (1, 10, 10),
            (1, 0, 0),
            (1, 30, 10),
        ] {
            let mut frame = Vec::new();
            let built = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, client, 7], [10, 1, 0, 1], 64);
            built.tcp(5_000, 443, sequence, 100).write(&mut frame, &vec![7; payload]).expect("it fits");
            log.sent(&frame);
        }
        log.sent(&[0; 60]);

        let one = SegmentOrder { sent: 5, out_of_order: 1 };
        let other = SegmentOrder { sent: 2, out_of_order: 0 };
        assert_eq!(log.prefixes, BTreeMap::from([([10, 0, 1], one), ([10, 0, 2], other)]));
    }
}
