//! Path MTUs as libibverbs numbers them.

use wire::rdma::PathMtu;

/// The value of `enum ibv_mtu` for a path MTU.
pub(super) const fn mtu(mtu: PathMtu) -> u32 {
    match mtu {
        PathMtu::B256 => 1,
        PathMtu::B512 => 2,
        PathMtu::B1024 => 3,
        PathMtu::B2048 => 4,
        PathMtu::B4096 => 5,
    }
}

/// The path MTU for a value of `enum ibv_mtu`; 256 bytes, which every path carries, for an unknown value.
pub(super) fn path_mtu(raw: u32) -> PathMtu {
    PathMtu::ALL.into_iter().find(|&known| mtu(known) == raw).unwrap_or(PathMtu::B256)
}
