//! The user that owns the other end of a TCP connection on this machine, or a socket that listens, and the cgroup in
//! which it was opened, as the kernel knows them (`NETLINK_SOCK_DIAG`). One exchange with the kernel per connection, of
//! a few microseconds; it needs no privilege.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

const HEADER: usize = 16;
/// Length of a `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Length of a `struct inet_diag_msg`, of which the last two words are the user and the inode.
const REPLY: usize = 72;
const USER: usize = HEADER + 64;
const INODE: usize = HEADER + 68;
/// Length of an attribute's header: its length and its type.
const ATTRIBUTE: usize = 4;
/// Attribute `INET_DIAG_CGROUP_ID`, unasked since Linux 5.8.
const CGROUP: u16 = 21;
/// Message type `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// Flag `NLM_F_REQUEST`: exactly one socket is asked for.
const ONE: u16 = 1;
/// Message type `NLMSG_ERROR`.
const ERROR: u16 = 2;
const TCP: u8 = 6;
const INET: u8 = 2;
const INET6: u8 = 10;
/// States of a connection whose socket somebody has open: established, and those in which one end sends no more. Not
/// a listener, which the kernel names where it finds no connection.
const OPEN: [u8; 4] = [1, 4, 5, 8];
/// State of a socket that listens.
const LISTENING: [u8; 1] = [10];
/// The loopback interface, in each network namespace. Connections within a machine use no other, and a socket that is
/// bound to it is found with its number only.
const LOOPBACK: u32 = 1;

/// What the kernel knows of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    /// The user of the process that opened it.
    pub uid: u32,
    /// Id of the cgroup (v2) in which that process was then. `None` if the kernel does not say: before Linux 5.8, or
    /// without CONFIG_SOCK_CGROUP_DATA.
    pub cgroup: Option<u64>,
}

/// Who listens where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its address, without a port.
    pub address: IpAddr,
    /// Its owner, if it is on this machine and the kernel says who.
    pub owner: Option<SocketOwner>,
}

/// Asks for the owner of the socket with the first address, connected to the second one.
pub type OwnerLookup = fn(SocketAddr, SocketAddr) -> io::Result<SocketOwner>;

/// The owner of the socket `peer` of the connection to `local`, where both are of this machine. It is known as long as
/// a process has the socket open, also after it has said that it sends no more.
///
/// # Errors
///
/// The socket is of another machine or network namespace, is closed already, or the kernel has no `tcp_diag`.
pub fn socket_owner(peer: SocketAddr, local: SocketAddr) -> io::Result<SocketOwner> {
    owner(&ask(peer, local)?, &OPEN)
}

/// The owner of the socket that listens at `address` of this machine.
///
/// # Errors
///
/// Nobody in this network namespace listens there, or the kernel has no `tcp_diag`.
pub fn listener_owner(address: SocketAddr) -> io::Result<SocketOwner> {
    // No connection has such another end: the kernel finds who listens.
    let nobody = match address.ip().to_canonical() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    owner(&ask(address, SocketAddr::new(nobody, 0))?, &LISTENING)
}

/// Who listens where `stream` leads, which was connected just now: the kernel still has the listener that accepts it.
///
/// # Errors
///
/// The connection is broken.
pub fn listener_of(stream: &tokio::net::TcpStream) -> io::Result<Listener> {
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    // Both ends of a connection to an address of this machine have that address, but for those of loopback.
    let (address, own) = (peer.ip().to_canonical(), local.ip().to_canonical());
    let is_here = address.is_loopback() || address == own;
    Ok(Listener { address, owner: is_here.then(|| listener_owner(peer).ok()).flatten() })
}

/// What the kernel replies about the socket `peer` of a connection to `local`.
fn ask(peer: SocketAddr, local: SocketAddr) -> io::Result<Vec<u8>> {
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    send(&kernel, &request(peer, local), SendFlags::empty())?;
    // The kernel has answered when `send` returns.
    let mut reply = vec![0_u8; 1024];
    let (_, length) = recv(&kernel, &mut reply[..], RecvFlags::DONTWAIT)?;
    reply.truncate(length);
    Ok(reply)
}

/// What `ask` says about a connection of this process with itself.
///
/// # Errors
///
/// It says nothing about senders of this machine, or there is no loopback interface.
pub fn own_owner(ask: OwnerLookup) -> io::Result<SocketOwner> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // It is there at once, unless a firewall is in the way.
    let client = TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(1))?;
    ask(client.local_addr()?, client.peer_addr()?)
}

/// Both addresses of a connection have the same family.
fn request(peer: SocketAddr, local: SocketAddr) -> [u8; HEADER + REQUEST] {
    let (peer_ip, local_ip) = (peer.ip().to_canonical(), local.ip().to_canonical());
    let mut bytes = [0; HEADER + REQUEST];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &((HEADER + REQUEST) as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &ONE.to_ne_bytes());
    put(HEADER, &[if peer_ip.is_ipv4() { INET } else { INET6 }, TCP]);
    // Sockets in any state.
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    // The connection from its client's side.
    put(HEADER + 8, &peer.port().to_be_bytes());
    put(HEADER + 10, &local.port().to_be_bytes());
    for (at, address) in [(HEADER + 12, peer_ip), (HEADER + 28, local_ip)] {
        match address {
            IpAddr::V4(address) => put(at, &address.octets()),
            IpAddr::V6(address) => put(at, &address.octets()),
        }
    }
    put(HEADER + 44, &LOOPBACK.to_ne_bytes());
    // No cookie (INET_DIAG_NOCOOKIE).
    put(HEADER + 48, &[0xff; 8]);
    bytes
}

