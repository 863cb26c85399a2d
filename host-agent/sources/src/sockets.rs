//! Connections and TCP counters of a network namespace: /proc/PID/net/tcp, tcp6, snmp and netstat.
//!
//! Source: proc_net(5), Documentation/networking/proc_net_tcp.rst and snmp_counter.rst of the kernel.

use crate::fields::{fields, hexadecimal, lines, number};

/// Columns of `tcp` that are read: state, queues, inode.
const STATE: usize = 3;
const QUEUES: usize = 4;
const INODE: usize = 9;

/// One line of `tcp` or `tcp6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The kernel's number of the state, from `include/net/tcp_states.h`.
    pub state: u8,
    /// Bytes sent that the peer has not acknowledged. Of a listening socket: the length of its queue's limit.
    pub send_queue: u64,
    /// Bytes received that the program has not read. Of a listening socket: connections that wait to be accepted.
    pub receive_queue: u64,
    /// Names the socket among a process's descriptors; 0 once no process has it open.
    pub inode: u64,
}

/// TCP connections of a program, and what waits in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Open in both directions.
    pub established: u64,
    /// Closed by the peer and not yet by the program.
    pub close_wait: u64,
    /// Being opened or closed.
    pub other: u64,
    /// Connections that wait to be accepted.
    pub unaccepted: u64,
    /// Bytes received and not read by the program.
    pub unread_bytes: u64,
    /// Bytes sent and not acknowledged by peers.
    pub unacknowledged_bytes: u64,
}

impl Connections {
    const ESTABLISHED: u8 = 1;
    const CLOSE_WAIT: u8 = 8;
    const LISTEN: u8 = 10;

    /// Adds one socket.
    pub fn add(&mut self, socket: &Socket) {
        if socket.state == Self::LISTEN {
            self.unaccepted = self.unaccepted.saturating_add(socket.receive_queue);
            return;
        }
        match socket.state {
            Self::ESTABLISHED => self.established += 1,
            Self::CLOSE_WAIT => self.close_wait += 1,
            _ => self.other += 1,
        }
        self.unread_bytes = self.unread_bytes.saturating_add(socket.receive_queue);
        self.unacknowledged_bytes = self.unacknowledged_bytes.saturating_add(socket.send_queue);
    }
}

/// The sockets of a text of `tcp` or `tcp6`. Lines that the kernel does not write, and the title, are left out.
pub fn sockets(text: &[u8]) -> impl Iterator<Item = Socket> {
    lines(text).filter_map(|line| {
        let mut fields = fields(line);
        let state = fields.nth(STATE)?;
        let queues = fields.nth(QUEUES - STATE - 1)?;
        let inode = fields.nth(INODE - QUEUES - 1)?;
        let colon = queues.iter().position(|byte| *byte == b':')?;
        Some(Socket {
            state: u8::try_from(hexadecimal(state)?).ok()?,
            send_queue: hexadecimal(queues.get(..colon)?)?,
            receive_queue: hexadecimal(queues.get(colon + 1..)?)?,
            inode: number(inode)?,
        })
    })
}

/// The inode of a socket from the target of a link in /proc/PID/fd, such as `socket:[1234]`.
#[must_use]
pub fn inode(link: &[u8]) -> Option<u64> {
    number(link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?)
}

/// The counter `name` of the protocol `protocol` in a text of `snmp` or `netstat`: a line of names, then one of values.
/// `None` if the kernel does not report it. Negative values, which some constants have, are none either.
#[must_use]
pub fn counter(text: &[u8], protocol: &str, name: &str) -> Option<u64> {
    let mut of_protocol = lines(text).filter_map(|line| {
        let rest = line.strip_prefix(protocol.as_bytes())?;
        rest.strip_prefix(b":")
    });
    let (names, values) = (of_protocol.next()?, of_protocol.next()?);
    let (_, value) = fields(names).zip(fields(values)).find(|(found, _)| *found == name.as_bytes())?;
    number(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TCP: &[u8] = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        \x20  0: 0100007F:18EB 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 5501 1 0000000000000000 100 0 0 10 0\n\
        \x20  1: 0100007F:18EB 0100007F:A3C2 01 0000000A:00001000 00:00000000 00000000     0        0 5502 1 0000000000000000 20 4 30 10 -1\n\
        \x20  2: 0100007F:18EB 0100007F:A3C4 08 00000000:00000001 00:00000000 00000000     0        0 5503 1 0000000000000000 20 4 30 10 -1\n\
        \x20  3: 0100007F:18EB 0100007F:A3C6 06 00000000:00000000 03:000017A5 00000000     0        0 0 3 0000000000000000\n";

    const SNMP: &[u8] = b"Ip: Forwarding DefaultTTL\nIp: 1 64\n\
        Tcp: RtoAlgorithm MaxConn ActiveOpens RetransSegs\nTcp: 1 -1 77 12\nUdp: InDatagrams\nUdp: 5\n";

    #[test]
    fn sockets_are_counted_by_state_with_what_waits_in_them() {
        let mut connections = Connections::default();
        sockets(TCP).filter(|socket| socket.inode != 0).for_each(|socket| connections.add(&socket));

        let expected = Connections {
            established: 1,
            close_wait: 1,
            other: 0,
            unaccepted: 3,
            unread_bytes: 4097,
            unacknowledged_bytes: 10,
        };
        assert_eq!(connections, expected);
        assert_eq!(sockets(TCP).count(), 4, "the title is no socket");
    }

    #[test]
    fn counters_are_found_by_protocol_and_name() {
        assert_eq!(counter(SNMP, "Tcp", "RetransSegs"), Some(12));
        assert_eq!(counter(SNMP, "Tcp", "MaxConn"), None, "a negative value is no count");
        assert_eq!(counter(SNMP, "Tcp", "InDatagrams"), None);
        assert_eq!(counter(SNMP, "TcpExt", "ListenDrops"), None);
    }

    #[test]
    fn sockets_of_this_system_are_parsed_as_by_procfs() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let procfs = procfs::process::Process::myself().unwrap().tcp().unwrap();
        let same = procfs.iter().find(|entry| entry.local_address.port() == port).unwrap();

        let text = std::fs::read("/proc/self/net/tcp").unwrap();

        let found = sockets(&text).find(|socket| socket.inode == same.inode).unwrap();
        assert_eq!(found.state, Connections::LISTEN);
    }

    #[test]
    fn only_sockets_have_an_inode_here() {
        assert_eq!(inode(b"socket:[5501]"), Some(5501));
        for other in [&b"pipe:[5501]"[..], b"/dev/null", b"socket:[", b"socket:[]", b"socket:[x]"] {
            assert_eq!(inode(other), None, "{}", other.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_sockets_or_nothing(text: Vec<u8>) {
            let mut connections = Connections::default();
            sockets(&text).for_each(|socket| connections.add(&socket));
            let _ = (counter(&text, "Tcp", "RetransSegs"), inode(&text));
        }
    }
}
