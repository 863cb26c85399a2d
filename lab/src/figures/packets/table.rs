//! The peer of a fridge: round-trip times of TCP data by a hash table, in a plain loop over a capture file.
//!
//! # Source
//! pping (K. Nichols, Pollere) keeps each timestamp value of a flow until it is echoed. Generated segments have no
//! timestamps: here it is each expected acknowledgement until it comes, as a fridge of `Pair::Data` has it. What waits
//! for longer than [`MAX_AGE_NS`] is thrown away.

use std::collections::HashMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Result, anyhow};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::traits::PcapReaderIterator as _;
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError};

/// Read buffer in bytes, as the reader of `packets` has it.
const BUFFER: usize = 1 << 20;
/// The maximum age of what is pending, and the time between two cleanings.
const MAX_AGE_NS: u64 = 1_000_000_000;

/// An end of a connection.
type End = (IpAddr, u16);

/// An acknowledgement that is expected: who sent the data, who is to acknowledge it, and the number.
type Expected = (End, End, u32);

/// Round-trip times of TCP data, and what is still pending.
#[derive(Debug, Default)]
pub struct RoundTrips {
    pending: HashMap<Expected, u64>,
    /// Each delay in nanoseconds, in the order of acknowledgements.
    pub delays_ns: Vec<u64>,
    /// Frames that were read.
    pub frames: u64,
    next_cleaning_ns: u64,
}

impl RoundTrips {
    /// Reads a pcap file of Ethernet frames with nanoseconds.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn of(path: &Path) -> Result<Self> {
        let mut trips = Self::default();
        each_frame(path, |time_ns, frame| trips.insert(time_ns, frame))?;
        Ok(trips)
    }

    /// Bytes of the table, for keys and times alone.
    pub fn table_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<(Expected, u64)>()
    }

    /// The quantile `share` of all delays, in nanoseconds.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let mut sorted = self.delays_ns.clone();
        sorted.sort_unstable();
        sorted.get((sorted.len() as f64 * share) as usize).copied()
    }

    fn insert(&mut self, time_ns: u64, frame: &[u8]) {
        self.frames += 1;
        if time_ns >= self.next_cleaning_ns {
            self.pending.retain(|_, sent_ns| time_ns.saturating_sub(*sent_ns) < MAX_AGE_NS);
            self.next_cleaning_ns = time_ns + MAX_AGE_NS;
        }
        // Frames are cut off, which only the lax parser accepts.
        let Ok(packet) = LaxSlicedPacket::from_ethernet(frame) else { return };
        let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { return };
        let (from, to, length): (IpAddr, IpAddr, _) = match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), header.payload_len().unwrap_or(0))
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), header.payload_length())
            }
            _ => return,
        };
        if tcp.rst() {
            return;
        }
        let (from, to) = ((from, tcp.source_port()), (to, tcp.destination_port()));
        if tcp.ack()
            && let Some(sent_ns) = self.pending.remove(&(to, from, tcp.acknowledgment_number()))
        {
            self.delays_ns.push(time_ns.saturating_sub(sent_ns));
        }
        let payload = u32::from(length).saturating_sub(u32::from(tcp.data_offset()) * 4);
        if payload > 0 {
            let marks = u32::from(tcp.syn()) + u32::from(tcp.fin());
            let end = tcp.sequence_number().wrapping_add(payload).wrapping_add(marks);
            self.pending.entry((from, to, end)).or_insert(time_ns);
        }
    }
}

/// Passes time and bytes of each frame of a pcap file with nanoseconds, in a plain loop.
///
/// # Errors
///
/// The file cannot be read.
pub fn each_frame(path: &Path, mut take: impl FnMut(u64, &[u8])) -> Result<()> {
    let mut reader = LegacyPcapReader::new(BUFFER, File::open(path)?).map_err(|error| refused(&error))?;
    loop {
        match reader.next() {
            Ok((bytes, block)) => {
                if let PcapBlockOwned::Legacy(packet) = block {
                    let time_ns = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_usec);
                    take(time_ns, packet.data);
                }
                reader.consume_noshift(bytes);
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => reader.refill().map_err(|error| refused(&error))?,
            Err(error) => return Err(refused(&error)),
        }
    }
}

fn refused(error: &PcapError<&[u8]>) -> anyhow::Error {
    anyhow!("the capture cannot be read: {error:?}")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use etherparse::{PacketBuilder, TcpHeader};

    use super::*;

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [10, 0, 0, 2];

    fn segment((from, to): ([u8; 4], [u8; 4]), header: TcpHeader, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        ethernet.ipv4(from, to, 64).tcp_header(header).write(&mut bytes, payload).expect("a segment fits");
        bytes.truncate(96);
        bytes
    }

    #[test]
    fn data_is_matched_with_the_acknowledgement_of_its_last_byte() {
        let mut trips = RoundTrips::default();
        let data = TcpHeader { source_port: 1, destination_port: 2, sequence_number: u32::MAX, ..TcpHeader::default() };
        let answer = |acknowledgment_number| TcpHeader {
            source_port: 2,
            destination_port: 1,
            ack: true,
            acknowledgment_number,
            ..TcpHeader::default()
        };

        trips.insert(5, &segment((CLIENT, SERVER), data, &[0; 1_000]));
        trips.insert(7, &segment((SERVER, CLIENT), answer(998), b""));
        trips.insert(9, &segment((SERVER, CLIENT), answer(999), b""));
        trips.insert(11, &segment((SERVER, CLIENT), answer(999), b""));

        assert_eq!((trips.delays_ns, trips.frames), (vec![4], 4));
    }

    #[test]
    fn what_is_never_acknowledged_is_thrown_away() {
        let mut trips = RoundTrips::default();
        let end = |address: [u8; 4]| (IpAddr::V4(Ipv4Addr::from(address)), 1);
        trips.pending.insert((end(CLIENT), end(SERVER), 1), 3);

        trips.insert(3 + MAX_AGE_NS, b"");

        assert!(trips.pending.is_empty());
    }
}
