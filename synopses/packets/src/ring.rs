//! Captures from a network interface through the kernel's ring of blocks (AF_PACKET, TPACKET_V3). Frames are read in
//! place, without a copy.
//!
//! The kernel fills a block with frames and passes it to the process when it is full or a deadline expires. The process
//! returns the block by setting its status. Blocks are shared memory with one owner at a time: the kernel writes only
//! into its blocks, the process reads only its own, and the status word is atomic. Offsets that the kernel wrote are
//! checked all the same.
//!
//! Timestamps are the kernel's, or the NIC's if hardware timestamps are enabled. No maintained crate supports
//! TPACKET_V3; the structures are those of libc.

#![expect(unsafe_code, reason = "memory that the kernel writes, and socket options that rustix does not have")]

mod mapping;
mod timestamps;

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use thiserror::Error;

use crate::frame::{Frame, Link};
use crate::source::{Progress, Source, SourceCounts, SourceError};
use mapping::{Mapping, Rules};

/// Maximum number of rings on an interface.
pub const MAX_RINGS: usize = 64;

/// Settings of a ring.
#[derive(Clone, Debug)]
pub struct RingSettings {
    /// Name of the interface.
    pub interface: String,
    /// Size of a block in bytes: a power of two from 4 KiB to 16 MiB.
    pub block_bytes: u32,
    /// Number of blocks, from 2 to 1024.
    pub blocks: u32,
    /// Time after which the kernel passes on a block that is not full, from 1 ms to 10 s.
    pub deadline: Duration,
    /// Maximum time that [`Source::read`] waits for a frame.
    pub wait: Duration,
    /// Skips outgoing frames. Always on for a loopback interface, where they come in, too.
    pub incoming: bool,
    /// Fanout group: rings with the same number share the frames of an interface by flow, with both directions of a
    /// flow in the same ring. [`Ring::open_group`] chooses an unused number.
    pub group: Option<u16>,
    /// Uses hardware timestamps if the NIC supports them for all incoming frames. Outgoing frames are skipped then:
    /// they have no hardware timestamps here, and the NIC's clock differs from the kernel's. [`Ring::timestamp_source`]
    /// shows the outcome.
    pub hardware: bool,
}

/// Source of the frames' timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// The kernel's clock.
    Kernel,
    /// The NIC's clock.
    Hardware,
    /// The kernel's clock, because hardware timestamps are not available, for this reason.
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

