//! Registered memory, which a device reads and writes by itself. It stays mapped as long as it is registered.
#![expect(unsafe_code, reason = "calls of a C library, and memory that a device writes to")]

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{NonNull, null_mut};
use std::io;
use std::sync::Arc;

use region::SharedMapping;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::context::{Context, check, non_null};
use super::sys;

/// A protection domain. A queue pair can access only memory that is registered in its own domain.
#[derive(Debug)]
pub(super) struct ProtectionDomain {
    context: Arc<Context>,
    raw: NonNull<sys::ProtectionDomain>,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for ProtectionDomain {}
// SAFETY: the library locks what threads share.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(super) fn new(context: &Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: the device is open.
        let raw = unsafe { (context.library().functions().alloc_pd)(context.as_ptr()) };
        Ok(Arc::new(Self { context: Arc::clone(context), raw: non_null(raw)? }))
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ProtectionDomain {
        self.raw.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // A device that was unplugged may refuse; there is nothing left to give back then.
        // SAFETY: made by `new`; whatever was made in it keeps it and is gone.
        let _code = unsafe { (self.context.library().functions().dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Memory that can be registered.
///
/// # Safety
///
/// `bytes` bytes from `base` on stay mapped until the value is dropped, wherever the value is moved to. Their contents
/// are read through atomics only, or while no device writes there.
pub(super) unsafe trait Memory {
    fn base(&self) -> NonNull<c_void>;
    fn bytes(&self) -> usize;
}

// SAFETY: a mapping that lives as long as the value, and that nothing of this process reads or writes.
unsafe impl Memory for SharedMapping {
    fn base(&self) -> NonNull<c_void> {
        self.base()
    }

    fn bytes(&self) -> usize {
        self.size().bytes()
    }
}

/// Anonymous pages of this process, into which a device fetches. They are mapped as shared so that a fork copies none
/// of them: the device would go on writing to the parent's old pages.
#[derive(Debug)]
pub(super) struct Arena {
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Arena {}

// SAFETY: mapped by `new`, unmapped by `drop`; `words` is asked only while no device writes there.
unsafe impl Memory for Arena {
    fn base(&self) -> NonNull<c_void> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Arena {
    /// `bytes` zero bytes; `bytes` is a whole number of pages.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: no address is asked for, so that no memory in use is replaced.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED) }?;
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Its first address, as the device uses it.
    pub(super) fn address(&self) -> u64 {
        self.base.addr().get() as u64
    }

    /// The words of the arena.
    ///
    /// # Safety
    ///
    /// No device writes there as long as the words are borrowed.
    pub(super) unsafe fn words(&self) -> &[u64] {
        // SAFETY: page-aligned and zeroed at first, mapped as long as `self`; the caller answers for the device.
        unsafe { core::slice::from_raw_parts(self.base.cast::<u64>().as_ptr(), self.bytes / size_of::<u64>()) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}

/// Memory that is registered with the device of `pd`.
#[derive(Debug)]
pub(super) struct Registration<M: Memory> {
    pd: Arc<ProtectionDomain>,
    raw: NonNull<sys::MemoryRegion>,
    memory: ManuallyDrop<M>,
    is_deregistered: bool,
}

// SAFETY: the library's functions may be called from any thread, and the memory may move with it.
unsafe impl<M: Memory + Send> Send for Registration<M> {}

impl<M: Memory> Registration<M> {
    /// Pins `memory` and registers it; `access` is what the device may do beyond reading it for this process.
    pub(super) fn new(pd: &Arc<ProtectionDomain>, memory: M, access: c_int) -> io::Result<Self> {
        let register = pd.context().library().functions().reg_mr;
        // SAFETY: the memory is mapped, and stays so until it has been deregistered by `deregister`.
        let raw = unsafe { register(pd.as_ptr(), memory.base().as_ptr(), memory.bytes(), access) };
        Ok(Self { pd: Arc::clone(pd), raw: non_null(raw)?, memory: ManuallyDrop::new(memory), is_deregistered: false })
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    /// The key for work requests of this process.
    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: registered; the library writes the struct before it hands it out, and never again.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    /// The key for READs of the peer.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: as for `lkey`.
        unsafe { (*self.raw.as_ptr()).rkey }
    }

    /// Deregisters the memory: once this has returned without an error, no device touches it. After an error it is
    /// still registered.
    pub(super) fn deregister(mut self) -> Result<(), (Self, io::Error)> {
        self.try_deregister().map_err(|cause| (self, cause))
    }

    fn try_deregister(&mut self) -> io::Result<()> {
        // SAFETY: registered by `new`, and not deregistered so far: nothing is done here once `is_deregistered` is set.
        check(unsafe { (self.pd.context().library().functions().dereg_mr)(self.raw.as_ptr()) })?;
        self.is_deregistered = true;
        // SAFETY: dropped once, for the same reason, and never looked at again: `self` is on its way out.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
        Ok(())
    }
}

impl<M: Memory> Drop for Registration<M> {
    fn drop(&mut self) {
        if !self.is_deregistered {
            // If the device refuses, the memory stays mapped, which is all that can be done.
            self.try_deregister().ok();
        }
    }
}
