//! Whose share of the endpoint something is of: of its memory, its queues, its names. Pure.

use core::fmt;
use core::hash::{Hash as _, Hasher as _};
use core::net::IpAddr;
use std::hash::DefaultHasher;
use std::sync::Arc;

use agent_runtime::peers::Peer;
use hooks::id::SenderId;
use wire::id::Owner;

/// Who holds a share of what the endpoint has for all senders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A user of this machine; of spans in a ring, whoever pays for the ring.
    Owner(Owner),
    /// A pod, by its replica and its service.
    Pod(Arc<str>),
    /// Somebody on this machine: the kernel does not say who.
    ThisMachine,
    /// Somebody on another machine, or in a network of its own on this one.
    Address(IpAddr),
}

impl Holder {
    /// The agent itself.
    pub const AGENT: Self = Self::Owner(Owner::Agent);

    /// Its number for a buffer of spans. One other holder in 256 has the same.
    pub(crate) fn sender(&self) -> SenderId {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        let [number, ..] = hasher.finish().to_le_bytes();
        SenderId(number)
    }

    /// Appends bytes that no other holder has.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::Owner(Owner::Agent) => into.push(0),
            Self::Owner(Owner::User(uid)) => {
                into.push(1);
                into.extend_from_slice(&uid.to_le_bytes());
            }
            Self::Owner(Owner::Container(id)) => {
                into.push(2);
                into.extend_from_slice(id);
            }
            Self::Pod(name) => {
                into.push(3);
                into.extend_from_slice(name.as_bytes());
            }
            Self::ThisMachine => into.push(4),
            Self::Address(IpAddr::V4(address)) => {
                into.push(5);
                into.extend_from_slice(&address.octets());
            }
            Self::Address(IpAddr::V6(address)) => {
                into.push(6);
                into.extend_from_slice(&address.octets());
            }
        }
    }
}

impl From<Peer> for Holder {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::User(uid) => Self::Owner(Owner::User(uid)),
            Peer::ThisMachine => Self::ThisMachine,
            Peer::Address(address) => Self::Address(address),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(owner) => owner.fmt(f),
            Self::Pod(name) => write!(f, "pod {name}"),
            Self::ThisMachine => Peer::ThisMachine.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_one_holder_by_socket_and_by_ring_and_each_holder_is_named() {
        let holders = [
            (Holder::from(Peer::User(7)), "user 7"),
            (Holder::from(Peer::ThisMachine), "this machine"),
            (Holder::from(Peer::Address([10, 0, 0, 9].into())), "10.0.0.9"),
            (Holder::Pod("payment-1 of shop/payment".into()), "pod payment-1 of shop/payment"),
            (Holder::AGENT, "the agent"),
        ];

        assert_eq!(holders[0].0, Holder::Owner(Owner::User(7)));
        for (at, (holder, name)) in holders.iter().enumerate() {
            assert_eq!(holder.to_string(), *name);
            let bytes = |holder: &Holder| {
                let mut bytes = Vec::new();
                holder.write(&mut bytes);
                bytes
            };
            assert!(holders.iter().enumerate().all(|(other, (of, _))| at == other || bytes(of) != bytes(holder)));
        }
    }
}
