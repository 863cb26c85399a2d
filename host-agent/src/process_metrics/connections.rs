//! TCP connections of a program, from the descriptors of its processes and the sockets of its network namespace: by
//! netlink in this process's own, else from the tables in /proc, which have a line for each connection that is over and
//! waits (TIME_WAIT), too. Of those a busy server has tens of thousands.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};

use rustix::fd::OwnedFd;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use sources::socket_diag::{self, AddressFamily, Message};
use sources::sockets::{Connections, Socket, counter, sockets};
use wire::time::Nanos;

use super::candidates::add_sockets;
use super::measures::{Measure, Values};

/// A program with more sockets is measured without its connections.
const MAX_SOCKETS: usize = 65_536;
/// Most bytes of a table of the kernel: 150 for each connection of the namespace. Of a larger one nothing is reported.
const MAX_BYTES: u64 = 32 << 20;

/// Bytes of what the kernel sends at once by netlink: it fills at most so much.
const MESSAGE: usize = 32 << 10;

/// Bytes of tables that are read per second, on average: two to three percent of a core (`benches/connections.rs`).
const BYTES_PER_S: u64 = 1 << 20;
/// Reading a table costs as much as so many bytes, however few connections it has: the kernel looks through all of its
/// hash table.
const TABLE_BYTES: u64 = 160 << 10;
/// Reading the link of a descriptor costs as much as a line of a table.
const LINK_BYTES: u64 = 150;

/// Reads connections. Keeps its buffers.
#[derive(Default)]
pub struct ConnectionReader {
    text: Vec<u8>,
    inodes: BTreeSet<u64>,
    /// What the last reading cost.
    bytes: u64,
}

impl ConnectionReader {
    /// The connections of processes `pids`, which share the network namespace of the first; `same_network`: it is known
    /// to be that of this process. `None` if they cannot be read, or there are too many.
    pub fn connections(&mut self, pids: impl Iterator<Item = u32>, same_network: bool) -> Option<Connections> {
        self.inodes.clear();
        self.bytes = 0;
        let mut first = None;
        for pid in pids {
            first = first.or(Some(pid));
            let mut links = 0;
            let added = add_sockets(pid, MAX_SOCKETS, &mut self.inodes, &mut links);
            self.bytes += links * LINK_BYTES;
            added?;
        }
        // Without a socket there is nothing to look for.
        if self.inodes.is_empty() {
            return first.map(|_| Connections::default());
        }
        // Without `tcp_diag`, or where netlink is forbidden, the tables say it.
        if same_network && let Ok(connections) = self.by_netlink() {
            return Some(connections);
        }
        let mut connections = Connections::default();
        for table in ["tcp", "tcp6"] {
            // A kernel without IPv6 has no second table.
            let read = self.read(first?, table);
            self.bytes += TABLE_BYTES;
            if read.is_none() && table == "tcp" {
                return None;
            }
            let own = |socket: &Socket| self.inodes.contains(&socket.inode);
            sockets(&self.text).filter(own).for_each(|socket| connections.add(&socket));
        }
        Some(connections)
    }

