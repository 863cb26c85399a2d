//! A network interface, by the kernel's ring of blocks (AF_PACKET, TPACKET_V3): frames are read where the kernel put them.
//!
//! The kernel fills a block with as many frames as fit, gives it to us when it is full or a deadline passes, and takes it back when we set its status. Blocks
//! are shared memory: only the kernel writes into those that are its own, only we read those that are ours, and the status word between the two is
//! atomic. Offsets that the kernel wrote are checked all the same.
//!
//! Times are the kernel's, or the card's where it is told to stamp. No crate that does TPACKET_V3 is alive; the structures are libc's.

#![expect(unsafe_code, reason = "memory that the kernel writes, and socket options that rustix does not have")]

mod mapping;
mod stamps;

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use thiserror::Error;

use crate::frame::{Frame, Link, Progress, Source, SourceCounts, SourceError};
use mapping::{Mapping, Rules};

/// More rings than this on an interface are a mistake.
pub const MOST_RINGS: usize = 64;

/// How an interface is read.
#[derive(Clone, Debug)]
pub struct RingSettings {
    /// Its name.
    pub interface: String,
    /// Bytes of a block: a power of two of whole pages, from 4 KiB to 16 MiB.
    pub block_bytes: u32,
    /// How many blocks, from 2 to 1024.
    pub blocks: u32,
    /// After this long the kernel gives out a block that is not full, 1 ms to 10 s.
    pub deadline: Duration,
    /// How long [`Source::read`] waits for a frame.
    pub wait: Duration,
    /// Leaves out what goes out of the interface; of a loopback interface, where everything also comes in, always.
    pub incoming: bool,
    /// Rings with the same number share the frames of an interface, by flow: both directions of one to the same ring. [`Ring::open_some`] takes a
    /// number that nobody else has.
    pub group: Option<u16>,
    /// Times are the card's, where it can stamp all that comes in. No card stamps what goes out for those who listen, and its clock is another than
    /// the kernel's: what goes out is left out. [`Ring::stamps`] says what came of it.
    pub hardware: bool,
}

/// Whose times frames have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// The kernel's.
    Kernel,
    /// The card's.
    Hardware,
    /// The kernel's, though the card's were asked for: why.
    Refused(String),
}

impl Default for RingSettings {
    fn default() -> Self {
        Self {
            interface: String::new(),
            block_bytes: 1 << 18,
            blocks: 32,
            deadline: Duration::from_millis(10),
            wait: Duration::from_millis(100),
            incoming: false,
            group: None,
            hardware: false,
        }
    }
}

/// Why an interface cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RingError {
    /// Sizes that cannot be.
    #[error("{blocks} blocks of {block_bytes} bytes; 2 to 1024 of 4 KiB to 16 MiB, a power of two, are possible")]
    Size {
        /// How many were asked for.
        blocks: u32,
        /// Of how many bytes each.
        block_bytes: u32,
    },
    /// None, or too many.
    #[error("{0} rings of an interface; 1 to 64 are possible")]
    Number(usize),
    /// There is none of this name.
    #[error("there is no interface {0:?}")]
    Interface(String),
    /// Its frames begin with something that is not known here.
    #[error("frames of {interface} are of kind {kind}; Ethernet (1), loopback (772) and bare IP (65534) are possible")]
    Link {
        /// Its name.
        interface: String,
        /// The kernel's number for it.
        kind: u16,
    },
    /// Not allowed, mostly.
    #[error("cannot {what}; reading an interface takes root or CAP_NET_RAW")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
}

/// The ring of an interface.
#[derive(Debug)]
pub struct Ring {
    socket: OwnedFd,
    interface: String,
    memory: Mapping,
    rules: Rules,
    stamps: Stamps,
    block_bytes: usize,
    blocks: usize,
    next: usize,
    wait: Duration,
    counts: SourceCounts,
}

