//! Where packets come from, and what became of those that are none.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use packets::file::Capture;
use packets::ring::{Ring, RingSettings};
use packets::{Packet, Progress, Refusals, Source, SourceCounts, View, parse};

use super::SynopsisArgs;
use crate::clock::Clock;
use crate::failure::Failure;

/// A source and how long it is read.
pub struct Opened {
    source: Box<dyn Source>,
    until: Option<Duration>,
    clock: Clock,
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
        return Ok(Opened { source: Box::new(ring), until: Some(seconds), clock });
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
    Ok(Opened { source: Box::new(capture), until: None, clock: Clock::start() })
}

impl Opened {
    /// Gives every packet to `take`, and a capture's own time goes on with them. What is no packet is counted.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the source fails before it gave out any frame; a capture that was cut is read as far as it goes, and that is told.
    pub fn read(mut self, view: View, mut take: impl FnMut(&Packet<'_>)) -> Result<Seen, Failure> {
        let mut refusals = Refusals::default();
        loop {
            let progress = self.source.read(&mut |frame| match parse(frame, view) {
                Ok(packet) => take(&packet),
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
        Ok(Seen { frames: self.source.counts(), refusals })
    }
}
