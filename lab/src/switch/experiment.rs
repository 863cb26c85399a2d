//! One measurement: the link has one condition after the other. Then something is sent alone, which both streams have
//! to count exactly.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use support::clock::Stopwatch;
use support::network::{HERE, Network, THERE};
use support::relay::{Relay, RelayCounts, SegmentOrder};

use super::alarms::{StreamAlarm, are_armed, are_quiet, lmaps, note};
use super::figures::{counted_alone, figures, intervals, is_quiet};
use super::link::{LinkTruth, RelayLog};
use super::passage::PassageWatcher;
use super::processes::{Processes, TestedPrograms};
use super::requests;
use super::setting::{Condition, INTERVAL, Measure, USUAL};
use super::tables::{Burst, MeasureResult, Row};
use super::traffic::Traffic;

/// Between two looks at the LMAPs.
const LOOK: Duration = Duration::from_millis(250);
/// Intervals after a change that count for neither side of it.
const SETTLE: u32 = 3;
/// Limit for both LMAPs to be armed, which takes 120 rows on an idle machine.
const ARMED_WITHIN: Duration = Duration::from_mins(6);
/// Limit for alarms to end.
const QUIET_WITHIN: Duration = Duration::from_mins(3);
/// How long there is no alarm before a condition begins.
const QUIET: Duration = Duration::from_secs(5);
/// Intervals without a packet before and after what is sent alone.
const SILENT: usize = 4;
/// Attempts: an interval that is not known makes the count of a burst worthless.
const BURSTS: usize = 3;

/// All that runs.
#[derive(Debug)]
struct Testbed<'a> {
    measure: Measure,
    network: &'a Network,
    relay: Relay,
    processes: Processes,
    passage: PassageWatcher,
}

/// Measures under all conditions.
///
/// # Errors
///
/// Network namespaces or processes do not work, or LMAPs do not learn.
pub fn run(measure: Measure, programs: &TestedPrograms, folder: &Path, seconds: u64) -> Result<MeasureResult> {
    let spaces: Vec<_> = measure.programs().iter().map(|(space, _)| *space).collect();
    let network = Network::create_with_switches(&spaces).context("network namespaces cannot be made here")?;
    network.connect_directly();
    for space in [HERE, THERE] {
        network.disable_segmentation_offload_of(space);
    }
    if measure == Measure::OneWay {
        network.answer_directly();
    }
    let relay = Relay::start_in_order(&network, USUAL);
    let processes = Processes::start(&network, measure, programs, folder)?;
    let passage = PassageWatcher::start(&network, measure.stamped_before_host());
    let mut traffic = Traffic::start(&network, measure)?;
    let mut testbed = Testbed { measure, network: &network, relay, processes, passage };
    println!("  learning, two minutes on an idle machine");
    testbed.until("both LMAPs are armed", ARMED_WITHIN, are_armed)?;
    let length = Duration::from_secs(seconds);
    let conditions = measure.conditions().iter();
    let rows = conditions.map(|condition| testbed.row(condition, length)).collect::<Result<Vec<_>>>()?;
    traffic.pause()?;
    let burst = testbed.count(&traffic)?;
    traffic.end()?;
    let Testbed { relay, passage, processes, .. } = testbed;
    drop(processes);
    drop(relay.stop());
    passage.end()?;
    Ok(MeasureResult { measure, rows, burst })
}

