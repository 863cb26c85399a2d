//! Frames taken apart: link, tags, IP, TCP or UDP, tunnels. Headers are read by etherparse, one at a time, in place.
//!
//! Lengths are those of the headers, not of what was captured: a capture of the first 96 bytes knows how long a segment was. What cannot be taken
//! apart is refused with its reason ([`Unusable`]) and counted ([`Refusals`]); no bytes make this panic.

use etherparse::{
    EtherType, Ethernet2HeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6ExtensionSlice, Ipv6ExtensionsSlice,
    Ipv6HeaderSlice, LinuxSllHeaderSlice, LinuxSllProtocolType, SingleVlanHeaderSlice, TcpHeaderSlice, UdpHeaderSlice,
    err,
};

use crate::frame::{Frame, Link};

/// Where VXLAN is received.
const VXLAN: u16 = 4789;
/// More tags than this are none that anybody sends.
const MOST_TAGS: usize = 4;

/// Which packet of a tunnel is meant. Decided once for a stream, the same for both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The one that carries.
    #[default]
    Outer,
    /// The one that is carried by VXLAN, where there is one.
    Inner,
}

/// One end of a packet's way. IPv4 addresses as IPv6 has them (::ffff:a.b.c.d).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// The address.
    pub address: [u8; 16],
    /// The port.
    pub port: u16,
}

/// What is used of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// The number of its first byte.
    pub sequence: u32,
    /// The number that is expected next, if [`Self::has`] says ACK.
    pub acknowledgement: u32,
    /// FIN, SYN, RST and ACK, as bits 0, 1, 2 and 4.
    pub flags: u8,
    /// Bytes of payload, by the lengths in the headers.
    pub payload: u32,
}

impl Tcp {
    /// The flag that ends a direction.
    pub const FIN: u8 = 1;
    /// The flag that opens one.
    pub const SYN: u8 = 2;
    /// The flag that ends all.
    pub const RST: u8 = 4;
    /// The flag of an acknowledgement.
    pub const ACK: u8 = 16;

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// What is used of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    /// What was captured of its payload.
    pub payload: &'a [u8],
    /// Bytes of its payload, by the lengths in the headers.
    pub length: u32,
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport<'a> {
    /// A segment.
    Tcp(Tcp),
    /// A datagram.
    Udp(Udp<'a>),
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it passed, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Who sent it.
    pub source: End,
    /// To whom.
    pub destination: End,
    /// What it carries.
    pub transport: Transport<'a>,
    /// The outermost tag of its Ethernet frame.
    pub vlan: Option<u16>,
    /// The VXLAN network that it was carried in.
    pub network: Option<u32>,
    /// The identification of IPv4.
    pub identification: u16,
    /// TCP or UDP header and payload, as far as captured.
    pub segment: &'a [u8],
    /// Bytes of the TCP or UDP header.
    pub header_bytes: usize,
}

/// Why nothing can be said of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unusable {
    /// Captured, or sent, without a whole Ethernet or cooked header.
    CutLink,
    /// Without a whole VLAN tag.
    CutTag,
    /// More than four VLAN tags.
    Tags,
    /// Neither IPv4 nor IPv6: ARP, LLDP and the like. Nothing is wrong with it.
    OtherLink,
    /// Without a whole IP header.
    CutIp,
    /// Another version than the one announced.
    IpVersion,
    /// An IPv4 header shorter than 20 bytes.
    IpHeaderLength,
    /// An IP packet shorter than its headers.
    IpLength,
    /// A fragment that is not the first: it has no ports.
    Fragment,
    /// Neither TCP nor UDP. Nothing is wrong with it.
    OtherTransport,
    /// Without a whole TCP header.
    CutTcp,
    /// A TCP header shorter than 20 bytes, or longer than its packet.
    TcpHeaderLength,
    /// Without a whole UDP header.
    CutUdp,
    /// A datagram shorter than its header, or longer than its packet.
    UdpLength,
    /// A VXLAN datagram without a whole VXLAN header, or one that says that it has no network.
    Vxlan,
}

impl Unusable {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::CutLink,
        Self::CutTag,
        Self::Tags,
        Self::OtherLink,
        Self::CutIp,
        Self::IpVersion,
        Self::IpHeaderLength,
        Self::IpLength,
        Self::Fragment,
        Self::OtherTransport,
        Self::CutTcp,
        Self::TcpHeaderLength,
        Self::CutUdp,
        Self::UdpLength,
        Self::Vxlan,
    ];

    /// Its name, as metrics and JSON have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CutLink => "cut_link",
            Self::CutTag => "cut_tag",
            Self::Tags => "tags",
            Self::OtherLink => "other_link",
            Self::CutIp => "cut_ip",
            Self::IpVersion => "ip_version",
            Self::IpHeaderLength => "ip_header_length",
            Self::IpLength => "ip_length",
            Self::Fragment => "fragment",
            Self::OtherTransport => "other_transport",
            Self::CutTcp => "cut_tcp",
            Self::TcpHeaderLength => "tcp_header_length",
            Self::CutUdp => "cut_udp",
            Self::UdpLength => "udp_length",
            Self::Vxlan => "vxlan",
        }
    }

    /// Whether it is a packet like any other that is merely none of those that are looked for.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, Self::OtherLink | Self::OtherTransport | Self::Fragment)
    }
}

