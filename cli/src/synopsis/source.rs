//! The source of packets: a capture or an interface, with counts of the frames that were read.

use core::fmt;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use agent_runtime::clock::Clock;
use packets::file::Capture;
use packets::ring::{Ring, RingSettings};
use packets::{Filter, Packet, Progress, Refusals, Source, SourceCounts, Transport, View, parse};

use super::args::SynopsisArgs;
use crate::failure::Failure;

/// An open capture or interface.
pub struct PacketSource {
    source: Box<dyn Source>,
    until: Option<Duration>,
    clock: Clock,
    /// The MTU of the interface; the largest number for a capture, where it is unknown.
    mtu: u32,
    /// The packets to measure.
    filter: Filter,
}

impl core::fmt::Debug for PacketSource {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PacketSource").field("until", &self.until).finish_non_exhaustive()
    }
}

/// Counts of the frames that were read.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameTotals {
    /// Frames and drops of the source.
    pub frames: SourceCounts,
    /// Frames that could not be parsed, by reason.
    pub refusals: Refusals,
    /// TCP frames that match the filter and that a card or the kernel merged (TSO, GSO, GRO); 0 for captures, where it
    /// is unknown.
    pub oversized: u64,
}

/// Says that each of so many merged frames counts as one packet; nothing without any.
///
/// # Errors
///
/// Those of the formatter.
pub fn write_merged(f: &mut fmt::Formatter<'_>, oversized: u64) -> fmt::Result {
    if oversized == 0 {
        return Ok(());
    }
    writeln!(
        f,
        "CAUTION: {oversized} frames had been merged by offloads (TSO, GSO, GRO): each of them counts as one packet, with one header.\n         \
         To switch offloads off: ethtool -K INTERFACE tso off gso off gro off"
    )
}

/// Opens the interface or the capture of `args`.
///
/// # Errors
///
/// [`Failure`] if it cannot be opened.
pub fn open(args: &SynopsisArgs) -> Result<PacketSource, Failure> {
    let clock = Clock::start();
    if let Some(name) = &args.interface {
        let what = format!("watch the interface {name}");
        let seconds = Duration::try_from_secs_f64(args.seconds)
            .map_err(|error| Failure::to(what.as_str()).because(format!("--for {}: {error}", args.seconds)))?;
        let settings = RingSettings { interface: name.clone(), ..RingSettings::default() };
        let ring = Ring::open(&settings).map_err(|error| {
            Failure::to(what.as_str())
                .caused_by(&error)
                .advice("`ip link` lists interfaces, --pcap FILE reads a capture")
        })?;
        // An unknown MTU is no reason not to read.
        let mtu = ring.mtu().unwrap_or(u32::MAX);
        return Ok(PacketSource {
            source: Box::new(ring),
            until: Some(seconds),
            clock,
            mtu,
            filter: args.filter.clone(),
        });
    }
    file(args.pcap.as_deref().unwrap_or(Path::new("")))
}

/// Opens a capture file.
///
/// # Errors
///
/// [`Failure`] if it cannot be opened, or is neither pcap nor pcapng.
pub fn file(path: &Path) -> Result<PacketSource, Failure> {
    let what = || Failure::to(format!("read {}", path.display()));
    let file = File::open(path).map_err(|error| what().caused_by(&error))?;
    let capture = Capture::new(file).map_err(|error| what().caused_by(&error))?;
    let filter = Filter::default();
    Ok(PacketSource { source: Box::new(capture), until: None, clock: Clock::start(), mtu: u32::MAX, filter })
}

#[cfg(test)]
impl PacketSource {
    /// A source that behaves like an interface with this MTU.
    pub fn of(source: impl Source + 'static, mtu: u32) -> Self {
        Self { source: Box::new(source), until: None, clock: Clock::start(), mtu, filter: Filter::default() }
    }
}

impl PacketSource {
    /// Passes every packet to `take`, until the end of the capture or of the time. Frames that cannot be parsed are
    /// counted.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the source fails before the first frame. A later failure, such as a truncated capture, is only
    /// reported on stderr.
    pub fn read(mut self, view: View, mut take: impl FnMut(&Packet<'_>)) -> Result<FrameTotals, Failure> {
        let (mut refusals, mut oversized) = (Refusals::default(), 0);
        let (mtu, filter) = (self.mtu, &self.filter);
        loop {
            let progress = self.source.read(&mut |frame| match parse(frame, view) {
                Ok(packet) => {
                    let is_tcp = matches!(packet.transport, Transport::Tcp(_));
                    oversized += u64::from(frame.is_merged(mtu) && is_tcp && filter.matches(&packet));
                    take(&packet);
                }
                Err(reason) => refusals.count(reason),
            });
            match progress {
                Ok(Progress::End) => break,
                Ok(Progress::Frames(_))
                    if self.until.is_some_and(|until| Duration::from(self.clock.now()) >= until) =>
                {
                    break;
                }
                Ok(Progress::Frames(_)) => {}
                Err(error) => {
                    let failure = Failure::to("read the packets to the end").caused_by(&error);
                    if self.source.counts().frames == 0 {
                        return Err(failure);
                    }
                    crate::output::print_stderr(&failure.to_string());
                    break;
                }
            }
        }
        Ok(FrameTotals { frames: self.source.counts(), refusals, oversized })
    }
}
