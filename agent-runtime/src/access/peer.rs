//! Credentials of the peer of a Unix socket, as the kernel recorded them at `connect`.
#![expect(
    unsafe_code,
    reason = "no safe wrapper reads SO_PEERGROUPS and SO_PEERPIDFD, and those of SO_PEERCRED take process 0, which is a \
              peer of another pid namespace, for impossible"
)]

use core::mem::size_of;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

/// Most groups of one process that are read: the kernel's limit (NGROUPS_MAX).
const MAX_GROUPS: usize = 65_536;

/// Process, user and groups at the other end of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process id; `None` if the process is in another pid namespace that is not visible here.
    pub pid: Option<u32>,
    /// The effective user id.
    pub uid: u32,
    /// The effective group id, then the supplementary ones.
    pub groups: Vec<u32>,
}

/// The credentials of the peer of `socket` (SO_PEERCRED, SO_PEERGROUPS).
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
    let mut groups = vec![who.gid];
    groups.extend(supplementary_groups(&socket)?);
    Ok(Peer { pid: u32::try_from(who.pid).ok().filter(|pid| *pid != 0), uid: who.uid, groups })
}

/// SO_PEERGROUPS. Empty on a kernel before 4.13.
fn supplementary_groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 32];
    loop {
        let mut length = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: `groups` has `length` bytes, may hold any numbers, and both outlive the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<libc::gid_t>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ERANGE) if count > groups.len() && count <= MAX_GROUPS => groups.resize(count, 0),
            Some(libc::ENOPROTOOPT) => return Ok(Vec::new()),
            _ => return Err(error),
        }
    }
}

/// A descriptor of the process at the other end of `socket` (SO_PEERPIDFD): it names that process for ever, while its
/// number may be reused. `None` on a kernel before 6.5.
///
/// # Errors
///
/// The process is gone, or `socket` is not a connected Unix socket.
pub fn peer_process(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut descriptor: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `descriptor` has `length` bytes, may hold any number, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOPROTOOPT) { Ok(None) } else { Err(error) };
    }
    if descriptor < 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else has its number.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }))
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
        assert_eq!(peer.uid, nix::unistd::geteuid().as_raw());
        assert_eq!(peer.groups.first(), Some(&nix::unistd::getegid().as_raw()));
        let mut groups = peer.groups[1..].to_vec();
        let mut own: Vec<u32> = nix::unistd::getgroups().unwrap().into_iter().map(nix::unistd::Gid::as_raw).collect();
        groups.sort_unstable();
        own.sort_unstable();
        assert_eq!(groups, own);
    }

    #[test]
    fn something_else_has_no_peer_that_the_kernel_knows() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();

        assert!(peer(&socket).is_ok_and(|peer| peer.pid.is_none()) || peer(&socket).is_err());
        assert!(!matches!(peer_process(&socket), Ok(Some(_))));
    }
}
