//! The digest by which two capture points recognise the same packet.
//!
//! It covers addresses, ports, IPv4 identification, the TCP or UDP header without its checksum, and the first 32 bytes
//! of payload as far as captured. It leaves out what changes on a path: hop limit, ECN and DSCP, checksums, tags,
//! tunnels. Both points need the same snap length, or one that includes those 32 bytes. Packets are not recognised if
//! addresses are translated between the two points (NAT), or if segments are merged or split there (TSO, GRO).
//!
//! In a pipeline of hardware it covers eight bytes of payload and no options. Packets of UDP without an identification
//! that differ further behind only, such as QUIC's of one connection, are the same to it.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use synopses::digest::{Digest, DigestKey, DigestKind};

use crate::packet::{Packet, Transport};

/// Bytes of payload in the digest.
const PAYLOAD: usize = 32;
/// Length of the longest TCP header.
const HEADER: usize = 60;
/// Bytes of addresses, identification and protocol.
const ENDS: usize = 2 * 16 + 2 + 1;
/// Bytes of the name in a pipeline of hardware, and how many of them are from behind the transport header.
const FIXED: usize = 64;
const BEHIND: usize = 8;
/// Bytes that name a flow.
pub const FLOW_BYTES: usize = 2 * 16 + 2 * 2 + 1;

/// The digest of `packet`.
#[inline]
#[must_use]
pub fn digest(packet: &Packet<'_>, key: &DigestKey) -> Digest {
    if key.kind() == DigestKind::Hardware {
        return key.digest(&fixed_name(packet));
    }
    let mut bytes = [0; ENDS + HEADER + PAYLOAD];
    bytes[..16].copy_from_slice(&packet.source.address);
    bytes[16..32].copy_from_slice(&packet.destination.address);
    bytes[32..34].copy_from_slice(&packet.identification.to_be_bytes());
    let (protocol, checksum) = match packet.transport {
        Transport::Tcp(_) => (6, 16),
        Transport::Udp(_) => (17, 6),
    };
    bytes[34] = protocol;
    let length = packet.segment.len().min(packet.header_bytes.min(HEADER) + PAYLOAD);
    bytes[ENDS..ENDS + length].copy_from_slice(&packet.segment[..length]);
    bytes[ENDS + checksum..ENDS + checksum + 2].fill(0);
    key.digest(&bytes[..ENDS + length])
}

/// The name of `packet` in a pipeline of hardware. Each word of 32 bits is one of a header.
fn fixed_name(packet: &Packet<'_>) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    bytes[..16].copy_from_slice(&packet.source.address);
    bytes[16..32].copy_from_slice(&packet.destination.address);
    bytes[32..34].copy_from_slice(&packet.identification.to_be_bytes());
    let (protocol, checksum, header) = match packet.transport {
        Transport::Tcp(_) => (6, 16, 20),
        Transport::Udp(_) => (17, 6, 8),
    };
    bytes[34] = protocol;
    let fixed = packet.segment.get(..header).unwrap_or_default();
    // A byte is free behind the protocol.
    let begin = ENDS + 1;
    bytes[begin..begin + fixed.len()].copy_from_slice(fixed);
    bytes[begin + checksum..begin + checksum + 2].fill(0);
    if let Some(behind) = packet.segment.get(header..header + BEHIND) {
        bytes[FIXED - BEHIND..].copy_from_slice(behind);
    }
    bytes
}

/// The digest of the flow that `packet` belongs to: addresses, ports and protocol.
#[must_use]
pub fn flow(packet: &Packet<'_>, key: &DigestKey) -> Digest {
    FlowKey::of(packet).digest(key)
}

/// Names a flow in one direction: addresses, ports and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey([u8; FLOW_BYTES]);

impl FlowKey {
    /// The flow of `packet`.
    #[must_use]
    pub fn of(packet: &Packet<'_>) -> Self {
        let mut bytes = [0; FLOW_BYTES];
        bytes[..16].copy_from_slice(&packet.source.address);
        bytes[16..32].copy_from_slice(&packet.destination.address);
        bytes[32..34].copy_from_slice(&packet.source.port.to_be_bytes());
        bytes[34..36].copy_from_slice(&packet.destination.port.to_be_bytes());
        bytes[36] = u8::from(matches!(packet.transport, Transport::Tcp(_)));
        Self(bytes)
    }

