//! Who connects by TCP, and places for connections. Every user of a machine has all addresses of loopback, so a
//! connection within the machine is of its user, whom the kernel names ([`socket_owner`](crate::socket_owner)). One
//! from another machine is of its address.

use core::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;

use crate::shares::Shares;
use crate::socket_owner::{OwnerLookup, SocketOwner, socket_owner};

/// Whose share a connection is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A user of this machine.
    User(u32),
    /// Somebody on this machine: the kernel says of no socket whose it is, or nobody has the other end open any more.
    ThisMachine,
    /// Somebody on another machine.
    Address(IpAddr),
}

impl Peer {
    /// Whose the other end of a connection is. Asks the kernel, which takes some microseconds.
    #[must_use]
    pub fn of(stream: &TcpStream) -> Self {
        Self::asking(socket_owner, stream)
    }

    fn asking(ask: OwnerLookup, stream: &TcpStream) -> Self {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return Self::ThisMachine };
        Self::from_answer(ask(peer, local).ok(), peer.ip().to_canonical(), local.ip().to_canonical())
    }

    /// Who connects from `address` to the `own` one, if the kernel says that `owner` has the other end. A user of this
    /// machine may bind to the address of any of its interfaces.
    fn from_answer(owner: Option<SocketOwner>, address: IpAddr, own: IpAddr) -> Self {
        match owner {
            Some(owner) => Self::User(owner.uid),
            None if address.is_loopback() || own.is_loopback() || address == own => Self::ThisMachine,
            None => Self::Address(address),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::ThisMachine => f.write_str("this machine"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Places for connections, of which a peer may have three times what is free: some are left for others, whatever one
/// does.
#[derive(Debug)]
pub struct Places {
    per_peer: u64,
    shares: Mutex<Shares<Peer>>,
}

impl Places {
    /// Nobody has connected. There are `connections` places, at least four, and at most `per_peer` of them for one
    /// peer.
    #[must_use]
    pub fn new(connections: usize, per_peer: usize) -> Arc<Self> {
        let shares = Shares::new("connections", "a limit of the program", connections.max(4) as u64);
        Arc::new(Self { per_peer: per_peer as u64, shares: Mutex::new(shares) })
    }

    /// A place for a connection of `peer`; `None` if it has its share already.
    #[must_use]
    pub fn take(self: &Arc<Self>, peer: Peer) -> Option<ConnectionPermit> {
        let mut shares = self.shares();
        if shares.held(&peer) >= self.per_peer {
            return None;
        }
        shares.take(peer.clone(), 1).ok()?;
        Some(ConnectionPermit { places: Arc::clone(self), peer })
    }

    fn shares(&self) -> MutexGuard<'_, Shares<Peer>> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection, given back on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    places: Arc<Places>,
    peer: Peer,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.places.shares().release(&self.peer, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{Shutdown, SocketAddr, TcpStream as Client};

    use nix::unistd::{Uid, geteuid, setfsuid};
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    const STRANGER: u32 = 65534;

    /// A connection from an address of loopback.
    fn connect(from: u8, to: SocketAddr) -> Client {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, from], 0))).unwrap();
        rustix::net::connect(&socket, &to).unwrap();
        socket.into()
    }

    /// Connections of another user from these addresses; `None` without the right to be one.
    fn of_a_stranger(from: impl Iterator<Item = u8> + Send + 'static, to: SocketAddr) -> Option<Vec<Client>> {
        if !geteuid().is_root() {
            println!("NOT RUN: only root may open sockets of others");
            return None;
        }
        // The user of a thread's sockets is that of its files.
        let connects = std::thread::spawn(move || {
            setfsuid(Uid::from_raw(STRANGER));
            from.map(|from| connect(from, to)).collect()
        });
        Some(connects.join().unwrap())
    }

    async fn accepted(listener: &TcpListener) -> TcpStream {
        listener.accept().await.unwrap().0
    }

    #[tokio::test]
    async fn a_user_of_this_machine_has_one_share_whatever_addresses_it_uses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = Places::new(8, 8);
        let mut held = Vec::new();
        let Some(_theirs) = of_a_stranger(1..8, address) else { return };
        for _ in 0..7 {
            let stream = accepted(&listener).await;
            let peer = Peer::of(&stream);
            assert_eq!(peer, Peer::User(STRANGER));
            held.extend(places.take(peer));
        }
        assert_eq!(held.len(), 6, "three times the two that are free");

        let _own = connect(1, address);
        let own = accepted(&listener).await;
        let peer = Peer::of(&own);
        assert_eq!(peer, Peer::User(0));
        let place = places.take(peer);
        assert!(place.is_some(), "another user has its own share, whatever the addresses");
        drop((place, held));
        assert_eq!(places.shares().used(), 0);
    }

    #[tokio::test]
    async fn whoever_binds_to_the_interface_or_sends_no_more_is_known_and_who_is_gone_is_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = Peer::User(geteuid().as_raw());
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind_device(Some(b"lo")).unwrap();
        let client = socket.connect(listener.local_addr().unwrap()).await.unwrap().into_std().unwrap();
        let server = accepted(&listener).await;
        assert_eq!(Peer::of(&server), own);

        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(Peer::of(&server), own);

        drop(client);
        assert_eq!(Peer::of(&server), Peer::ThisMachine);
    }

    #[test]
    fn a_user_is_one_peer_from_any_interface_and_another_machine_is_its_address() {
        let of = |uid: Option<u32>, address: &str, own: &str| {
            let owner = uid.map(|uid| SocketOwner { uid, cgroup: None });
            Peer::from_answer(owner, address.parse().unwrap(), own.parse().unwrap())
        };

        assert_eq!(of(Some(7), "10.0.0.1", "127.0.0.1"), Peer::User(7));
        assert_eq!(of(Some(7), "10.0.0.1", "10.0.0.2"), Peer::User(7), "two interfaces of this machine");
        assert_eq!(of(None, "10.0.0.9", "10.0.0.2"), Peer::Address("10.0.0.9".parse().unwrap()));
        for (address, own) in [("127.0.0.3", "127.0.0.1"), ("10.0.0.1", "127.0.0.1"), ("10.0.0.2", "10.0.0.2")] {
            assert_eq!(of(None, address, own), Peer::ThisMachine, "{address} to {own}");
        }
    }

    #[tokio::test]
    async fn where_the_kernel_says_nothing_all_addresses_of_loopback_are_one_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = connect(2, listener.local_addr().unwrap());
        let server = accepted(&listener).await;

        assert_eq!(Peer::asking(|_, _| Err(ErrorKind::NotFound.into()), &server), Peer::ThisMachine);
    }
}
