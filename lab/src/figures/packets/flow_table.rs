//! The peer of all synopses: packets and bytes of each flow in one hash table, in a plain loop over a capture file.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};

use super::table::each_frame;

/// Both addresses, both ports, and whether it is TCP.
type Flow = (IpAddr, IpAddr, u16, u16, bool);

/// What a flow has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotal {
    /// Number of its packets.
    pub packets: u64,
    /// Bytes of them that were captured.
    pub bytes: u64,
}

/// All flows by their names.
#[derive(Debug, Default)]
pub struct FlowTable {
    /// What each has sent.
    pub flows: HashMap<Flow, FlowTotal>,
}

impl FlowTable {
    /// Reads a pcap file of Ethernet frames.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn of(path: &Path) -> Result<Self> {
        let mut table = Self::default();
        each_frame(path, |_, frame| table.insert(frame))?;
        Ok(table)
    }

    /// Bytes of the table, for flows and what they have sent alone.
    pub fn table_bytes(&self) -> usize {
        self.flows.capacity() * size_of::<(Flow, FlowTotal)>()
    }

    fn insert(&mut self, frame: &[u8]) {
        // Frames are cut off, which only the lax parser accepts.
        let Ok(packet) = LaxSlicedPacket::from_ethernet(frame) else { return };
        let (from, to): (IpAddr, IpAddr) = match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            Some(LaxNetSlice::Ipv6(ip)) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            _ => return,
        };
        let (source, destination, is_tcp) = match &packet.transport {
            Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port(), true),
            Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port(), false),
            _ => return,
        };
        let total = self.flows.entry((from, to, source, destination, is_tcp)).or_default();
        total.packets += 1;
        total.bytes += frame.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn packets_of_both_directions_are_of_two_flows() {
        let mut table = FlowTable::default();
        let frame = |ends: ([u8; 4], [u8; 4]), ports: (u16, u16)| {
            let mut bytes = Vec::new();
            let headers = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ends.0, ends.1, 64).udp(ports.0, ports.1);
            headers.write(&mut bytes, &[0; 200]).expect("a packet fits");
            bytes.truncate(96);
            bytes
        };
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);

        table.insert(&frame((client, server), (9, 53)));
        table.insert(&frame((client, server), (9, 53)));
        table.insert(&frame((server, client), (53, 9)));
        table.insert(b"no packet");

        let flow: Flow = (client.into(), server.into(), 9, 53, false);
        assert_eq!(table.flows.get(&flow), Some(&FlowTotal { packets: 2, bytes: 192 }));
        assert_eq!(table.flows.len(), 2);
    }
}
