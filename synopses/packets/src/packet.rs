//! Parses frames: link header, VLAN tags, IP, TCP or UDP, and VXLAN tunnels. etherparse reads one header at a time, in
//! place.
//!
//! Lengths come from the headers, not from the captured bytes: a capture of the first 96 bytes knows the length of a
//! segment. Other frames are refused with a reason ([`ParseError`]) and counted ([`Refusals`]). No input makes the
//! parser panic.

use etherparse::{
    EtherType, Ethernet2HeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6ExtensionSlice, Ipv6ExtensionsSlice,
    Ipv6HeaderSlice, LinuxSllHeaderSlice, LinuxSllProtocolType, SingleVlanHeaderSlice, TcpHeaderSlice, UdpHeaderSlice,
    err,
};

use crate::frame::{Frame, Link};

/// UDP port of VXLAN.
const VXLAN: u16 = 4789;
/// Maximum number of VLAN tags.
const MAX_TAGS: usize = 4;

/// Which packet of a tunnel is used. Set once for a stream, the same for both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The outer packet.
    #[default]
    Outer,
    /// The inner packet of VXLAN; the outer one if there is no tunnel.
    Inner,
}

/// Source or destination of a packet. IPv4 addresses are mapped to IPv6 (`::ffff:a.b.c.d`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// IPv6 or mapped IPv4 address.
    pub address: [u8; 16],
    /// TCP or UDP port.
    pub port: u16,
}

/// Fields of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Sequence number that the sender expects next; valid if ACK is set.
    pub acknowledgement: u32,
    /// FIN, SYN, RST and ACK, as bits 0, 1, 2 and 4.
    pub flags: u8,
    /// Bytes of payload, from the lengths in the headers.
    pub payload: u32,
}

impl Tcp {
    /// Ends one direction of a connection.
    pub const FIN: u8 = 1;
    /// Opens one direction of a connection.
    pub const SYN: u8 = 2;
    /// Resets the connection.
    pub const RST: u8 = 4;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// Fields of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    /// Payload, as far as captured.
    pub payload: &'a [u8],
    /// Bytes of payload, from the lengths in the headers.
    pub length: u32,
}

/// Transport protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport<'a> {
    /// A TCP segment.
    Tcp(Tcp),
    /// A UDP datagram.
    Udp(Udp<'a>),
}

/// A parsed TCP or UDP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Timestamp in nanoseconds since 1970.
    pub time_ns: u64,
    /// Source address and port.
    pub source: End,
    /// Destination address and port.
    pub destination: End,
    /// Fields of its segment or datagram.
    pub transport: Transport<'a>,
    /// Outermost VLAN tag of its frame.
    pub vlan: Option<u16>,
    /// VXLAN network identifier, of an inner packet.
    pub network: Option<u32>,
    /// Identification field of IPv4; 0 for IPv6.
    pub identification: u16,
    /// Whether it is the first of several IP fragments. Lengths are those of this fragment, not of what was cut.
    pub first_fragment: bool,
    /// TCP or UDP header and payload, as far as captured.
    pub segment: &'a [u8],
    /// Bytes of the TCP or UDP header.
    pub header_bytes: usize,
}

/// Why a frame has no usable packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ParseError {
    /// Truncated Ethernet or cooked header.
    CutLink,
    /// Truncated VLAN tag.
    CutTag,
    /// More than four VLAN tags.
    Tags,
    /// Neither IPv4 nor IPv6, but ARP, LLDP and the like. The frame is valid.
    OtherLink,
    /// Truncated IP header.
    CutIp,
    /// The IP version differs from the link header's.
    IpVersion,
    /// An IPv4 header shorter than 20 bytes.
    IpHeaderLength,
    /// An IP packet shorter than its headers.
    IpLength,
    /// A fragment other than the first, so without ports.
    Fragment,
    /// Neither TCP nor UDP. The packet is valid.
    OtherTransport,
    /// Truncated TCP header.
    CutTcp,
    /// A TCP header shorter than 20 bytes, or longer than its packet.
    TcpHeaderLength,
    /// Truncated UDP header.
    CutUdp,
    /// A datagram shorter than its header, or longer than its packet.
    UdpLength,
    /// Truncated VXLAN header, or one without a network identifier.
    Vxlan,
}

impl ParseError {
    /// All reasons, in the order of counters.
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

    /// Its name in metrics and JSON.
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

    /// Whether the frame is valid, only without a TCP or UDP header.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, Self::OtherLink | Self::OtherTransport | Self::Fragment)
    }
}

/// Number of refused frames by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; ParseError::ALL.len()]);

