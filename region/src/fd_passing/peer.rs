//! Credentials of the peer of a Unix socket, as the kernel recorded them at `connect`.
#![expect(
    unsafe_code,
    reason = "the safe wrappers take process 0, which is a peer of another pid namespace, for impossible"
)]

use core::mem::size_of;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Process and user at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process id; `None` if the process is in another pid namespace that is not visible here.
    pub pid: Option<u32>,
    /// The effective user id.
    pub uid: u32,
}

/// The credentials of the peer of `socket` (SO_PEERCRED).
///
/// # Errors
///
/// The error of `getsockopt`: not a connected Unix socket.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` has `length` bytes, may hold any bytes, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: u32::try_from(who.pid).ok().filter(|pid| *pid != 0), uid: who.uid })
}

#[cfg(test)]
#[cfg(not(miri))] // Sockets, which Miri does not have.
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_kernel_tells_who_the_peer_is() {
        let (near, _far) = UnixStream::pair().unwrap();

        let peer = peer(&near).unwrap();

        assert_eq!(peer.pid, Some(std::process::id()));
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
    }

    #[test]
    fn something_else_has_no_peer_that_the_kernel_knows() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();

        assert!(peer(&socket).is_ok_and(|peer| peer.pid.is_none()) || peer(&socket).is_err());
    }
}
