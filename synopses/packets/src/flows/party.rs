//! Who a packet is from or for, and how that is written.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use synopses::digest::{Digest, DigestKey};

use crate::identity;
use crate::packet::{End, Packet, Transport};

/// The usual length of an IPv4 prefix, in bits.
const IPV4_BITS: u8 = 24;
/// The usual length of an IPv6 prefix, in bits.
const IPV6_BITS: u8 = 48;
/// Most bits of an IPv6 prefix. Above them is its length.
const MAX_IPV6_BITS: u8 = 56;
/// Marks an IPv4 prefix, above its length.
const IPV4: u64 = 1 << 63;

/// What heavy hitters are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// By source addresses.
    #[default]
    Source,
    /// By destination addresses.
    Destination,
    /// Flows: both addresses, both ports, and the protocol.
    Flow,
    /// By destination ports.
    Port,
}

impl Key {
    /// All kinds of keys.
    pub const ALL: [Self; 4] = [Self::Source, Self::Destination, Self::Flow, Self::Port];

    /// Its name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Flow => "flow",
            Self::Port => "port",
        }
    }

    /// The party of `packet`, and its digest.
    #[inline]
    pub(super) fn of(self, packet: &Packet<'_>, key: &DigestKey) -> (Digest, Party) {
        let (source, destination) = (packet.source, packet.destination);
        match self {
            Self::Source => (key.digest(&source.address), Party::Address(source.address)),
            Self::Destination => (key.digest(&destination.address), Party::Address(destination.address)),
            Self::Flow => (identity::flow(packet, key), Party::Flow(source, destination)),
            Self::Port => (key.digest(&destination.port.to_be_bytes()), Party::Port(destination.port)),
        }
    }
}

/// By what heavy hitters are weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// Number of packets.
    Packets,
    /// Bytes of TCP and UDP: header and payload, by the lengths in the headers.
    #[default]
    Bytes,
}

impl Weight {
    /// Its name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
        }
    }

    /// The weight of `packet`, at least 1.
    #[inline]
    pub(super) fn of(self, packet: &Packet<'_>) -> core::num::NonZeroU64 {
        let payload = match packet.transport {
            Transport::Tcp(tcp) => tcp.payload,
            Transport::Udp(udp) => udp.length,
        };
        let bytes = packet.header_bytes as u64 + u64::from(payload);
        let weight = if self == Self::Bytes { bytes } else { 1 };
        core::num::NonZeroU64::new(weight).unwrap_or(core::num::NonZeroU64::MIN)
    }
}

/// One end, or both, of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// An address, IPv4 mapped to IPv6.
    Address([u8; 16]),
    /// An address and a port.
    End(End),
    /// From where to where.
    Flow(End, End),
    /// A port of any address.
    Port(u16),
}

impl Default for Party {
    fn default() -> Self {
        Self::Port(0)
    }
}

/// An address as people write it.
fn ip(address: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(address).to_canonical()
}

fn socket(end: End) -> core::net::SocketAddr {
    core::net::SocketAddr::new(ip(end.address), end.port)
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Address(address) => write!(f, "{}", ip(address)),
            Self::End(end) => write!(f, "{}", socket(end)),
            Self::Flow(source, destination) => write!(f, "{} to {}", socket(source), socket(destination)),
            Self::Port(port) => write!(f, "port {port}"),
        }
    }
}

/// How many leading bits of an address make its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLengths {
    /// Bits of an IPv4 address, from 1 to 32.
    pub v4: u8,
    /// Bits of an IPv6 address, from 1 to 56.
    pub v6: u8,
}

impl Default for PrefixLengths {
    fn default() -> Self {
        Self { v4: IPV4_BITS, v6: IPV6_BITS }
    }
}

impl PrefixLengths {
    /// Whether both are within their bounds.
    #[must_use]
    pub fn are_possible(self) -> bool {
        (1..=32).contains(&self.v4) && (1..=MAX_IPV6_BITS).contains(&self.v6)
    }
}

