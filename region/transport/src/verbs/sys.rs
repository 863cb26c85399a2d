//! The structs and constants of the public header of libibverbs, as far as this crate uses them.
//!
//! Source: `infiniband/verbs.h` of rdma-core, whose binary interface has been stable since 2006. The assertions hold on
//! every 64-bit target; `tests/layout.rs` compares them with bindings that are generated from the installed header.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};

/// `struct ibv_device`: a device of the list. Used behind a pointer only.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    _private: [u8; 0],
}

/// `struct ibv_context`: an open device. The struct of the library is longer; what follows is private to the library.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    pub device: *mut Device,
    pub operations: [*mut c_void; OPERATIONS],
    pub command_fd: c_int,
    pub event_fd: c_int,
}

/// `struct ibv_async_event`: something that happened to a device, a port or a queue.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    pub element: *mut c_void,
    pub kind: c_uint,
}

/// Entries of [`Context::operations`].
pub const OPERATIONS: usize = 32;
/// Index of the function behind `ibv_poll_cq`, which is inline in the header and no symbol of the library.
pub const POLL_CQ: usize = 11;
/// Index of the function behind `ibv_post_send`, which is inline likewise.
pub const POST_SEND: usize = 25;

/// `struct ibv_pd`: a protection domain.
#[repr(C)]
#[derive(Debug)]
pub struct ProtectionDomain {
    pub context: *mut Context,
    pub handle: u32,
}

/// `struct ibv_cq`: a completion queue, up to the last field in use.
#[repr(C)]
#[derive(Debug)]
pub struct CompletionQueue {
    pub context: *mut Context,
}

/// `struct ibv_mr`: a registered memory region.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryRegion {
    pub context: *mut Context,
    pub pd: *mut ProtectionDomain,
    pub address: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_qp`: a queue pair, up to the last field in use.
#[repr(C)]
#[derive(Debug)]
pub struct QueuePair {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut ProtectionDomain,
    pub send_cq: *mut CompletionQueue,
    pub receive_cq: *mut CompletionQueue,
    pub srq: *mut c_void,
    pub handle: u32,
    pub number: u32,
}

/// `union ibv_gid`: an address of a port.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gid(pub [u8; 16]);

/// `struct ibv_gid_entry`: an entry of a port's address table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GidEntry {
    pub gid: Gid,
    pub index: u32,
    pub port: u32,
    pub kind: u32,
    pub interface: u32,
}

/// [`GidEntry::kind`] of RoCE v2; 0 is InfiniBand and 1 RoCE v1.
pub const GID_ROCE_V2: u32 = 2;

/// `struct ibv_device_attr`: the limits of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceAttributes {
    pub firmware: [u8; 64],
    pub node_guid: u64,
    pub system_guid: u64,
    pub max_mr_size: u64,
    pub page_sizes: u64,
    pub vendor: [u32; 3],
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub flags: c_uint,
    pub max_sge: [c_int; 2],
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub unused: [c_int; 16],
    pub max_pkeys: u16,
    pub ack_delay: u8,
    pub ports: u8,
}

/// `struct ibv_port_attr`: the state of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortAttributes {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gids: c_int,
    pub flags: u32,
    pub max_message: u32,
    pub violations: [u32; 2],
    pub pkeys: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub subnet: [u8; 8],
    pub link_layer: u8,
    pub port_flags: u8,
    pub more_flags: u16,
}

/// [`PortAttributes::state`] of a port that carries data.
pub const PORT_ACTIVE: c_uint = 4;
/// [`PortAttributes::link_layer`] of an InfiniBand port.
pub const LINK_INFINIBAND: u8 = 1;
/// [`PortAttributes::link_layer`] of an Ethernet port (RoCE).
pub const LINK_ETHERNET: u8 = 2;

/// `struct ibv_qp_cap`: the sizes of a queue pair's queues.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueCapacity {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`: how to create a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueuePairInit {
    pub qp_context: *mut c_void,
    pub send_cq: *mut CompletionQueue,
    pub receive_cq: *mut CompletionQueue,
    pub srq: *mut c_void,
    pub capacity: QueueCapacity,
    pub kind: c_uint,
    pub signal_all: c_int,
}

/// [`QueuePairInit::kind`]: reliable connection.
pub const RELIABLE_CONNECTION: c_uint = 2;

