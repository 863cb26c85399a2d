//! Requests and responses: which packets are one, and the name that both have.
//!
//! | pair | request | response | name |
//! | --- | --- | --- | --- |
//! | [`Pair::Handshake`] | SYN | SYN+ACK | ends, sequence number + 1 |
//! | [`Pair::Data`] | segment with payload | any segment that acknowledges it to its last byte | ends, sequence number after it |
//! | [`Pair::Flow`] | SYN | FIN or RST of either side | ends, in an order of their own |
//! | [`Pair::Dns`] | query | reply | ends, transaction |
//! | [`Pair::Ntp`] | a client's packet | a server's packet | ends, the client's transmit timestamp |
//!
//! A SYN with data (TCP Fast Open) is answered with or without it; only an answer without it is found, the other is a response to nothing. A RST that
//! answers a SYN is none that ends a handshake: refused connections are not counted among slow ones.

use synopses::digest::{Digest, DigestKey};

use crate::packet::{End, Packet, Tcp, Transport, Udp};

/// Where DNS and NTP servers are.
const DNS: u16 = 53;
const NTP: u16 = 123;
/// What DNS and NTP packets have at least.
const DNS_HEADER: u32 = 12;
const NTP_PACKET: u32 = 48;
/// Kind, two ends, eight bytes that tell requests apart.
const NAME: usize = 1 + 2 * 18 + 8;

/// What is a request, and what its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pair {
    /// TCP handshakes.
    Handshake,
    /// TCP data and its acknowledgement. Of several segments that one acknowledgement acknowledges, the last one has a response: with delayed
    /// acknowledgements about half of them.
    Data,
    /// TCP connections, from the SYN to whatever ends them first.
    Flow,
    /// DNS over UDP, port 53.
    Dns,
    /// NTP over UDP, port 123.
    Ntp,
}

/// What one packet is: a segment may acknowledge others and carry data itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The request that it answers.
    pub response: Option<Digest>,
    /// The request that it is.
    pub request: Option<Digest>,
}

impl Roles {
    const fn request(request: Digest) -> Self {
        Self { response: None, request: Some(request) }
    }

    const fn response(response: Digest) -> Self {
        Self { response: Some(response), request: None }
    }
}

impl Pair {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Handshake, Self::Data, Self::Flow, Self::Dns, Self::Ntp];

    /// Its name, as the command line and the configuration have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Data => "data",
            Self::Flow => "flow",
            Self::Dns => "dns",
            Self::Ntp => "ntp",
        }
    }

    /// The pair of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pair| pair.name() == name)
    }

    /// Whether its delays are others where a card or the kernel puts segments together before they are seen (TSO, GSO, GRO). Those of TCP data are: of the
    /// segments within a frame only the last one is a request, as late as the first one was seen, and acknowledgements of the others are of nothing.
    /// A SYN is never put together with anything; what ends a connection still ends it, in the last segment of its frame; DNS and NTP are single datagrams,
    /// which are put together only for a socket that asks for it.
    #[must_use]
    pub const fn is_harmed_by_offloads(self) -> bool {
        matches!(self, Self::Data)
    }

    /// What `packet` is in this kind of pair.
    #[inline]
    #[must_use]
    pub fn roles(self, packet: &Packet<'_>, key: &DigestKey) -> Roles {
        let names = Names { pair: self, packet, key };
        match (self, &packet.transport) {
            (Self::Handshake, Transport::Tcp(tcp)) => handshake(tcp, &names),
            (Self::Data, Transport::Tcp(tcp)) => data(tcp, &names),
            (Self::Flow, Transport::Tcp(tcp)) => flow(tcp, &names),
            (Self::Dns, Transport::Udp(udp)) => dns(udp, &names),
            (Self::Ntp, Transport::Udp(udp)) => ntp(udp, &names),
            _ => Roles::default(),
        }
    }
}

/// How requests of a packet's ends are named.
struct Names<'a> {
    pair: Pair,
    packet: &'a Packet<'a>,
    key: &'a DigestKey,
}

