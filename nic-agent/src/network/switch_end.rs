//! An end of a one-way measurement that is a switch: its registers are read once per interval, and become the intervals
//! that an end at an interface collects. What follows is the same (`peers`).
//!
//! Intervals are the switch's own: each begins with a marker that passes both ends on the packets' path. A marker has
//! the number of the clock's interval that it begins with, by which both agents know which intervals belong together.

use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use one_way::collector::Packets;
use one_way::{EndCounters, IntervalPackets, Plan};
use packets::switch::markers;
use packets::switch::readout::{BucketInterval, BucketReading, BucketReadout, ReadoutError};
use synopses::encoding::DecodeError;
use thiserror::Error;
use wire::time::{Nanos, UnixNanos};

use super::interface::Stop;
use super::interval::interval_number;
use super::one_way_metrics::OneWayMetrics;
use super::one_way_stream::{Command, GRACE, Queues};
use super::switch_registers::{RemoteSwitch, SwitchError};
use crate::config::{OneWayConfig, StreamConfig, SwitchConfig};
use crate::error::chain;

/// The sleep between two looks, which bounds how long the agent takes to end, and how late a marker is noticed.
const WAIT: Duration = Duration::from_millis(20);
/// A switch that cannot be read is logged at the first interval and every so many intervals.
const WARN_EVERY: u32 = 60;
/// Most intervals that are given as missing after a pause; others are skipped.
const MAX_BEHIND: u64 = 4;
/// By so much the clock of whoever sends markers may be ahead: an interval that it ends earlier is not over here.
const MAX_AHEAD: Nanos = Nanos::from_millis(20);

/// Why an interval is not known.
#[derive(Debug, Error)]
enum EndError {
    /// The switch was not read.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// It runs another program.
    #[error(transparent)]
    Readout(#[from] ReadoutError),
    /// Its registers contradict each other.
    #[error("the registers of the switch")]
    Registers(#[from] DecodeError),
    /// Its clock is not known well enough.
    #[error("its time is known to {uncertainty_ns} ns, one_way.max_clock_error_us allows {} ns: asking again", .most.0)]
    Clock {
        /// Largest error of its offset.
        uncertainty_ns: u64,
        /// What the stream allows.
        most: Nanos,
    },
    /// No interval has begun for as long as an interval.
    #[error("no interval begins in it: a frame of kind 0x88b6 has to pass at the begin of each (p4/README.md)")]
    NoMarker,
    /// The configured offset was that of the time before.
    #[error(
        "it has started again, so network.streams.switch.clock_offset_ns is not that of its time any more: correct it, \
         and start the agent again"
    )]
    Offset,
    /// Whoever sends markers has another clock, or another length of intervals.
    #[error("its markers are of interval {found}, by this clock it is {expected}: clocks or interval_ms differ")]
    Apart {
        /// Number of the marker.
        found: u64,
        /// That of the clock's interval.
        expected: u64,
    },
}

/// An open connection, and what is added to the switch's times.
#[derive(Debug)]
struct OpenSwitch {
    registers: RemoteSwitch,
    offset_ns: u64,
}

/// What both agents have agreed on, and how far it was carried out.
#[derive(Debug)]
struct Run {
    plan: Plan,
    /// The interval that is given next.
    next: u64,
}

/// An end of a one-way stream in a switch.
#[derive(Debug)]
pub(super) struct SwitchEnd {
    name: String,
    control: String,
    sends: bool,
    length: Nanos,
    clock_offset_ns: Option<i64>,
    /// Whether the switch has started again, which makes a configured offset wrong.
    started_again: bool,
    max_clock_error: Nanos,
    readout: BucketReadout,
    connection: Option<OpenSwitch>,
    run: Option<Run>,
    queues: Queues,
    metrics: Arc<OneWayMetrics>,
    /// The interval that had begun when the switch was read, or of the clock when it could not be.
    settled: Option<u64>,
    /// The interval of the clock whose marker has not come yet.
    awaited: Option<u64>,
    /// The marker of an earlier one that came instead.
    behind: Option<u64>,
    /// Intervals in a row that were not read.
    failed: u32,
    /// Intervals that were dropped because the queue was full.
    lost_intervals: u64,
}

