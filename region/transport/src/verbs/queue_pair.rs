//! A queue pair: one end of a reliable connection.
#![expect(unsafe_code, reason = "calls of a C library")]

use core::ffi::c_int;
use core::ptr::{NonNull, null_mut};
use std::io;
use std::sync::Arc;

use super::context::{Context, check, non_null};
use super::memory::ProtectionDomain;
use super::sys;

/// The queue in which completions arrive.
#[derive(Debug)]
struct CompletionQueue {
    context: Arc<Context>,
    raw: NonNull<sys::CompletionQueue>,
}

impl CompletionQueue {
    fn new(context: &Arc<Context>, entries: u32) -> io::Result<Self> {
        let entries = c_int::try_from(entries).map_err(io::Error::other)?;
        // SAFETY: the device is open; neither a value of our own nor a channel is given.
        let raw =
            unsafe { (context.library().functions().create_cq)(context.as_ptr(), entries, null_mut(), null_mut(), 0) };
        Ok(Self { context: Arc::clone(context), raw: non_null(raw)? })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // A device that was unplugged may refuse; there is nothing left to give back then.
        // SAFETY: made by `new`; the queue pair that used it is gone.
        let _code = unsafe { (self.context.library().functions().destroy_cq)(self.raw.as_ptr()) };
    }
}

/// A queue pair with a completion queue of its own.
#[derive(Debug)]
pub(super) struct QueuePair {
    raw: NonNull<sys::QueuePair>,
    // In this order: the queue pair is destroyed first.
    completions: CompletionQueue,
    pd: Arc<ProtectionDomain>,
    post: sys::PostSend,
    poll: sys::PollCq,
    depth: u32,
    is_destroyed: bool,
}

// SAFETY: the library's functions may be called from any thread; only the owner of the value calls them.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// A queue pair in RESET for at most `depth` work requests at a time. Each can fail with a completion of its own,
    /// so the completion queue has space for all.
    pub(super) fn new(pd: &Arc<ProtectionDomain>, depth: u32) -> io::Result<Self> {
        let context = pd.context();
        let (post, poll) = context.operations()?;
        let completions = CompletionQueue::new(context, depth + 1)?;
        let mut init = sys::QueuePairInit {
            qp_context: null_mut(),
            send_cq: completions.raw.as_ptr(),
            receive_cq: completions.raw.as_ptr(),
            srq: null_mut(),
            // Devices require space for a receive, although none is ever posted.
            capacity: sys::QueueCapacity {
                max_send_wr: depth,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            kind: sys::RELIABLE_CONNECTION,
            signal_all: 0,
        };
        // SAFETY: protection domain and completion queue are alive, and kept.
        let raw = unsafe { (context.library().functions().create_qp)(pd.as_ptr(), &raw mut init) };
        // The requested depth, although most devices round it up: the completion queue has that size.
        let depth = depth.min(init.capacity.max_send_wr);
        Ok(Self { raw: non_null(raw)?, completions, pd: Arc::clone(pd), post, poll, depth, is_destroyed: false })
    }

    /// How many work requests it takes at a time.
    pub(super) fn depth(&self) -> usize {
        self.depth as usize
    }

    /// Its number on the device.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the library writes the number before it hands the struct out, and never again.
        unsafe { (*self.raw.as_ptr()).number }
    }

    /// Changes its state.
    pub(super) fn modify(&mut self, (mut attributes, mask): (sys::QueuePairAttributes, c_int)) -> io::Result<()> {
        let modify = self.pd.context().library().functions().modify_qp;
        // SAFETY: the queue pair exists; the attributes are only read.
        check(unsafe { modify(self.raw.as_ptr(), &raw mut attributes, mask) })
    }

    /// Resets it: once this has returned without an error, no work request is in flight, neither its own nor its
    /// peer's, and no completion of an earlier one will arrive.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        let attributes = sys::QueuePairAttributes { state: sys::state::RESET, ..Default::default() };
        self.modify((attributes, sys::mask::STATE))?;
        let mut old = [sys::Completion::default(); 16];
        while self.poll(&mut old)? > 0 {}
        self.pd.context().drop_events();
        Ok(())
    }

    /// Posts a chain of work requests.
    ///
    /// # Safety
    ///
    /// `first` starts a chain of at most [`QueuePair::depth`] requests that ends with null, each with an element; what
    /// the elements point at is registered, and is left alone until a completion or a reset says that the device is
    /// through with it.
    pub(super) unsafe fn post(&mut self, first: *mut sys::WorkRequest) -> io::Result<()> {
        let mut refused = null_mut();
        // SAFETY: the queue pair exists, and the caller answers for the chain.
        check(unsafe { (self.post)(self.raw.as_ptr(), first, &raw mut refused) })
    }

    /// Takes completions that have arrived, and returns their number. Does not wait.
    pub(super) fn poll(&mut self, completions: &mut [sys::Completion]) -> io::Result<usize> {
        let capacity = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue exists, and there is room for as many as are asked for.
        let found = unsafe { (self.poll)(self.completions.raw.as_ptr(), capacity, completions.as_mut_ptr()) };
        usize::try_from(found).map_err(|_| io::Error::other("the completion queue cannot be read"))
    }

    /// Destroys it: once this has returned without an error, no work request is in flight, neither its own nor its
    /// peer's, and none will be. After an error it is unchanged.
    pub(super) fn destroy(mut self) -> Result<(), (Self, io::Error)> {
        self.try_destroy().map_err(|cause| (self, cause))
    }

    fn try_destroy(&mut self) -> io::Result<()> {
        // SAFETY: made by `new`, and not destroyed so far: nothing is done here once `is_destroyed` is set.
        check(unsafe { (self.pd.context().library().functions().destroy_qp)(self.raw.as_ptr()) })?;
        self.is_destroyed = true;
        Ok(())
    }

    /// For a function of the library that only tests call.
    #[cfg(all(test, feature = "device-tests"))]
    pub(super) fn as_ptr(&self) -> *mut sys::QueuePair {
        self.raw.as_ptr()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.is_destroyed {
            // A caller that needs the outcome calls `destroy`.
            self.try_destroy().ok();
        }
    }
}
