//! What is the same of a packet wherever it passes: the name by which two points know it again.
//!
//! In it: addresses, ports, IPv4 identification, the TCP or UDP header without its checksum, the first 32 bytes of payload as far as captured. Not in it:
//! what ways change (hop limit, ECN and DSCP, checksums, tags, tunnels). Both points need the same length of capture, or
//! one that holds those 32 bytes. Where addresses are translated in between, nothing is known again. Where a card or kernel puts segments
//! together or apart (TSO, GRO) between the two points, packets are others.

use synopses::digest::{Digest, DigestKey};

use crate::packet::{Packet, Transport};

/// Bytes of payload.
const PAYLOAD: usize = 32;
/// The longest TCP header.
const HEADER: usize = 60;
/// Addresses, identification, kind.
const ENDS: usize = 2 * 16 + 2 + 1;

/// The name of `packet`.
#[inline]
#[must_use]
pub fn digest(packet: &Packet<'_>, key: &DigestKey) -> Digest {
    let mut name = [0; ENDS + HEADER + PAYLOAD];
    name[..16].copy_from_slice(&packet.source.address);
    name[16..32].copy_from_slice(&packet.destination.address);
    name[32..34].copy_from_slice(&packet.identification.to_be_bytes());
    let (kind, checksum) = match packet.transport {
        Transport::Tcp(_) => (6, 16),
        Transport::Udp(_) => (17, 6),
    };
    name[34] = kind;
    let length = packet.segment.len().min(packet.header_bytes.min(HEADER) + PAYLOAD);
    name[ENDS..ENDS + length].copy_from_slice(&packet.segment[..length]);
    name[ENDS + checksum..ENDS + checksum + 2].fill(0);
    key.digest(&name[..ENDS + length])
}

/// The name of the flow that `packet` belongs to: addresses, ports and kind.
#[must_use]
pub fn flow(packet: &Packet<'_>, key: &DigestKey) -> Digest {
    let mut name = [0; ENDS + 2];
    name[..16].copy_from_slice(&packet.source.address);
    name[16..32].copy_from_slice(&packet.destination.address);
    name[32..34].copy_from_slice(&packet.source.port.to_be_bytes());
    name[34..36].copy_from_slice(&packet.destination.port.to_be_bytes());
    name[36] = u8::from(matches!(packet.transport, Transport::Tcp(_)));
    key.digest(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Link};
    use crate::generator::segment;
    use crate::packet::{View, parse};

    fn digest_of(bytes: &[u8]) -> Digest {
        let frame = Frame { bytes, length: bytes.len() as u32, time_ns: 0, link: Link::Ethernet };
        digest(&parse(&frame, View::Outer).expect("a packet"), &DigestKey::new(1))
    }

    #[test]
    fn a_flow_is_addresses_ports_and_kind() {
        let flow_of = |bytes: &[u8]| {
            let frame = Frame { bytes, length: bytes.len() as u32, time_ns: 0, link: Link::Ethernet };
            flow(&parse(&frame, View::Outer).expect("a packet"), &DigestKey::new(1))
        };
        let bytes = segment(b"a payload");
        // Addresses and ports, and of all else nothing.
        for at in [16, 22, 26, 29, 30, 33, 34, 35, 36, 37, 38, 42, 55] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            if parse(&Frame { bytes: &other, length: 99, time_ns: 0, link: Link::Ethernet }, View::Outer).is_ok() {
                assert_eq!(flow_of(&other) != flow_of(&bytes), (26..38).contains(&at), "byte {at}");
            }
        }
    }

    #[test]
    fn what_ways_change_is_not_in_it_and_all_else_is() {
        let bytes = segment(b"a payload that is longer than what is looked at of it");
        let name = digest_of(&bytes);
        // Ethernet; service class, hop limit and checksum of IP; checksum of TCP; payload after 32 bytes.
        let changed =
            |at: usize| at < 12 || at == 15 || at == 22 || (24..26).contains(&at) || (50..52).contains(&at) || at >= 86;
        // Lengths, versions and flags of fragments, of which others are no packet.
        let structure = |at: usize| {
            (12..15).contains(&at) || (16..18).contains(&at) || (20..22).contains(&at) || at == 23 || at == 46
        };
        for at in (0..bytes.len()).filter(|at| !structure(*at)) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(digest_of(&other) == name, changed(at), "byte {at}");
        }
    }
}
