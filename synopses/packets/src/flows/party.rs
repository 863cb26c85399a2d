//! Who a packet is from or for, and how that is written.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use synopses::digest::{Digest, DigestKey};

use crate::identity;
use crate::packet::{End, Packet, Transport};

/// Length of an IPv4 prefix, in bits.
const IPV4_BITS: u32 = 24;
/// Length of an IPv6 prefix, in bits.
const IPV6_BITS: u32 = 48;
/// Marks an IPv4 prefix, above the 48 bits of an IPv6 one.
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

/// A prefix of source addresses: 24 bits of IPv4, 48 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(pub(super) synopses::reordering::Prefix);

impl Prefix {
    /// The prefix of an address.
    #[inline]
    #[must_use]
    pub fn of(address: &[u8; 16]) -> Self {
        let bits = match ip(*address) {
            IpAddr::V4(address) => IPV4 | u64::from(address.to_bits() >> (32 - IPV4_BITS)),
            IpAddr::V6(address) => (address.to_bits() >> (128 - IPV6_BITS)) as u64,
        };
        Self(synopses::reordering::Prefix(bits))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.0;
        if bits & IPV4 != 0 {
            let address = core::net::Ipv4Addr::from_bits((bits as u32) << (32 - IPV4_BITS));
            return write!(f, "{address}/{IPV4_BITS}");
        }
        write!(f, "{}/{IPV6_BITS}", Ipv6Addr::from_bits(u128::from(bits) << (128 - IPV6_BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_and_prefixes_are_written_as_people_write_them() {
        let of = |text: &str| match text.parse().expect("an address") {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
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
            assert_eq!(Prefix::of(&of(address)).to_string(), text);
        }
    }
}