/// How many frames were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Unusable::ALL.len()]);

impl Refusals {
    /// One more.
    pub const fn count(&mut self, reason: Unusable) {
        self.0[reason as usize] += 1;
    }

    /// How many for this reason.
    #[must_use]
    pub const fn of(&self, reason: Unusable) -> u64 {
        self.0[reason as usize]
    }

    /// How many in all.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those that there were.
    pub fn iter(&self) -> impl Iterator<Item = (Unusable, u64)> + '_ {
        Unusable::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, count)| *count > 0)
    }
}

/// Where a packet was found: what its headers said before IP.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    vlan: Option<u16>,
    network: Option<u32>,
}

/// The packet in `frame`. Costs tens of nanoseconds and allocates nothing.
///
/// # Errors
///
/// [`Unusable`] says why there is none.
pub fn parse<'a>(frame: &Frame<'a>, view: View) -> Result<Packet<'a>, Unusable> {
    let outer = link(frame.bytes, frame.link, frame.time_ns)?;
    match (view, outer.transport) {
        (View::Inner, Transport::Udp(udp)) if outer.destination.port == VXLAN => {
            let (head, inner) = udp.payload.split_first_chunk::<8>().ok_or(Unusable::Vxlan)?;
            // The I flag: there is a network identifier.
            if head[0] & 0x08 == 0 {
                return Err(Unusable::Vxlan);
            }
            let network = u32::from_be_bytes([0, head[4], head[5], head[6]]);
            let packet = link(inner, Link::Ethernet, frame.time_ns)?;
            Ok(Packet { network: Some(network), ..packet })
        }
        _ => Ok(outer),
    }
}

fn link(bytes: &[u8], link: Link, time_ns: u64) -> Result<Packet<'_>, Unusable> {
    let mut around = Around::default();
    let (mut kind, mut rest) = match link {
        Link::Ethernet => {
            let header = Ethernet2HeaderSlice::from_slice(bytes).map_err(|_| Unusable::CutLink)?;
            (header.ether_type(), &bytes[header.slice().len()..])
        }
        Link::Cooked => {
            let header = LinuxSllHeaderSlice::from_slice(bytes).map_err(|error| match error {
                err::linux_sll::HeaderSliceError::Len(_) => Unusable::CutLink,
                err::linux_sll::HeaderSliceError::Content(_) => Unusable::OtherLink,
            })?;
            let LinuxSllProtocolType::EtherType(kind) = header.protocol_type() else { return Err(Unusable::OtherLink) };
            (kind, &bytes[header.slice().len()..])
        }
        Link::Ip => {
            let first = bytes.first().ok_or(Unusable::CutIp)?;
            (if first >> 4 == 6 { EtherType::IPV6 } else { EtherType::IPV4 }, bytes)
        }
    };
    let mut tags = 0;
    while matches!(
        kind,
        EtherType::VLAN_TAGGED_FRAME | EtherType::PROVIDER_BRIDGING | EtherType::VLAN_DOUBLE_TAGGED_FRAME
    ) {
        let tag = SingleVlanHeaderSlice::from_slice(rest).map_err(|_| Unusable::CutTag)?;
        around.vlan = around.vlan.or(Some(tag.vlan_identifier().value()));
        (kind, rest) = (tag.ether_type(), &rest[tag.slice().len()..]);
        tags += 1;
        if tags > MOST_TAGS {
            return Err(Unusable::Tags);
        }
    }
    match kind {
        EtherType::IPV4 => ipv4(rest, around, time_ns),
        EtherType::IPV6 => ipv6(rest, around, time_ns),
        _ => Err(Unusable::OtherLink),
    }
}

/// What IP says: from whom, to whom, what follows and how long that is.
struct Carried<'a> {
    source: [u8; 16],
    destination: [u8; 16],
    protocol: IpNumber,
    identification: u16,
    bytes: &'a [u8],
    length: usize,
}

