//! Captures in files: pcap and pcapng, of either byte order, of micro- and nanoseconds; writing is pcap with nanoseconds.

use std::io::{self, Read, Write};

use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{Block, PcapBlockOwned, PcapError, PcapHeader, create_reader};

use crate::frame::{Frame, Link, Progress, Source, SourceCounts, SourceError};

/// Bytes that are read at once. No block may be longer.
const BUFFER: usize = 1 << 20;
/// Frames that one look gives out at most.
const FRAMES: u64 = 4096;
/// More interfaces in one capture than this are a broken file.
const MOST_INTERFACES: usize = 1 << 16;
/// The kind of block that describes an interface.
const INTERFACE: u32 = 1;
const NANOS: u128 = 1_000_000_000;

/// What is known of the frames of one interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    number: u32,
    link: Option<Link>,
    /// Units of time per second.
    resolution: u64,
    /// Seconds that are added.
    offset: i64,
}

/// A capture that is read from its beginning to its end, in a megabyte of memory.
pub struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    interfaces: Vec<Interface>,
    counts: SourceCounts,
    ended: bool,
}

impl core::fmt::Debug for Capture {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Capture").field("counts", &self.counts).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Capture {
    /// The capture in `file`, whichever kind it is.
    ///
    /// # Errors
    ///
    /// [`SourceError::NoCapture`] if it is none.
    pub fn new(file: impl Read + Send + 'static) -> Result<Self, SourceError> {
        let reader = create_reader(BUFFER, Whole(file)).map_err(|error| match error {
            PcapError::ReadError => SourceError::Io(io::Error::other("the file cannot be read")),
            _ => SourceError::NoCapture,
        })?;
        Ok(Self { reader, interfaces: Vec::new(), counts: SourceCounts::default(), ended: false })
    }

    /// There is no more: in order, or because of an error after which nothing can be found again.
    fn end(&mut self, outcome: Result<Progress, SourceError>) -> Result<Progress, SourceError> {
        self.ended = true;
        match (outcome, self.interfaces.first()) {
            // A capture in which nothing can be read is an error, one in which something cannot is counted.
            (Ok(_), Some(Interface { number, link: None, .. }))
                if self.counts.frames == 0 && self.counts.foreign > 0 =>
            {
                Err(SourceError::Link(*number))
            }
            (outcome, _) => outcome,
        }
    }

    fn broken(&self, why: &'static str) -> SourceError {
        SourceError::Broken { frames: self.counts.frames + self.counts.foreign, why }
    }
}

/// Reads as much as there is room for: the reader below takes the first few bytes of a pipe for all there are.
struct Whole<R>(R);

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What came before an error is given out first; the error comes again.
                Err(error) => return if filled > 0 { Ok(filled) } else { Err(error) },
            }
        }
        Ok(filled)
    }
}

