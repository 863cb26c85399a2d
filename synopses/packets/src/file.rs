//! Capture files. Reads pcap and pcapng in either byte order, with micro- or nanoseconds. Writes pcap with nanoseconds.

use std::io::{self, Read, Write};

use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{Block, PcapBlockOwned, PcapError, PcapHeader, create_reader};

use crate::frame::{Frame, Link};
use crate::source::{Progress, Source, SourceCounts, SourceError};

/// Size of the read buffer in bytes, which is also the maximum size of a block.
const BUFFER: usize = 1 << 20;
/// Maximum number of frames per read.
const FRAMES: u64 = 4096;
/// Maximum number of interfaces in a file.
const MAX_INTERFACES: usize = 1 << 16;
/// First bytes of a pcapng file: the type of a section header block, the same in either byte order.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Minimum length of a pcapng block in bytes: its type, and its length at either end.
const MIN_BLOCK: u32 = 12;
/// Type of an interface description block.
const INTERFACE: u32 = 1;
const NANOS: u128 = 1_000_000_000;

/// Properties of the frames of one interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    number: u32,
    link: Option<Link>,
    /// Timestamp units per second.
    resolution: u64,
    /// Seconds to add to timestamps.
    offset: i64,
}

/// Reads a capture file from its beginning to its end, with a megabyte of memory.
pub struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    interfaces: Vec<Interface>,
    counts: SourceCounts,
    is_pcapng: bool,
    ended: bool,
}

impl core::fmt::Debug for Capture {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Capture").field("counts", &self.counts).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Capture {
    /// Opens a capture file and detects its format.
    ///
    /// # Errors
    ///
    /// [`SourceError::NoCapture`] if it is neither pcap nor pcapng.
    pub fn new(file: impl Read + Send + 'static) -> Result<Self, SourceError> {
        let reader = create_reader(BUFFER, FullReads(file)).map_err(|error| match error {
            PcapError::ReadError => SourceError::Io(io::Error::other("the file cannot be read")),
            _ => SourceError::NoCapture,
        })?;
        let is_pcapng = reader.data().starts_with(&SECTION_HEADER);
        Ok(Self { reader, interfaces: Vec::new(), counts: SourceCounts::default(), is_pcapng, ended: false })
    }

    /// Ends the capture, at its end or after an error.
    fn end(&mut self, outcome: Result<Progress, SourceError>) -> Result<Progress, SourceError> {
        self.ended = true;
        match (outcome, self.interfaces.first()) {
            // An error if no frame can be read. Otherwise frames with an unsupported link type are only counted.
            (Ok(_), Some(Interface { number, link: None, .. }))
                if self.counts.frames == 0 && self.counts.unknown_link > 0 =>
            {
                Err(SourceError::Link(*number))
            }
            (outcome, _) => outcome,
        }
    }

    fn corrupt(&self, why: &'static str) -> SourceError {
        SourceError::Corrupt { frames: self.counts.frames + self.counts.unknown_link, why }
    }
}

/// Whether the pcapng block at the beginning of `data` is shorter than any block can be. pcap-parser 0.17 subtracts
/// without a check there. A length that is so short in one byte order is beyond the buffer, or as short, in the other.
fn is_too_short(data: &[u8]) -> bool {
    let length = data.get(4..8).and_then(|bytes| bytes.try_into().ok());
    length.is_some_and(|bytes| u32::from_le_bytes(bytes).min(u32::from_be_bytes(bytes)) < MIN_BLOCK)
}

/// Fills the whole buffer with each read. Otherwise pcap-parser would take a short read from a pipe for the end.
struct FullReads<R>(R);

impl<R: Read> Read for FullReads<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Returns what was read before the error. The next read returns the error.
                Err(error) => return if filled > 0 { Ok(filled) } else { Err(error) },
            }
        }
        Ok(filled)
    }
}

