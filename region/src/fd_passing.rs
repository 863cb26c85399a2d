//! Passes file descriptors over Unix sockets (`SCM_RIGHTS`).
//!
//! Works on any Unix stream socket, blocking or not (`WouldBlock` is passed on, so that an event loop can use it).

use core::mem::MaybeUninit;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Control buffer for one descriptor: no message carries more.
const ONE_DESCRIPTOR: usize = rustix::cmsg_space!(ScmRights(1));

/// Sends `bytes`, or a prefix of them, and `descriptor` with the first byte. Returns the number of bytes sent; send the
/// remaining bytes without the descriptor. Never raises SIGPIPE.
///
/// # Errors
///
/// `BrokenPipe` if the peer is gone, `WouldBlock` if the socket is non-blocking and full, or another error of
/// `sendmsg`.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); ONE_DESCRIPTOR];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(fits, "the buffer has room for one descriptor");
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes into `buffer` and appends at most one descriptor to `descriptors`; the caller removes them, so that
/// the list stays bounded. Returns the number of bytes; 0 means end of stream. Descriptors are close-on-exec; surplus
/// ones are closed at once.
///
/// One call never returns bytes from both before and after a descriptor: the descriptor belongs to the frame of the
/// first byte, or to a later frame that begins in the same call.
///
/// # Errors
///
/// `WouldBlock` if the socket is non-blocking and empty, or another error of `recvmsg`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); ONE_DESCRIPTOR];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut first = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            // Because of alignment the buffer holds two: dropping the second one closes it.
            came.for_each(|descriptor| _ = first.get_or_insert(descriptor));
        }
    }
    descriptors.extend(first);
    Ok(got.bytes)
}

#[cfg(test)]
#[cfg(not(miri))] // Sockets, which Miri does not have.
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::unix::net::UnixStream;

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    fn memory(text: &str) -> OwnedFd {
        let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file.into()
    }

    #[test]
    fn a_descriptor_comes_with_the_first_byte_and_is_closed_on_exec() {
        let (near, far) = UnixStream::pair().unwrap();
        let memory = memory("hello");

        assert_eq!(send(&near, b"abc", Some(memory.as_fd())).unwrap(), 3);
        let (mut buffer, mut descriptors) = ([0; 16], Vec::new());
        let got = receive(&far, &mut buffer, &mut descriptors).unwrap();

        assert_eq!(&buffer[..got], b"abc");
        let [passed] = <[OwnedFd; 1]>::try_from(descriptors).unwrap();
        assert!(fcntl_getfd(&passed).unwrap().contains(FdFlags::CLOEXEC));
        let mut text = String::new();
        File::from(passed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn surplus_descriptors_are_closed() {
        let (near, far) = UnixStream::pair().unwrap();
        let pipes: Vec<_> = (0..4).map(|_| io::pipe().unwrap()).collect();
        let writers: Vec<_> = pipes.iter().map(|(_, writer)| writer.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&writers)));
        sendmsg(&near, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).unwrap();

        let mut descriptors = Vec::new();
        receive(&far, &mut [0; 16], &mut descriptors).unwrap();

        assert_eq!(descriptors.len(), 1);
        let readers: Vec<_> = pipes.into_iter().map(|(reader, _)| reader).collect();
        for mut reader in readers.into_iter().skip(1) {
            assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0, "its last writer is gone");
        }
    }

    #[test]
    fn sending_to_nobody_is_an_error_and_no_signal() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);

        assert_eq!(send(&near, b"abc", None).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn the_end_is_no_bytes_and_an_empty_socket_would_block() {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();

        let error = receive(&far, &mut [0; 16], &mut Vec::new()).unwrap_err();
        drop(near);

        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(receive(&far, &mut [0; 16], &mut Vec::new()).unwrap(), 0);
    }
}