impl Refusals {
    /// Counts one frame.
    pub const fn count(&mut self, reason: ParseError) {
        self.0[reason as usize] += 1;
    }

    /// Number of frames refused for this reason.
    #[must_use]
    pub const fn of(&self, reason: ParseError) -> u64 {
        self.0[reason as usize]
    }

    /// Number of all refused frames.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Reasons with at least one frame, and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (ParseError, u64)> + '_ {
        ParseError::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, count)| *count > 0)
    }
}

/// Headers in front of IP.
#[derive(Clone, Copy, Debug, Default)]
struct Encapsulation {
    vlan: Option<u16>,
    network: Option<u32>,
}

/// Parses the packet in `frame`. Takes tens of nanoseconds and allocates nothing.
///
/// # Errors
///
/// [`ParseError`] if the frame has no usable packet.
pub fn parse<'a>(frame: &Frame<'a>, view: View) -> Result<Packet<'a>, ParseError> {
    let outer = link(frame.bytes, frame.link, frame.time_ns)?;
    match (view, outer.transport) {
        (View::Inner, Transport::Udp(udp)) if outer.destination.port == VXLAN => {
            let (head, inner) = udp.payload.split_first_chunk::<8>().ok_or(ParseError::Vxlan)?;
            // The I flag: there is a network identifier.
            if head[0] & 0x08 == 0 {
                return Err(ParseError::Vxlan);
            }
            let network = u32::from_be_bytes([0, head[4], head[5], head[6]]);
            let packet = link(inner, Link::Ethernet, frame.time_ns)?;
            Ok(Packet { network: Some(network), ..packet })
        }
        _ => Ok(outer),
    }
}

fn link(bytes: &[u8], link: Link, time_ns: u64) -> Result<Packet<'_>, ParseError> {
    let mut encapsulation = Encapsulation::default();
    let (mut kind, mut rest) = match link {
        Link::Ethernet => {
            let header = Ethernet2HeaderSlice::from_slice(bytes).map_err(|_| ParseError::CutLink)?;
            (header.ether_type(), &bytes[header.slice().len()..])
        }
        Link::Cooked => {
            let header = LinuxSllHeaderSlice::from_slice(bytes).map_err(|error| match error {
                err::linux_sll::HeaderSliceError::Len(_) => ParseError::CutLink,
                err::linux_sll::HeaderSliceError::Content(_) => ParseError::OtherLink,
            })?;
            let LinuxSllProtocolType::EtherType(kind) = header.protocol_type() else {
                return Err(ParseError::OtherLink);
            };
            (kind, &bytes[header.slice().len()..])
        }
        Link::Ip => {
            let first = bytes.first().ok_or(ParseError::CutIp)?;
            (if first >> 4 == 6 { EtherType::IPV6 } else { EtherType::IPV4 }, bytes)
        }
    };
    let mut tags = 0;
    while matches!(
        kind,
        EtherType::VLAN_TAGGED_FRAME | EtherType::PROVIDER_BRIDGING | EtherType::VLAN_DOUBLE_TAGGED_FRAME
    ) {
        let tag = SingleVlanHeaderSlice::from_slice(rest).map_err(|_| ParseError::CutTag)?;
        encapsulation.vlan = encapsulation.vlan.or(Some(tag.vlan_identifier().value()));
        (kind, rest) = (tag.ether_type(), &rest[tag.slice().len()..]);
        tags += 1;
        if tags > MAX_TAGS {
            return Err(ParseError::Tags);
        }
    }
    match kind {
        EtherType::IPV4 => ipv4(rest, encapsulation, time_ns),
        EtherType::IPV6 => ipv6(rest, encapsulation, time_ns),
        _ => Err(ParseError::OtherLink),
    }
}

/// Fields of an IP header, and its payload.
struct IpPayload<'a> {
    source: [u8; 16],
    destination: [u8; 16],
    protocol: IpNumber,
    identification: u16,
    first_fragment: bool,
    bytes: &'a [u8],
    length: usize,
}