impl Ring {
    /// Opens the interface; frames are kept from now on.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    pub fn open(settings: &RingSettings) -> Result<Self, RingError> {
        let (block_bytes, blocks) = (settings.block_bytes, settings.blocks);
        if !(block_bytes.is_power_of_two()
            && (1 << 12..=1 << 24).contains(&block_bytes)
            && (2..=1024).contains(&blocks))
        {
            return Err(RingError::Size { blocks, block_bytes });
        }
        let index = interface_index(&settings.interface)?;
        let socket = socket()?;
        // Each packet is stamped once, where it enters or leaves the machine: else when it is copied into a ring, for each ring at another time.
        set_at(libc::SOL_SOCKET, &socket, "have packets stamped", libc::SO_TIMESTAMPNS, &1_i32)?;
        set(
            &socket,
            "use version 3 of the ring",
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V3 as libc::c_int),
        )?;
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            // Not used by version 3, but checked.
            tp_frame_size: 2048,
            tp_frame_nr: block_bytes / 2048 * blocks,
            tp_retire_blk_tov: settings.deadline.as_millis().clamp(1, 10_000) as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, "make a ring", libc::PACKET_RX_RING, &request)?;
        let (block_bytes, blocks) = (block_bytes as usize, blocks as usize);
        let memory = Mapping::new(&socket, block_bytes * blocks).map_err(system("map the ring"))?;
        bind(&socket, index)?;
        let (link, is_loopback) = link(&socket, &settings.interface)?;
        let stamps = if settings.hardware { stamps::have(&socket, &settings.interface) } else { Stamps::Kernel };
        if settings.incoming || is_loopback || stamps == Stamps::Hardware {
            set(&socket, "leave out what goes out", libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        }
        if let Some(group) = settings.group {
            share(&socket, group, 0)?;
        }
        Ok(Self {
            socket,
            interface: settings.interface.clone(),
            memory,
            rules: Rules { link, hardware: stamps == Stamps::Hardware },
            stamps,
            block_bytes,
            blocks,
            next: 0,
            wait: settings.wait,
            counts: SourceCounts::default(),
        })
    }

    /// Opens the interface so often; the rings share its frames by flow, both directions of one to the same ring, in a group that nobody else has. The
    /// kernel takes addresses and ports of the outer packet for the flow: the two directions of a flow in a VXLAN tunnel come to different rings, as do
    /// IP fragments.
    ///
    /// # Errors
    ///
    /// [`RingError`]; [`RingError::Number`] unless it is 1 to [`MOST_RINGS`].
    pub fn open_some(settings: &RingSettings, number: usize) -> Result<Vec<Self>, RingError> {
        if !(1..=MOST_RINGS).contains(&number) {
            return Err(RingError::Number(number));
        }
        let first = Self::open(settings)?;
        if number == 1 {
            return Ok(vec![first]);
        }
        share(&first.socket, 0, libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
        let group: u32 = get(&first.socket, "ask for the group's number", libc::PACKET_FANOUT)?;
        let settings = RingSettings { group: Some(group as u16), ..settings.clone() };
        let others = (1..number).map(|_| Self::open(&settings));
        std::iter::once(Ok(first)).chain(others).collect()
    }

    /// Whose times its frames have.
    #[must_use]
    pub const fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// The most bytes that a packet of the interface has behind its link header (its MTU), now. Frames with more were put together by a card or
    /// the kernel (TSO, GSO, GRO): nobody else sees them so.
    ///
    /// # Errors
    ///
    /// The system's: the interface is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        let mut request = about(&self.interface);
        // SAFETY: the kernel reads the name and writes the number into a request that lives until the call has returned.
        let outcome = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: what this request brings.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    /// Sends a frame, headers and all, out of the interface.
    ///
    /// # Errors
    ///
    /// The system's: it is too long, the interface is down, its queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.socket, frame, rustix::net::SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Sends frames, each with its headers, in one call of the system: how many went. Allocates for each call.
    ///
    /// # Errors
    ///
    /// The system's, if not even the first one went: as [`Self::send`].
    pub fn send_some(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let bytes: Vec<_> = frames.iter().map(|frame| [io::IoSlice::new(frame)]).collect();
        let mut nothing: Vec<_> = frames.iter().map(|_| rustix::net::SendAncillaryBuffer::default()).collect();
        let both = bytes.iter().zip(&mut nothing);
        let mut messages: Vec<_> = both.map(|(bytes, nothing)| rustix::net::MMsgHdr::new(bytes, nothing)).collect();
        Ok(rustix::net::sendmmsg(&self.socket, &mut messages, rustix::net::SendFlags::DONTWAIT)?)
    }

    /// Gives out the frames of the next block, if it is ours.
    fn block(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Option<u64> {
        let at = self.next * self.block_bytes;
        let status = self.memory.status(at);
        // Pairs with the kernel's barrier between a block's frames and its status.
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let found = self.memory.frames(at, self.block_bytes, self.rules, take);
        // Frames are read before the kernel may write others there.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        self.counts.frames += found.frames;
        self.counts.unstamped += found.unstamped;
        Some(found.frames)
    }
}

impl Source for Ring {
    fn read(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Result<Progress, SourceError> {
        if let Some(frames) = self.block(take) {
            return Ok(Progress::Frames(frames));
        }
        let mut ready =
            [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN | rustix::event::PollFlags::ERR)];
        let wait = rustix::event::Timespec {
            tv_sec: self.wait.as_secs() as i64,
            tv_nsec: i64::from(self.wait.subsec_nanos()),
        };
        match rustix::event::poll(&mut ready, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(Progress::Frames(self.block(take).unwrap_or(0))),
            Err(error) => Err(SourceError::Io(error.into())),
        }
    }

    fn counts(&mut self) -> SourceCounts {
        // The kernel begins again at 0 with each look.
        let new = get::<libc::tpacket_stats_v3>(&self.socket, "ask for what was dropped", libc::PACKET_STATISTICS);
        if let Ok(new) = new {
            self.counts.dropped += u64::from(new.tp_drops);
            self.counts.stopped += u64::from(new.tp_freeze_q_cnt);
        }
        self.counts
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> RingError {
    move |cause| RingError::System { what, cause }
}

fn interface_index(name: &str) -> Result<libc::c_int, RingError> {
    let unknown = || RingError::Interface(name.to_owned());
    let text = CString::new(name).map_err(|_| unknown())?;
    // SAFETY: a string that ends with 0 and lives until the call has returned.
    let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
    if index == 0 { Err(unknown()) } else { Ok(index as libc::c_int) }
}

fn socket() -> Result<OwnedFd, RingError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // Protocol 0: nothing comes before the socket is bound to an interface.
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(system("open a packet socket")(io::Error::last_os_error()));
    }
    // SAFETY: the kernel has just given it out, to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set<T>(socket: &OwnedFd, what: &'static str, option: libc::c_int, value: &T) -> Result<(), RingError> {
    set_at(libc::SOL_PACKET, socket, what, option, value)
}

fn set_at<T>(
    level: libc::c_int,
    socket: &OwnedFd,
    what: &'static str,
    option: libc::c_int,
    value: &T,
) -> Result<(), RingError> {
    let (pointer, length) = (core::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of a value that lives until the call has returned.
    let outcome = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, length) };
    if outcome < 0 { Err(system(what)(io::Error::last_os_error())) } else { Ok(()) }
}

