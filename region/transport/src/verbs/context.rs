//! Lists, opens and queries devices. A device is closed when nothing that was created on it is left.
#![expect(unsafe_code, reason = "calls of a C library")]

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::library::Library;
use super::sys;

/// Checks a return code of the library: 0, an error number, or -1 with `errno`.
pub(super) fn check(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        1.. => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks a pointer that the library returns for a new object: null means an error in `errno`.
pub(super) fn non_null<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// The devices of this machine that the library has a driver for.
#[derive(Debug)]
pub(super) struct DeviceList {
    library: Library,
    raw: NonNull<*mut sys::Device>,
    count: usize,
}

impl DeviceList {
    /// The devices that are present now. ENOSYS means that the kernel's modules are not loaded.
    pub(super) fn get(library: &Library) -> io::Result<Self> {
        let mut count: c_int = 0;
        // SAFETY: the argument is a place for a number.
        let raw = unsafe { (library.functions().get_device_list)(&raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Self { library: library.clone(), raw: non_null(raw)?, count })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn device(&self, index: usize) -> *mut sys::Device {
        assert!(index < self.count, "the list has {} devices", self.count);
        // SAFETY: inside the list, which has `count` entries.
        let entry = unsafe { self.raw.add(index) };
        // SAFETY: an entry of a list that is freed by `drop` only.
        unsafe { entry.read() }
    }

    /// The name of a device of the list, as `rdma link` shows it.
    pub(super) fn name(&self, index: usize) -> String {
        // SAFETY: the device belongs to a list that has not been freed.
        let name = unsafe { (self.library.functions().get_device_name)(self.device(index)) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: the library's names end with a zero and live as long as the list.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    pub(super) fn open(&self, index: usize) -> io::Result<Context> {
        // SAFETY: the device belongs to a list that has not been freed.
        let raw = unsafe { (self.library.functions().open_device)(self.device(index)) };
        let raw = non_null(raw)?;
        // SAFETY: an open device has a descriptor for events, written before it is handed out.
        let events = unsafe { (*raw.as_ptr()).event_fd };
        let takes_events = events >= 0 && never_waits(events).is_ok();
        Ok(Context { library: self.library.clone(), raw, takes_events })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: got by `get`, freed once; an open device lives on without it.
        unsafe { (self.library.functions().free_device_list)(self.raw.as_ptr()) };
    }
}

/// Makes reading from an open device's descriptor return at once.
fn never_waits(fd: c_int) -> io::Result<()> {
    // SAFETY: it belongs to a device that is open, and is not kept.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// An open device.
#[derive(Debug)]
pub(super) struct Context {
    library: Library,
    raw: NonNull<sys::Context>,
    /// Whether reading events returns at once.
    takes_events: bool,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: the library locks what threads share.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn library(&self) -> &Library {
        &self.library
    }

    pub(super) fn as_ptr(&self) -> *mut sys::Context {
        self.raw.as_ptr()
    }

    /// The limits of the device.
    pub(super) fn attributes(&self) -> io::Result<sys::DeviceAttributes> {
        let mut found = MaybeUninit::zeroed();
        // SAFETY: the device is open, and the place is large enough for what the library writes there.
        check(unsafe { (self.library.functions().query_device)(self.as_ptr(), found.as_mut_ptr()) })?;
        // SAFETY: zeros are a value of this struct of numbers, whatever the library wrote over them.
        Ok(unsafe { found.assume_init() })
    }

    /// The state of one of its ports, which are numbered from 1.
    pub(super) fn port(&self, port: u8) -> io::Result<sys::PortAttributes> {
        let mut found = sys::PortAttributes::default();
        // SAFETY: as for `attributes`; the function writes 48 bytes.
        check(unsafe { (self.library.functions().query_port)(self.as_ptr(), port, &raw mut found) })?;
        Ok(found)
    }

    /// One of a port's addresses; an error if the entry is empty.
    pub(super) fn gid(&self, port: u8, index: u32) -> io::Result<sys::GidEntry> {
        let mut found = sys::GidEntry::default();
        let (place, size) = (&raw mut found, size_of::<sys::GidEntry>());
        // SAFETY: as for `attributes`; the function writes no more than the size that it is given.
        check(unsafe { (self.library.functions().query_gid)(self.as_ptr(), port.into(), index, place, 0, size) })?;
        Ok(found)
    }

    /// Reads and drops all pending events, and returns their number. Completions carry more information, but the kernel
    /// queues each event until it is read.
    pub(super) fn drop_events(&self) -> usize {
        let mut event = sys::Event { element: null_mut(), kind: 0 };
        let functions = self.library.functions();
        let mut taken = 0;
        // SAFETY: the device is open, and the place is one for an event.
        while self.takes_events && unsafe { (functions.get_event)(self.as_ptr(), &raw mut event) } == 0 {
            // SAFETY: just taken, and acknowledged once.
            unsafe { (functions.ack_event)(&raw mut event) };
            taken += 1;
        }
        taken
    }

    /// The device's own functions for posting and polling.
    pub(super) fn operations(&self) -> io::Result<(sys::PostSend, sys::PollCq)> {
        // SAFETY: an open device's table is written before it is handed out and never changes.
        let table = unsafe { &raw const (*self.as_ptr()).operations };
        // SAFETY: as above; a copy of 32 pointers.
        let table = unsafe { table.read() };
        let (post, poll) = (table[sys::POST_SEND], table[sys::POLL_CQ]);
        if post.is_null() || poll.is_null() {
            return Err(io::Error::other("the device's driver has no function to post or to poll"));
        }
        // SAFETY: this entry of the table has this type.
        let post = unsafe { core::mem::transmute::<*mut core::ffi::c_void, sys::PostSend>(post) };
        // SAFETY: this entry of the table has this type.
        let poll = unsafe { core::mem::transmute::<*mut core::ffi::c_void, sys::PollCq>(poll) };
        Ok((post, poll))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A device that was unplugged may refuse; there is nothing left to give back then.
        // SAFETY: opened by `DeviceList::open`, closed once: whatever was made on it keeps it and is gone.
        let _code = unsafe { (self.library.functions().close_device)(self.raw.as_ptr()) };
    }
}