/// A prefix of source addresses, with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(pub(super) synopses::reordering::Prefix);

/// A length above the bits of a prefix. The usual one is 0, as programs for switches have it.
const fn marked(length: u8, usual: u8) -> u64 {
    ((length ^ usual) as u64) << MAX_IPV6_BITS
}

impl Prefix {
    /// The prefix of an address. Lengths have been checked.
    #[inline]
    pub(super) fn of(address: &[u8; 16], lengths: PrefixLengths) -> Self {
        let PrefixLengths { v4, v6 } = lengths;
        let bits = match ip(*address) {
            IpAddr::V4(address) => IPV4 | marked(v4, IPV4_BITS) | u64::from(address.to_bits() >> (32 - u32::from(v4))),
            IpAddr::V6(address) => marked(v6, IPV6_BITS) | (address.to_bits() >> (128 - u32::from(v6))) as u64,
        };
        Self(synopses::reordering::Prefix(bits))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bits, mark) = (self.0.0, ((self.0.0 & !IPV4) >> MAX_IPV6_BITS) as u8);
        let leading = bits & ((1 << MAX_IPV6_BITS) - 1);
        if bits & IPV4 != 0 {
            let length = mark ^ IPV4_BITS;
            let address = core::net::Ipv4Addr::from_bits((leading << (32 - u32::from(length))) as u32);
            return write!(f, "{address}/{length}");
        }
        let length = mark ^ IPV6_BITS;
        write!(f, "{}/{length}", Ipv6Addr::from_bits(u128::from(leading) << (128 - u32::from(length))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> [u8; 16] {
        match text.parse().expect("an address") {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }

    #[test]
    fn parties_and_prefixes_are_written_as_people_write_them() {
        let end = |text: &str, port| End { address: of(text), port };
        for (party, text) in [
            (Party::Address(of("10.0.0.7")), "10.0.0.7"),
            (Party::Address(of("2001:db8::7")), "2001:db8::7"),
            (Party::End(end("10.0.0.7", 80)), "10.0.0.7:80"),
            (Party::Flow(end("10.0.0.7", 80), end("fd00::1", 9)), "10.0.0.7:80 to [fd00::1]:9"),
            (Party::Port(443), "port 443"),
        ] {
            assert_eq!(party.to_string(), text);
        }
        for (address, text) in [
            ("10.1.2.3", "10.1.2.0/24"),
            ("255.255.255.255", "255.255.255.0/24"),
            ("2001:db8:7:8::1", "2001:db8:7::/48"),
        ] {
            assert_eq!(Prefix::of(&of(address), PrefixLengths::default()).to_string(), text);
        }
    }

    #[test]
    fn prefixes_of_every_length_have_their_bits_and_their_length() {
        for (address, v4, v6, text) in [
            ("255.1.2.3", 1, 48, "128.0.0.0/1"),
            ("10.1.2.3", 8, 48, "10.0.0.0/8"),
            ("10.1.2.3", 31, 48, "10.1.2.2/31"),
            ("10.1.2.3", 32, 48, "10.1.2.3/32"),
            ("8001:db8:7:8::1", 24, 1, "8000::/1"),
            ("2001:db8:7:8::1", 24, 32, "2001:db8::/32"),
            ("2001:db8:7:8fff::1", 24, 56, "2001:db8:7:8f00::/56"),
        ] {
            let lengths = PrefixLengths { v4, v6 };
            assert!(lengths.are_possible());
            assert_eq!(Prefix::of(&of(address), lengths).to_string(), text);
        }
        let of_zeros = |v4| Prefix::of(&of("0.0.0.0"), PrefixLengths { v4, v6: 48 });
        assert_ne!(of_zeros(8), of_zeros(9), "bits alone are the same");
        for (v4, v6) in [(0, 48), (33, 48), (24, 0), (24, 57)] {
            assert!(!PrefixLengths { v4, v6 }.are_possible());
        }
    }
}
