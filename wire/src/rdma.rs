//! Endpoints of a reliable RDMA connection: what one end has to know of the other.

use core::fmt;
use core::num::NonZeroU8;

use crate::proto::control as proto;

/// Name of the transport by RDMA READ, in a worker's hello and in the welcome.
pub const TRANSPORT: &str = "verbs";

/// Numbers are 24 bits wide in every packet.
const BITS_24: u32 = (1 << 24) - 1;

/// Number of a queue pair of one device: 24 bits. 0 and 1 are reserved for subnet management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePairNumber(u32);

impl QueuePairNumber {
    /// The number `number`.
    ///
    /// # Errors
    ///
    /// [`EndpointError::QueuePair`] for 0, 1 and what has more than 24 bits.
    pub const fn new(number: u32) -> Result<Self, EndpointError> {
        if 1 < number && number <= BITS_24 { Ok(Self(number)) } else { Err(EndpointError::QueuePair(number)) }
    }

    /// The number as the device has it.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Not a packet sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketSequence(u32);

impl PacketSequence {
    /// The number `number`.
    ///
    /// # Errors
    ///
    /// [`EndpointError::PacketSequence`] for what has more than 24 bits.
    pub const fn new(number: u32) -> Result<Self, EndpointError> {
        if number <= BITS_24 { Ok(Self(number)) } else { Err(EndpointError::PacketSequence(number)) }
    }

    /// The low 24 bits of a random number.
    #[must_use]
    pub const fn from_random(random: u64) -> Self {
        Self((random & BITS_24 as u64) as u32)
    }

    /// As the device has it.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The largest payload of a packet, in bytes. A connection uses the smaller one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathMtu {
    /// 256 bytes of payload.
    B256,
    /// 512 bytes of payload.
    B512,
    /// 1024 bytes: for RoCE on Ethernet with an MTU of 1500 bytes.
    B1024,
    /// 2048 bytes of payload.
    B2048,
    /// 4096 bytes of payload.
    B4096,
}

impl PathMtu {
    /// All of them, smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// The payload in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B256 => 256,
            Self::B512 => 512,
            Self::B1024 => 1024,
            Self::B2048 => 2048,
            Self::B4096 => 4096,
        }
    }

    /// The MTU of `bytes`.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Mtu`] if there is none.
    pub fn from_bytes(bytes: u32) -> Result<Self, EndpointError> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes).ok_or(EndpointError::Mtu(bytes))
    }
}

/// One end of a reliable connection, sent to the other end once per attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of the queue pair.
    pub qpn: QueuePairNumber,
    /// Sequence number of the first packet that it sends.
    pub psn: PacketSequence,
    /// Address for RoCE v2, or across subnets. Without it the end is reached by [`Endpoint::lid`], over InfiniBand.
    pub gid: Option<[u8; 16]>,
    /// Address within an InfiniBand subnet; 0 with RoCE.
    pub lid: u16,
    /// The largest packet of its port.
    pub mtu: PathMtu,
    /// READs that it has in flight, and serves, at a time: a connection uses the smaller number of its ends. `None`: an
    /// older release, which does not state it.
    pub reads: Option<NonZeroU8>,
}

/// Why the other side's queue pair cannot be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The message has no queue pair.
    #[error("the message has no queue pair")]
    Missing,
    /// Not a queue pair's number.
    #[error("queue pair number {0} is not in 2 to {BITS_24}")]
    QueuePair(u32),
    /// Not a packet's number.
    #[error("packet sequence number {0} is not in 0 to {BITS_24}")]
    PacketSequence(u32),
    /// A GID of a wrong length.
    #[error("a GID has 16 bytes, not {0}")]
    GidLength(usize),
    /// An unspecified or multicast GID.
    #[error("the GID {} is not the address of a single port", Gid(*.0))]
    GidNobody([u8; 16]),
    /// Not a unicast LID.
    #[error("LID {0} is not in 1 to {MAX_LID}")]
    Lid(u32),
    /// Not a path MTU.
    #[error("path MTU {0} is not one of 256, 512, 1024, 2048 and 4096")]
    Mtu(u32),
    /// More READs at a time than any device supports.
    #[error("{0} READs at a time, at most 255 are possible (0: not stated)")]
    Reads(u32),
}

/// The largest unicast LID.
const MAX_LID: u32 = 0xbfff;

/// Formats a GID as an IPv6 address.
struct Gid([u8; 16]);

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::net::Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {} at ", self.qpn.get())?;
        match self.gid {
            Some(gid) => Gid(gid).fmt(f),
            None => write!(f, "LID {}", self.lid),
        }
    }
}

