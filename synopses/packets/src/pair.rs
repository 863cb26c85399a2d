//! Pairs of requests and responses, and the id that both share.
//!
//! | pair | request | response | id |
//! | --- | --- | --- | --- |
//! | [`Pair::Handshake`] | SYN | SYN+ACK | ends, sequence number + 1 |
//! | [`Pair::Data`] | segment with payload | segment that acknowledges its last byte | ends, sequence number after it |
//! | [`Pair::Flow`] | SYN | FIN or RST of either side | ends, sorted |
//! | [`Pair::Dns`] | query | reply | ends, transaction |
//! | [`Pair::Ntp`] | a client's packet | a server's packet | ends, the client's transmit timestamp |
//!
//! A SYN with data (TCP Fast Open) may be acknowledged with or without the data. Only an acknowledgement without the
//! data matches. A RST is no response to a SYN: refused connections do not count as handshakes.

use synopses::digest::{Digest, DigestKey, DigestKind};

use crate::packet::{End, Packet, Tcp, Transport, Udp};

/// Ports of DNS and NTP servers.
const DNS: u16 = 53;
const NTP: u16 = 123;
/// Minimum length of DNS and NTP packets in bytes.
const DNS_HEADER: u32 = 12;
const NTP_PACKET: u32 = 48;
/// Length of an id: kind of pair, two ends, and eight bytes to tell requests apart.
const ID_BYTES: usize = 1 + 2 * 18 + 8;

/// A kind of request and response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pair {
    /// TCP handshakes: SYN and SYN+ACK.
    Handshake,
    /// TCP data and its acknowledgement. If one acknowledgement covers several segments, only the last one has a
    /// response: with delayed acknowledgements about half of them.
    Data,
    /// TCP connections, from the SYN to the first FIN or RST.
    Flow,
    /// DNS over UDP, port 53.
    Dns,
    /// NTP over UDP, port 123.
    Ntp,
}

/// The roles of one packet. A segment may have both: it may acknowledge others and carry data itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Id of the request that it is a response to.
    pub response: Option<Digest>,
    /// Id of the request that it is.
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
    /// All kinds of pairs.
    pub const ALL: [Self; 5] = [Self::Handshake, Self::Data, Self::Flow, Self::Dns, Self::Ntp];

    /// Its name on the command line and in configuration files.
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

    /// The kind with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pair| pair.name() == name)
    }

    /// Whether segment offloads (TSO, GSO, GRO) change its delays, because a NIC or the kernel merges segments before
    /// they are captured. They do for TCP data: only the last segment in a merged frame is a request, with the
    /// timestamp of the first one, and acknowledgements of the others match nothing. A SYN is never merged. A FIN or
    /// RST still ends its connection, in the last segment of its frame. DNS and NTP are single datagrams, which are
    /// merged only for sockets that request it.
    #[must_use]
    pub const fn is_affected_by_offloads(self) -> bool {
        matches!(self, Self::Data)
    }

    /// The roles of `packet` in this kind of pair.
    #[inline]
    #[must_use]
    pub fn roles(self, packet: &Packet<'_>, key: &DigestKey) -> Roles {
        let ids = RequestIds { pair: self, packet, key };
        match (self, &packet.transport) {
            (Self::Handshake, Transport::Tcp(tcp)) => handshake(tcp, &ids),
            (Self::Data, Transport::Tcp(tcp)) => data(tcp, &ids),
            (Self::Flow, Transport::Tcp(tcp)) => flow(tcp, &ids),
            (Self::Dns, Transport::Udp(udp)) => dns(udp, &ids),
            (Self::Ntp, Transport::Udp(udp)) => ntp(udp, &ids),
            _ => Roles::default(),
        }
    }
}

/// Computes ids of requests between a packet's two ends.
struct RequestIds<'a> {
    pair: Pair,
    packet: &'a Packet<'a>,
    key: &'a DigestKey,
}

