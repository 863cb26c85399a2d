//! The ring's memory: blocks of frames in the kernel's layout.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use std::io;
use std::os::fd::OwnedFd;

use crate::frame::{Frame, Link};

/// Length of a VLAN tag.
const TAG_BYTES: usize = 4;
/// Offset of a VLAN tag in an Ethernet frame.
const TAG_AT: usize = 12;
/// Maximum number of bytes of a frame whose VLAN tag has to be restored.
const MAX_TAGGED: usize = 2048;

/// Counts of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// Frames delivered so far.
    pub(super) frames: u64,
    /// Frames skipped because they lack a hardware timestamp.
    pub(super) unstamped: u64,
}

/// How frames of a block are delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Link type of the frames.
    pub(super) link: Link,
    /// Deliver only frames with a hardware timestamp.
    pub(super) hardware: bool,
}

/// The mapped memory of a ring.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory of the process, not of a thread; nothing but this value points to it.
unsafe impl Send for Mapping {}

impl Mapping {
    pub(super) fn new(socket: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), bytes, protection, rustix::mm::MapFlags::SHARED, socket, 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Self { base, bytes })
    }

    /// The status of the block that begins at `at`, of which the mapping holds at least a page.
    pub(super) fn status(&self, at: usize) -> &AtomicU32 {
        let place = at
            + core::mem::offset_of!(libc::tpacket_block_desc, hdr)
            + core::mem::offset_of!(libc::tpacket_hdr_v1, block_status);
        debug_assert!(place + size_of::<u32>() <= self.bytes, "blocks lie within the mapping");
        // SAFETY: within the mapping: `at` is the beginning of one of its blocks.
        let pointer = unsafe { self.base.add(place) };
        // SAFETY: aligned, since blocks begin at pages; mapped as long as `self` lives. The kernel writes it, hence an
        // atomic.
        unsafe { pointer.cast::<AtomicU32>().as_ref() }
    }

    /// Delivers the frames of a block that the kernel has released. Never reads outside of the block.
    pub(super) fn frames(&self, at: usize, bytes: usize, rules: Rules, take: &mut dyn FnMut(&Frame<'_>)) -> Block {
        debug_assert!(at + bytes <= self.bytes, "blocks lie within the mapping");
        // SAFETY: within the mapping: `at` is the beginning of one of its blocks.
        let pointer = unsafe { self.base.add(at) };
        // SAFETY: the kernel has released the block, since its status was loaded, and does not write it before the
        // status is stored again, which the caller does after this. Mapped as long as `self` lives.
        let block = unsafe { core::slice::from_raw_parts(pointer.as_ptr(), bytes) };
        let header = core::mem::offset_of!(libc::tpacket_block_desc, hdr);
        let field = |field: usize| word32(block, header + field);
        let count = field(core::mem::offset_of!(libc::tpacket_hdr_v1, num_pkts)).unwrap_or(0);
        let mut offset = field(core::mem::offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt)).unwrap_or(0) as usize;
        let mut counts = Block::default();
        for _ in 0..count {
            let Some((next, delivered)) = deliver(block, offset, rules, take) else { break };
            counts.frames += u64::from(delivered);
            counts.unstamped += u64::from(!delivered);
            if next == 0 {
                break;
            }
            offset += next;
        }
        counts
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing that borrows from it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Four bytes in the machine's byte order.
fn word32(block: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(block.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Two bytes in the machine's byte order.
fn word16(block: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(block.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Delivers the frame whose header is at `offset`. Returns the distance to the next header, and whether the rules allow
/// the frame. `None` if it does not lie within the block.
fn deliver(block: &[u8], offset: usize, rules: Rules, take: &mut dyn FnMut(&Frame<'_>)) -> Option<(usize, bool)> {
    use core::mem::offset_of;
    use libc::tpacket3_hdr as Header;

    let field = |field: usize| word32(block, offset.checked_add(field)?);
    let next = field(offset_of!(Header, tp_next_offset))? as usize;
    let seconds = u64::from(field(offset_of!(Header, tp_sec))?);
    let time_ns = seconds * 1_000_000_000 + u64::from(field(offset_of!(Header, tp_nsec))?);
    let (captured, length) = (field(offset_of!(Header, tp_snaplen))? as usize, field(offset_of!(Header, tp_len))?);
    let begins = offset + usize::from(word16(block, offset + offset_of!(Header, tp_mac))?);
    let bytes = block.get(begins..begins.checked_add(captured)?)?;
    let frame = Frame { bytes, length, time_ns, link: rules.link };
    let status = field(offset_of!(Header, tp_status))?;
    if rules.hardware && status & libc::TP_STATUS_TS_RAW_HARDWARE == 0 {
        return Some((next, false));
    }
    if status & libc::TP_STATUS_VLAN_VALID == 0 || bytes.len() < TAG_AT {
        take(&frame);
        return Some((next, true));
    }
    // The NIC removed the VLAN tag: it is restored.
    let tag = field(offset_of!(Header, hv1) + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci))? as u16;
    let kind = word16(block, offset + offset_of!(Header, hv1) + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid))?;
    let kind = if kind == 0 { 0x8100 } else { kind };
    let mut tagged = [0; MAX_TAGGED + TAG_BYTES];
    let captured = bytes.len().min(MAX_TAGGED);
    tagged[..TAG_AT].copy_from_slice(&bytes[..TAG_AT]);
    tagged[TAG_AT..TAG_AT + 2].copy_from_slice(&kind.to_be_bytes());
    tagged[TAG_AT + 2..TAG_AT + TAG_BYTES].copy_from_slice(&tag.to_be_bytes());
    tagged[TAG_AT + TAG_BYTES..captured + TAG_BYTES].copy_from_slice(&bytes[TAG_AT..captured]);
    take(&Frame { bytes: &tagged[..captured + TAG_BYTES], length: length + TAG_BYTES as u32, ..frame });
    Some((next, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Rules = Rules { link: Link::Ethernet, hardware: false };

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

    fn delivered(block: &[u8]) -> Option<(Vec<u8>, u32, u64)> {
        let mut found = None;
        deliver(block, 0, ANY, &mut |frame| found = Some((frame.bytes.to_vec(), frame.length, frame.time_ns)))?;
        found
    }

    #[test]
    fn a_vlan_tag_that_the_nic_removed_is_restored() {
        let (plain, length, time) = delivered(&block(0, (5, 0x88a8), 40, 82)).expect("a frame");
        assert_eq!((plain, length, time), ((0..40).collect(), 60, 3_000_000_005));

        let (tagged, length, _) = delivered(&block(libc::TP_STATUS_VLAN_VALID, (5, 0x88a8), 40, 82)).expect("a frame");
        assert_eq!(&tagged[10..18], [10, 11, 0x88, 0xa8, 0, 5, 12, 13]);
        assert_eq!((tagged.len(), length), (44, 64));
    }

    #[test]
    fn a_frame_outside_of_its_block_is_not_read() {
        for (kept, mac) in [(200, 82), (40, 250), (u32::MAX, 82), (1, u16::MAX)] {
            assert_eq!(delivered(&block(0, (0, 0), kept, mac)), None);
        }
        assert_eq!(deliver(&[0; 16], 0, ANY, &mut |_| {}), None);
        assert_eq!(deliver(&[0; 256], usize::MAX - 2, ANY, &mut |_| {}), None);
    }

    #[test]
    fn with_hardware_timestamps_a_frame_without_one_is_skipped() {
        let card = Rules { hardware: true, ..ANY };
        let mut taken = 0;
        let mut deliver_with = |status| deliver(&block(status, (0, 0), 40, 82), 0, card, &mut |_| taken += 1);
        assert_eq!(deliver_with(libc::TP_STATUS_TS_RAW_HARDWARE), Some((0, true)));
        assert_eq!(deliver_with(libc::TP_STATUS_TS_SOFTWARE), Some((0, false)));
        assert_eq!(deliver_with(0), Some((0, false)));
        assert_eq!(taken, 1);
    }
}
