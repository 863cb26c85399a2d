//! TCP connections of a program, from the descriptors of its processes and the tables of its network namespace.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;

use sources::sockets::{Connections, counter, sockets};
use wire::time::Nanos;

use super::candidates::add_sockets;
use super::measures::{Measure, Values};

/// A program with more sockets is measured without its connections.
const MAX_SOCKETS: usize = 65_536;
/// Most bytes of a table of the kernel: 150 for each connection of the namespace. Of a larger one nothing is reported.
const MAX_BYTES: u64 = 32 << 20;

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
    /// The connections of processes `pids`, which share the network namespace of the first. `None` if they cannot be
    /// read, or there are too many.
    pub fn connections(&mut self, pids: impl Iterator<Item = u32>) -> Option<Connections> {
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
        let mut connections = Connections::default();
        for table in ["tcp", "tcp6"] {
            // A kernel without IPv6 has no second table.
            let read = self.read(first?, table);
            self.bytes += TABLE_BYTES;
            if read.is_none() && table == "tcp" {
                return None;
            }
            let own = |socket: &sources::sockets::Socket| self.inodes.contains(&socket.inode);
            sockets(&self.text).filter(own).for_each(|socket| connections.add(&socket));
        }
        Some(connections)
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
    fn a_reading_is_followed_by_a_pause_in_proportion_to_its_bytes() {
        let mut reader = ConnectionReader::default();
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        reader.connections(core::iter::once(std::process::id())).unwrap();
        // This process has a socket, so that tables were read.
        assert!(reader.bytes() >= TABLE_BYTES, "{}", reader.bytes());

        reader.bytes = 10 * BYTES_PER_S;

        assert_eq!(reader.pause(), Nanos::from_secs(10));
    }
}