fn bind(socket: &OwnedFd, index: libc::c_int) -> Result<(), RingError> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let (pointer, length) = (core::ptr::from_ref(&address).cast(), size_of_val(&address) as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of a value that lives until the call has returned.
    let outcome = unsafe { libc::bind(socket.as_raw_fd(), pointer, length) };
    if outcome < 0 { Err(system("listen to the interface")(io::Error::last_os_error())) } else { Ok(()) }
}

/// What the frames of the interface begin with, and whether they all go out and come in.
fn link(socket: &OwnedFd, interface: &str) -> Result<(Link, bool), RingError> {
    let mut address = libc::sockaddr_ll {
        sll_family: 0,
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let mut length = size_of_val(&address) as libc::socklen_t;
    let pointer = core::ptr::from_mut(&mut address).cast();
    // SAFETY: the kernel writes at most `length` bytes into a value of that size.
    let outcome = unsafe { libc::getsockname(socket.as_raw_fd(), pointer, &raw mut length) };
    if outcome < 0 {
        return Err(system("ask what the interface is")(io::Error::last_os_error()));
    }
    match address.sll_hatype {
        libc::ARPHRD_ETHER => Ok((Link::Ethernet, false)),
        libc::ARPHRD_LOOPBACK => Ok((Link::Ethernet, true)),
        libc::ARPHRD_NONE => Ok((Link::Ip, false)),
        kind => Err(RingError::Link { interface: interface.to_owned(), kind }),
    }
}

/// A request about an interface.
fn about(interface: &str) -> libc::ifreq {
    // SAFETY: numbers and arrays of them, all of which may be 0.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // Room for a 0 at the end is left: the kernel takes no longer names.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Has the ring share the frames of its interface with those of its group.
fn share(socket: &OwnedFd, group: u16, flags: libc::c_uint) -> Result<(), RingError> {
    let by_flow = u32::from(group) | ((libc::PACKET_FANOUT_HASH | flags) << 16);
    set(socket, "share the interface", libc::PACKET_FANOUT, &by_flow)
}

/// Values of which any bytes are one.
trait Plain: Copy {
    const EMPTY: Self;
}

impl Plain for u32 {
    const EMPTY: Self = 0;
}

impl Plain for libc::tpacket_stats_v3 {
    const EMPTY: Self = Self { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
}

fn get<T: Plain>(socket: &OwnedFd, what: &'static str, option: libc::c_int) -> Result<T, RingError> {
    let mut found = T::EMPTY;
    let mut length = size_of_val(&found) as libc::socklen_t;
    let pointer = core::ptr::from_mut(&mut found).cast();
    // SAFETY: the kernel writes at most `length` bytes, numbers, into a value of that size.
    let outcome = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, pointer, &raw mut length) };
    if outcome < 0 { Err(system(what)(io::Error::last_os_error())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_rings_are_refused_before_the_kernel_is_asked() {
        for (blocks, block_bytes) in [(1, 1 << 18), (4, 3 << 12), (4, 1 << 11), (2000, 1 << 18), (4, 1 << 25)] {
            let error = Ring::open(&RingSettings { block_bytes, blocks, ..RingSettings::default() }).unwrap_err();
            assert!(matches!(error, RingError::Size { .. }), "{error}");
        }
        let error =
            Ring::open(&RingSettings { interface: "no such one".into(), ..RingSettings::default() }).unwrap_err();
        assert_eq!(error.to_string(), "there is no interface \"no such one\"");
    }
}
