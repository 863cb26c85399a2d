//! TCP connections of a program, from the descriptors of its processes and the tables of its network namespace.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;

use sources::sockets::{Connections, counter, sockets};

use super::candidates::add_sockets;
use super::measures::{Measure, Values};

/// A program with more sockets is measured without its connections.
const MAX_SOCKETS: usize = 65_536;
/// Most bytes of a table of the kernel: 150 for each connection of the namespace. Of a larger one nothing is reported.
const MAX_BYTES: u64 = 32 << 20;

/// Reads connections. Keeps its buffers.
#[derive(Default)]
pub struct ConnectionReader {
    text: Vec<u8>,
    inodes: BTreeSet<u64>,
}

impl ConnectionReader {
    /// The connections of processes `pids`, which share the network namespace of the first. `None` if they cannot be
    /// read, or there are too many.
    pub fn connections(&mut self, pids: impl Iterator<Item = u32>) -> Option<Connections> {
        self.inodes.clear();
        let mut first = None;
        for pid in pids {
            first = first.or(Some(pid));
            add_sockets(pid, MAX_SOCKETS, &mut self.inodes)?;
        }
        let mut connections = Connections::default();
        for table in ["tcp", "tcp6"] {
            // A kernel without IPv6 has no second table.
            let read = self.read(first?, table);
            if read.is_none() && table == "tcp" {
                return None;
            }
            let own = |socket: &sources::sockets::Socket| self.inodes.contains(&socket.inode);
            sockets(&self.text).filter(own).for_each(|socket| connections.add(&socket));
        }
        Some(connections)
    }

    /// Sets the TCP counters of the network namespace of process `pid`.
    pub fn count(&mut self, pid: u32, values: &mut Values) {
        for (file, protocol, name, measure) in [
            ("snmp", "Tcp", "RetransSegs", Measure::Retransmitted),
            ("snmp", "Tcp", "EstabResets", Measure::Resets),
            ("netstat", "TcpExt", "ListenDrops", Measure::ListenDrops),
        ] {
            if self.read(pid, file).is_some()
                && let Some(value) = counter(&self.text, protocol, name)
            {
                values.set(measure, value);
            }
        }
    }

    /// Reads a file of the namespace into the buffer, which is empty if that fails.
    fn read(&mut self, pid: u32, file: &str) -> Option<()> {
        self.text.clear();
        let opened = File::open(format!("/proc/{pid}/net/{file}")).ok()?;
        let read = opened.take(MAX_BYTES).read_to_end(&mut self.text);
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