impl Source for Capture {
    fn read(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Result<Progress, SourceError> {
        let before = self.counts.frames + self.counts.unknown_link;
        if self.ended {
            return Ok(Progress::End);
        }
        // Refills once per block, so that an incomplete block ends the loop.
        let mut refilled = false;
        loop {
            if self.is_pcapng && is_too_short(self.reader.data()) {
                let error = self.corrupt("a block is shorter than its own header");
                return self.end(Err(error));
            }
            match self.reader.next() {
                Ok((bytes, block)) => {
                    refilled = false;
                    let content = match &block {
                        PcapBlockOwned::LegacyHeader(header) => {
                            self.interfaces.push(pcap_interface(header));
                            Ok(BlockContent::NoFrame)
                        }
                        PcapBlockOwned::Legacy(packet) => {
                            let (time, length) = ((packet.ts_sec, packet.ts_usec), packet.origlen);
                            deliver(self.interfaces.first(), packet.data, length, |of| Some(pcap_time(time, of)), take)
                        }
                        PcapBlockOwned::NG(block) => pcapng_block(block, &mut self.interfaces, take),
                    };
                    // Parsed data is not used after this.
                    self.reader.consume_noshift(bytes);
                    match content {
                        Ok(BlockContent::NoFrame) => {}
                        Ok(BlockContent::Frame) => self.counts.frames += 1,
                        Ok(BlockContent::UnknownLink) => self.counts.unknown_link += 1,
                        Err(why) => {
                            let error = self.corrupt(why);
                            return self.end(Err(error));
                        }
                    }
                    if self.counts.frames + self.counts.unknown_link >= before + FRAMES {
                        return Ok(Progress::Frames(FRAMES));
                    }
                }
                Err(PcapError::Eof) => return self.end(Ok(Progress::End)),
                Err(PcapError::Incomplete(_)) if !refilled => {
                    refilled = true;
                    if self.reader.refill().is_err() {
                        return self.end(Err(SourceError::Io(io::Error::other("the rest of the file cannot be read"))));
                    }
                }
                Err(error) => {
                    let why = match error {
                        PcapError::BufferTooSmall => "a block of more than a megabyte",
                        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it ends within a frame",
                        _ => "an invalid block",
                    };
                    let error = self.corrupt(why);
                    return self.end(Err(error));
                }
            }
        }
    }

    fn counts(&mut self) -> SourceCounts {
        self.counts
    }
}

/// Content of a block.
enum BlockContent {
    NoFrame,
    Frame,
    UnknownLink,
}

fn pcap_interface(header: &PcapHeader) -> Interface {
    let number = header.network.0 as u32 & 0xffff;
    let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
    Interface { number, link: Link::of_number(number), resolution, offset: 0 }
}

fn pcapng_block(
    block: &Block<'_>,
    interfaces: &mut Vec<Interface>,
    take: &mut dyn FnMut(&Frame<'_>),
) -> Result<BlockContent, &'static str> {
    match block {
        // Each section has its own interfaces.
        Block::SectionHeader(_) => interfaces.clear(),
        Block::InterfaceDescription(description) => {
            if interfaces.len() == MAX_INTERFACES {
                return Err("more than 65,536 interfaces");
            }
            let number = description.linktype.0 as u32;
            let resolution = resolution(description.if_tsresol).ok_or("an invalid timestamp resolution")?;
            // pcap-parser 0.17 always reads it as little-endian, unlike block types.
            let offset = description.ts_offset();
            let offset = if description.block_type == INTERFACE { offset } else { offset.swap_bytes() };
            interfaces.push(Interface { number, link: Link::of_number(number), resolution, offset });
        }
        Block::EnhancedPacket(packet) => {
            let units = (u64::from(packet.ts_high) << 32) | u64::from(packet.ts_low);
            let interface = interfaces.get(packet.if_id as usize);
            return deliver(interface, packet.packet_data(), packet.origlen, |of| pcapng_time(units, of), take);
        }
        // It has no timestamp, so it cannot be used.
        Block::SimplePacket(_) => return Ok(BlockContent::UnknownLink),
        _ => {}
    }
    Ok(BlockContent::NoFrame)
}

fn deliver(
    interface: Option<&Interface>,
    bytes: &[u8],
    length: u32,
    time: impl FnOnce(&Interface) -> Option<u64>,
    take: &mut dyn FnMut(&Frame<'_>),
) -> Result<BlockContent, &'static str> {
    let interface = interface.ok_or("a frame of an interface that was not described")?;
    let Some(link) = interface.link else { return Ok(BlockContent::UnknownLink) };
    let time_ns = time(interface).ok_or("a time before 1970 or after 2554")?;
    take(&Frame { bytes, length: length.max(bytes.len() as u32), time_ns, link });
    Ok(BlockContent::Frame)
}

/// Timestamp units per second: a power of ten or two. pcap-parser 0.17 does not support powers of two: it takes their
/// flag bit for a part of the exponent.
fn resolution(option: u8) -> Option<u64> {
    let exponent = u32::from(option & 0x7f);
    if option & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent) }
}

fn pcap_time((seconds, fraction): (u32, u32), interface: &Interface) -> u64 {
    let unit = 1_000_000_000 / interface.resolution;
    u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit
}

fn pcapng_time(units: u64, interface: &Interface) -> Option<u64> {
    let of_units = u128::from(units) * NANOS / u128::from(interface.resolution);
    let offset = i128::from(interface.offset) * NANOS as i128;
    u64::try_from(i128::try_from(of_units).ok()?.checked_add(offset)?).ok()
}

/// Writes frames into a pcap file with nanoseconds.
#[derive(Debug)]
pub struct Writer<W: Write> {
    file: W,
    snap: u32,
}

impl<W: Write> Writer<W> {
    /// Writes the file header, for frames of link type `link`, of which at most `snap` bytes each are written.
    ///
    /// # Errors
    ///
    /// An error of writing the file.
    pub fn new(mut file: W, link: Link, snap: u32) -> io::Result<Self> {
        let mut header = [0; 24];
        header[..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
        header[4..6].copy_from_slice(&2_u16.to_le_bytes());
        header[6..8].copy_from_slice(&4_u16.to_le_bytes());
        header[16..20].copy_from_slice(&snap.to_le_bytes());
        header[20..].copy_from_slice(&link.number().to_le_bytes());
        file.write_all(&header)?;
        Ok(Self { file, snap })
    }

    /// Writes a frame. Its timestamp must be before 2106.
    ///
    /// # Errors
    ///
    /// An error of writing the file, or [`io::ErrorKind::InvalidInput`] for a timestamp from 2106 on.
    pub fn write(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let seconds = u32::try_from(frame.time_ns / 1_000_000_000)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "pcap has no times after 2106"))?;
        let captured = &frame.bytes[..frame.bytes.len().min(self.snap as usize)];
        let words = [seconds, (frame.time_ns % 1_000_000_000) as u32, captured.len() as u32, frame.length];
        for word in words {
            self.file.write_all(&word.to_le_bytes())?;
        }
        self.file.write_all(captured)
    }

    /// Flushes the file and returns it.
    ///
    /// # Errors
    ///
    /// An error of writing the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.file.flush()?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests;