/// The owner in a reply about a socket, if it is in one of `states`.
fn owner(reply: &[u8], states: &[u8]) -> io::Result<SocketOwner> {
    let kind = half(reply, 4);
    match kind {
        Some(BY_FAMILY) if reply.len() >= HEADER + REPLY => {}
        Some(ERROR) => return Err(io::Error::from_raw_os_error(word(reply, HEADER)?.cast_signed().wrapping_neg())),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }
    // A socket that is closed has no owner any more, and the kernel says root. Its inode is read after the user: if
    // there is one, there was a user.
    let is_open = reply.get(HEADER + 1).is_some_and(|state| states.contains(state));
    if !is_open || word(reply, INODE)? == 0 {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(SocketOwner { uid: word(reply, USER)?, cgroup: cgroup(reply.get(HEADER + REPLY..).unwrap_or_default()) })
}

/// The id in the attribute for the cgroup, if it is among `attributes`.
fn cgroup(mut attributes: &[u8]) -> Option<u64> {
    loop {
        let (length, kind) = (usize::from(half(attributes, 0)?), half(attributes, 2)?);
        let value = attributes.get(ATTRIBUTE..length)?;
        if kind == CGROUP {
            return value.try_into().ok().map(u64::from_ne_bytes);
        }
        // Attributes begin at multiples of four bytes.
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    Ok(bytes.map(u32::from_ne_bytes).ok_or(io::ErrorKind::UnexpectedEof)?)
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    fn own_user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn the_kernel_says_whose_the_other_end_is() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                support::harness::not_run("no IPv6 here");
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let to = if address == "[::]:0" { "127.0.0.1" } else { address.rsplit_once(':').unwrap().0 };
            let client = TcpStream::connect(format!("{to}:{port}")).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let local = server.local_addr().unwrap();

            assert_eq!(socket_owner(peer, local).unwrap().uid, own_user(), "{address}");
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(socket_owner(peer, local).unwrap().uid, own_user(), "{address}: it reads on");
            drop(client);
            assert!(socket_owner(peer, local).is_err(), "a closed socket has no owner");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (listening, gone) = (listener.local_addr().unwrap(), "127.0.0.1:1".parse().unwrap());
        assert!(
            socket_owner(listening, gone).is_err(),
            "who listens at the port of a client that is gone did not send"
        );
        let nobody = "127.0.0.1:1".parse().unwrap();
        assert_eq!(socket_owner(nobody, nobody).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_kernel_says_who_listens_also_at_every_address() {
        for (address, to) in [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "127.0.0.1")] {
            let Ok(listener) = TcpListener::bind(address) else {
                support::harness::not_run("no IPv6 here");
                continue;
            };
            let at = SocketAddr::new(to.parse().unwrap(), listener.local_addr().unwrap().port());
            let client = TcpStream::connect(at).unwrap();

            assert_eq!(listener_owner(at).unwrap().uid, own_user(), "{address}");
            drop(listener);
            assert!(listener_owner(at).is_err(), "{address}: nobody listens any more");
            drop(client);
        }
    }

    #[tokio::test]
    async fn only_an_address_of_this_machine_has_an_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();

        let found = listener_of(&stream).unwrap();

        assert!(found.address.is_loopback());
        assert_eq!(found.owner.map(|owner| owner.uid), Some(own_user()));
    }

    #[test]
    fn a_reply_that_names_no_living_socket_is_an_error() {
        let mut reply = vec![0; HEADER + REPLY];
        reply[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        reply[USER..USER + 4].copy_from_slice(&7_u32.to_ne_bytes());
        reply[HEADER + 1] = OPEN[0];
        assert!(owner(&reply, &OPEN).is_err(), "without an inode it says root for everybody");
        reply[INODE] = 1;
        assert_eq!(owner(&reply, &OPEN).unwrap(), SocketOwner { uid: 7, cgroup: None });

        for over in [2, 3, 6, 7, 9, 10, 11] {
            reply[HEADER + 1] = over;
            assert!(owner(&reply, &OPEN).is_err(), "{over}");
        }
        for length in 0..reply.len() {
            assert!(owner(&reply[..length], &OPEN).is_err(), "{length}");
        }
    }

    #[test]
    fn the_cgroup_is_found_among_other_attributes_and_a_torn_one_is_none() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let [shutdown, class, id] =
            [attribute(8, &[0]), attribute(15, &[0; 4]), attribute(CGROUP, &44_u64.to_ne_bytes())];
        let all = [&shutdown[..], &class, &id, &attribute(22, &[82, 0])].concat();

        assert_eq!(cgroup(&all), Some(44));
        assert_eq!(cgroup(&[&shutdown[..], &class].concat()), None);
        let end = all.len() - 8;
        for length in 0..end {
            assert_eq!(cgroup(&all[..length]), None, "{length}");
        }
        // No attribute is shorter than its header: nothing is read twice.
        assert_eq!(cgroup(&[0; 64]), None);
        assert_eq!(cgroup(&[attribute(CGROUP, &[1; 4]), id].concat()), None);
    }
}