impl Source for Capture {
    fn read(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Result<Progress, SourceError> {
        let before = self.counts.frames + self.counts.foreign;
        if self.ended {
            return Ok(Progress::End);
        }
        // A block that does not come however often is asked for it would be asked for until the end of time.
        let mut refilled = false;
        loop {
            match self.reader.next() {
                Ok((bytes, block)) => {
                    refilled = false;
                    let known = match &block {
                        PcapBlockOwned::LegacyHeader(header) => {
                            self.interfaces.push(legacy(header));
                            Ok(Given::Nothing)
                        }
                        PcapBlockOwned::Legacy(packet) => {
                            let (time, length) = ((packet.ts_sec, packet.ts_usec), packet.origlen);
                            give(self.interfaces.first(), packet.data, length, |of| Some(legacy_time(time, of)), take)
                        }
                        PcapBlockOwned::NG(block) => modern(block, &mut self.interfaces, take),
                    };
                    // As in the loop's next turn: nothing that was parsed is used any more.
                    self.reader.consume_noshift(bytes);
                    match known {
                        Ok(Given::Nothing) => {}
                        Ok(Given::Frame) => self.counts.frames += 1,
                        Ok(Given::Foreign) => self.counts.foreign += 1,
                        Err(why) => {
                            let error = self.broken(why);
                            return self.end(Err(error));
                        }
                    }
                    if self.counts.frames + self.counts.foreign >= before + FRAMES {
                        return Ok(Progress::Frames(FRAMES));
                    }
                }
                Err(PcapError::Eof) => return self.end(Ok(Progress::End)),
                Err(PcapError::Incomplete(_)) if !refilled => {
                    refilled = true;
                    if self.reader.refill().is_err() {
                        return self.end(Err(SourceError::Io(io::Error::other("the file cannot be read on"))));
                    }
                }
                Err(error) => {
                    let why = match error {
                        PcapError::BufferTooSmall => "a block of more than a megabyte",
                        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it ends within a frame",
                        _ => "a block that is none",
                    };
                    let error = self.broken(why);
                    return self.end(Err(error));
                }
            }
        }
    }

    fn counts(&mut self) -> SourceCounts {
        self.counts
    }
}

/// What a block gave.
enum Given {
    Nothing,
    Frame,
    Foreign,
}

fn legacy(header: &PcapHeader) -> Interface {
    let number = header.network.0 as u32 & 0xffff;
    let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
    Interface { number, link: Link::of_number(number), resolution, offset: 0 }
}

fn modern(
    block: &Block<'_>,
    interfaces: &mut Vec<Interface>,
    take: &mut dyn FnMut(&Frame<'_>),
) -> Result<Given, &'static str> {
    match block {
        // Interfaces are those of a section.
        Block::SectionHeader(_) => interfaces.clear(),
        Block::InterfaceDescription(description) => {
            if interfaces.len() == MOST_INTERFACES {
                return Err("more than 65,536 interfaces");
            }
            let number = description.linktype.0 as u32;
            let resolution = resolution(description.if_tsresol).ok_or("a unit of time that is none")?;
            // pcap-parser 0.17 takes it for little-endian always; kinds of blocks are as it read them.
            let offset = description.ts_offset();
            let offset = if description.block_type == INTERFACE { offset } else { offset.swap_bytes() };
            interfaces.push(Interface { number, link: Link::of_number(number), resolution, offset });
        }
        Block::EnhancedPacket(packet) => {
            let units = (u64::from(packet.ts_high) << 32) | u64::from(packet.ts_low);
            let interface = interfaces.get(packet.if_id as usize);
            return give(interface, packet.packet_data(), packet.origlen, |of| modern_time(units, of), take);
        }
        // It has no time, without which it is none of ours.
        Block::SimplePacket(_) => return Ok(Given::Foreign),
        _ => {}
    }
    Ok(Given::Nothing)
}

fn give(
    interface: Option<&Interface>,
    bytes: &[u8],
    length: u32,
    time: impl FnOnce(&Interface) -> Option<u64>,
    take: &mut dyn FnMut(&Frame<'_>),
) -> Result<Given, &'static str> {
    let interface = interface.ok_or("a frame of an interface that was not described")?;
    let Some(link) = interface.link else { return Ok(Given::Foreign) };
    let time_ns = time(interface).ok_or("a time before 1970 or after 2554")?;
    take(&Frame { bytes, length: length.max(bytes.len() as u32), time_ns, link });
    Ok(Given::Frame)
}

/// Units per second: a power of ten, or of two. pcap-parser 0.17 has no powers of two: it takes the bit that says so for a part of the exponent.
fn resolution(option: u8) -> Option<u64> {
    let exponent = u32::from(option & 0x7f);
    if option & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent) }
}

fn legacy_time((seconds, parts): (u32, u32), interface: &Interface) -> u64 {
    let unit = 1_000_000_000 / interface.resolution;
    u64::from(seconds) * 1_000_000_000 + u64::from(parts) * unit
}

fn modern_time(units: u64, interface: &Interface) -> Option<u64> {
    let of_units = u128::from(units) * NANOS / u128::from(interface.resolution);
    let offset = i128::from(interface.offset) * NANOS as i128;
    u64::try_from(i128::try_from(of_units).ok()?.checked_add(offset)?).ok()
}

/// Writes frames into a file that every tool can read: pcap with nanoseconds.
#[derive(Debug)]
pub struct Writer<W: Write> {
    file: W,
    snap: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a file of frames of `link`, of which at most `snap` bytes each are kept.
    ///
    /// # Errors
    ///
    /// That of the file.
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

    /// One more frame. Its time must be before 2106.
    ///
    /// # Errors
    ///
    /// That of the file, or [`io::ErrorKind::InvalidInput`] for a time that a file cannot have.
    pub fn write(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let seconds = u32::try_from(frame.time_ns / 1_000_000_000)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "pcap has no times after 2106"))?;
        let kept = &frame.bytes[..frame.bytes.len().min(self.snap as usize)];
        let words = [seconds, (frame.time_ns % 1_000_000_000) as u32, kept.len() as u32, frame.length];
        for word in words {
            self.file.write_all(&word.to_le_bytes())?;
        }
        self.file.write_all(kept)
    }

    /// The file, whose buffers are written.
    ///
    /// # Errors
    ///
    /// That of the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.file.flush()?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests;