impl Names<'_> {
    /// The request from this packet's sender.
    fn forth(&self, number: u64) -> Digest {
        self.name(&self.packet.source, &self.packet.destination, number)
    }

    /// The request to this packet's sender.
    fn back(&self, number: u64) -> Digest {
        self.name(&self.packet.destination, &self.packet.source, number)
    }

    fn name(&self, from: &End, to: &End, number: u64) -> Digest {
        let mut name = [0; NAME];
        name[0] = self.pair as u8;
        name[1..17].copy_from_slice(&from.address);
        name[17..33].copy_from_slice(&to.address);
        name[33..35].copy_from_slice(&from.port.to_be_bytes());
        name[35..37].copy_from_slice(&to.port.to_be_bytes());
        name[37..].copy_from_slice(&number.to_be_bytes());
        self.key.digest(&name)
    }
}

/// Flags that say what a segment is. ECN sets others on a SYN.
const KIND: u8 = Tcp::SYN | Tcp::ACK | Tcp::RST | Tcp::FIN;

fn handshake(tcp: &Tcp, names: &Names<'_>) -> Roles {
    match tcp.flags & KIND {
        Tcp::SYN => Roles::request(names.forth(u64::from(tcp.sequence.wrapping_add(1)))),
        flags if flags == Tcp::SYN | Tcp::ACK => Roles::response(names.back(u64::from(tcp.acknowledgement))),
        _ => Roles::default(),
    }
}

fn data(tcp: &Tcp, names: &Names<'_>) -> Roles {
    if tcp.has(Tcp::RST) {
        return Roles::default();
    }
    let marks = u32::from(tcp.has(Tcp::SYN)) + u32::from(tcp.has(Tcp::FIN));
    let end = tcp.sequence.wrapping_add(tcp.payload).wrapping_add(marks);
    Roles {
        response: tcp.has(Tcp::ACK).then(|| names.back(u64::from(tcp.acknowledgement))),
        request: (tcp.payload > 0).then(|| names.forth(u64::from(end))),
    }
}

fn flow(tcp: &Tcp, names: &Names<'_>) -> Roles {
    // The same name from either side.
    let name = || if names.packet.source <= names.packet.destination { names.forth(0) } else { names.back(0) };
    match tcp.flags & KIND {
        Tcp::SYN => Roles::request(name()),
        flags if flags & (Tcp::FIN | Tcp::RST) != 0 => Roles::response(name()),
        _ => Roles::default(),
    }
}

fn dns(udp: &Udp<'_>, names: &Names<'_>) -> Roles {
    let Some([high, low, flags]) = udp.payload.first_chunk::<3>() else { return Roles::default() };
    if udp.length < DNS_HEADER {
        return Roles::default();
    }
    let transaction = u64::from(u16::from_be_bytes([*high, *low]));
    let is_reply = flags & 0x80 != 0;
    if is_reply && names.packet.source.port == DNS {
        return Roles::response(names.back(transaction));
    }
    if !is_reply && names.packet.destination.port == DNS {
        Roles::request(names.forth(transaction))
    } else {
        Roles::default()
    }
}

fn ntp(udp: &Udp<'_>, names: &Names<'_>) -> Roles {
    let timestamp = |at: usize| udp.payload.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    let mode = udp.payload.first().map(|first| first & 7);
    if udp.length < NTP_PACKET {
        return Roles::default();
    }
    match mode {
        // Client: its transmit timestamp, which the server sends back as the originate timestamp.
        Some(3) if names.packet.destination.port == NTP => {
            timestamp(40).map_or(Roles::default(), |stamp| Roles::request(names.forth(u64::from_be_bytes(stamp))))
        }
        Some(4) if names.packet.source.port == NTP => {
            timestamp(24).map_or(Roles::default(), |stamp| Roles::response(names.back(u64::from_be_bytes(stamp))))
        }
        _ => Roles::default(),
    }
}

#[cfg(test)]
mod tests;
