//! Two network namespaces with an interface in each: that of the host, and an unnamed one.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::LinkError;
use super::tun::{Tun, leave_network};

/// Name of the interface on the callers' side. The kernel replaces `%d` by a free number, so that two demos can run.
const NAME: &str = "uview-demo%d";
/// The first two bytes of all addresses: 198.18.0.0/15 is reserved for tests of devices (RFC 2544).
const TEST_NETWORK: [u8; 2] = [198, 18];

/// The MTU: so short that a request to the store takes several packets, each of which gives a delay. Every IPv4 host
/// accepts packets of this length.
const PACKET_BYTES: usize = 576;
/// Payload of such a packet, without the headers of IPv4 and of TCP with timestamps.
pub(crate) const CARRIED_BYTES: usize = PACKET_BYTES - 20 - 32;

/// The interface and addresses of a link.
#[derive(Debug)]
pub(super) struct LinkEndpoints {
    /// The interface on the callers' side.
    pub(super) interface: String,
    /// The address on the other side.
    pub(super) address: Ipv4Addr,
    /// The network namespace on the other side.
    pub(super) netns: PathBuf,
    /// A listening address on the other side, for a test connection.
    pub(super) probe: SocketAddrV4,
    /// The socket that listens there.
    _listener: TcpListener,
}

/// Both interfaces, up and with addresses. No relay connects them yet.
#[derive(Debug)]
pub(super) struct LinkDevices {
    pub(super) endpoints: LinkEndpoints,
    pub(super) pair: [Tun; 2],
}

impl LinkDevices {
    /// Creates both. Moves this thread to the network namespace of the other side.
    ///
    /// # Errors
    ///
    /// [`LinkError`] for a missing privilege, program or device.
    pub(super) fn open() -> Result<Self, LinkError> {
        let here = tun(NAME)?;
        let number = here.name().trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0_u32);
        let [of_here, of_there] =
            [1, 2].map(|end| Ipv4Addr::new(TEST_NETWORK[0], TEST_NETWORK[1], (number % 256) as u8, end));
        set_up(&here, of_here, of_there)?;
        let none = |cause| LinkError::System { what: "a network namespace", cause };
        leave_network().map_err(none)?;
        ip(&["link", "set", "lo", "up"])?;
        let there = tun(here.name())?;
        set_up(&there, of_there, of_here)?;
        let listener = TcpListener::bind((of_there, 0)).map_err(none)?;
        let SocketAddr::V4(probe) = listener.local_addr().map_err(none)? else {
            return Err(none(io::ErrorKind::InvalidData.into()));
        };
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let endpoints = LinkEndpoints {
            interface: here.name().to_owned(),
            address: of_there,
            netns: PathBuf::from(format!("/proc/{}/task/{thread}/ns/net", std::process::id())),
            probe,
            _listener: listener,
        };
        Ok(Self { endpoints, pair: [here, there] })
    }
}

fn tun(name: &str) -> Result<Tun, LinkError> {
    Tun::open(name).map_err(|cause| LinkError::System { what: "/dev/net/tun", cause })
}

/// Sets the interface's address and that of its peer. The route has `quickack`: otherwise an acknowledgement waits for
/// the response that carries it, and its delay would be that of the service, not that of the link.
fn set_up(tun: &Tun, address: Ipv4Addr, other: Ipv4Addr) -> Result<(), LinkError> {
    let (name, address, other) = (tun.name(), &address.to_string(), &other.to_string());
    ip(&["address", "add", address, "peer", other, "dev", name])?;
    ip(&["link", "set", name, "mtu", &PACKET_BYTES.to_string(), "up"])?;
    ip(&["route", "replace", other, "dev", name, "scope", "link", "src", address, "quickack", "1"])
}

/// Runs `ip` in the network namespace of this thread.
fn ip(arguments: &[&str]) -> Result<(), LinkError> {
    let done = Command::new("ip").args(arguments).stdin(Stdio::null()).output().map_err(|_| LinkError::NoIp)?;
    if done.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
    Err(LinkError::Ip { arguments: arguments.join(" "), stderr })
}

/// Listens at `address` in the network namespace `netns`, a file such as `/proc/…/ns/net`. The rest of this process
/// stays in its own namespace.
///
/// # Errors
///
/// Errors of the system: the namespace no longer exists, the process is not root, or the address is in use.
pub(crate) fn listen_in(netns: &Path, address: SocketAddr) -> io::Result<TcpListener> {
    let netns = File::open(netns)?;
    // A socket belongs to the namespace of the thread that creates it.
    let enter = move || {
        move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
        TcpListener::bind(address)
    };
    let thread = std::thread::Builder::new().name("link".to_owned()).spawn(enter)?;
    let listener = thread.join().map_err(|_| io::Error::other("the thread that creates the socket panicked"))??;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
