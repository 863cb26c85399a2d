//! The way of a queue pair from RESET to where it reads or is read: which attributes each step sets, and to what.

use core::ffi::c_int;
use core::num::NonZeroU8;
use core::time::Duration;
use std::io;

use wire::rdma::{Endpoint, EndpointError, PacketSequence, PathMtu, QueuePairNumber};

use super::device::{Device, Unusable};
use super::exposure::FenceError;
use super::queue_pair::QueuePair;
use super::sys::{self, AddressVector, GlobalRoute, QueuePairAttributes, mask, state};

/// READs under way at a time, asked and answered, where the device can do as many.
const READS: u8 = 16;
/// How long the device waits for an answer: 4.096 µs · 2^13 = 33.6 ms, and by the specification up to four times that. Half of it lost a
/// batch every few seconds between two busy emulated machines, which stand still for longer than hardware does.
const TIMEOUT: u8 = 13;
/// How often it asks again. 7 would be for ever with some devices.
const RETRIES: u8 = 6;
const _: () = assert!(RETRIES < 7, "nobody waits for ever");
/// When the device has given up on a dead peer at the latest: seven times the longest that it may wait.
const GIVEN_UP: Duration = Duration::from_nanos((4 * (RETRIES as u64 + 1) * 4096) << TIMEOUT);
/// How long READs may take: a little longer. A device that has said nothing by then says nothing at all, and a second is not over yet.
pub(super) const PATIENCE: Duration = Duration::from_nanos(GIVEN_UP.as_nanos() as u64 / 32 * 33);
const _: () = assert!(PATIENCE.as_millis() < 1000, "a dead host is noticed within a second");
/// READs need no receive at the peer, so that it is never "not ready".
const RNR_RETRIES: u8 = 6;
/// 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;
/// Hops between two hosts, at most.
const HOP_LIMIT: u8 = 64;

/// Why a queue pair was not connected. It reads nothing and nothing is read through it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Reset it first.
    #[error("the queue pair does not wait for a peer; it has to be reset first")]
    NotReset,
    /// One end speaks RoCE, the other InfiniBand.
    #[error("the peer is {peer}, which cannot be reached from {own}")]
    Address {
        /// Our end.
        own: String,
        /// The peer's end.
        peer: Endpoint,
    },
    /// Regions were withdrawn that the device has not let go of: whoever is connected could read what others write there by now.
    #[error("the device does not let go of {regions} regions that were withdrawn, so that nobody may read")]
    Kept {
        /// How many.
        regions: usize,
        /// What the device said of the last one.
        #[source]
        cause: io::Error,
    },
    /// Whoever was connected before may still read.
    #[error(transparent)]
    Unfenced(#[from] FenceError),
    /// The device has no port or no address at present.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The device gave the queue pair a number that none has.
    #[error("the device's own queue pair cannot be named")]
    Number(#[from] EndpointError),
    /// The device refused a change of state.
    #[error("the device refuses to {step} the queue pair")]
    Device {
        /// What was to be done.
        step: &'static str,
        /// What it said.
        #[source]
        cause: io::Error,
    },
}

impl ConnectError {
    /// Whether the own device is at fault, and not the peer or its address: a device that is opened anew may do better.
    #[must_use]
    pub fn is_of_own_device(&self) -> bool {
        match self {
            // Where it connects, the peer's address counts, too; a device that was unplugged refuses every other step likewise. What it lacks
            // at present it may have at the next try.
            Self::NotReset | Self::Address { .. } | Self::Unusable(_) | Self::Device { step: CONNECT, .. } => false,
            Self::Device { .. } | Self::Kept { .. } | Self::Unfenced(_) | Self::Number(_) => true,
        }
    }

    pub(super) fn device(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Device { step, cause }
    }
}

/// The step that depends on the peer.
const CONNECT: &str = "connect";

/// What one end is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Posts READs.
    Reads,
    /// Is read.
    IsRead,
}

/// Makes a queue pair that was reset wait for a peer. What the peer has to know of it; `psn` is where its packets begin.
pub(super) fn prepare(
    queue_pair: &mut QueuePair,
    device: &Device,
    role: Role,
    psn: PacketSequence,
) -> Result<Endpoint, ConnectError> {
    let qpn = QueuePairNumber::new(queue_pair.number())?;
    queue_pair.modify(init(device.port(), role)).map_err(ConnectError::device("initialise"))?;
    let reads = NonZeroU8::new(READS.min(device.max_reads()));
    Ok(Endpoint { qpn, psn, gid: device.gid(), lid: device.lid(), mtu: device.mtu(), reads })
}