impl SwitchEnd {
    /// An end without a plan: its switch is read all the same, so that what an interval begins with is known.
    pub(super) fn new(
        stream: &StreamConfig,
        (switch, readout): (&SwitchConfig, BucketReadout),
        one_way: &OneWayConfig,
        queues: Queues,
        metrics: Arc<OneWayMetrics>,
    ) -> Self {
        let length = Nanos::from_millis(stream.interval_ms.get().into());
        Self {
            name: stream.name.clone(),
            control: switch.control.clone(),
            sends: one_way.peer.is_some(),
            length,
            clock_offset_ns: switch.clock_offset_ns,
            started_again: false,
            max_clock_error: Nanos::from_micros(one_way.max_clock_error_us.into()),
            readout,
            connection: None,
            run: None,
            queues,
            metrics,
            settled: None,
            awaited: None,
            behind: None,
            failed: 0,
            lost_intervals: 0,
        }
    }

    /// Reads the switch once per interval, until `stop` is set.
    pub(super) fn run(mut self, stop: &Stop) {
        while !stop.is_set() {
            self.poll(unix_now());
            thread::sleep(WAIT);
        }
    }

    /// What is due at `now`: a look at the switch, and intervals that will not be read any more.
    fn poll(&mut self, now: UnixNanos) {
        self.take_commands();
        let current = self.current(now);
        // A marker that was awaited for long may come with the next one.
        let is_settled = self.settled.is_some_and(|settled| settled == current || settled == current + 1);
        let ends_soon = interval_number(now.plus(MAX_AHEAD), self.length) != interval_number(now, self.length);
        if !is_settled && !ends_soon {
            self.look(now);
        }
        // A look takes a while: intervals of a run that is over are nobody's.
        self.take_commands();
        self.expire(now);
    }

    /// The clock's interval of which a marker should have come.
    const fn current(&self, now: UnixNanos) -> u64 {
        interval_number(now.minus(GRACE), self.length)
    }

