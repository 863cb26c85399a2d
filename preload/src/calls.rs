//! Functions that take the place of libc's. Each calls libc's, passes its result on, and counts what it did.
//!
//! The promises that libc asks of its callers are asked here, too, and passed on. Memory of the caller is read only
//! after the call has succeeded: the kernel has then read or written it.
#![expect(unsafe_code, reason = "functions that the dynamic linker gives to programs by their names")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use libc::{FILE, iovec, msghdr, off_t, sa_family_t, size_t, sockaddr, socklen_t, ssize_t};
use turns::HEAD_BYTES;

use crate::connections::{accepted, before_sending, closing, closing_all, is_tracked, opened, received, sent};
use crate::process::{self, Errno};

/// Vectors of a call that are looked at for its first byte.
const VECTORS: usize = 8;
/// Flags of recv whose bytes are no data of the connection, or come again.
const NO_DATA: c_int = libc::MSG_PEEK | libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// A function of libc.
struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let at = self.at.load(Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    /// Before `main` only; later calls find it in place.
    #[cold]
    fn find(&self) -> *mut c_void {
        let at = process::next(self.name);
        self.at.store(at, Relaxed);
        at
    }
}

/// Calls the function of libc. One that libc lacks fails with ENOSYS: a program that calls it is for another libc.
macro_rules! next {
    ($next:ident, fn($($kind:ty),*) -> $result:ty, ($($argument:expr),*)) => {{
        let at = $next.get();
        if at.is_null() {
            process::set_errno(libc::ENOSYS);
            return -1;
        }
        // SAFETY: the function of that name has this type (its manual page).
        let function = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> $result>(at) };
        // SAFETY: what the function asks for, the caller has promised.
        unsafe { function($($argument),*) }
    }};
}

macro_rules! functions {
    ($($next:ident = $name:literal,)+) => {
        $(static $next: Next = Next::new($name);)+

        /// Looks all functions up. Whether they are all there.
        fn resolve() -> bool {
            // One that is missing does not keep the others from being found.
            [$(&$next),+].into_iter().filter(|next| next.find().is_null()).count() == 0
        }
    };
}

functions! {
    ACCEPT = c"accept",
    ACCEPT4 = c"accept4",
    CONNECT = c"connect",
    READ = c"read",
    READ_CHK = c"__read_chk",
    READV = c"readv",
    RECV = c"recv",
    RECV_CHK = c"__recv_chk",
    RECVFROM = c"recvfrom",
    RECVFROM_CHK = c"__recvfrom_chk",
    RECVMSG = c"recvmsg",
    WRITE = c"write",
    WRITEV = c"writev",
    SEND = c"send",
    SENDTO = c"sendto",
    SENDMSG = c"sendmsg",
    SENDFILE = c"sendfile",
    SENDFILE64 = c"sendfile64",
    CLOSE = c"close",
    CLOSE_RANGE = c"close_range",
    CLOSEFROM = c"closefrom",
    DUP2 = c"dup2",
    DUP3 = c"dup3",
    FCLOSE = c"fclose",
}

#[used]
// SAFETY: the dynamic loader calls what this section lists, without arguments that matter here.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs before `main`, in one thread.
extern "C" fn start() {
    process::start(resolve());
}

/// The first of `bytes` bytes at `buffer`, to which a call has just read or from which it has written that many.
unsafe fn head<'a>(buffer: *const c_void, bytes: ssize_t) -> &'a [u8] {
    let length = usize::try_from(bytes).unwrap_or(0).min(HEAD_BYTES);
    if buffer.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller of this function says so.
    unsafe { slice::from_raw_parts(buffer.cast(), length) }
}

/// The same, of the first of `count` vectors that is not empty.
unsafe fn first_head<'a>(vectors: *const iovec, count: usize, bytes: ssize_t) -> &'a [u8] {
    if vectors.is_null() {
        return &[];
    }
    // SAFETY: the call has read as many vectors.
    let vectors = unsafe { slice::from_raw_parts(vectors, count.min(VECTORS)) };
    let Some(first) = vectors.iter().find(|vector| vector.iov_len > 0) else { return &[] };
    // SAFETY: the call has read or written that many of its bytes.
    unsafe { head(first.iov_base, bytes.min(first.iov_len as ssize_t)) }
}