fn ipv4(bytes: &[u8], encapsulation: Encapsulation, time_ns: u64) -> Result<Packet<'_>, ParseError> {
    use err::ipv4::{HeaderError, HeaderSliceError};

    let header = Ipv4HeaderSlice::from_slice(bytes).map_err(|error| match error {
        HeaderSliceError::Len(_) => ParseError::CutIp,
        HeaderSliceError::Content(HeaderError::UnexpectedVersion { .. }) => ParseError::IpVersion,
        HeaderSliceError::Content(_) => ParseError::IpHeaderLength,
    })?;
    let length = usize::from(header.payload_len().map_err(|_| ParseError::IpLength)?);
    if header.fragments_offset().value() != 0 {
        return Err(ParseError::Fragment);
    }
    let rest = &bytes[header.slice().len()..];
    let payload = IpPayload {
        source: header.source_addr().to_ipv6_mapped().octets(),
        destination: header.destination_addr().to_ipv6_mapped().octets(),
        protocol: header.protocol(),
        identification: header.identification(),
        first_fragment: header.more_fragments(),
        // Excludes Ethernet padding behind the packet.
        bytes: &rest[..rest.len().min(length)],
        length,
    };
    transport(&payload, encapsulation, time_ns)
}

fn ipv6(bytes: &[u8], encapsulation: Encapsulation, time_ns: u64) -> Result<Packet<'_>, ParseError> {
    use err::ipv6::HeaderSliceError;

    let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|error| match error {
        HeaderSliceError::Len(_) => ParseError::CutIp,
        HeaderSliceError::Content(_) => ParseError::IpVersion,
    })?;
    let length = usize::from(header.payload_length());
    let rest = &bytes[header.slice().len()..];
    let rest = &rest[..rest.len().min(length)];
    let (extensions, protocol, bytes, stopped) = Ipv6ExtensionsSlice::from_slice_lax(header.next_header(), rest);
    if stopped.is_some() {
        return Err(if rest.len() < length { ParseError::CutIp } else { ParseError::IpLength });
    }
    let skipped = extensions.slice().len();
    let mut first_fragment = false;
    for extension in extensions {
        let Ipv6ExtensionSlice::Fragment(part) = extension else { continue };
        if part.fragment_offset().value() != 0 {
            return Err(ParseError::Fragment);
        }
        // Without further ones it is a whole packet, whose header says that it might have been cut.
        first_fragment |= part.more_fragments();
    }
    let payload = IpPayload {
        source: header.source(),
        destination: header.destination(),
        protocol,
        identification: 0,
        first_fragment,
        bytes,
        length: length - skipped,
    };
    transport(&payload, encapsulation, time_ns)
}

fn transport<'a>(ip: &IpPayload<'a>, encapsulation: Encapsulation, time_ns: u64) -> Result<Packet<'a>, ParseError> {
    let segment = ip.bytes;
    let (ports, transport, header_bytes) = match ip.protocol {
        IpNumber::TCP => tcp(ip)?,
        IpNumber::UDP => udp(ip)?,
        _ => return Err(ParseError::OtherTransport),
    };
    Ok(Packet {
        time_ns,
        source: End { address: ip.source, port: ports.0 },
        destination: End { address: ip.destination, port: ports.1 },
        transport,
        vlan: encapsulation.vlan,
        network: encapsulation.network,
        identification: ip.identification,
        first_fragment: ip.first_fragment,
        segment,
        header_bytes,
    })
}

/// Ports, transport fields, and the length of the transport header.
type ParsedTransport<'a> = ((u16, u16), Transport<'a>, usize);

fn tcp<'a>(ip: &IpPayload<'a>) -> Result<ParsedTransport<'a>, ParseError> {
    // Tells a truncated capture from a packet that is too short.
    let cut = |least: usize| if ip.length < least { ParseError::TcpHeaderLength } else { ParseError::CutTcp };
    let header = TcpHeaderSlice::from_slice(ip.bytes).map_err(|error| match error {
        err::tcp::HeaderSliceError::Len(error) => cut(error.required_len),
        err::tcp::HeaderSliceError::Content(_) => ParseError::TcpHeaderLength,
    })?;
    let header_bytes = header.slice().len();
    let payload = ip.length.checked_sub(header_bytes).ok_or(ParseError::TcpHeaderLength)?;
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

fn udp<'a>(ip: &IpPayload<'a>) -> Result<ParsedTransport<'a>, ParseError> {
    let header = UdpHeaderSlice::from_slice(ip.bytes)
        .map_err(|error| if ip.length < error.required_len { ParseError::UdpLength } else { ParseError::CutUdp })?;
    let (length, header_bytes) = (usize::from(header.length()), header.slice().len());
    if !(header_bytes..=ip.length).contains(&length) {
        return Err(ParseError::UdpLength);
    }
    let payload = &ip.bytes[header_bytes..ip.bytes.len().min(length)];
    let udp = Udp { payload, length: (length - header_bytes) as u32 };
    Ok(((header.source_port(), header.destination_port()), Transport::Udp(udp), header_bytes))
}

#[cfg(test)]
mod tests;
