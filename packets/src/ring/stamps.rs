//! Times of the card: whether it can stamp all that comes in, and having it do so.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::{Stamps, about, set};

/// The ioctl by which ethtool asks, and what it asks for (linux/sockios.h, linux/ethtool.h).
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// Set, and get, how a card stamps (linux/sockios.h).
const SIOCSHWTSTAMP: libc::c_ulong = 0x89b0;
const SIOCGHWTSTAMP: libc::c_ulong = 0x89b1;
/// Cards that stamp what comes in, and times as their clock has them (linux/net_tstamp.h).
const RX_HARDWARE: u32 = 1 << 2;
const RAW_HARDWARE: u32 = 1 << 6;
/// All frames, not only those of PTP: the number of this filter.
const FILTER_ALL: libc::c_int = 1;

/// What a card can do (`struct ethtool_ts_info`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Abilities {
    command: u32,
    stamps: u32,
    clock: i32,
    transmitted: u32,
    reserved: [u32; 3],
    filters: u32,
    also_reserved: [u32; 3],
}

/// How a card stamps (`struct hwtstamp_config`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    flags: libc::c_int,
    transmitted: libc::c_int,
    filter: libc::c_int,
}

/// Has the card of `interface` stamp all that comes in, and the socket's frames bear its times; or says why not.
pub(super) fn have(socket: &OwnedFd, interface: &str) -> Stamps {
    match try_to(socket, interface) {
        Ok(()) => Stamps::Hardware,
        Err(why) => Stamps::Refused(why),
    }
}

fn try_to(socket: &OwnedFd, interface: &str) -> Result<(), String> {
    let mut able = Abilities { command: ETHTOOL_GET_TS_INFO, ..Abilities::default() };
    ask(socket, interface, SIOCETHTOOL, &mut able)
        .map_err(|error| format!("the driver does not say what it stamps: {error}"))?;
    let wanted = RX_HARDWARE | RAW_HARDWARE;
    if able.stamps & wanted != wanted {
        return Err("the card has no clock to stamp with (`ethtool -T` shows what it has)".to_owned());
    }
    if able.filters & (1 << FILTER_ALL) == 0 {
        return Err("the card does not stamp all frames, but those of PTP at the most (`ethtool -T`)".to_owned());
    }
    let mut way = Way::default();
    // What goes out is stamped, or not, as before: PTP may need it. A driver that cannot be asked stamps nothing yet.
    let known = ask(socket, interface, SIOCGHWTSTAMP, &mut way).is_ok();
    if !(known && way.filter == FILTER_ALL) {
        way = Way { filter: FILTER_ALL, ..way };
        ask(socket, interface, SIOCSHWTSTAMP, &mut way)
            .map_err(|error| format!("the card cannot be told to stamp all frames (root or CAP_NET_ADMIN): {error}"))?;
        if way.filter != FILTER_ALL {
            return Err(format!("the card stamps by filter {}, not all frames", way.filter));
        }
    }
    set(socket, "have the card's times", libc::PACKET_TIMESTAMP, &RAW_HARDWARE).map_err(|error| error.to_string())
}

/// Numbers that a driver reads and writes, of the size that it expects.
trait Asked {}

impl Asked for Abilities {}

impl Asked for Way {}

fn ask<T: Asked>(socket: &OwnedFd, interface: &str, what: libc::c_ulong, value: &mut T) -> io::Result<()> {
    let mut request = about(interface);
    request.ifr_ifru.ifru_data = core::ptr::from_mut(value).cast();
    // SAFETY: the kernel reads and writes a request, and a value of the layout that it has for `what`; both live until the call has returned.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), what as _, &raw mut request) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
