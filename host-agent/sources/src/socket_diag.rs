//! The TCP sockets of this process's network namespace, as the kernel sends them by netlink (`NETLINK_SOCK_DIAG`): the
//! same as in /proc/net/tcp, but in a binary form, and without connections that are over and wait (TIME_WAIT), of which
//! a busy server has tens of thousands.
//!
//! Source: sock_diag(7), and `include/uapi/linux/inet_diag.h` of the kernel.

use crate::sockets::Socket;

/// Length of a netlink message's header: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// Length of a `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Length of a `struct inet_diag_msg`.
const REPLY: usize = 72;
/// Message type `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// Message types `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Flags `NLM_F_REQUEST | NLM_F_DUMP`: all sockets are asked for.
const ALL: u16 = 0x301;
const TCP: u8 = 6;
/// The state of connections that are over, and wait.
const TIME_WAIT: u32 = 6;

/// Which sockets are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AddressFamily {
    /// Sockets of IPv4.
    Inet = 2,
    /// Sockets of IPv6, which take connections by IPv4, too.
    Inet6 = 10,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// There is this socket.
    Socket(Socket),
    /// All were sent.
    Done,
    /// The kernel refuses, with this error number.
    Refused(i32),
    /// Something else, or a message that is cut off.
    Unknown,
}

/// The message that asks for all TCP sockets of a family, but for those in TIME_WAIT.
#[must_use]
pub fn request(family: AddressFamily) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &((HEADER + REQUEST) as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &ALL.to_ne_bytes());
    put(HEADER, &[family as u8, TCP]);
    put(HEADER + 4, &(!(1_u32 << TIME_WAIT)).to_ne_bytes());
    bytes
}

/// The messages of what the kernel has sent at once.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message> {
    core::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let length = word(bytes, 0).map_or(0, |length| length as usize);
        let Some(message) = bytes.get(..length).filter(|message| message.len() >= HEADER) else {
            bytes = &[];
            return Some(Message::Unknown);
        };
        // Messages begin at multiples of four bytes.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(read(message).unwrap_or(Message::Unknown))
    })
}

fn read(message: &[u8]) -> Option<Message> {
    let body = message.get(HEADER..)?;
    match message.get(4..6).map(|kind| [kind[0], kind[1]]).map(u16::from_ne_bytes)? {
        BY_FAMILY if body.len() >= REPLY => Some(Message::Socket(Socket {
            state: *body.get(1)?,
            receive_queue: u64::from(word(body, 56)?),
            send_queue: u64::from(word(body, 60)?),
            inode: u64::from(word(body, 68)?),
        })),
        DONE => Some(Message::Done),
        ERROR => Some(Message::Refused(word(body, 0)?.cast_signed().wrapping_neg())),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn sockets_are_read_until_the_kernel_is_done_whatever_attributes_follow() {
        let mut body = [0; REPLY + 8];
        body[1] = 1;
        body[56..60].copy_from_slice(&7_u32.to_ne_bytes());
        body[60..64].copy_from_slice(&9_u32.to_ne_bytes());
        body[68..72].copy_from_slice(&5502_u32.to_ne_bytes());
        let bytes = [message(BY_FAMILY, &body), message(BY_FAMILY, &body[..REPLY]), message(DONE, &[0; 4])].concat();

        let socket = Message::Socket(Socket { state: 1, send_queue: 9, receive_queue: 7, inode: 5502 });
        assert_eq!(messages(&bytes).collect::<Vec<_>>(), [socket, socket, Message::Done]);
    }

    #[test]
    fn what_is_cut_off_or_of_another_kind_is_unknown_and_ends() {
        let refused = message(ERROR, &(-2_i32).to_ne_bytes());
        assert_eq!(messages(&refused).collect::<Vec<_>>(), [Message::Refused(2)]);
        assert_eq!(messages(&message(99, &[0; 80])).collect::<Vec<_>>(), [Message::Unknown]);
        for length in 1..refused.len() {
            assert_eq!(messages(&refused[..length]).collect::<Vec<_>>(), [Message::Unknown], "{length}");
        }
        // A length of zero would be read for ever.
        assert_eq!(messages(&[0; 64]).collect::<Vec<_>>(), [Message::Unknown]);
    }
}