impl RequestIds<'_> {
    /// Id of a request by this packet's sender.
    fn by_sender(&self, number: u64) -> Digest {
        self.id(&self.packet.source, &self.packet.destination, number)
    }

    /// Id of a request to this packet's sender.
    fn to_sender(&self, number: u64) -> Digest {
        self.id(&self.packet.destination, &self.packet.source, number)
    }

    fn id(&self, from: &End, to: &End, number: u64) -> Digest {
        let mut id = [0; ID_BYTES];
        id[0] = self.pair as u8;
        id[1..17].copy_from_slice(&from.address);
        id[17..33].copy_from_slice(&to.address);
        id[33..35].copy_from_slice(&from.port.to_be_bytes());
        id[35..37].copy_from_slice(&to.port.to_be_bytes());
        id[37..].copy_from_slice(&number.to_be_bytes());
        if self.key.kind() == DigestKind::Hardware {
            // The kind in the last word: each other word of 32 bits is one of a header.
            id.rotate_left(1);
        }
        self.key.digest(&id)
    }
}

/// Flags that determine a segment's role. ECN sets other flags on a SYN.
const KIND: u8 = Tcp::SYN | Tcp::ACK | Tcp::RST | Tcp::FIN;

fn handshake(tcp: &Tcp, ids: &RequestIds<'_>) -> Roles {
    match tcp.flags & KIND {
        Tcp::SYN => Roles::request(ids.by_sender(u64::from(tcp.sequence.wrapping_add(1)))),
        flags if flags == Tcp::SYN | Tcp::ACK => Roles::response(ids.to_sender(u64::from(tcp.acknowledgement))),
        _ => Roles::default(),
    }
}

fn data(tcp: &Tcp, ids: &RequestIds<'_>) -> Roles {
    if tcp.has(Tcp::RST) {
        return Roles::default();
    }
    let marks = u32::from(tcp.has(Tcp::SYN)) + u32::from(tcp.has(Tcp::FIN));
    let end = tcp.sequence.wrapping_add(tcp.payload).wrapping_add(marks);
    Roles {
        response: tcp.has(Tcp::ACK).then(|| ids.to_sender(u64::from(tcp.acknowledgement))),
        request: (tcp.payload > 0).then(|| ids.by_sender(u64::from(end))),
    }
}

fn flow(tcp: &Tcp, ids: &RequestIds<'_>) -> Roles {
    // The same id from either side.
    let id = || if ids.packet.source <= ids.packet.destination { ids.by_sender(0) } else { ids.to_sender(0) };
    match tcp.flags & KIND {
        Tcp::SYN => Roles::request(id()),
        flags if flags & (Tcp::FIN | Tcp::RST) != 0 => Roles::response(id()),
        _ => Roles::default(),
    }
}

fn dns(udp: &Udp<'_>, ids: &RequestIds<'_>) -> Roles {
    let Some([high, low, flags]) = udp.payload.first_chunk::<3>() else { return Roles::default() };
    if udp.length < DNS_HEADER {
        return Roles::default();
    }
    let transaction = u64::from(u16::from_be_bytes([*high, *low]));
    let is_reply = flags & 0x80 != 0;
    if is_reply && ids.packet.source.port == DNS {
        return Roles::response(ids.to_sender(transaction));
    }
    if !is_reply && ids.packet.destination.port == DNS {
        Roles::request(ids.by_sender(transaction))
    } else {
        Roles::default()
    }
}

fn ntp(udp: &Udp<'_>, ids: &RequestIds<'_>) -> Roles {
    let timestamp = |at: usize| udp.payload.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    let mode = udp.payload.first().map(|first| first & 7);
    if udp.length < NTP_PACKET {
        return Roles::default();
    }
    match mode {
        // Client: its transmit timestamp, which the server sends back as the originate timestamp.
        Some(3) if ids.packet.destination.port == NTP => {
            timestamp(40).map_or(Roles::default(), |stamp| Roles::request(ids.by_sender(u64::from_be_bytes(stamp))))
        }
        Some(4) if ids.packet.source.port == NTP => {
            timestamp(24).map_or(Roles::default(), |stamp| Roles::response(ids.to_sender(u64::from_be_bytes(stamp))))
        }
        _ => Roles::default(),
    }
}

#[cfg(test)]
mod tests;
