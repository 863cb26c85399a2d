//! What goes wrong with the device, and what its port is like.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::super::sys;

/// The number of the port in its InfiniBand subnet, if it is on one.
pub const LID: u16 = 5;

/// An address, and of what kind of network it is one: 1 RoCE v1, 2 RoCE v2.
pub type Address = (Ipv6Addr, u32);

/// The addresses of the port by default: a link-local one, and an IPv4 address of RoCE v1 and v2.
pub const ADDRESSES: &[Address] = &[
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), sys::GID_ROCE_V2),
    (Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(), 1),
    (Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(), sys::GID_ROCE_V2),
];

/// What goes wrong from now on, for calls of this thread, and what the port is like.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each fault is there or not, by itself")]
pub struct Faults {
    /// Nothing is ever completed.
    pub silent: bool,
    /// The peer does not answer.
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
    /// Completions come so late.
    pub late: Duration,
    /// READs by this key end with this status.
    pub failing: Option<(u32, u32)>,
    /// Devices that are opened from now on have so few READs under way, and answer so few, at a time.
    pub few_reads: Option<u8>,
    /// The port is connected to nothing.
    pub port_down: bool,
    /// The port is one of InfiniBand, with a LID and no other address.
    pub infiniband: bool,
    /// The port has these addresses in place of [`ADDRESSES`].
    pub addresses: Option<&'static [Address]>,
}

impl Faults {
    /// The port's addresses as they are now.
    pub(super) fn addresses(&self) -> &'static [Address] {
        if self.infiniband { &[] } else { self.addresses.unwrap_or(ADDRESSES) }
    }

    /// Whether `way` begins at an address that this port has now and leads to one that a port has, which is this one, too.
    pub(super) fn reaches(&self, way: &sys::AddressVector) -> bool {
        if way.is_global == 0 {
            return self.infiniband && way.lid == LID;
        }
        let addresses = self.addresses();
        let source = addresses.get(usize::from(way.route.source_index));
        let destination = Ipv6Addr::from(way.route.destination.0);
        source.is_some_and(|(_, kind)| addresses.contains(&(destination, *kind)))
    }
}
