//! A stream whose delays a switch measures: the registers of its fridge are read once per interval, and become the
//! metrics that a stream of an interface has.

use std::num::NonZeroU32;
use std::path::Path;
use std::thread;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use client::Gauge;
use packets::switch::readout::{FridgeReadout, Reading, ReadoutError, SwitchInterval};
use packets::switch::registers::SwitchRegisters as _;
use thiserror::Error;
use wire::time::Nanos;

use super::delay_metrics::DelayMetrics;
use super::interface::Stop;
use super::interval::WallInterval;
use super::switch_registers::{RemoteSwitch, SwitchError};
use crate::config::{StreamConfig, SwitchConfig, SwitchFileError};
use crate::error::chain;

/// The longest sleep, which bounds how long the agent takes to end.
const WAIT: Duration = Duration::from_millis(20);
/// A switch that cannot be read is logged at the first interval and every so many intervals.
const WARN_EVERY: u32 = 60;

/// Why a poll gave nothing.
#[derive(Debug, Error)]
enum PollError {
    /// The switch was not read.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// It runs another program.
    #[error(transparent)]
    Readout(#[from] ReadoutError),
}

/// A stream of a switch.
#[derive(Debug)]
pub(super) struct SwitchStream {
    name: String,
    control: String,
    interval: WallInterval,
    readout: FridgeReadout,
    connection: Option<RemoteSwitch>,
    metrics: SwitchMetrics,
    /// Intervals in a row that were not read.
    failed: u32,
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

    /// An interval has ended, and nothing was read.
    fn write_lost(&self) {
        self.lost_polls.set(1.0);
        self.all.write_missing();
    }
}

impl SwitchStream {
    /// Before the first poll.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file of constants is not that of such a program.
    pub(super) fn new(stream: &StreamConfig, switch: &SwitchConfig, socket: &Path) -> Result<Self, SwitchFileError> {
        let interval = Nanos::from_millis(stream.interval_ms.get().into());
        Ok(Self {
            name: stream.name.clone(),
            control: switch.control.clone(),
            interval: WallInterval::new(interval),
            readout: switch.fridge(interval.0)?,
            connection: None,
            metrics: SwitchMetrics::new(&stream.service(), socket, stream.interval_ms),
            failed: 0,
        })
    }

    /// Reads the switch at the end of each interval, until `stop` is set.
    pub(super) fn run(mut self, stop: &Stop) {
        while !stop.is_set() {
            let left = self.interval.left(unix_now());
            if left > Nanos::ZERO {
                thread::sleep(WAIT.min(left.into()));
            } else {
                self.end_interval();
            }
        }
    }

    /// Reads the switch, and writes what came of it.
    fn end_interval(&mut self) {
        let began = unix_now();
        let outcome = self.poll();
        self.interval.enter(began);
        let (stream, switch) = (&self.name, &self.control);
        match outcome {
            Ok(reading) => {
                if core::mem::take(&mut self.failed) > 0 || reading == Reading::Begun {
                    tracing::info!(stream, switch, "reading the registers of a switch");
                }
                if let Reading::Interval(interval) = reading {
                    if interval.overrun > 0 {
                        let lost = interval.overrun;
                        tracing::debug!(stream, switch, lost, "samples were overwritten: shorter intervals lose none");
                    }
                    self.metrics.write(&interval);
                }
            }
            Err(error) => {
                // It may be in the middle of an answer.
                self.connection = None;
                if self.failed.is_multiple_of(WARN_EVERY) {
                    tracing::warn!(stream, switch, why = chain(&error), "the switch is not measured: trying again");
                }
                self.failed = self.failed.saturating_add(1);
                self.metrics.write_lost();
            }
        }
    }

    fn poll(&mut self) -> Result<Reading, PollError> {
        let open = match self.connection.take() {
            Some(open) => open,
            None => RemoteSwitch::connect(&self.control, self.readout.program())?,
        };
        let switch = self.connection.insert(open);
        // Frames last: whoever sent a request has sent a frame.
        let fridge = switch.fridge()?;
        let frames = switch.frames()?;
        Ok(self.readout.read(&frames, &fridge, unix_now().0)?)
    }
}