impl Testbed<'_> {
    /// Waits until the LMAPs are as wanted, which is looked for at least once.
    fn until(&mut self, what: &str, limit: Duration, is: impl Fn(&[Value; 2]) -> bool) -> Result<()> {
        let clock = Stopwatch::start();
        while !is(&lmaps(&self.processes.status())) {
            self.processes.check()?;
            ensure!(clock.elapsed() < limit, "not within {} s: {what}", limit.as_secs());
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until there has been no alarm for some time.
    fn until_quiet(&mut self) -> Result<()> {
        let (clock, mut since) = (Stopwatch::start(), Stopwatch::start());
        while since.elapsed() < QUIET {
            self.processes.check()?;
            if !are_quiet(&lmaps(&self.processes.status())) {
                since = Stopwatch::start();
            }
            ensure!(clock.elapsed() < QUIET_WITHIN, "alarms do not end within {} s", QUIET_WITHIN.as_secs());
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The intervals of both streams so far.
    fn intervals(&self) -> Result<[Vec<Value>; 2]> {
        Ok(intervals(&self.processes.log()?, self.measure))
    }

    /// What the relay has done so far with the packets that are measured.
    fn relayed(&self) -> RelayLog {
        let [there, back] = self.relay.counts();
        let counts = match self.measure {
            Measure::Handshake | Measure::Reordering => RelayCounts {
                packets: there.packets + back.packets,
                lost: there.lost + back.lost,
                held_ns: there.held_ns + back.held_ns,
            },
            Measure::OneWay => there,
        };
        let order = self.relay.order().into_values().fold(SegmentOrder::default(), |sum, of| SegmentOrder {
            sent: sum.sent + of.sent,
            out_of_order: sum.out_of_order + of.out_of_order,
        });
        RelayLog { counts, order }
    }

    /// Waits until nobody is in alarm, then measures under a condition.
    fn row(&mut self, condition: &Condition, length: Duration) -> Result<Row> {
        self.until_quiet()?;
        println!("  {}", condition.name);
        let (clock, mut alarms) = (Stopwatch::start(), [None, None]);
        self.relay.set_conditions(condition.link);
        self.look_until(&clock, INTERVAL * SETTLE, &mut alarms)?;
        let (before, relayed, _) = (self.intervals()?, self.relayed(), self.passage.take_ms());
        // The largest delay since the last call.
        let _ = self.relay.late();
        self.look_until(&clock, INTERVAL * SETTLE + length, &mut alarms)?;
        let (after, now) = (self.intervals()?, self.relayed());
        let (passage_ms, late) = (self.passage.take_ms(), self.relay.late());
        self.relay.set_conditions(USUAL);
        let of = |stream: usize| figures(self.measure, after[stream].get(before[stream].len()..).unwrap_or_default());
        Ok(Row {
            condition: condition.name.to_owned(),
            expected: condition.alarm,
            relay: LinkTruth::between(&relayed, &now, late),
            passage_ms,
            clock_error_ms: self.processes.clock_error_ms()?,
            figures: [of(0), of(1)],
            alarms,
        })
    }

    /// Looks at the LMAPs until so much time has passed since the clock's start.
    fn look_until(&mut self, clock: &Stopwatch, end: Duration, alarms: &mut [Option<StreamAlarm>; 2]) -> Result<()> {
        while clock.elapsed() < end {
            self.processes.check()?;
            note(alarms, &lmaps(&self.processes.status()), clock.elapsed().as_secs_f64());
            std::thread::sleep(LOOK.min(end.saturating_sub(clock.elapsed())));
        }
        Ok(())
    }

    /// Has something sent while nothing else is, and returns what both streams have counted.
    fn count(&mut self, traffic: &Traffic) -> Result<Burst> {
        for _ in 0..BURSTS {
            self.until_silent([0, 0])?;
            let (before, relayed) = (self.intervals()?, self.relayed());
            self.relay.set_conditions(self.measure.link_alone());
            traffic.burst(self.network)?;
            self.until_silent([0, 1].map(|stream| before[stream].len()))?;
            self.relay.set_conditions(USUAL);
            let (after, now) = (self.intervals()?, self.relayed());
            let of = |stream: usize| {
                counted_alone(self.measure, after[stream].get(before[stream].len()..).unwrap_or_default())
            };
            if let (Some(host), Some(switch)) = (of(0), of(1)) {
                let truth = match self.measure {
                    Measure::Handshake => requests::ALONE,
                    Measure::OneWay => now.counts.packets - relayed.counts.packets,
                    Measure::Reordering => now.order.out_of_order - relayed.order.out_of_order,
                };
                return Ok(Burst { truth, counted: [host, switch] });
            }
        }
        bail!("each of {BURSTS} bursts met an interval without figures");
    }

    /// Waits until the last intervals of both streams have nothing, more of them than there were.
    fn until_silent(&mut self, before: [usize; 2]) -> Result<()> {
        let clock = Stopwatch::start();
        loop {
            let all = self.intervals()?;
            let is_silent = |(all, before): (&Vec<Value>, usize)| {
                let new = all.get(before..).unwrap_or_default();
                let last = new.get(new.len().saturating_sub(SILENT)..).unwrap_or_default();
                last.len() == SILENT && last.iter().all(|interval| is_quiet(self.measure, interval))
            };
            if all.iter().zip(before).all(is_silent) {
                return Ok(());
            }
            self.processes.check()?;
            ensure!(clock.elapsed() < QUIET_WITHIN, "packets without end for {} s", QUIET_WITHIN.as_secs());
            std::thread::sleep(LOOK);
        }
    }
}
