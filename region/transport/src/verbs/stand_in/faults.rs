//! Faults of the device, and properties of its port.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::super::sys;

/// The number of the port in its InfiniBand subnet, if it is on one.
pub const LID: u16 = 5;

/// An address and its type: 1 is RoCE v1, 2 RoCE v2.
pub type Address = (Ipv6Addr, u32);

/// The addresses of the port by default: a link-local one, and an IPv4 address of RoCE v1 and v2.
pub const ADDRESSES: &[Address] = &[
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), sys::GID_ROCE_V2),
    (Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(), 1),
    (Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(), sys::GID_ROCE_V2),
];

/// Faults for all later calls of this thread, and properties of the port.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each fault is there or not, by itself")]
pub struct Faults {
    /// No READ ever completes.
    pub silent: bool,
    /// The peer does not respond.
    pub dead_peer: bool,
    /// The queue is full after so many work requests of a chain.
    pub full_after: Option<usize>,
    /// A queue pair cannot be reset.
    pub no_reset: bool,
    /// A queue pair cannot be destroyed.
    pub no_destroy: bool,
    /// Memory cannot be deregistered.
    pub no_deregister: bool,
    /// The device was unplugged: nothing of it works, and there is no other one.
    pub unplugged: bool,
    /// Delay of each completion.
    pub late: Duration,
    /// READs by this key end with this status.
    pub failing: Option<(u32, u32)>,
    /// Most READs in flight, as initiator and as responder, for devices that are opened from now on.
    pub few_reads: Option<u8>,
    /// The port has no link.
    pub port_down: bool,
    /// The port is an InfiniBand port, with a LID and no GID.
    pub infiniband: bool,
    /// The port has these addresses in place of [`ADDRESSES`].
    pub addresses: Option<&'static [Address]>,
}

impl Faults {
    /// The port's addresses as they are now.
    pub(super) fn addresses(&self) -> &'static [Address] {
        if self.infiniband { &[] } else { self.addresses.unwrap_or(ADDRESSES) }
    }

    /// Whether `path` starts at a current address of this port and leads to one. There is only this port.
    pub(super) fn reaches(&self, path: &sys::AddressVector) -> bool {
        if path.is_global == 0 {
            return self.infiniband && path.lid == LID;
        }
        let addresses = self.addresses();
        let source = addresses.get(usize::from(path.route.source_index));
        let destination = Ipv6Addr::from(path.route.destination.0);
        source.is_some_and(|(_, kind)| addresses.contains(&(destination, *kind)))
    }
}
