//! A network interface, by the kernel's ring of blocks (AF_PACKET, TPACKET_V3): frames are read where the kernel put them.
//!
//! The kernel fills a block with as many frames as fit, gives it to us when it is full or a deadline passes, and takes it back when we set its status. Blocks
//! are shared memory: only the kernel writes into those that are its own, only we read those that are ours, and the status word between the two is
//! atomic. Offsets that the kernel wrote are checked all the same.
//!
//! Times are the kernel's, or the card's where it was told to stamp. No crate that does TPACKET_V3 is alive; the structures are libc's.

#![expect(unsafe_code, reason = "memory that the kernel writes, and socket options that rustix does not have")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use thiserror::Error;

use crate::frame::{Frame, Link, Progress, Source, SourceCounts, SourceError};

/// The tag of a frame, where a card took it off, as Ethernet has it before the type.
const TAG_BYTES: usize = 4;
/// Where it belongs.
const TAG_AT: usize = 12;
/// The most that is given out of a frame whose tag has to be put back.
const MOST_TAGGED: usize = 2048;

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
    /// Rings with the same number share the frames of an interface, by flow: both directions of one to the same ring.
    pub group: Option<u16>,
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
    link: Link,
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
        if settings.incoming || is_loopback {
            set(&socket, "leave out what goes out", libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        }
        if let Some(group) = settings.group {
            let by_flow = i32::from(group) | ((libc::PACKET_FANOUT_HASH as i32) << 16);
            set(&socket, "share the interface", libc::PACKET_FANOUT, &by_flow)?;
        }
        Ok(Self {
            socket,
            interface: settings.interface.clone(),
            memory,
            link,
            block_bytes,
            blocks,
            next: 0,
            wait: settings.wait,
            counts: SourceCounts::default(),
        })
    }

    /// The most bytes that a packet of the interface has behind its link header (its MTU), now. Frames with more were put together by a card or
    /// the kernel (TSO, GSO, GRO): nobody else sees them so.
    ///
    /// # Errors
    ///
    /// The system's: the interface is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        // SAFETY: numbers and arrays of them, all of which may be 0.
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        // Room for a 0 at the end is left: the kernel takes no longer names.
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(self.interface.bytes()) {
            *to = from as libc::c_char;
        }
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

    /// Gives out the frames of the next block, if it is ours.
    fn block(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Option<u64> {
        let at = self.next * self.block_bytes;
        let status = self.memory.status(at);
        // Pairs with the kernel's barrier between a block's frames and its status.
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let frames = self.memory.frames(at, self.block_bytes, self.link, take);
        // Frames are read before the kernel may write others there.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        self.counts.frames += frames;
        Some(frames)
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
        if let Ok(new) = statistics(&self.socket) {
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

fn statistics(socket: &OwnedFd) -> io::Result<libc::tpacket_stats_v3> {
    let mut found = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    let mut length = size_of_val(&found) as libc::socklen_t;
    let pointer = core::ptr::from_mut(&mut found).cast();
    // SAFETY: the kernel writes at most `length` bytes, three words, into a value of three words.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, pointer, &raw mut length)
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(found) }
}

/// The ring's memory.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory of the process, not of a thread; nothing but this value points to it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(socket: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), bytes, protection, rustix::mm::MapFlags::SHARED, socket, 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Self { base, bytes })
    }

    /// The status of the block that begins at `at`, of which the mapping holds at least a page.
    fn status(&self, at: usize) -> &AtomicU32 {
        let place = at
            + core::mem::offset_of!(libc::tpacket_block_desc, hdr)
            + core::mem::offset_of!(libc::tpacket_hdr_v1, block_status);
        debug_assert!(place + size_of::<u32>() <= self.bytes, "blocks lie within the mapping");
        // SAFETY: within the mapping: `at` is the beginning of one of its blocks.
        let pointer = unsafe { self.base.add(place) };
        // SAFETY: aligned, since blocks begin at pages; mapped as long as `self` lives. The kernel writes it, hence an atomic.
        unsafe { pointer.cast::<AtomicU32>().as_ref() }
    }

    /// Gives out the frames of a block that is ours. Whatever the kernel wrote, nothing outside of the block is read.
    fn frames(&self, at: usize, bytes: usize, link: Link, take: &mut dyn FnMut(&Frame<'_>)) -> u64 {
        debug_assert!(at + bytes <= self.bytes, "blocks lie within the mapping");
        // SAFETY: within the mapping: `at` is the beginning of one of its blocks.
        let pointer = unsafe { self.base.add(at) };
        // SAFETY: a block that is ours, since its status was loaded: the kernel does not write it before the status is stored again, which the
        // caller does after this. Mapped as long as `self` lives.
        let block = unsafe { core::slice::from_raw_parts(pointer.as_ptr(), bytes) };
        let header = core::mem::offset_of!(libc::tpacket_block_desc, hdr);
        let field = |field: usize| word(block, header + field);
        let count = field(core::mem::offset_of!(libc::tpacket_hdr_v1, num_pkts)).unwrap_or(0);
        let mut offset = field(core::mem::offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt)).unwrap_or(0) as usize;
        let mut given = 0;
        for _ in 0..count {
            let Some(next) = one(block, offset, link, take) else { break };
            given += 1;
            if next == 0 {
                break;
            }
            offset += next;
        }
        given
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing that borrows from it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Four bytes as the machine has them.
fn word(block: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(block.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn half(block: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(block.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Gives out the frame whose header is at `offset`; gives back how far the next one is. `None` if it does not lie within the block.
fn one(block: &[u8], offset: usize, link: Link, take: &mut dyn FnMut(&Frame<'_>)) -> Option<usize> {
    use core::mem::offset_of;
    use libc::tpacket3_hdr as Header;

    let field = |field: usize| word(block, offset.checked_add(field)?);
    let next = field(offset_of!(Header, tp_next_offset))? as usize;
    let seconds = u64::from(field(offset_of!(Header, tp_sec))?);
    let time_ns = seconds * 1_000_000_000 + u64::from(field(offset_of!(Header, tp_nsec))?);
    let (kept, length) = (field(offset_of!(Header, tp_snaplen))? as usize, field(offset_of!(Header, tp_len))?);
    let begins = offset + usize::from(half(block, offset + offset_of!(Header, tp_mac))?);
    let bytes = block.get(begins..begins.checked_add(kept)?)?;
    let frame = Frame { bytes, length, time_ns, link };
    if field(offset_of!(Header, tp_status))? & libc::TP_STATUS_VLAN_VALID == 0 || bytes.len() < TAG_AT {
        take(&frame);
        return Some(next);
    }
    // A card took the tag off: it is put back where it was.
    let tag = field(offset_of!(Header, hv1) + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci))? as u16;
    let kind = half(block, offset + offset_of!(Header, hv1) + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid))?;
    let kind = if kind == 0 { 0x8100 } else { kind };
    let mut whole = [0; MOST_TAGGED + TAG_BYTES];
    let kept = bytes.len().min(MOST_TAGGED);
    whole[..TAG_AT].copy_from_slice(&bytes[..TAG_AT]);
    whole[TAG_AT..TAG_AT + 2].copy_from_slice(&kind.to_be_bytes());
    whole[TAG_AT + 2..TAG_AT + TAG_BYTES].copy_from_slice(&tag.to_be_bytes());
    whole[TAG_AT + TAG_BYTES..kept + TAG_BYTES].copy_from_slice(&bytes[TAG_AT..kept]);
    take(&Frame { bytes: &whole[..kept + TAG_BYTES], length: length + TAG_BYTES as u32, ..frame });
    Some(next)
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

    /// A frame's header and its bytes, as the kernel puts them into a block.
    fn block(status: u32, tag: (u16, u16), kept: u32, mac: u16) -> Vec<u8> {
        use core::mem::offset_of;
        let mut block = vec![0; 256];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(libc::tpacket3_hdr, tp_sec), &3_u32.to_ne_bytes());
        put(offset_of!(libc::tpacket3_hdr, tp_nsec), &5_u32.to_ne_bytes());
        put(offset_of!(libc::tpacket3_hdr, tp_snaplen), &kept.to_ne_bytes());
        put(offset_of!(libc::tpacket3_hdr, tp_len), &60_u32.to_ne_bytes());
        put(offset_of!(libc::tpacket3_hdr, tp_status), &status.to_ne_bytes());
        put(offset_of!(libc::tpacket3_hdr, tp_mac), &mac.to_ne_bytes());
        let variant = offset_of!(libc::tpacket3_hdr, hv1);
        put(variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci), &u32::from(tag.0).to_ne_bytes());
        put(variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid), &tag.1.to_ne_bytes());
        put(82, &(0..40).collect::<Vec<u8>>());
        block
    }

    fn taken(block: &[u8]) -> Option<(Vec<u8>, u32, u64)> {
        let mut found = None;
        one(block, 0, Link::Ethernet, &mut |frame| found = Some((frame.bytes.to_vec(), frame.length, frame.time_ns)))?;
        found
    }

    #[test]
    fn a_tag_that_the_card_took_off_is_put_back() {
        let (plain, length, time) = taken(&block(0, (5, 0x88a8), 40, 82)).expect("a frame");
        assert_eq!((plain, length, time), ((0..40).collect(), 60, 3_000_000_005));

        let (tagged, length, _) = taken(&block(libc::TP_STATUS_VLAN_VALID, (5, 0x88a8), 40, 82)).expect("a frame");
        assert_eq!(&tagged[10..18], [10, 11, 0x88, 0xa8, 0, 5, 12, 13]);
        assert_eq!((tagged.len(), length), (44, 64));
    }

    #[test]
    fn what_does_not_lie_within_its_block_is_not_read() {
        for (kept, mac) in [(200, 82), (40, 250), (u32::MAX, 82), (1, u16::MAX)] {
            assert_eq!(taken(&block(0, (0, 0), kept, mac)), None);
        }
        assert_eq!(one(&[0; 16], 0, Link::Ethernet, &mut |_| {}), None);
        assert_eq!(one(&[0; 256], usize::MAX - 2, Link::Ethernet, &mut |_| {}), None);
    }
}