/// `struct ibv_global_route`: a path by GID.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalRoute {
    pub destination: Gid,
    pub flow_label: u32,
    pub source_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`: the path to a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressVector {
    pub route: GlobalRoute,
    pub lid: u16,
    pub service_level: u8,
    pub path_bits: u8,
    pub rate: u8,
    pub is_global: u8,
    pub port: u8,
}

/// `struct ibv_qp_attr`: the attributes of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePairAttributes {
    pub state: c_uint,
    pub current_state: c_uint,
    pub path_mtu: c_uint,
    pub migration: c_uint,
    pub qkey: u32,
    pub receive_psn: u32,
    pub send_psn: u32,
    pub peer_number: u32,
    pub access: c_uint,
    pub capacity: QueueCapacity,
    pub address: AddressVector,
    pub other_address: AddressVector,
    pub pkey_index: u16,
    pub other_pkey_index: u16,
    pub drained_event: u8,
    pub draining: u8,
    pub reads_asked: u8,
    pub reads_answered: u8,
    pub min_rnr_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
    pub other_port: u8,
    pub other_timeout: u8,
    pub rate_limit: u32,
}

/// States of a queue pair, `enum ibv_qp_state`.
pub mod state {
    use core::ffi::c_uint;

    pub const RESET: c_uint = 0;
    pub const INIT: c_uint = 1;
    pub const READY_TO_RECEIVE: c_uint = 2;
    pub const READY_TO_SEND: c_uint = 3;
    pub const ERROR: c_uint = 6;
}

/// Which fields of [`QueuePairAttributes`] count, `enum ibv_qp_attr_mask`.
pub mod mask {
    use core::ffi::c_int;

    pub const STATE: c_int = 1;
    pub const ACCESS: c_int = 1 << 3;
    pub const PKEY_INDEX: c_int = 1 << 4;
    pub const PORT: c_int = 1 << 5;
    pub const ADDRESS: c_int = 1 << 7;
    pub const PATH_MTU: c_int = 1 << 8;
    pub const TIMEOUT: c_int = 1 << 9;
    pub const RETRIES: c_int = 1 << 10;
    pub const RNR_RETRIES: c_int = 1 << 11;
    pub const RECEIVE_PSN: c_int = 1 << 12;
    pub const READS_ASKED: c_int = 1 << 13;
    pub const MIN_RNR_TIMER: c_int = 1 << 15;
    pub const SEND_PSN: c_int = 1 << 16;
    pub const READS_ANSWERED: c_int = 1 << 17;
    pub const PEER_NUMBER: c_int = 1 << 20;
}

/// `IBV_ACCESS_LOCAL_WRITE`: the device may write to the memory on behalf of this process.
pub const ACCESS_LOCAL_WRITE: c_int = 1;
/// `IBV_ACCESS_REMOTE_READ`: a peer with the key may read the memory.
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;

/// `struct ibv_sge`: where a READ's bytes go.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Element {
    pub address: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`: a work request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest {
    pub id: u64,
    pub next: *mut WorkRequest,
    pub elements: *mut Element,
    pub count: c_int,
    pub operation: c_uint,
    pub flags: c_uint,
    pub immediate: u32,
    pub remote_address: u64,
    pub rkey: u32,
    /// The rest of a union, and fields of other operations.
    pub rest: [u64; 9],
}

/// [`WorkRequest::operation`]: RDMA READ.
pub const READ: c_uint = 4;
/// [`WorkRequest::flags`]: a success has a completion, too; a failure always has one.
pub const SIGNALED: c_uint = 1 << 1;

/// `struct ibv_wc`: a completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    pub id: u64,
    pub status: c_uint,
    pub operation: c_uint,
    pub vendor_error: u32,
    pub bytes: u32,
    pub immediate: u32,
    pub number: u32,
    pub source: u32,
    pub flags: c_uint,
    pub pkey_index: u16,
    pub source_lid: u16,
    pub service_level: u8,
    pub path_bits: u8,
}

/// `int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **)`.
pub type PostSend = unsafe extern "C" fn(*mut QueuePair, *mut WorkRequest, *mut *mut WorkRequest) -> c_int;
/// `int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *)`.
pub type PollCq = unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int;

macro_rules! layout {
    ($($type:ty: $size:literal { $($field:ident: $offset:literal),* $(,)? })+) => {$(
        const _: () = assert!(size_of::<$type>() == $size);
        $(const _: () = assert!(offset_of!($type, $field) == $offset);)*
    )+};
}

#[cfg(target_pointer_width = "64")]
layout! {
    Context: 272 { device: 0, operations: 8, command_fd: 264, event_fd: 268 }
    Event: 16 { element: 0, kind: 8 }
    ProtectionDomain: 16 { context: 0, handle: 8 }
    CompletionQueue: 8 { context: 0 }
    MemoryRegion: 48 { context: 0, pd: 8, address: 16, length: 24, handle: 32, lkey: 36, rkey: 40 }
    QueuePair: 56 { context: 0, pd: 16, send_cq: 24, receive_cq: 32, handle: 48, number: 52 }
    Gid: 16 {}
    GidEntry: 32 { gid: 0, index: 16, port: 20, kind: 24, interface: 28 }
    DeviceAttributes: 232 {
        max_mr_size: 80, vendor: 96, max_qp: 108, max_qp_wr: 112, max_cq: 128, max_cqe: 132, max_mr: 136, max_pd: 140,
        max_qp_rd_atom: 144, max_qp_init_rd_atom: 156, max_pkeys: 224, ports: 227,
    }
    PortAttributes: 52 {
        state: 0, active_mtu: 8, gids: 12, max_message: 20, pkeys: 32, lid: 34, link_layer: 46, port_flags: 47,
    }
    QueueCapacity: 20 { max_send_wr: 0, max_inline_data: 16 }
    QueuePairInit: 64 { send_cq: 8, receive_cq: 16, srq: 24, capacity: 32, kind: 52, signal_all: 56 }
    GlobalRoute: 24 { destination: 0, flow_label: 16, source_index: 20, hop_limit: 21, traffic_class: 22 }
    AddressVector: 32 { route: 0, lid: 24, is_global: 29, port: 30 }
    QueuePairAttributes: 144 {
        state: 0, path_mtu: 8, receive_psn: 20, send_psn: 24, peer_number: 28, access: 32, capacity: 36, address: 56,
        pkey_index: 120, reads_asked: 126, reads_answered: 127, min_rnr_timer: 128, port: 129, timeout: 130, retries: 131,
        rnr_retries: 132, rate_limit: 136,
    }
    Element: 16 { address: 0, length: 8, lkey: 12 }
    WorkRequest: 128 {
        id: 0, next: 8, elements: 16, count: 24, operation: 28, flags: 32, immediate: 36, remote_address: 40, rkey: 48,
    }
    Completion: 48 { id: 0, status: 8, operation: 12, vendor_error: 16, bytes: 20, number: 28, flags: 36 }
}