    fn take_commands(&mut self) {
        loop {
            match self.queues.commands.try_recv() {
                Ok(Command::Collect(plan)) => self.run = Some(Run { plan: *plan, next: 0 }),
                // A switch has all packets of the stream, and no memory of them to be given back.
                Ok(Command::Sample(_) | Command::GiveBack(_)) => {}
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.run = None;
                    return;
                }
            }
        }
    }

    /// Reads the switch, if the interval that goes on by the clock has begun there, or an earlier one.
    fn look(&mut self, now: UnixNanos) {
        let current = self.current(now);
        if let Some(expected) = self.awaited.take_if(|awaited| *awaited != current) {
            let apart = |found| EndError::Apart { found, expected };
            let error = self.behind.take().map_or(EndError::NoMarker, apart);
            self.fail(&error);
        }
        match self.read(now) {
            Ok(Some(found)) => {
                (self.settled, self.awaited, self.behind, self.failed) = (Some(found), None, None, 0);
            }
            Ok(None) => (self.settled, self.awaited) = (None, Some(current)),
            Err(error) => {
                // It may be in the middle of an answer.
                self.connection = None;
                (self.settled, self.awaited, self.behind) = (Some(current), None, None);
                self.fail(&error);
            }
        }
    }

    fn fail(&mut self, error: &EndError) {
        if self.failed.is_multiple_of(WARN_EVERY) {
            let (stream, switch, why) = (&self.name, &self.control, chain(error));
            tracing::warn!(stream, switch, why, "the switch is not measured: trying again");
        }
        self.failed = self.failed.saturating_add(1);
    }

    /// Reads the switch, and gives the interval that has ended there. Returns the one that goes on there, if it is the
    /// clock's or the next one.
    fn read(&mut self, now: UnixNanos) -> Result<Option<u64>, EndError> {
        let open = match self.connection.take() {
            Some(mut open) => {
                open.registers.begin_poll();
                open
            }
            None => self.connect()?,
        };
        let OpenSwitch { registers, offset_ns } = self.connection.insert(open);
        let offset_ns = *offset_ns;
        let Some(poll) = self.readout.poll(registers)? else { return Ok(None) };
        let BucketReading { refused, current: number, interval, started_again } = self.readout.read(&poll)?;
        self.metrics.refused(refused);
        if started_again {
            self.begin_anew()?;
        }
        if poll.begun.begun == 0 {
            // The first marker has not come yet.
            return Ok(None);
        }
        let current = self.current(now);
        let found = markers::interval(number, current);
        if found > interval_number(now, self.length) {
            return Err(EndError::Apart { found, expected: current });
        }
        // An interval that is ended so late was given as missing. If this one's marker does not come, the log says why.
        self.behind = Some(found).filter(|found| *found < current);
        // The run may be another one since.
        self.take_commands();
        if let Some(interval) = interval {
            self.give(&interval, markers::interval(interval.number, current), offset_ns)?;
        }
        Ok(Some(found).filter(|found| *found >= current))
    }

    /// The switch has started again on an open connection, so its time has another offset. Nothing was given yet of the
    /// interval that goes on.
    fn begin_anew(&mut self) -> Result<(), EndError> {
        if self.clock_offset_ns.is_some() {
            // At once in the log, whatever was there before.
            (self.started_again, self.failed) = (true, 0);
            return Err(EndError::Offset);
        }
        if let Some(OpenSwitch { mut registers, .. }) = self.connection.take() {
            let offset_ns = self.offset(&mut registers)?;
            self.connection = Some(OpenSwitch { registers, offset_ns });
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<OpenSwitch, EndError> {
        if self.started_again {
            return Err(EndError::Offset);
        }
        self.readout.forget();
        let mut registers = RemoteSwitch::connect(&self.control, self.readout.program())?;
        let offset_ns = self.offset(&mut registers)?;
        Ok(OpenSwitch { registers, offset_ns })
    }

    /// What is added to the switch's times: what is configured, or what it says.
    fn offset(&self, registers: &mut RemoteSwitch) -> Result<u64, EndError> {
        let (stream, switch) = (&self.name, &self.control);
        if let Some(offset_ns) = self.clock_offset_ns {
            tracing::info!(stream, switch, offset_ns, "reading the registers of a switch");
            return Ok(offset_ns.cast_unsigned());
        }
        let clock = registers.clock()?;
        let (most, uncertainty_ns) = (self.max_clock_error, clock.uncertainty_ns);
        if uncertainty_ns > most.0 {
            return Err(EndError::Clock { uncertainty_ns, most });
        }
        let offset_ns = clock.offset_ns.cast_signed();
        tracing::info!(stream, switch, offset_ns, uncertainty_ns, "reading the registers of a switch");
        Ok(clock.offset_ns)
    }

    /// Passes on what is known of the clock's interval `number`, after those before it that were not read.
    fn give(&mut self, interval: &BucketInterval, number: u64, offset_ns: u64) -> Result<(), EndError> {
        let Some(run) = &self.run else { return Ok(()) };
        let first = interval_number(run.plan.begins, run.plan.length);
        let Some(place) = number.checked_sub(first).filter(|place| *place >= run.next) else { return Ok(()) };
        let settings = run.plan.buckets();
        let (packets, count) = if self.sends {
            let sent = interval.finecomb(&settings, offset_ns)?;
            let count = sent.packets();
            (Packets::Sent(sent), count)
        } else {
            let received = interval.received(&settings, offset_ns)?;
            let count = received.finecomb().packets();
            (Packets::Received(Box::new(received)), count)
        };
        self.give_missing(place);
        let counters = EndCounters { packets: count, ..EndCounters::default() };
        self.send(IntervalPackets { interval: place, counters, packets, rekeyed: Vec::new() });
        Ok(())
    }

    /// Gives the intervals before `end` that were not given as missing.
    fn give_missing(&mut self, end: u64) {
        let Some(next) = self.run.as_ref().map(|run| run.next.max(end.saturating_sub(MAX_BEHIND))) else { return };
        for interval in next..end {
            let (counters, packets) = (EndCounters::default(), Packets::Unread);
            self.send(IntervalPackets { interval, counters, packets, rekeyed: Vec::new() });
        }
    }

    fn send(&mut self, interval: IntervalPackets) {
        if let Some(run) = &mut self.run {
            run.next = interval.interval + 1;
        }
        // If the other thread is this far behind, one interval more does not help it.
        if self.queues.intervals.try_send(interval).is_err() {
            self.lost_intervals += 1;
        }
    }

    /// Gives the intervals that nobody can read any more as missing: the next one but one has begun, with their
    /// registers.
    fn expire(&mut self, now: UnixNanos) {
        let current = self.run.as_ref().and_then(|run| run.plan.interval_of(now));
        let over = current.and_then(|current| current.checked_sub(1));
        if let (Some(over), Some(run)) = (over, &self.run)
            && over > run.next
        {
            self.give_missing(over);
        }
    }
}

#[cfg(test)]
mod tests;
