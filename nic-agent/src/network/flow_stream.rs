//! Who is in a stream: its packets, its synopses, its metrics.

use std::path::Path;

use packets::{Flows, FlowsError, Packet, ParseError, View};
use wire::time::{Nanos, UnixNanos};

use super::flow_metrics::FlowMetrics;
use super::frame_info::FrameInfo;
use super::interval::{Ending, WallInterval};
use super::pending_change::PendingChange;
use crate::config::{StreamConfig, SynopsesConfig};

/// The synopses of one stream.
#[derive(Debug)]
pub(super) struct FlowStream {
    flows: Flows,
    view: View,
    interval: WallInterval,
    refused: u64,
    /// Whether merged frames bias its figures.
    is_affected_by_offloads: bool,
    /// Merged frames of this interval that do.
    oversized: u64,
    metrics: FlowMetrics,
    /// What becomes of it at the end of its interval.
    pub(super) pending: PendingChange,
}

impl FlowStream {
    /// Empty synopses of a stream.
    ///
    /// # Errors
    ///
    /// [`FlowsError`], which does not occur with a checked configuration.
    pub(super) fn new(
        config: &StreamConfig,
        synopses: &SynopsesConfig,
        socket: &Path,
        secret: u128,
    ) -> Result<Self, FlowsError> {
        let settings = synopses.settings(&config.filter, config.interval_ms, secret);
        Ok(Self {
            flows: Flows::new(&settings)?,
            view: if config.inner { View::Inner } else { View::Outer },
            interval: WallInterval::new(Nanos::from_millis(config.interval_ms.get().into())),
            refused: 0,
            is_affected_by_offloads: settings.is_affected_by_offloads(),
            oversized: 0,
            metrics: FlowMetrics::new(&config.service(), socket, config.interval_ms, &settings),
            pending: PendingChange::of(&config.name),
        })
    }

    /// Whether the stream is about the outer or the inner packets of tunnels.
    pub(super) const fn view(&self) -> View {
        self.view
    }

    /// Takes a packet of the interface, parsed for this stream's view. It may belong to another stream.
    #[inline]
    pub(super) fn insert(&mut self, packet: &Result<Packet<'_>, ParseError>, info: FrameInfo) {
        match packet {
            Ok(packet) => {
                let is_of_stream = self.flows.insert(packet);
                self.oversized += u64::from(is_of_stream && info.merged && self.is_affected_by_offloads);
            }
            Err(reason) => self.refused += u64::from(!reason.is_harmless()),
        }
    }

    /// Whether an interval has ended at `now`. Intervals end at multiples of their length, and at once if the clock
    /// was set back.
    pub(super) fn is_due(&self, now: UnixNanos) -> bool {
        self.interval.is_due(now)
    }

    /// Adds frames of the interface that the kernel dropped.
    pub(super) fn add_dropped(&self, frames: u64) {
        self.metrics.dropped(frames);
    }

    /// Ends the interval if it is due, and writes its metrics.
    pub(super) fn end_interval(&mut self, now: UnixNanos) {
        let Some(ending) = self.interval.end(now) else { return };
        let ended = match ending {
            Ending::First => now,
            Ending::Cut(ended) | Ending::Whole(ended) => ended,
        };
        let interval = self.flows.end_interval(ended.0, 1);
        self.metrics.oversized(core::mem::take(&mut self.oversized));
        match ending {
            // Its length is unknown.
            Ending::First => {}
            Ending::Cut(_) => {
                self.flows.set_back(now.0);
                self.metrics.write_cut(&interval);
            }
            Ending::Whole(_) => self.metrics.write(&interval),
        }
        self.metrics.refused(core::mem::take(&mut self.refused));
        if let Some(filter) = self.pending.interval_ended() {
            self.flows.set_filter(filter);
        }
    }
}

#[cfg(test)]
impl FlowStream {
    /// Packets, unparsable frames and dropped ones of all intervals that were written.
    pub(super) fn counts(&self) -> [u64; 3] {
        self.metrics.counts()
    }
}

#[cfg(test)]
mod tests;
