//! Hardware timestamps: whether a NIC can stamp all incoming frames, and how to enable that.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::{TimestampSource, request_for, set};

/// The ioctl of ethtool, and its command for timestamp capabilities (linux/sockios.h, linux/ethtool.h).
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// Ioctls that set and get a NIC's timestamp configuration (linux/sockios.h).
const SIOCSHWTSTAMP: libc::c_ulong = 0x89b0;
const SIOCGHWTSTAMP: libc::c_ulong = 0x89b1;
/// Capabilities: the NIC stamps incoming frames, with its own clock (linux/net_tstamp.h).
const RX_HARDWARE: u32 = 1 << 2;
const RAW_HARDWARE: u32 = 1 << 6;
/// The filter for all frames, not only those of PTP.
const FILTER_ALL: libc::c_int = 1;

/// Timestamp capabilities of a NIC (`struct ethtool_ts_info`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct TimestampCapabilities {
    command: u32,
    stamps: u32,
    clock: i32,
    transmitted: u32,
    reserved: [u32; 3],
    filters: u32,
    also_reserved: [u32; 3],
}

/// Timestamp configuration of a NIC (`struct hwtstamp_config`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct TimestampConfig {
    flags: libc::c_int,
    transmitted: libc::c_int,
    filter: libc::c_int,
}

/// Enables hardware timestamps of all incoming frames for `interface` and the socket, or returns the reason why not.
pub(super) fn enable(socket: &OwnedFd, interface: &str) -> TimestampSource {
    match try_enable(socket, interface) {
        Ok(()) => TimestampSource::Hardware,
        Err(why) => TimestampSource::Refused(why),
    }
}

fn try_enable(socket: &OwnedFd, interface: &str) -> Result<(), String> {
    let mut capabilities = TimestampCapabilities { command: ETHTOOL_GET_TS_INFO, ..TimestampCapabilities::default() };
    query(socket, interface, SIOCETHTOOL, &mut capabilities)
        .map_err(|error| format!("the driver does not report timestamp capabilities: {error}"))?;
    let required = RX_HARDWARE | RAW_HARDWARE;
    if capabilities.stamps & required != required {
        return Err("the card has no hardware clock (`ethtool -T` shows its capabilities)".to_owned());
    }
    if capabilities.filters & (1 << FILTER_ALL) == 0 {
        return Err("the card does not stamp all frames, at most those of PTP (`ethtool -T`)".to_owned());
    }
    let mut config = TimestampConfig::default();
    // The setting for outgoing frames stays as it is, since PTP may need it. A driver that does not support the query
    // has timestamps disabled.
    let known = query(socket, interface, SIOCGHWTSTAMP, &mut config).is_ok();
    if !(known && config.filter == FILTER_ALL) {
        config = TimestampConfig { filter: FILTER_ALL, ..config };
        query(socket, interface, SIOCSHWTSTAMP, &mut config).map_err(|error| {
            format!("cannot enable timestamps of all frames, which takes root or CAP_NET_ADMIN: {error}")
        })?;
        if config.filter != FILTER_ALL {
            return Err(format!("the card uses timestamp filter {}, not that for all frames", config.filter));
        }
    }
    set(socket, "enable hardware timestamps", libc::PACKET_TIMESTAMP, &RAW_HARDWARE).map_err(|error| error.to_string())
}

/// A structure that a driver reads and writes, with the layout that it expects.
trait EthtoolData {}

impl EthtoolData for TimestampCapabilities {}

impl EthtoolData for TimestampConfig {}

fn query<T: EthtoolData>(socket: &OwnedFd, interface: &str, what: libc::c_ulong, value: &mut T) -> io::Result<()> {
    let mut request = request_for(interface);
    request.ifr_ifru.ifru_data = core::ptr::from_mut(value).cast();
    // SAFETY: the kernel reads and writes a request, and a value of the layout that it has for `what`; both live until
    // the call has returned.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), what as _, &raw mut request) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