#[inline]
unsafe fn count_read(fd: c_int, buffer: *const c_void, got: ssize_t) {
    if got > 0 && is_tracked(fd) {
        // SAFETY: the call has written `got` bytes there.
        received(fd, got as u64, unsafe { head(buffer, got) });
    }
}

#[inline]
unsafe fn count_recv(fd: c_int, buffer: *const c_void, got: ssize_t, flags: c_int) {
    if flags & NO_DATA == 0 {
        let buffer = if flags & libc::MSG_TRUNC == 0 { buffer } else { ptr::null() };
        // SAFETY: the same; with MSG_TRUNC nothing may have been written, and nothing is looked at.
        unsafe { count_read(fd, buffer, got) };
    }
}

/// Counts an accept. Its `errno` is kept, since a thread may be started.
fn count_accept(fd: c_int) -> c_int {
    if fd >= 0 {
        let _errno = Errno::keep();
        accepted(fd);
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    count_accept(next!(ACCEPT, fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int, (fd, address, length)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    count_accept(next!(ACCEPT4, fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int, (fd, address, length, flags)))
}

/// Whether a socket's bytes are a stream. That of datagrams has no connection: its connect names a peer.
fn is_stream(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: pointers to a number and to its length.
    let status = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast::<c_void>(), &raw mut length)
    };
    status == 0 && kind == libc::SOCK_STREAM
}

/// Looks at a connect, which may go on after it has returned. Its `errno` is kept.
unsafe fn count_connect(fd: c_int, address: *const sockaddr, length: socklen_t, status: c_int) {
    let errno = Errno::keep();
    let begun = status == 0 || matches!(errno.value(), libc::EINPROGRESS | libc::EINTR);
    if !begun || address.is_null() || (length as usize) < size_of::<sa_family_t>() {
        return;
    }
    // SAFETY: the call has read it; the family comes first.
    let family = unsafe { address.cast::<sa_family_t>().read_unaligned() };
    if c_int::from(family) == libc::AF_UNSPEC {
        closing(fd); // It undoes the connection.
    } else if is_stream(fd) {
        opened(fd);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let status = next!(CONNECT, fn(c_int, *const sockaddr, socklen_t) -> c_int, (fd, address, length));
    // SAFETY: the call has read the address, if it has begun anything.
    unsafe { count_connect(fd, address, length, status) };
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
    let got = next!(READ, fn(c_int, *mut c_void, size_t) -> ssize_t, (fd, buffer, bytes));
    // SAFETY: the call has written `got` bytes there.
    unsafe { count_read(fd, buffer, got) };
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
    let got = next!(READ_CHK, fn(c_int, *mut c_void, size_t, size_t) -> ssize_t, (fd, buffer, bytes, room));
    // SAFETY: the call has written `got` bytes there.
    unsafe { count_read(fd, buffer, got) };
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let got = next!(READV, fn(c_int, *const iovec, c_int) -> ssize_t, (fd, vectors, count));
    if got > 0 && is_tracked(fd) {
        // SAFETY: the call has written `got` bytes to these vectors.
        received(fd, got as u64, unsafe { first_head(vectors, count as usize, got) });
    }
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    let got = next!(RECV, fn(c_int, *mut c_void, size_t, c_int) -> ssize_t, (fd, buffer, bytes, flags));
    // SAFETY: the call has written `got` bytes there.
    unsafe { count_recv(fd, buffer, got, flags) };
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t, flags: c_int) -> ssize_t {
    let got =
        next!(RECV_CHK, fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t, (fd, buffer, bytes, room, flags));
    // SAFETY: the call has written `got` bytes there.
    unsafe { count_recv(fd, buffer, got, flags) };
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    let got = next!(
        RECVFROM,
        fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
        (fd, buffer, bytes, flags, address, length)
    );
    // SAFETY: the call has written `got` bytes there.
    unsafe { count_recv(fd, buffer, got, flags) };
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    let got = next!(
        RECVFROM_CHK,
        fn(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
        (fd, buffer, bytes, room, flags, address, length)
    );
    // SAFETY: the call has written `got` bytes there.
    unsafe { count_recv(fd, buffer, got, flags) };
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let got = next!(RECVMSG, fn(c_int, *mut msghdr, c_int) -> ssize_t, (fd, message, flags));
    if got > 0 && flags & NO_DATA == 0 && is_tracked(fd) {
        // SAFETY: the call has read it.
        let message = unsafe { &*message };
        // SAFETY: the call has written `got` bytes to these vectors, or fewer with MSG_TRUNC, where none is looked at.
        let head = unsafe { first_head(message.msg_iov, message.msg_iovlen, got) };
        received(fd, got as u64, if flags & libc::MSG_TRUNC == 0 { head } else { &[] });
    }
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t {
    let began = before_sending(fd);
    let put = next!(WRITE, fn(c_int, *const c_void, size_t) -> ssize_t, (fd, buffer, bytes));
    if put > 0 && is_tracked(fd) {
        // SAFETY: the call has read `put` bytes there.
        sent(fd, began, put as u64, unsafe { head(buffer, put) });
    }
    put
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let began = before_sending(fd);
    let put = next!(WRITEV, fn(c_int, *const iovec, c_int) -> ssize_t, (fd, vectors, count));
    if put > 0 && is_tracked(fd) {
        // SAFETY: the call has read `put` bytes of these vectors.
        sent(fd, began, put as u64, unsafe { first_head(vectors, count as usize, put) });
    }
    put
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, buffer: *const c_void, bytes: size_t, flags: c_int) -> ssize_t {
    let began = before_sending(fd);
    let put = next!(SEND, fn(c_int, *const c_void, size_t, c_int) -> ssize_t, (fd, buffer, bytes, flags));
    if put > 0 && is_tracked(fd) {
        // SAFETY: the call has read `put` bytes there.
        sent(fd, began, put as u64, unsafe { head(buffer, put) });
    }
    put
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    bytes: size_t,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    let began = before_sending(fd);
    let put = next!(
        SENDTO,
        fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t,
        (fd, buffer, bytes, flags, address, length)
    );
    if put > 0 && is_tracked(fd) {
        // SAFETY: the call has read `put` bytes there.
        sent(fd, began, put as u64, unsafe { head(buffer, put) });
    }
    put
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let began = before_sending(fd);
    let put = next!(SENDMSG, fn(c_int, *const msghdr, c_int) -> ssize_t, (fd, message, flags));
    if put > 0 && is_tracked(fd) {
        // SAFETY: the call has read it.
        let message = unsafe { &*message };
        // SAFETY: the call has read `put` bytes of these vectors.
        let head = unsafe { first_head(message.msg_iov, message.msg_iovlen, put) };
        sent(fd, began, put as u64, head);
    }
    put
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t {
    let began = before_sending(to);
    let put = next!(SENDFILE, fn(c_int, c_int, *mut off_t, size_t) -> ssize_t, (to, from, offset, bytes));
    if put > 0 && is_tracked(to) {
        sent(to, began, put as u64, &[]);
    }
    put
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut i64, bytes: size_t) -> ssize_t {
    let began = before_sending(to);
    let put = next!(SENDFILE64, fn(c_int, c_int, *mut i64, size_t) -> ssize_t, (to, from, offset, bytes));
    if put > 0 && is_tracked(to) {
        sent(to, began, put as u64, &[]);
    }
    put
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    // Before the call: after it, another thread may accept a connection with the same descriptor.
    closing(fd);
    next!(CLOSE, fn(c_int) -> c_int, (fd))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        closing_all(first, last);
    }
    next!(CLOSE_RANGE, fn(c_uint, c_uint, c_int) -> c_int, (first, last, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    closing_all(u32::try_from(first).unwrap_or(0), u32::MAX);
    let at = CLOSEFROM.get();
    if at.is_null() {
        return;
    }
    // SAFETY: the function of that name has this type (its manual page).
    let function = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(at) };
    // SAFETY: any number may be passed.
    unsafe { function(first) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old != new {
        closing(new);
    }
    next!(DUP2, fn(c_int, c_int) -> c_int, (old, new))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old != new {
        closing(new);
    }
    next!(DUP3, fn(c_int, c_int, c_int) -> c_int, (old, new, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    let errno = Errno::keep();
    // SAFETY: an open file, as the caller has promised.
    closing(unsafe { libc::fileno(file) });
    drop(errno);
    next!(FCLOSE, fn(*mut FILE) -> c_int, (file))
}
