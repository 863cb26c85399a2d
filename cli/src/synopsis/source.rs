//! Where packets come from, and what became of those that are none.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use packets::file::Capture;
use packets::ring::{Ring, RingSettings};
use packets::{Filter, Packet, Progress, Refusals, Source, SourceCounts, Transport, View, parse};

use super::SynopsisArgs;
use crate::clock::Clock;
use crate::failure::Failure;

/// A source and how long it is read.
pub struct Opened {
    source: Box<dyn Source>,
    until: Option<Duration>,
    clock: Clock,
    /// The most bytes that a packet of the interface has; of a capture nobody knows.
    mtu: u32,
    /// Which packets count.
    filter: Filter,
}

impl core::fmt::Debug for Opened {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Opened").field("until", &self.until).finish_non_exhaustive()
    }
}

/// What came of all frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Of the source.
    pub frames: SourceCounts,
    /// Of the frames that are no packets.
    pub refusals: Refusals,
    /// Frames of TCP that count and that a card or the kernel put together from several (TSO, GSO, GRO). Of captures nobody knows.
    pub oversized: u64,
}

/// Opens what `args` name.
///
/// # Errors
///
/// [`Failure`] if it cannot be opened.
pub fn open(args: &SynopsisArgs) -> Result<Opened, Failure> {
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
        // One that is not known, or rises meanwhile, is no reason not to read.
        let mtu = ring.mtu().unwrap_or(u32::MAX);
        return Ok(Opened { source: Box::new(ring), until: Some(seconds), clock, mtu, filter: args.filter.clone() });
    }
    file(args.pcap.as_deref().unwrap_or(Path::new("")))
}

/// Opens a capture.
///
/// # Errors
///
/// [`Failure`] if it cannot be opened, or is none.
pub fn file(path: &Path) -> Result<Opened, Failure> {
    let what = || Failure::to(format!("read {}", path.display()));
    let file = File::open(path).map_err(|error| what().caused_by(&error))?;
    let capture = Capture::new(file).map_err(|error| what().caused_by(&error))?;
    let filter = Filter::default();
    Ok(Opened { source: Box::new(capture), until: None, clock: Clock::start(), mtu: u32::MAX, filter })
}

#[cfg(test)]
impl Opened {
    /// All of `source`, as if it were of an interface with packets of at most `mtu` bytes.
    pub fn of(source: impl Source + 'static, mtu: u32) -> Self {
        Self { source: Box::new(source), until: None, clock: Clock::start(), mtu, filter: Filter::default() }
    }
}

impl Opened {
    /// Gives every packet to `take`, and a capture's own time goes on with them. What is no packet is counted.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the source fails before it gave out any frame; a capture that was cut is read as far as it goes, and that is told.
    pub fn read(mut self, view: View, mut take: impl FnMut(&Packet<'_>)) -> Result<Seen, Failure> {
        let (mut refusals, mut oversized) = (Refusals::default(), 0);
        let (mtu, filter) = (self.mtu, &self.filter);
        loop {
            let progress = self.source.read(&mut |frame| match parse(frame, view) {
                Ok(packet) => {
                    let is_tcp = matches!(packet.transport, Transport::Tcp(_));
                    oversized += u64::from(frame.is_put_together(mtu) && is_tcp && filter.meets(&packet));
                    take(&packet);
                }
                Err(reason) => refusals.count(reason),
            });
            match progress {
                Ok(Progress::End) => break,
                Ok(Progress::Frames(_)) if self.until.is_some_and(|until| self.clock.now() >= until) => break,
                Ok(Progress::Frames(_)) => {}
                Err(error) => {
                    let failure = Failure::to("read the packets to the end").caused_by(&error);
                    if self.source.counts().frames == 0 {
                        return Err(failure);
                    }
                    crate::output::tell(&failure.to_string());
                    break;
                }
            }
        }
        Ok(Seen { frames: self.source.counts(), refusals, oversized })
    }
}
