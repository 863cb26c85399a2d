//! A TUN device: an interface whose packets a process reads and writes. It exists for as long as it is open.

#![expect(unsafe_code, reason = "an ioctl and two system calls that are not safe by their types")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `TUNSETIFF`: creates the interface, and returns its name.
const MAKE: Opcode = opcode::write::<core::ffi::c_int>(b'T', 202);
/// `IFF_TUN | IFF_NO_PI`: bare IP packets, with nothing before them.
const BARE: u16 = 0x1001;

/// `struct ifreq`, as far as needed.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// An open TUN device.
#[derive(Debug)]
pub(super) struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Creates a device in the network namespace of this thread. `name` has at most 15 bytes; the kernel replaces `%d`
    /// by the first free number. The device is down and has no address. The kernel computes checksums before packets
    /// arrive here, and merges no segments.
    ///
    /// # Errors
    ///
    /// Errors of the system: it has no TUN devices, or the privilege is missing.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open("/dev/net/tun")?;
        let mut request = Request { name: [0; 16], flags: BARE, rest: [0; 22] };
        // Room for a 0 at the end is left.
        for (to, from) in request.name.iter_mut().take(15).zip(name.bytes()) {
            *to = from;
        }
        // SAFETY: this request takes a `struct ifreq`, which has 40 bytes with 64-bit pointers and fewer with others;
        // that many are there.
        let make = unsafe { Updater::<'_, MAKE, Request>::new(&mut request) };
        // SAFETY: the kernel reads and writes a request that lives until the call has returned.
        unsafe { ioctl(&file, make) }?;
        let name = request.name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self { file, name: String::from_utf8_lossy(name).into_owned() })
    }

    /// The device's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next outgoing packet into `packet`. Returns its length, or `None` if there is none now.
    ///
    /// # Errors
    ///
    /// Errors of the system: the interface no longer exists.
    pub(super) fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(packet) {
            Ok(length) => Ok(Some(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Injects an incoming packet. If the system refuses it, it is lost, as on any link.
    pub(super) fn write(&self, packet: &[u8]) {
        let _ = (&self.file).write(packet);
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Moves this thread, and no other, to a new network namespace without interfaces that are up.
///
/// # Errors
///
/// Errors of the system: it has no network namespaces, or the privilege is missing.
pub(super) fn leave_network() -> io::Result<()> {
    // SAFETY: the flag for open files, of which the condition speaks, is not set.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Gives this thread real-time priority (`SCHED_RR`): it runs before all normal threads as soon as it has work. The
/// kernel reserves a twentieth of the time for the others.
///
/// # Errors
///
/// Errors of the system: the privilege is missing.
pub(super) fn use_realtime_priority() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads a value that lives until the call has returned; 0 is this thread.
    let outcome = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