/// Why a ring cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RingError {
    /// Invalid size of the ring.
    #[error("{blocks} blocks of {block_bytes} bytes; 2 to 1024 of 4 KiB to 16 MiB, a power of two, are possible")]
    Size {
        /// Requested number of blocks.
        blocks: u32,
        /// Requested size of a block.
        block_bytes: u32,
    },
    /// Invalid number of rings.
    #[error("{0} rings of an interface; 1 to 64 are possible")]
    Number(usize),
    /// No interface has this name.
    #[error("there is no interface {0:?}")]
    Interface(String),
    /// The interface's link type is not supported.
    #[error("frames of {interface} are of kind {kind}; Ethernet (1), loopback (772) and bare IP (65534) are possible")]
    Link {
        /// Name of the interface.
        interface: String,
        /// The kernel's number of the link type.
        kind: u16,
    },
    /// A system call failed, mostly for lack of privileges.
    #[error("cannot {what}; reading an interface takes root or CAP_NET_RAW")]
    System {
        /// The failed step.
        what: &'static str,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

/// A capture ring of an interface.
#[derive(Debug)]
pub struct Ring {
    socket: OwnedFd,
    interface: String,
    memory: Mapping,
    rules: Rules,
    timestamps: TimestampSource,
    block_bytes: usize,
    blocks: usize,
    next: usize,
    wait: Duration,
    counts: SourceCounts,
}

impl Ring {
    /// Opens a ring. The kernel captures frames from now on.
    ///
    /// # Errors
    ///
    /// [`RingError`] if a setting is invalid or a system call fails.
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
        // The kernel stamps each packet once, where it enters or leaves the machine. Otherwise it would stamp it when
        // it copies it into a ring, at another time for each ring.
        set_at(libc::SOL_SOCKET, &socket, "enable packet timestamps", libc::SO_TIMESTAMPNS, &1_i32)?;
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
        set(&socket, "create the ring", libc::PACKET_RX_RING, &request)?;
        let (block_bytes, blocks) = (block_bytes as usize, blocks as usize);
        let memory = Mapping::new(&socket, block_bytes * blocks).map_err(system("map the ring"))?;
        bind(&socket, index, libc::ETH_P_ALL as u16)?;
        let (link, is_loopback) = link(&socket, &settings.interface)?;
        let timestamps =
            if settings.hardware { timestamps::enable(&socket, &settings.interface) } else { TimestampSource::Kernel };
        if settings.incoming || is_loopback || timestamps == TimestampSource::Hardware {
            set(&socket, "skip outgoing frames", libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        }
        if let Some(group) = settings.group {
            join_group(&socket, group, 0)?;
        }
        Ok(Self {
            socket,
            interface: settings.interface.clone(),
            memory,
            rules: Rules { link, hardware: timestamps == TimestampSource::Hardware },
            timestamps,
            block_bytes,
            blocks,
            next: 0,
            wait: settings.wait,
            counts: SourceCounts::default(),
        })
    }

    /// Opens a fanout group of `number` rings. They share the interface's frames by flow, with both directions of a
    /// flow in the same ring. The kernel's flow is the addresses and ports of the outer packet: the two directions of a
    /// flow in a VXLAN tunnel are in different rings, as are IP fragments.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], and [`RingError::Number`] unless `number` is from 1 to [`MAX_RINGS`].
    pub fn open_group(settings: &RingSettings, number: usize) -> Result<Vec<Self>, RingError> {
        if !(1..=MAX_RINGS).contains(&number) {
            return Err(RingError::Number(number));
        }
        let first = Self::open(settings)?;
        if number == 1 {
            return Ok(vec![first]);
        }
        join_group(&first.socket, 0, libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
        let group: u32 = get(&first.socket, "query the fanout group", libc::PACKET_FANOUT)?;
        let settings = RingSettings { group: Some(group as u16), ..settings.clone() };
        let others = (1..number).map(|_| Self::open(&settings));
        std::iter::once(Ok(first)).chain(others).collect()
    }

    /// Source of its frames' timestamps.
    #[must_use]
    pub const fn timestamp_source(&self) -> &TimestampSource {
        &self.timestamps
    }

    /// Current MTU of the interface in bytes. Longer frames were merged by a NIC or the kernel (TSO, GSO, GRO), and
    /// differ from those on the wire.
    ///
    /// # Errors
    ///
    /// The system's error, if the interface is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        let mut request = request_for(&self.interface);
        // SAFETY: the kernel reads the name and writes the number into a request that lives until the call has
        // returned.
        let outcome = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: what this request brings.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    /// Sends a complete frame out of the interface.
    ///
    /// # Errors
    ///
    /// The system's error: the frame is too long, the interface is down, or its queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.socket, frame, rustix::net::SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Sends complete frames with one system call. Returns how many were sent. Allocates for each call.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], if not even the first frame was sent.
    pub fn send_batch(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let bytes: Vec<_> = frames.iter().map(|frame| [io::IoSlice::new(frame)]).collect();
        let mut nothing: Vec<_> = frames.iter().map(|_| rustix::net::SendAncillaryBuffer::default()).collect();
        let both = bytes.iter().zip(&mut nothing);
        let mut messages: Vec<_> = both.map(|(bytes, nothing)| rustix::net::MMsgHdr::new(bytes, nothing)).collect();
        Ok(rustix::net::sendmmsg(&self.socket, &mut messages, rustix::net::SendFlags::DONTWAIT)?)
    }

    /// Passes on the frames of the next block, if the kernel has released it.
    fn block(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Option<u64> {
        let at = self.next * self.block_bytes;
        let status = self.memory.status(at);
        // Pairs with the kernel's barrier between a block's frames and its status.
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let block = self.memory.frames(at, self.block_bytes, self.rules, take);
        // Frames are read before the kernel may write others there.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        self.counts.frames += block.frames;
        self.counts.unstamped += block.unstamped;
        Some(block.frames)
    }
}

/// Sends frames out of an interface, and receives none.
#[derive(Debug)]
pub struct FrameSender(OwnedFd);

impl FrameSender {
    /// Opens an interface.
    ///
    /// # Errors
    ///
    /// [`RingError::Interface`] if there is none of this name, [`RingError::System`] mostly for lack of privileges.
    pub fn open(interface: &str) -> Result<Self, RingError> {
        let index = interface_index(interface)?;
        let socket = socket()?;
        bind(&socket, index, 0)?;
        Ok(Self(socket))
    }

    /// Sends a complete frame.
    ///
    /// # Errors
    ///
    /// As [`Ring::send`].
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, frame, rustix::net::SendFlags::DONTWAIT)?;
        Ok(())
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
        // The kernel resets its counters with each query.
        let new = get::<libc::tpacket_stats_v3>(&self.socket, "query the drop counters", libc::PACKET_STATISTICS);
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
    // Any socket can ask. This one needs no privilege: a wrong name is told to those without, too.
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None);
    let index = socket.and_then(|socket| rustix::net::netdevice::name_to_index(&socket, name));
    index.map(|index| index as libc::c_int).map_err(|_| RingError::Interface(name.to_owned()))
}

fn socket() -> Result<OwnedFd, RingError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol the socket receives nothing before it is bound to an interface.
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None);
    socket.map_err(|error| system("open a packet socket")(error.into()))
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

