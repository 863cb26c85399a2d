//! A stream that a switch measures, interval by interval of the agent: its registers are read at the end of each, and
//! become the metrics that a stream of an interface has.

use core::mem::{Discriminant, discriminant};
use std::path::Path;
use std::thread;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use wire::time::{Nanos, UnixNanos};

use super::interface::Stop;
use super::interval::WallInterval;
use super::switch_cardinality::SwitchCardinality;
use super::switch_delays::SwitchDelays;
use super::switch_heavy::SwitchHeavy;
use super::switch_measurement::{Measurement, PollError, PollOutcome};
use super::switch_registers::RemoteSwitch;
use super::switch_reordering::SwitchReordering;
use crate::config::{StreamConfig, SwitchConfig, SwitchFileError};
use crate::error::chain;

/// The longest sleep, which bounds how long the agent takes to end.
const WAIT: Duration = Duration::from_millis(20);
/// A switch that cannot be read is logged at the first interval, at every so many, and with each other kind of reason.
const WARN_EVERY: u32 = 60;

/// A stream of a switch.
#[derive(Debug)]
pub(super) struct SwitchStream {
    name: String,
    control: String,
    interval: WallInterval,
    measured: Box<dyn Measurement>,
    connection: Option<RemoteSwitch>,
    /// Intervals in a row that were not read, and the kind of reason at the latest one.
    failed: u32,
    why: Option<Discriminant<PollError>>,
}

impl SwitchStream {
    /// Before the first poll.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file of constants is not that of such a program.
    pub(super) fn new(stream: &StreamConfig, switch: &SwitchConfig, socket: &Path) -> Result<Self, SwitchFileError> {
        let measured: Box<dyn Measurement> = match &stream.synopses {
            Some(synopses) if synopses.reordering.is_some() => {
                Box::new(SwitchReordering::new(stream, switch, synopses, socket)?)
            }
            Some(synopses) if synopses.heavy_hitters.is_some() => {
                Box::new(SwitchHeavy::new(stream, switch, synopses, socket)?)
            }
            Some(synopses) => Box::new(SwitchCardinality::new(stream, switch, synopses, socket)?),
            None => Box::new(SwitchDelays::new(stream, switch, socket)?),
        };
        Ok(Self {
            name: stream.name.clone(),
            control: switch.control.clone(),
            interval: WallInterval::new(Nanos::from_millis(stream.interval_ms.get().into())),
            measured,
            connection: None,
            failed: 0,
            why: None,
        })
    }

    /// Reads the switch at the end of each interval, until `stop` is set.
    pub(super) fn run(mut self, stop: &Stop) {
        while !stop.is_set() {
            let now = unix_now();
            let left = self.interval.left(now);
            if left > Nanos::ZERO {
                thread::sleep(WAIT.min(left.into()));
            } else {
                self.end_interval(now);
            }
        }
    }

    /// Reads the switch at `now`, and writes what came of it.
    fn end_interval(&mut self, now: UnixNanos) {
        let outcome = self.poll(now);
        self.interval.enter(now);
        let (stream, switch) = (&self.name, &self.control);
        match outcome {
            Ok(polled) => {
                self.why = None;
                if core::mem::take(&mut self.failed) > 0 || polled == PollOutcome::Begun {
                    tracing::info!(stream, switch, "reading the registers of a switch");
                }
                if let PollOutcome::Written { overrun: lost } = polled
                    && lost > 0
                {
                    tracing::debug!(stream, switch, lost, "samples were overwritten: shorter intervals lose none");
                }
            }
            Err(error) => {
                // It may be in the middle of an answer.
                self.connection = None;
                // An operator who waits for a switch to come back has to know if it comes back as another one.
                let is_other = self.why.replace(discriminant(&error)) != Some(discriminant(&error));
                if is_other || self.failed.is_multiple_of(WARN_EVERY) {
                    tracing::warn!(stream, switch, why = chain(&error), "the switch is not measured: trying again");
                }
                self.failed = self.failed.saturating_add(1);
                self.measured.write_lost();
            }
        }
    }

    fn poll(&mut self, now: UnixNanos) -> Result<PollOutcome, PollError> {
        let open = match self.connection.take() {
            Some(mut open) => {
                open.begin_poll();
                open
            }
            None => RemoteSwitch::connect(&self.control, self.measured.program())?,
        };
        self.measured.poll(self.connection.insert(open), now)
    }
}
