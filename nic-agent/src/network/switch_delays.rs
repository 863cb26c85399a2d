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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use equality::control::Switch;
    use equality::frames::Captured;
    use equality::interpreter::Machine;
    use equality::programs::Subject;
    use equality::traffic::{START_NS, Traffic};

    use super::*;
    use crate::config::Config;

    /// A switch with a fridge, and a stream that measures its delays.
    struct World {
        switch: Switch,
        stream: StreamConfig,
        frames: Vec<Captured>,
    }

    impl World {
        fn new(program: &str) -> Self {
            let subject = Subject::of_name(program).unwrap();
            let machine = Machine::new(subject.load().unwrap().into());
            let switch = Switch::start_at(machine, TcpListener::bind("127.0.0.1:0").unwrap(), START_NS).unwrap();
            let (control, constants) = (switch.address(), subject.folder().join("constants.p4"));
            let source = format!("switch: {{control: '{control}', constants: {}}}", constants.display());
            let text = format!("network: {{streams: [{{name: a, {source}, pair: handshake}}]}}\n");
            let stream = Config::parse(&text).unwrap().network.streams.remove(0);
            Self { switch, stream, frames: Traffic::new(8, 0.0).take(2_000).collect() }
        }

        /// An agent that has just started.
        fn agent(&self) -> (SwitchDelays, RemoteSwitch) {
            let switch = self.stream.switch.as_ref().unwrap();
            let measured = SwitchDelays::new(&self.stream, switch, Path::new("/nowhere/services.sock")).unwrap();
            let remote = RemoteSwitch::connect(&switch.control, measured.program()).unwrap();
            (measured, remote)
        }

        /// Sends the next frames. Returns how many requests were among them.
        fn send(&mut self, frames: usize) -> u64 {
            let before = self.requests();
            for captured in self.frames.drain(..frames) {
                self.switch.process(&captured).unwrap();
            }
            self.requests() - before
        }

        /// Requests since the switch started.
        fn requests(&self) -> u64 {
            self.switch.registers("requests")[0]
        }
    }

    /// Polls at so many tenths of a second.
    fn poll((measured, remote): &mut (SwitchDelays, RemoteSwitch), tenths: u64) -> PollOutcome {
        remote.begin_poll();
        measured.poll(remote, UnixNanos::from_millis(1_700_000_000_000 + 100 * tenths)).unwrap()
    }

    /// Requests of all intervals that an agent has written, and whether the latest one is flagged.
    fn written((measured, _): &(SwitchDelays, RemoteSwitch)) -> (u64, [f64; 2]) {
        let SwitchMetrics { overrun, lost_polls, all } = &measured.metrics;
        (all.requests.get(), [overrun.get(), lost_polls.get()])
    }

    const WRITTEN: PollOutcome = PollOutcome::Written { overrun: 0 };

    #[test]
    fn an_agent_that_starts_again_has_what_comes_from_then_on_and_nothing_twice() {
        for program in ["fridge", "together"] {
            let mut world = World::new(program);
            let mut agent = world.agent();
            assert_eq!(poll(&mut agent, 10), PollOutcome::Begun);
            let first = world.send(300);
            assert_eq!((poll(&mut agent, 20), written(&agent)), (WRITTEN, (first, [0.0; 2])), "{program}");

            // In the middle of the interval from 2 s to 3 s nobody reads, then another agent begins.
            drop(agent);
            let nobody = world.send(100);
            let mut agent = world.agent();
            assert_eq!(poll(&mut agent, 27), PollOutcome::Begun);
            let part = world.send(80);
            assert_eq!((poll(&mut agent, 30), written(&agent)), (WRITTEN, (part, [0.0; 2])), "{program}");
            let whole = world.send(300);
            assert_eq!((poll(&mut agent, 40), written(&agent)), (WRITTEN, (part + whole, [0.0; 2])), "{program}");

            assert_eq!(first + nobody + part + whole, world.requests());
            assert!([first, nobody, part, whole].iter().all(|requests| *requests > 10), "{first}, {nobody}, {part}");
        }
    }

    #[test]
    fn a_switch_that_starts_again_costs_the_interval_in_which_it_does() {
        let mut world = World::new("fridge");
        let mut agent = world.agent();
        assert_eq!(poll(&mut agent, 10), PollOutcome::Begun);
        let first = world.send(300);
        assert_eq!((poll(&mut agent, 20), written(&agent).0), (WRITTEN, first));

        world.send(100);
        let now_ns = world.frames[0].time_ns;
        world.switch.start_again_at(now_ns - 1_000_000_000);
        world.send(80);
        assert_eq!((poll(&mut agent, 30), written(&agent).0), (PollOutcome::Begun, first));
        let whole = world.send(300);
        assert_eq!((poll(&mut agent, 40), written(&agent)), (WRITTEN, (first + whole, [0.0; 2])));
    }

    #[test]
    fn an_end_of_an_interval_without_a_poll_is_flagged_and_the_next_interval_has_all_of_both() {
        let mut world = World::new("fridge");
        let mut agent = world.agent();
        assert_eq!(poll(&mut agent, 10), PollOutcome::Begun);

        let first = world.send(300);
        agent.0.write_lost();
        assert_eq!(written(&agent), (0, [0.0, 1.0]));
        let second = world.send(200);
        assert_eq!((poll(&mut agent, 30), written(&agent)), (WRITTEN, (first + second, [0.0, 1.0])));
        assert_eq!((poll(&mut agent, 40), written(&agent)), (WRITTEN, (first + second, [0.0; 2])));
    }
}
