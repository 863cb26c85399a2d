//! The way of a queue pair from RESET to where it reads or is read: which attributes each step sets, and to what.

use core::ffi::c_int;
use std::io;

use wire::rdma::{Endpoint, EndpointError, PacketSequence, PathMtu, QueuePairNumber};

use super::device::Device;
use super::queue_pair::QueuePair;
use super::sys::{self, AddressVector, GlobalRoute, QueuePairAttributes, mask, state};

/// READs under way at a time, asked and answered, where the device can do as many.
const READS: u8 = 16;
/// How long the device waits for an answer: 4.096 µs · 2^10 = 4.2 ms. With seven attempts, a dead peer is noticed after about 50 ms.
const TIMEOUT: u8 = 10;
/// How often it asks again. 7 would be for ever with some devices.
const RETRIES: u8 = 6;
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
    pub(super) fn device(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Device { step, cause }
    }
}

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
    Ok(Endpoint { qpn, psn, gid: device.gid(), lid: device.lid(), mtu: device.mtu() })
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
    let reads = READS.min(device.max_reads());
    queue_pair.modify(ready_to_receive(own, peer, address, reads)).map_err(ConnectError::device("connect"))?;
    queue_pair.modify(ready_to_send(own, reads)).map_err(ConnectError::device("start"))
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