/// Binds to an interface, of which frames of this kind are received; 0: none.
fn bind(socket: &OwnedFd, index: libc::c_int, kind: u16) -> Result<(), RingError> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: kind.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let (pointer, length) = (core::ptr::from_ref(&address).cast(), size_of_val(&address) as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of a value that lives until the call has returned.
    let outcome = unsafe { libc::bind(socket.as_raw_fd(), pointer, length) };
    if outcome < 0 { Err(system("bind to the interface")(io::Error::last_os_error())) } else { Ok(()) }
}

/// Link type of the interface, and whether it is a loopback interface.
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
        return Err(system("query the link type")(io::Error::last_os_error()));
    }
    match address.sll_hatype {
        libc::ARPHRD_ETHER => Ok((Link::Ethernet, false)),
        libc::ARPHRD_LOOPBACK => Ok((Link::Ethernet, true)),
        libc::ARPHRD_NONE => Ok((Link::Ip, false)),
        kind => Err(RingError::Link { interface: interface.to_owned(), kind }),
    }
}

/// An ioctl request for an interface.
fn request_for(interface: &str) -> libc::ifreq {
    // SAFETY: numbers and arrays of them, all of which may be 0.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // The last byte stays 0: the kernel accepts no longer names.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Joins a fanout group.
fn join_group(socket: &OwnedFd, group: u16, flags: libc::c_uint) -> Result<(), RingError> {
    let by_flow = u32::from(group) | ((libc::PACKET_FANOUT_HASH | flags) << 16);
    set(socket, "join the fanout group", libc::PACKET_FANOUT, &by_flow)
}

/// Values for which any bytes are valid.
trait KernelValue: Copy {
    const EMPTY: Self;
}

impl KernelValue for u32 {
    const EMPTY: Self = 0;
}

impl KernelValue for libc::tpacket_stats_v3 {
    const EMPTY: Self = Self { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
}

fn get<T: KernelValue>(socket: &OwnedFd, what: &'static str, option: libc::c_int) -> Result<T, RingError> {
    let mut value = T::EMPTY;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let pointer = core::ptr::from_mut(&mut value).cast();
    // SAFETY: the kernel writes at most `length` bytes, numbers, into a value of that size.
    let outcome = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, pointer, &raw mut length) };
    if outcome < 0 { Err(system(what)(io::Error::last_os_error())) } else { Ok(value) }
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
        let error = FrameSender::open("no such one").unwrap_err();
        assert_eq!(error.to_string(), "there is no interface \"no such one\"");
    }
}
