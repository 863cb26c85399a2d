//! Two networks and an interface in each: this machine's, and one without a name.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::WayError;
use super::tun::{Tun, leave_network};

/// What the interface is called on the callers' side; the kernel makes a number of `%d`, so that two demos have two.
const NAME: &str = "uview-demo%d";
/// Addresses of networks in which devices are tried (RFC 2544): nobody else's.
const TRIED: [u8; 2] = [198, 18];

/// The longest packet: so short that a request to the store is several, and each tells how long it was on its way. Every host takes one of this length.
const PACKET_BYTES: usize = 576;
/// What such a packet carries: less by the headers of IPv4 and of TCP with time stamps.
pub(crate) const CARRIED_BYTES: usize = PACKET_BYTES - 20 - 32;

/// What others need to know.
#[derive(Debug)]
pub(super) struct Known {
    /// The interface on the callers' side.
    pub(super) interface: String,
    /// The address on the other side.
    pub(super) address: Ipv4Addr,
    /// The namespace on the other side.
    pub(super) space: PathBuf,
    /// Where somebody listens on the other side.
    pub(super) probe: SocketAddrV4,
    /// Who listens there.
    _listener: TcpListener,
}

/// Both interfaces, up and with addresses, and nobody between them yet.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) known: Known,
    pub(super) pair: [Tun; 2],
}

impl Ends {
    /// Makes both. This thread is in the network of the other side from then on.
    ///
    /// # Errors
    ///
    /// [`WayError`] says what is missing.
    pub(super) fn open() -> Result<Self, WayError> {
        let here = tun(NAME)?;
        let number = here.name().trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0_u32);
        let [of_here, of_there] = [1, 2].map(|end| Ipv4Addr::new(TRIED[0], TRIED[1], (number % 256) as u8, end));
        set_up(&here, of_here, of_there)?;
        let none = |cause| WayError::System { what: "a network namespace", cause };
        leave_network().map_err(none)?;
        ip(&["link", "set", "lo", "up"])?;
        let there = tun(here.name())?;
        set_up(&there, of_there, of_here)?;
        let listener = TcpListener::bind((of_there, 0)).map_err(none)?;
        let SocketAddr::V4(probe) = listener.local_addr().map_err(none)? else {
            return Err(none(io::ErrorKind::InvalidData.into()));
        };
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let known = Known {
            interface: here.name().to_owned(),
            address: of_there,
            space: PathBuf::from(format!("/proc/{}/task/{thread}/ns/net", std::process::id())),
            probe,
            _listener: listener,
        };
        Ok(Self { known, pair: [here, there] })
    }
}

fn tun(name: &str) -> Result<Tun, WayError> {
    Tun::open(name).map_err(|cause| WayError::System { what: "/dev/net/tun", cause })
}

/// Gives the interface its address, and that of the other end. Data is acknowledged at once there: else an acknowledgement waits for an answer to go
/// with, and says how long that took, not the way.
fn set_up(tun: &Tun, address: Ipv4Addr, other: Ipv4Addr) -> Result<(), WayError> {
    let (name, address, other) = (tun.name(), &address.to_string(), &other.to_string());
    ip(&["address", "add", address, "peer", other, "dev", name])?;
    ip(&["link", "set", name, "mtu", &PACKET_BYTES.to_string(), "up"])?;
    ip(&["route", "replace", other, "dev", name, "scope", "link", "src", address, "quickack", "1"])
}

/// Has `ip` do something in the network of this thread.
fn ip(arguments: &[&str]) -> Result<(), WayError> {
    let done = Command::new("ip").args(arguments).stdin(Stdio::null()).output().map_err(|_| WayError::NoIp)?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
    Err(WayError::Ip { arguments: arguments.join(" "), said })
}

/// Listens at `address` in the network `space`, a file of `/proc/…/ns/net`; the rest of this process stays where it is.
///
/// # Errors
///
/// The system's: the network is gone, this takes root, the address is taken.
pub(crate) fn listen_in(space: &Path, address: SocketAddr) -> io::Result<TcpListener> {
    let space = File::open(space)?;
    // Sockets are of the network of the thread that makes them.
    let enter = move || {
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
        TcpListener::bind(address)
    };
    let thread = std::thread::Builder::new().name("way".to_owned()).spawn(enter)?;
    let listener = thread.join().map_err(|_| io::Error::other("the thread that was to listen failed"))??;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