fn ipv4(bytes: &[u8], around: Around, time_ns: u64) -> Result<Packet<'_>, Unusable> {
    use err::ipv4::{HeaderError, HeaderSliceError};

    let header = Ipv4HeaderSlice::from_slice(bytes).map_err(|error| match error {
        HeaderSliceError::Len(_) => Unusable::CutIp,
        HeaderSliceError::Content(HeaderError::UnexpectedVersion { .. }) => Unusable::IpVersion,
        HeaderSliceError::Content(_) => Unusable::IpHeaderLength,
    })?;
    let length = usize::from(header.payload_len().map_err(|_| Unusable::IpLength)?);
    if header.fragments_offset().value() != 0 {
        return Err(Unusable::Fragment);
    }
    let rest = &bytes[header.slice().len()..];
    let carried = Carried {
        source: header.source_addr().to_ipv6_mapped().octets(),
        destination: header.destination_addr().to_ipv6_mapped().octets(),
        protocol: header.protocol(),
        identification: header.identification(),
        // Behind the packet, Ethernet may have filled up its frame.
        bytes: &rest[..rest.len().min(length)],
        length,
    };
    transport(&carried, around, time_ns)
}

fn ipv6(bytes: &[u8], around: Around, time_ns: u64) -> Result<Packet<'_>, Unusable> {
    use err::ipv6::HeaderSliceError;

    let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|error| match error {
        HeaderSliceError::Len(_) => Unusable::CutIp,
        HeaderSliceError::Content(_) => Unusable::IpVersion,
    })?;
    let length = usize::from(header.payload_length());
    let rest = &bytes[header.slice().len()..];
    let rest = &rest[..rest.len().min(length)];
    let (extensions, protocol, bytes, stopped) = Ipv6ExtensionsSlice::from_slice_lax(header.next_header(), rest);
    if stopped.is_some() {
        return Err(if rest.len() < length { Unusable::CutIp } else { Unusable::IpLength });
    }
    let later =
        |extension| matches!(extension, Ipv6ExtensionSlice::Fragment(part) if part.fragment_offset().value() != 0);
    let skipped = extensions.slice().len();
    if extensions.into_iter().any(later) {
        return Err(Unusable::Fragment);
    }
    let carried = Carried {
        source: header.source(),
        destination: header.destination(),
        protocol,
        identification: 0,
        bytes,
        length: length - skipped,
    };
    transport(&carried, around, time_ns)
}

fn transport<'a>(carried: &Carried<'a>, around: Around, time_ns: u64) -> Result<Packet<'a>, Unusable> {
    let segment = carried.bytes;
    let (ports, transport, header_bytes) = match carried.protocol {
        IpNumber::TCP => tcp(carried)?,
        IpNumber::UDP => udp(carried)?,
        _ => return Err(Unusable::OtherTransport),
    };
    Ok(Packet {
        time_ns,
        source: End { address: carried.source, port: ports.0 },
        destination: End { address: carried.destination, port: ports.1 },
        transport,
        vlan: around.vlan,
        network: around.network,
        identification: carried.identification,
        segment,
        header_bytes,
    })
}

/// Ports, what follows, and the length of the header.
type Taken<'a> = ((u16, u16), Transport<'a>, usize);

fn tcp<'a>(carried: &Carried<'a>) -> Result<Taken<'a>, Unusable> {
    // What is missing was not captured, or was never there.
    let cut = |least: usize| if carried.length < least { Unusable::TcpHeaderLength } else { Unusable::CutTcp };
    let header = TcpHeaderSlice::from_slice(carried.bytes).map_err(|error| match error {
        err::tcp::HeaderSliceError::Len(error) => cut(error.required_len),
        err::tcp::HeaderSliceError::Content(_) => Unusable::TcpHeaderLength,
    })?;
    let header_bytes = header.slice().len();
    let payload = carried.length.checked_sub(header_bytes).ok_or(Unusable::TcpHeaderLength)?;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(header.fin(), Tcp::FIN)
        | flag(header.syn(), Tcp::SYN)
        | flag(header.rst(), Tcp::RST)
        | flag(header.ack(), Tcp::ACK);
    let tcp = Tcp {
        sequence: header.sequence_number(),
        acknowledgement: header.acknowledgment_number(),
        flags,
        payload: payload as u32,
    };
    Ok(((header.source_port(), header.destination_port()), Transport::Tcp(tcp), header_bytes))
}

fn udp<'a>(carried: &Carried<'a>) -> Result<Taken<'a>, Unusable> {
    let header = UdpHeaderSlice::from_slice(carried.bytes)
        .map_err(|error| if carried.length < error.required_len { Unusable::UdpLength } else { Unusable::CutUdp })?;
    let (length, header_bytes) = (usize::from(header.length()), header.slice().len());
    if !(header_bytes..=carried.length).contains(&length) {
        return Err(Unusable::UdpLength);
    }
    let payload = &carried.bytes[header_bytes..carried.bytes.len().min(length)];
    let udp = Udp { payload, length: (length - header_bytes) as u32 };
    Ok(((header.source_port(), header.destination_port()), Transport::Udp(udp), header_bytes))
}

#[cfg(test)]
mod tests;
