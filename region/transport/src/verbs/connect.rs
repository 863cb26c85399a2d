//! Takes a queue pair from RESET to ready: which attributes each state transition sets, and to what.

use core::ffi::c_int;
use core::num::NonZeroU8;
use core::time::Duration;
use std::io;

use wire::rdma::{Endpoint, EndpointError, PacketSequence, QueuePairNumber};

use super::device::{Device, UnusableDevice};
use super::fence_error::FenceError;
use super::path_mtu::mtu;
use super::queue_pair::QueuePair;
use super::sys::{self, AddressVector, GlobalRoute, QueuePairAttributes, mask, state};

/// READs in flight at a time, as initiator and as responder, if the device supports as many.
const READS: u8 = 16;
/// Timeout exponent for a response: 4.096 µs · 2^13 = 33.6 ms; the specification allows devices four times that. Half
/// of it lost a batch every few seconds between two busy emulated machines, which pause for longer than hardware does.
const TIMEOUT: u8 = 13;
/// Retries after a timeout. With some devices 7 means retrying for ever.
const RETRIES: u8 = 6;
const _: () = assert!(RETRIES < 7, "retries have to end");
/// The latest time at which the device gives up on a dead peer: seven times the longest timeout.
const GIVE_UP_AFTER: Duration = Duration::from_nanos((4 * (RETRIES as u64 + 1) * 4096) << TIMEOUT);
/// How long READs may take: a little longer than that, and less than a second. A device that has completed nothing by
/// then is taken to hang.
pub(super) const PATIENCE: Duration = Duration::from_nanos(GIVE_UP_AFTER.as_nanos() as u64 / 32 * 33);
const _: () = assert!(PATIENCE.as_millis() < 1000, "a dead host is noticed within a second");
/// Retries if the receiver is not ready (RNR). READs need no receive at the peer, so this never happens.
const RNR_RETRIES: u8 = 6;
/// The code for an RNR timer of 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;
/// Most hops between two hosts.
const HOP_LIMIT: u8 = 64;

/// Why a queue pair was not connected. No READ passes through it in either direction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Reset it first.
    #[error("the queue pair is not prepared for a peer; reset it first")]
    NotReset,
    /// One end speaks RoCE, the other InfiniBand.
    #[error("the peer is {peer}, which cannot be reached from {own}")]
    Address {
        /// The address of this end.
        own: String,
        /// The endpoint that the peer named.
        peer: Endpoint,
    },
    /// The device has refused to deregister regions. A worker that connects now could read memory that belongs to
    /// another service by then.
    #[error("the device refuses to deregister {regions} regions; no worker is connected until it has")]
    StillRegistered {
        /// Regions that are still registered.
        regions: usize,
        /// The device's error for the last one.
        #[source]
        cause: io::Error,
    },
    /// The worker that was connected before may still read.
    #[error(transparent)]
    Unfenced(#[from] FenceError),
    /// The device has no port or no address at present.
    #[error(transparent)]
    Unusable(#[from] UnusableDevice),
    /// The device gave the queue pair an invalid number.
    #[error("the device gave its queue pair an invalid number")]
    Number(#[from] EndpointError),
    /// The device refused a change of state.
    #[error("the device refuses to {step} the queue pair")]
    Device {
        /// The operation that failed.
        step: &'static str,
        /// The device's error.
        #[source]
        cause: io::Error,
    },
}

impl ConnectError {
    /// Whether this end's device is at fault, not the peer or its address. Opening the device again may help.
    #[must_use]
    pub fn is_of_own_device(&self) -> bool {
        match self {
            // Connecting also depends on the peer's address. A device that was unplugged refuses every other step, too.
            // A port or an address that is missing now may be there at the next attempt.
            Self::NotReset | Self::Address { .. } | Self::Unusable(_) | Self::Device { step: CONNECT, .. } => false,
            Self::Device { .. } | Self::StillRegistered { .. } | Self::Unfenced(_) | Self::Number(_) => true,
        }
    }

    pub(super) fn device(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Device { step, cause }
    }
}

/// The step that depends on the peer.
const CONNECT: &str = "connect";

/// The role of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Posts READs: the worker's end.
    Initiator,
    /// Is read: the host's end.
    Responder,
}

/// Prepares a queue pair that was reset for a peer, and returns the endpoint to send to that peer. `psn` is the first
/// packet sequence number of this end.
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

/// Connects a prepared queue pair, whose endpoint is `own`, to `peer`.
pub(super) fn connect(
    queue_pair: &mut QueuePair,
    device: &Device,
    own: &Endpoint,
    peer: &Endpoint,
) -> Result<(), ConnectError> {
    let address =
        address(device, peer).ok_or_else(|| ConnectError::Address { own: device.to_string(), peer: *peer })?;
    let reads = negotiated_reads(own, peer);
    queue_pair.modify(ready_to_receive(own, peer, address, reads)).map_err(ConnectError::device(CONNECT))?;
    queue_pair.modify(ready_to_send(own, reads)).map_err(ConnectError::device("start"))
}

/// READs that a connection has in flight at a time: the smaller limit of both ends. A peer that states none is assumed
/// to have the limit of this end.
pub(super) fn negotiated_reads(own: &Endpoint, peer: &Endpoint) -> u8 {
    let fewest = own.reads.into_iter().chain(peer.reads).min();
    fewest.map_or(1, NonZeroU8::get)
}

/// A state transition: the attributes, and the mask of those that count.
pub(super) type Transition = (QueuePairAttributes, c_int);

fn init(port: u8, role: Role) -> Transition {
    let access = match role {
        Role::Initiator => 0,
        Role::Responder => sys::ACCESS_REMOTE_READ.cast_unsigned(),
    };
    let attributes = QueuePairAttributes { state: state::INIT, port, access, ..Default::default() };
    (attributes, mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS)
}

pub(super) fn ready_to_receive(own: &Endpoint, peer: &Endpoint, address: AddressVector, reads: u8) -> Transition {
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

pub(super) fn ready_to_send(own: &Endpoint, reads: u8) -> Transition {
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

/// The path to `peer`: by GID if both ends have one, else by LID within an InfiniBand subnet.
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