/// Connects a prepared queue pair, whose own end is `own`, to `peer`.
pub(super) fn connect(
    queue_pair: &mut QueuePair,
    device: &Device,
    own: &Endpoint,
    peer: &Endpoint,
) -> Result<(), ConnectError> {
    let address =
        address(device, peer).ok_or_else(|| ConnectError::Address { own: device.to_string(), peer: *peer })?;
    let reads = reads(own, peer);
    queue_pair.modify(ready_to_receive(own, peer, address, reads)).map_err(ConnectError::device(CONNECT))?;
    queue_pair.modify(ready_to_send(own, reads)).map_err(ConnectError::device("start"))
}

/// READs that a connection has under way at a time: what both ends can. Of a peer that does not say, it is believed that it can what this end can.
pub(super) fn reads(own: &Endpoint, peer: &Endpoint) -> u8 {
    let said = own.reads.into_iter().chain(peer.reads).min();
    said.map_or(1, NonZeroU8::get)
}

/// Attributes, and which of them count.
pub(super) type Change = (QueuePairAttributes, c_int);

fn init(port: u8, role: Role) -> Change {
    let access = match role {
        Role::Reads => 0,
        Role::IsRead => sys::ACCESS_REMOTE_READ.cast_unsigned(),
    };
    let attributes = QueuePairAttributes { state: state::INIT, port, access, ..Default::default() };
    (attributes, mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS)
}

pub(super) fn ready_to_receive(own: &Endpoint, peer: &Endpoint, address: AddressVector, reads: u8) -> Change {
    let attributes = QueuePairAttributes {
        state: state::READY_TO_RECEIVE,
        path_mtu: mtu(own.mtu.min(peer.mtu)),
        peer_number: peer.qpn.get(),
        receive_psn: peer.psn.get(),
        address,
        reads_answered: reads,
        min_rnr_timer: MIN_RNR_TIMER,
        ..Default::default()
    };
    let path = mask::ADDRESS | mask::PATH_MTU | mask::PEER_NUMBER | mask::RECEIVE_PSN;
    (attributes, mask::STATE | path | mask::READS_ANSWERED | mask::MIN_RNR_TIMER)
}

pub(super) fn ready_to_send(own: &Endpoint, reads: u8) -> Change {
    let attributes = QueuePairAttributes {
        state: state::READY_TO_SEND,
        send_psn: own.psn.get(),
        timeout: TIMEOUT,
        retries: RETRIES,
        rnr_retries: RNR_RETRIES,
        reads_asked: reads,
        ..Default::default()
    };
    let patience = mask::TIMEOUT | mask::RETRIES | mask::RNR_RETRIES;
    (attributes, mask::STATE | patience | mask::SEND_PSN | mask::READS_ASKED)
}

/// How `peer` is reached: by GID where both ends have one, by LID within an InfiniBand subnet.
pub(super) fn address(device: &Device, peer: &Endpoint) -> Option<AddressVector> {
    let local = AddressVector { lid: peer.lid, port: device.port(), ..Default::default() };
    match (device.gid_index(), peer.gid) {
        (Some(source_index), Some(gid)) => {
            let route =
                GlobalRoute { destination: sys::Gid(gid), source_index, hop_limit: HOP_LIMIT, ..Default::default() };
            Some(AddressVector { route, is_global: 1, ..local })
        }
        _ => (device.lid() != 0 && peer.lid != 0).then_some(local),
    }
}

/// `enum ibv_mtu`.
const fn mtu(mtu: PathMtu) -> u32 {
    match mtu {
        PathMtu::B256 => 1,
        PathMtu::B512 => 2,
        PathMtu::B1024 => 3,
        PathMtu::B2048 => 4,
        PathMtu::B4096 => 5,
    }
}

/// The other way round; a port that says nothing sensible gets what every path can carry.
pub(super) fn path_mtu(raw: u32) -> PathMtu {
    PathMtu::ALL.into_iter().find(|&known| mtu(known) == raw).unwrap_or(PathMtu::B256)
}
