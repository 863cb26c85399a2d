use etherparse::{
    Ethernet2Header, IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder, PacketBuilderStep, TcpHeader, VlanId,
};
use etherparse::{IpFragOffset, Ipv4Extensions, Ipv6Extensions, Ipv6FragmentHeader, ip_number};
use proptest::prelude::*;

use super::*;
use crate::generator::segment;

fn parsed(bytes: &[u8], view: View) -> Result<Packet<'_>, ParseError> {
    parse(&Frame { bytes, length: bytes.len() as u32, time_ns: 9, link: Link::Ethernet }, view)
}

fn ethernet() -> PacketBuilderStep<Ethernet2Header> {
    PacketBuilder::ethernet2([2; 6], [4; 6])
}

fn v4(address: [u8; 4]) -> [u8; 16] {
    core::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

#[test]
fn a_segment_is_read_with_the_lengths_of_its_headers_however_little_was_captured() {
    let whole = segment(&[7; 1_000]);
    let packet = parsed(&whole[..96], View::Outer).expect("a packet");

    let tcp = Tcp { sequence: 1, acknowledgement: 1, flags: Tcp::ACK, payload: 1_000 };
    assert_eq!(packet.transport, Transport::Tcp(tcp));
    assert_eq!(packet.source, End { address: v4([10, 0, 0, 1]), port: 40_000 });
    assert_eq!(packet.destination, End { address: v4([10, 1, 0, 1]), port: 80 });
    assert_eq!((packet.time_ns, packet.vlan, packet.segment.len(), packet.header_bytes), (9, None, 62, 20));
}

#[test]
fn what_ethernet_fills_its_frame_up_with_is_no_payload() {
    let mut bytes = segment(b"");
    bytes.resize(60, 0xaa);

    let packet = parsed(&bytes, View::Outer).expect("a packet");

    assert!(matches!(packet.transport, Transport::Tcp(Tcp { payload: 0, .. })));
    assert_eq!(packet.segment.len(), 20);
}

#[test]
fn tags_and_ipv6_are_read_through() {
    let mut bytes = Vec::new();
    let [outer, inner] = [100, 5].map(|tag| VlanId::try_new(tag).expect("a tag"));
    let (from, to) = ([0xfd; 16], [0xfc; 16]);
    ethernet().double_vlan(outer, inner).ipv6(from, to, 64).udp(1_234, 53).write(&mut bytes, b"question").unwrap();

    let packet = parsed(&bytes, View::Outer).expect("a packet");

    assert_eq!(
        (packet.vlan, packet.source, packet.destination.address),
        (Some(100), End { address: from, port: 1_234 }, to)
    );
    assert_eq!(packet.transport, Transport::Udp(Udp { payload: b"question", length: 8 }));
}

#[test]
fn options_of_tcp_are_no_payload() {
    let mut header = TcpHeader::new(5, 6, 7, 8);
    header.set_options_raw(&[1; 12]).unwrap();
    let mut bytes = Vec::new();
    ethernet().ipv4([1; 4], [2; 4], 64).tcp_header(header).write(&mut bytes, b"abc").unwrap();

    let packet = parsed(&bytes, View::Outer).expect("a packet");

    assert!(matches!(packet.transport, Transport::Tcp(Tcp { payload: 3, .. })));
    assert_eq!((packet.header_bytes, packet.segment.len()), (32, 35));
}

/// A segment in a VXLAN network.
fn tunnelled(flags: u8) -> Vec<u8> {
    let mut payload = vec![flags, 0, 0, 0, 0, 1, 2, 0];
    payload.extend(segment(b"inner"));
    let mut bytes = Vec::new();
    ethernet().ipv4([192, 168, 0, 1], [192, 168, 0, 2], 64).udp(55_555, 4_789).write(&mut bytes, &payload).unwrap();
    bytes
}

#[test]
fn of_a_tunnel_the_view_decides_which_packet_is_meant() {
    let bytes = tunnelled(8);

    let (outer, inner) = (parsed(&bytes, View::Outer).expect("one"), parsed(&bytes, View::Inner).expect("one"));

    assert_eq!((outer.destination.port, outer.network), (4_789, None));
    assert_eq!((inner.destination.port, inner.network), (80, Some(258)));
    assert!(matches!(inner.transport, Transport::Tcp(Tcp { payload: 5, .. })));
    assert_eq!(parsed(&tunnelled(0), View::Inner), Err(ParseError::Vxlan));
    assert_eq!(parsed(&bytes[..48], View::Inner), Err(ParseError::Vxlan));
    assert_eq!(parsed(&bytes[..60], View::Inner), Err(ParseError::CutLink));
    // What is in no tunnel is meant by either view.
    assert!(parsed(&segment(b""), View::Inner).is_ok());
}

#[test]
fn cooked_and_bare_packets_are_read() {
    let bytes = segment(b"x");
    let of = |bytes: &[u8], link| {
        parse(&Frame { bytes, length: 0, time_ns: 0, link }, View::Outer).map(|packet| packet.destination.port)
    };
    let mut cooked = vec![0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 8, 0];
    cooked.extend_from_slice(&bytes[14..]);

    assert_eq!(of(&bytes[14..], Link::Ip), Ok(80));
    assert_eq!(of(&cooked, Link::Cooked), Ok(80));
    assert_eq!(of(&cooked[..15], Link::Cooked), Err(ParseError::CutLink));
    assert_eq!(of(&[], Link::Ip), Err(ParseError::CutIp));
    cooked[2..4].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(of(&cooked, Link::Cooked), Err(ParseError::OtherLink));
}

/// `bytes` with other bytes at a place.
fn with(mut bytes: Vec<u8>, at: usize, other: &[u8]) -> Vec<u8> {
    bytes[at..at + other.len()].copy_from_slice(other);
    bytes
}

#[test]
fn what_cannot_be_read_has_its_reason() {
    let tcp = || segment(b"payload");
    let udp = || {
        let mut bytes = Vec::new();
        ethernet().ipv4([1; 4], [2; 4], 64).udp(1, 2).write(&mut bytes, b"payload").unwrap();
        bytes
    };
    let fragment = |more: bool, offset: u16| with(tcp(), 20, &(offset | (u16::from(more) << 13)).to_be_bytes());
    let tags = |count: usize| {
        let mut bytes = tcp()[..12].to_vec();
        (0..count).for_each(|_| bytes.extend([0x81, 0, 0, 1]));
        bytes.extend(&tcp()[12..]);
        bytes
    };
    for (bytes, expected) in [
        (tcp()[..13].to_vec(), ParseError::CutLink),
        (tags(1)[..17].to_vec(), ParseError::CutTag),
        (tags(5), ParseError::Tags),
        (with(tcp(), 12, &[8, 6]), ParseError::OtherLink),
        (tcp()[..33].to_vec(), ParseError::CutIp),
        (with(tcp(), 14, &[0x65]), ParseError::IpVersion),
        (with(tcp(), 14, &[0x44]), ParseError::IpHeaderLength),
        (with(tcp(), 16, &[0, 19]), ParseError::IpLength),
        (fragment(true, 100), ParseError::Fragment),
        (fragment(false, 100), ParseError::Fragment),
        (with(tcp(), 23, &[1]), ParseError::OtherTransport),
        (tcp()[..53].to_vec(), ParseError::CutTcp),
        (with(tcp(), 16, &[0, 39]), ParseError::TcpHeaderLength),
        (with(tcp(), 46, &[0x40]), ParseError::TcpHeaderLength),
        (with(tcp(), 46, &[0xf0]), ParseError::TcpHeaderLength),
        (udp()[..41].to_vec(), ParseError::CutUdp),
        (with(udp(), 38, &[0, 7]), ParseError::UdpLength),
        (with(udp(), 38, &[0, 99]), ParseError::UdpLength),
        (with(udp(), 16, &[0, 27]), ParseError::UdpLength),
    ] {
        assert_eq!(parsed(&bytes, View::Outer), Err(expected), "{bytes:02x?}");
    }
    // The first fragment has ports, and four tags are fine.
    for more in [true, false] {
        assert_eq!(parsed(&fragment(more, 0), View::Outer).expect("a packet").first_fragment, more);
    }
    assert_eq!(parsed(&tags(4), View::Outer).expect("a packet").vlan, Some(1));
}

#[test]
fn later_fragments_of_ipv6_have_no_ports_and_cut_extensions_have_their_reason() {
    let with_fragment = |offset: u16, more: bool| {
        let fragment = Ipv6FragmentHeader::new(ip_number::TCP, IpFragOffset::try_new(offset).unwrap(), more, 77);
        let extensions = Ipv6Extensions { fragment: Some(fragment), ..Ipv6Extensions::default() };
        let header = Ipv6Header { source: [1; 16], destination: [2; 16], ..Ipv6Header::default() };
        let mut bytes = Vec::new();
        let tcp = TcpHeader::new(1, 2, 3, 4);
        ethernet().ip(IpHeaders::Ipv6(header, extensions)).tcp_header(tcp).write(&mut bytes, b"abc").unwrap();
        bytes
    };

    let first = with_fragment(0, true);
    for (bytes, more) in [(&first, true), (&with_fragment(0, false), false)] {
        let packet = parsed(bytes, View::Outer).expect("a packet");
        assert!(matches!(packet.transport, Transport::Tcp(Tcp { payload: 3, .. })));
        assert_eq!(packet.first_fragment, more);
    }
    for more in [true, false] {
        assert_eq!(parsed(&with_fragment(8, more), View::Outer), Err(ParseError::Fragment));
    }
    assert_eq!(parsed(&first[..57], View::Outer), Err(ParseError::CutIp));
    assert_eq!(parsed(&with(first, 18, &[0, 4]), View::Outer), Err(ParseError::IpLength));
}

#[test]
fn options_of_ipv4_are_skipped() {
    let mut header = Ipv4Header::new(0, 64, ip_number::UDP, [1; 4], [2; 4]).unwrap();
    header.options = [1_u8; 8].as_slice().try_into().unwrap();
    let mut bytes = Vec::new();
    ethernet().ip(IpHeaders::Ipv4(header, Ipv4Extensions::default())).udp(5, 6).write(&mut bytes, b"abc").unwrap();

    let packet = parsed(&bytes, View::Outer).expect("a packet");

    assert_eq!((packet.source.port, packet.destination.port), (5, 6));
}

#[test]
fn refusals_are_counted_by_reason() {
    let mut refusals = Refusals::default();
    refusals.count(ParseError::Fragment);
    refusals.count(ParseError::Vxlan);
    refusals.count(ParseError::Vxlan);

    assert_eq!((refusals.of(ParseError::Vxlan), refusals.sum()), (2, 3));
    assert_eq!(refusals.iter().collect::<Vec<_>>(), [(ParseError::Fragment, 1), (ParseError::Vxlan, 2)]);
    let names: std::collections::BTreeSet<_> = ParseError::ALL.into_iter().map(ParseError::name).collect();
    assert_eq!(names.len(), ParseError::ALL.len());
    assert!(ParseError::ALL.into_iter().enumerate().all(|(place, reason)| reason as usize == place));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_payloads_are_never_longer_than_an_ip_packet(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in 0_usize..120,
        kept in 0_usize..130,
    ) {
        let mut mutated = tunnelled(8);
        let end = mutated.len().min(at + bytes.len() / 20);
        let at = at.min(end);
        mutated[at..end].copy_from_slice(&bytes[..end - at]);
        mutated.truncate(kept);
        for bytes in [bytes, mutated] {
            for view in [View::Outer, View::Inner] {
                for link in [Link::Ethernet, Link::Ip, Link::Cooked] {
                    if let Ok(packet) = parse(&Frame { bytes: &bytes, length: 0, time_ns: 0, link }, view) {
                        let length = match packet.transport {
                            Transport::Tcp(tcp) => tcp.payload as usize,
                            Transport::Udp(udp) => udp.length as usize,
                        };
                        prop_assert!(length <= 65_535 && packet.segment.len() <= bytes.len());
                    }
                }
            }
        }
    }
}