    /// The connections among the sockets of this process's network namespace.
    fn by_netlink(&mut self) -> io::Result<Connections> {
        let mut connections = Connections::default();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            self.bytes += TABLE_BYTES;
            let before = connections;
            match self.dump(family, &mut connections) {
                // A kernel without IPv6. Half of an answer does not count.
                Err(_) if family == AddressFamily::Inet6 => connections = before,
                done => done?,
            }
        }
        Ok(connections)
    }

    /// Adds those of one family.
    fn dump(&mut self, family: AddressFamily, connections: &mut Connections) -> io::Result<()> {
        let of = (net::AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC);
        let kernel: OwnedFd = net::socket_with(of.0, of.1, of.2, Some(netlink::SOCK_DIAG))?;
        net::send(&kernel, &socket_diag::request(family), SendFlags::empty())?;
        self.text.clear();
        self.text.resize(MESSAGE, 0);
        loop {
            // The kernel has filled the next message when it is asked for it.
            let (_, length) = net::recv(&kernel, &mut self.text[..], RecvFlags::DONTWAIT)?;
            self.bytes += length as u64;
            for message in socket_diag::messages(self.text.get(..length).unwrap_or_default()) {
                match message {
                    Message::Socket(socket) if self.inodes.contains(&socket.inode) => connections.add(&socket),
                    Message::Socket(_) => {}
                    Message::Done => return Ok(()),
                    Message::Refused(number) => return Err(io::Error::from_raw_os_error(number)),
                    Message::Unknown => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
    }

    /// What the last reading cost, in bytes of text.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long not to read again, so that the average stays below [`BYTES_PER_S`].
    pub fn pause(&self) -> Nanos {
        Nanos(self.bytes.saturating_mul(1_000_000_000) / BYTES_PER_S)
    }

    /// Sets the TCP counters of the network namespace of process `pid`.
    pub fn count(&mut self, pid: u32, values: &mut Values) {
        let of_tcp = [("RetransSegs", Measure::Retransmitted), ("EstabResets", Measure::Resets)];
        let of_extensions = [("ListenDrops", Measure::ListenDrops)];
        for (file, protocol, counters) in [("snmp", "Tcp", &of_tcp[..]), ("netstat", "TcpExt", &of_extensions[..])] {
            // The buffer is empty if that fails.
            let _ = self.read(pid, file);
            for (name, measure) in counters {
                if let Some(value) = counter(&self.text, protocol, name) {
                    values.set(*measure, value);
                }
            }
        }
    }

    /// Reads a file of the namespace into the buffer, which is empty if that fails.
    fn read(&mut self, pid: u32, file: &str) -> Option<()> {
        self.text.clear();
        let opened = File::open(format!("/proc/{pid}/net/{file}")).ok()?;
        let read = opened.take(MAX_BYTES).read_to_end(&mut self.text);
        self.bytes += self.text.len() as u64;
        if read.is_ok_and(|bytes| (bytes as u64) < MAX_BYTES) {
            return Some(());
        }
        self.text.clear();
        None
    }
}

/// Sets the values of connections.
pub fn set(connections: &Connections, values: &mut Values) {
    values.set(Measure::Established, connections.established);
    values.set(Measure::CloseWait, connections.close_wait);
    values.set(Measure::OtherConnections, connections.other);
    values.set(Measure::Unaccepted, connections.unaccepted);
    values.set(Measure::Unread, connections.unread_bytes);
    values.set(Measure::Unacknowledged, connections.unacknowledged_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_says_the_same_as_the_tables_and_costs_nothing_for_connections_that_are_over() {
        let mut reader = ConnectionReader::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (client, server) = (std::net::TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
        let _waits = std::net::TcpStream::connect(address).unwrap();
        let unread = std::io::Write::write(&mut &client, &[0; 77]).unwrap();
        let mut read =
            |same| reader.connections(core::iter::once(std::process::id()), same).map(|of| (of, reader.bytes()));
        // Other tests of this process may open and close connections in between.
        let same = (0..1_000).find_map(|_| {
            let (by_netlink, by_tables) = (read(true)?.0, read(false)?.0);
            (by_netlink == by_tables).then_some(by_netlink)
        });
        let said = same.expect("both say the same");
        assert!(said.unread_bytes >= unread as u64 && said.unaccepted >= 1, "{said:?}");
        let before = read(true).unwrap().1;

        // Whoever closes first leaves a connection that is over and waits.
        drop((client, server));
        for _ in 0..1_000 {
            let client = std::net::TcpStream::connect(address).unwrap();
            drop((client, listener.accept().unwrap()));
        }

        let (netlink, tables) = (read(true).unwrap().1, read(false).unwrap().1);
        assert!(netlink < before + 10_000, "{netlink}, {before} before");
        assert!(tables > netlink + 100_000, "{tables} by the tables, {netlink} by netlink");
    }

    #[test]
    fn a_reading_is_followed_by_a_pause_in_proportion_to_its_bytes() {
        let mut reader = ConnectionReader::default();
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        reader.connections(core::iter::once(std::process::id()), true).unwrap();
        // This process has a socket, so that tables were read.
        assert!(reader.bytes() >= TABLE_BYTES, "{}", reader.bytes());

        reader.bytes = 10 * BYTES_PER_S;

        assert_eq!(reader.pause(), Nanos::from_secs(10));
    }
}