    /// The digest of the flow.
    #[must_use]
    pub fn digest(&self, key: &DigestKey) -> Digest {
        key.digest(&self.0)
    }

    /// Both addresses (IPv4 mapped to IPv6), both ports in network order, and 1 for TCP or 0 for UDP.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; FLOW_BYTES] {
        &self.0
    }

    /// The flow that these bytes name. Any bytes name one.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; FLOW_BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |address: usize, port: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&self.0[address..address + 16]);
            let address = IpAddr::from(octets).to_canonical();
            SocketAddr::new(address, u16::from_be_bytes([self.0[port], self.0[port + 1]]))
        };
        let protocol = if self.0[36] == 1 { "tcp" } else { "udp" };
        write!(f, "{protocol} {} to {}", end(0, 32), end(16, 34))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Link};
    use crate::generator::segment;
    use crate::packet::{View, parse};

    fn digest_of(bytes: &[u8], kind: DigestKind) -> Digest {
        let frame = Frame { bytes, length: bytes.len() as u32, time_ns: 0, link: Link::Ethernet };
        digest(&parse(&frame, View::Outer).expect("a packet"), &DigestKey::of_kind(kind, 1))
    }

    #[test]
    fn a_flow_is_addresses_ports_and_protocol() {
        let flow_of = |bytes: &[u8]| {
            let frame = Frame { bytes, length: bytes.len() as u32, time_ns: 0, link: Link::Ethernet };
            flow(&parse(&frame, View::Outer).expect("a packet"), &DigestKey::new(1))
        };
        let bytes = segment(b"a payload");
        let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns: 0, link: Link::Ethernet };
        let packet = parse(&frame, View::Outer).expect("a packet");
        let named = FlowKey::of(&packet);
        assert_eq!(FlowKey::from_bytes(*named.bytes()), named);
        let of = |end: crate::packet::End| SocketAddr::new(IpAddr::from(end.address).to_canonical(), end.port);
        assert_eq!(named.to_string(), format!("tcp {} to {}", of(packet.source), of(packet.destination)));
        // Only addresses and ports count.
        for at in [16, 22, 26, 29, 30, 33, 34, 35, 36, 37, 38, 42, 55] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            if parse(&Frame { bytes: &other, length: 99, time_ns: 0, link: Link::Ethernet }, View::Outer).is_ok() {
                assert_eq!(flow_of(&other) != flow_of(&bytes), (26..38).contains(&at), "byte {at}");
            }
        }
    }

    #[test]
    fn fields_that_change_on_a_path_are_not_in_the_digest_and_all_others_are() {
        let bytes = segment(b"a payload that is longer than what is looked at of it");
        // Of the payload 32 bytes, or 8.
        for (kind, end) in [(DigestKind::Products, 86), (DigestKind::Hardware, 62)] {
            let expected = digest_of(&bytes, kind);
            // Ethernet; service class, hop limit and checksum of IP; checksum of TCP; the rest of the payload.
            let changed = |at: usize| {
                at < 12 || at == 15 || at == 22 || (24..26).contains(&at) || (50..52).contains(&at) || at >= end
            };
            // Lengths, versions and fragment flags: other values are no valid packet.
            let structure = |at: usize| {
                (12..15).contains(&at) || (16..18).contains(&at) || (20..22).contains(&at) || at == 23 || at == 46
            };
            for at in (0..bytes.len()).filter(|at| !structure(*at)) {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert_eq!(digest_of(&other, kind) == expected, changed(at), "{kind:?}, byte {at}");
            }
        }
    }

    #[test]
    fn what_is_behind_the_header_is_in_the_name_for_hardware_if_eight_bytes_are_there() {
        let of = |payload: &[u8]| digest_of(&segment(payload), DigestKind::Hardware);

        assert_ne!(of(b"8 bytes."), of(b"8 bytes!"));
        assert_eq!(of(b"7 bytes"), of(b"7 Bytes"));
    }
}