impl Endpoint {
    /// Decodes and checks the other side's end.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] with what no device could take: nothing of it is to reach one.
    pub fn decode(message: Option<&proto::QueuePair>) -> Result<Self, EndpointError> {
        let message = message.ok_or(EndpointError::Missing)?;
        let gid = match message.gid.as_slice() {
            [] => None,
            bytes => Some(gid(bytes)?),
        };
        let lid =
            u16::try_from(message.lid).ok().filter(|&lid| u32::from(lid) <= MAX_LID && (lid != 0 || gid.is_some()));
        Ok(Self {
            qpn: QueuePairNumber::new(message.qpn)?,
            psn: PacketSequence::new(message.psn)?,
            gid,
            lid: lid.ok_or(EndpointError::Lid(message.lid))?,
            mtu: PathMtu::from_bytes(message.mtu)?,
            reads: NonZeroU8::new(u8::try_from(message.reads).map_err(|_| EndpointError::Reads(message.reads))?),
        })
    }
}

/// Decodes a GID. The unspecified address and multicast are refused.
fn gid(bytes: &[u8]) -> Result<[u8; 16], EndpointError> {
    let gid: [u8; 16] = bytes.try_into().map_err(|_| EndpointError::GidLength(bytes.len()))?;
    let address = core::net::Ipv6Addr::from(gid);
    if address.is_unspecified() || address.is_multicast() { Err(EndpointError::GidNobody(gid)) } else { Ok(gid) }
}

impl From<&Endpoint> for proto::QueuePair {
    fn from(end: &Endpoint) -> Self {
        Self {
            qpn: end.qpn.get(),
            psn: end.psn.get(),
            gid: end.gid.map(Vec::from).unwrap_or_default(),
            lid: end.lid.into(),
            mtu: end.mtu.bytes(),
            reads: end.reads.map_or(0, |reads| reads.get().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn roce() -> proto::QueuePair {
        let gid = core::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets().to_vec();
        proto::QueuePair { qpn: 17, psn: 0x00ab_cdef, gid, lid: 0, mtu: 1024, reads: 16 }
    }

    fn infiniband() -> proto::QueuePair {
        proto::QueuePair { gid: Vec::new(), lid: 5, ..roce() }
    }

    fn error(message: &proto::QueuePair) -> EndpointError {
        Endpoint::decode(Some(message)).unwrap_err()
    }

    #[test]
    fn both_forms_of_address_survive_encoding() {
        for message in [roce(), infiniband(), proto::QueuePair { reads: 0, ..roce() }] {
            let end = Endpoint::decode(Some(&message)).unwrap();

            assert_eq!(proto::QueuePair::from(&end), message);
        }
        assert_eq!(Endpoint::decode(Some(&roce())).unwrap().to_string(), "queue pair 17 at ::ffff:10.0.0.1");
        assert_eq!(Endpoint::decode(Some(&infiniband())).unwrap().to_string(), "queue pair 17 at LID 5");
    }

    #[test]
    fn what_no_device_could_take_is_refused() {
        assert_eq!(Endpoint::decode(None), Err(EndpointError::Missing));
        for qpn in [0, 1, 1 << 24, u32::MAX] {
            assert_eq!(error(&proto::QueuePair { qpn, ..roce() }), EndpointError::QueuePair(qpn));
        }
        for psn in [1 << 24, u32::MAX] {
            assert_eq!(error(&proto::QueuePair { psn, ..roce() }), EndpointError::PacketSequence(psn));
        }
        for mtu in [0, 255, 1500, 8192, u32::MAX] {
            assert_eq!(error(&proto::QueuePair { mtu, ..roce() }), EndpointError::Mtu(mtu));
        }
        for length in [1, 15, 17, 1000] {
            assert_eq!(error(&proto::QueuePair { gid: vec![1; length], ..roce() }), EndpointError::GidLength(length));
        }
        for gid in [[0; 16], [0xff; 16]] {
            assert_eq!(error(&proto::QueuePair { gid: gid.to_vec(), ..roce() }), EndpointError::GidNobody(gid));
        }
        for reads in [256, u32::MAX] {
            assert_eq!(error(&proto::QueuePair { reads, ..roce() }), EndpointError::Reads(reads));
        }
        for lid in [0, 0xc000, 0x1_0000, u32::MAX] {
            assert_eq!(error(&proto::QueuePair { lid, ..infiniband() }), EndpointError::Lid(lid));
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_survives_encoding(
            qpn in any::<u32>(),
            psn in 0_u32..1 << 25,
            gid in proptest::collection::vec(any::<u8>(), 0..18),
            lid in 0_u32..0x2_0000,
            mtu in prop_oneof![Just(256_u32), Just(512), Just(1024), Just(2048), Just(4096), any::<u32>()],
            reads in 0_u32..300,
        ) {
            if let Ok(end) = Endpoint::decode(Some(&proto::QueuePair { qpn, psn, gid, lid, mtu, reads })) {
                prop_assert_eq!(Endpoint::decode(Some(&proto::QueuePair::from(&end))), Ok(end));
            }
        }

        #[test]
        fn a_random_start_has_24_bits(random in any::<u64>()) {
            prop_assert!(PacketSequence::new(PacketSequence::from_random(random).get()).is_ok());
        }
    }
}
