//! The delays of a stream, of a fridge in a switch.

use std::num::NonZeroU32;
use std::path::Path;

use client::Gauge;
use packets::switch::readout::{FridgeReadout, Reading, SwitchInterval};
use packets::switch::registers::SwitchRegisters as _;
use wire::time::{Nanos, UnixNanos};

use super::delay_metrics::DelayMetrics;
use super::switch_measurement::{Measurement, PollError, PollOutcome};
use super::switch_registers::RemoteSwitch;
use crate::config::{StreamConfig, SwitchConfig, SwitchFileError};

/// What is read of a fridge, and its metrics.
#[derive(Debug)]
pub(super) struct SwitchDelays {
    readout: FridgeReadout,
    metrics: SwitchMetrics,
}

/// The metrics of a stream, and what only a switch can do to them.
#[derive(Debug)]
struct SwitchMetrics {
    overrun: Gauge,
    lost_polls: Gauge,
    // Last: dropping it unregisters the metrics.
    all: DelayMetrics,
}

impl SwitchMetrics {
    fn new(service: &str, socket: &Path, interval_ms: NonZeroU32) -> Self {
        let all = DelayMetrics::new(service, socket, interval_ms);
        Self { overrun: all.flag("network.flag.overrun"), lost_polls: all.flag("network.flag.lost_polls"), all }
    }

    /// Writes an interval. Samples that were overwritten are no random choice: figures are missing then.
    fn write(&self, interval: &SwitchInterval) {
        let flag = |number: u64| f64::from(u8::from(number > 0));
        self.overrun.set(flag(interval.overrun));
        self.lost_polls.set(flag(interval.lost_polls));
        self.all.refused.add(interval.refused);
        if interval.overrun > 0 {
            self.all.write_counts(&interval.delays, 0);
        } else {
            self.all.write(&interval.delays, 0);
        }
    }
}

impl SwitchDelays {
    /// Before the first poll.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file of constants is not that of a fridge.
    pub(super) fn new(stream: &StreamConfig, switch: &SwitchConfig, socket: &Path) -> Result<Self, SwitchFileError> {
        let interval = Nanos::from_millis(stream.interval_ms.get().into());
        let readout = switch.fridge(interval.0)?;
        Ok(Self { readout, metrics: SwitchMetrics::new(&stream.service(), socket, stream.interval_ms) })
    }
}

impl Measurement for SwitchDelays {
    fn program(&self) -> &'static str {
        self.readout.program()
    }

    fn poll(&mut self, switch: &mut RemoteSwitch, now: UnixNanos) -> Result<PollOutcome, PollError> {
        // Frames last: whoever sent a request has sent a frame.
        let fridge = switch.fridge()?;
        let frames = switch.frames()?;
        let Reading::Interval(interval) = self.readout.read(&frames, &fridge, now.0)? else {
            return Ok(PollOutcome::Begun);
        };
        self.metrics.write(&interval);
        Ok(PollOutcome::Written { overrun: interval.overrun })
    }

    fn write_lost(&self) {
        self.metrics.lost_polls.set(1.0);
        self.metrics.all.write_missing();
    }
}
