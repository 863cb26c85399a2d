//! The distinct flows of a stream, of ST-HLL in a switch. It counts flows only, and keeps none of their names: whose
//! they are is not said.

use std::path::Path;

use client::Gauge;
use packets::FlowsSettings;
use packets::flows::FlowsInterval;
use packets::switch::readout::{CardinalityInterval, CardinalityReadout};
use packets::switch::registers::SwitchRegisters as _;
use wire::time::{Nanos, UnixNanos};

use super::flow_metrics::{FLOWS, FlowMetrics};
use super::switch_measurement::{Measurement, PollError, PollOutcome};
use super::switch_registers::RemoteSwitch;
use crate::config::{StreamConfig, SwitchConfig, SwitchFileError, SynopsesConfig};

/// What is read of ST-HLL, and its metrics.
#[derive(Debug)]
pub(super) struct SwitchCardinality {
    readout: CardinalityReadout,
    clock_offset_ns: Option<i64>,
    /// Whether the switch has started again, which makes a configured offset wrong.
    started_again: bool,
    flows: Gauge,
    lost_polls: Gauge,
    // Last: dropping it unregisters the metrics.
    metrics: FlowMetrics,
}

impl SwitchCardinality {
    /// Before the first poll.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file of constants is not that of ST-HLL with the window of `synopses`.
    pub(super) fn new(
        stream: &StreamConfig,
        switch: &SwitchConfig,
        synopses: &SynopsesConfig,
        socket: &Path,
    ) -> Result<Self, SwitchFileError> {
        let interval = Nanos::from_millis(stream.interval_ms.get().into());
        let readout = switch.cardinality(interval.0, synopses.window_ms())?;
        // No program counts sources and ports.
        let settings = FlowsSettings { window_ns: None, ..synopses.settings("", stream.interval_ms, 0) };
        let metrics = FlowMetrics::new(&stream.service(), socket, stream.interval_ms, &settings);
        Ok(Self {
            readout,
            clock_offset_ns: switch.clock_offset_ns,
            started_again: false,
            flows: metrics.gauge(FLOWS, "{flow}"),
            lost_polls: metrics.flag("network.flag.lost_polls"),
            metrics,
        })
    }

    fn write(&self, interval: &CardinalityInterval) {
        let frames = interval.frames;
        self.flows.set(interval.lasting.unwrap_or(f64::NAN));
        self.lost_polls.set(f64::from(u8::from(frames.lost_polls > 0)));
        self.metrics.refused(frames.refused);
        let (reordering, heavy, distinct) = (None, None, None);
        self.metrics.write(&FlowsInterval { packets: frames.packets, reordering, heavy, distinct });
    }
}

impl Measurement for SwitchCardinality {
    fn program(&self) -> &'static str {
        self.readout.program()
    }

    fn poll(&mut self, switch: &mut RemoteSwitch, now: UnixNanos) -> Result<PollOutcome, PollError> {
        if self.started_again {
            return Err(PollError::StartedAgain);
        }
        // Frames last: a packet whose flow is in a register has been a frame.
        let block = switch.cardinality(self.readout.registers())?;
        let frames = switch.frames()?;
        let switch_ns = match self.clock_offset_ns {
            Some(offset_ns) => now.0.saturating_add_signed(offset_ns.saturating_neg()),
            None => switch.elapsed_ns()?,
        };
        let is_configured = self.clock_offset_ns.is_some();
        let read = self.readout.read(&frames, &block, now.0, switch_ns);
        let Some(interval) = read.map_err(|error| PollError::of_readout(error, is_configured))? else {
            self.started_again = is_configured && self.readout.has_started_again();
            return if self.started_again { Err(PollError::StartedAgain) } else { Ok(PollOutcome::Begun) };
        };
        self.write(&interval);
        Ok(PollOutcome::Written { overrun: 0 })
    }

    fn write_lost(&self) {
        self.flows.set(f64::NAN);
        self.lost_polls.set(1.0);
        self.metrics.write_missing(0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::num::NonZeroU32;

    use equality::control::Switch;
    use equality::frames::Captured;
    use equality::interpreter::Machine;
    use equality::programs::Subject;
    use equality::traffic::{START_NS, Traffic};

    use super::*;
    use crate::config::Config;
    use crate::error::chain;

    const SOCKET: &str = "/nowhere/services.sock";

    /// A switch that runs a program, and a stream that counts its flows.
    fn world(program: &str, more: &str) -> (Switch, StreamConfig) {
        let subject = Subject::of_name(program).unwrap();
        let machine = Machine::new(subject.load().unwrap().into());
        let switch = Switch::start_at(machine, TcpListener::bind("127.0.0.1:0").unwrap(), START_NS - 5_000_000_000);
        let switch = switch.unwrap();
        let (control, constants) = (switch.address(), subject.folder().join("constants.p4"));
        let source = format!("switch: {{control: '{control}', constants: {}{more}}}", constants.display());
        let text = format!("network: {{streams: [{{name: a, {source}, synopses: {{cardinality: {{}}}}}}]}}\n");
        (switch, Config::parse(&text).unwrap().network.streams.remove(0))
    }

    fn measured(stream: &StreamConfig) -> (SwitchCardinality, RemoteSwitch) {
        let (switch, synopses) = (stream.switch.as_ref().unwrap(), stream.synopses.as_ref().unwrap());
        let measured = SwitchCardinality::new(stream, switch, synopses, Path::new(SOCKET)).unwrap();
        let remote = RemoteSwitch::connect(&switch.control, measured.program()).unwrap();
        (measured, remote)
    }

    /// Sends so many frames, one each tenth of a millisecond. Returns when the last one came.
    fn send(switch: &Switch, frames: usize) -> UnixNanos {
        send_from(UnixNanos(START_NS), switch, frames)
    }

    /// Likewise, from this time on.
    fn send_from(begin: UnixNanos, switch: &Switch, frames: usize) -> UnixNanos {
        let mut latest_ns = begin.0;
        for captured in Traffic::new(7, 0.0).take(frames) {
            latest_ns += 100_000;
            switch.process(&Captured { time_ns: latest_ns, ..captured }).unwrap();
        }
        UnixNanos(latest_ns)
    }

    /// The time at which an interval of the agent ends.
    fn at(second: u64) -> UnixNanos {
        UnixNanos::from_secs(START_NS / 1_000_000_000 + second)
    }

    #[test]
    fn flows_and_packets_of_a_switch_are_written_and_nothing_that_it_does_not_count() {
        for program in ["st-hll", "together"] {
            let (switch, stream) = world(program, "");
            let (mut measured, mut remote) = measured(&stream);
            assert_eq!(measured.poll(&mut remote, at(1)).unwrap(), PollOutcome::Begun);

            let _ = send(&switch, 1_000);
            remote.begin_poll();
            assert_eq!(measured.poll(&mut remote, at(2)).unwrap(), PollOutcome::Written { overrun: 0 });
            let flows = measured.flows.get();
            assert!(flows > 20.0 && flows < 1_000.0, "{program}: {flows}");
            let [packets, refused, dropped] = measured.metrics.counts();
            assert!(packets > 800 && packets + refused <= 1_000 && dropped == 0, "{program}: {packets}, {refused}");
            assert_eq!((measured.lost_polls.get(), measured.metrics.values().len()), (0.0, 0), "{program}");

            // Two ends of intervals have passed meanwhile.
            assert_eq!(measured.poll(&mut remote, at(4)).unwrap(), PollOutcome::Written { overrun: 0 });
            assert_eq!((measured.lost_polls.get(), measured.metrics.counts()[0]), (1.0, packets));
            measured.write_lost();
            assert!(measured.flows.get().is_nan());
        }
    }

    #[test]
    fn a_switch_whose_time_is_named_is_not_asked_for_it() {
        let began_ns = START_NS - 5_000_000_000;
        let (switch, stream) = world("st-hll", &format!(", clock_offset_ns: {began_ns}"));
        let (mut measured, mut remote) = measured(&stream);
        assert_eq!(measured.poll(&mut remote, at(1)).unwrap(), PollOutcome::Begun);

        let latest = send(&switch, 1_000);
        remote.begin_poll();
        assert_eq!(measured.poll(&mut remote, latest).unwrap(), PollOutcome::Written { overrun: 0 });
        assert!(measured.flows.get() > 20.0, "{}", measured.flows.get());
        // By this clock, there was no packet for seconds.
        let later = latest.plus(Nanos::from_secs(3));
        assert_eq!(measured.poll(&mut remote, later).unwrap(), PollOutcome::Written { overrun: 0 });
        assert_eq!(measured.flows.get(), 0.0);
    }

    #[test]
    fn flows_of_a_switch_that_starts_again_are_those_of_its_new_time_once_it_has_run_for_two_windows() {
        let (switch, stream) = world("st-hll", "");
        let (mut measured, mut remote) = measured(&stream);
        assert_eq!(measured.poll(&mut remote, at(1)).unwrap(), PollOutcome::Begun);
        let latest = send(&switch, 1_000);
        assert_eq!(measured.poll(&mut remote, at(2)).unwrap(), PollOutcome::Written { overrun: 0 });
        let before = measured.flows.get();

        switch.start_again_at(latest.0);
        // A twentieth of a second is less than two windows.
        let latest = send_from(latest, &switch, 500);
        remote.begin_poll();
        assert_eq!(measured.poll(&mut remote, at(3)).unwrap(), PollOutcome::Begun);
        let latest = send_from(latest, &switch, 100);
        remote.begin_poll();
        assert_eq!(measured.poll(&mut remote, at(4)).unwrap(), PollOutcome::Written { overrun: 0 });
        assert!(measured.flows.get().is_nan(), "{}", measured.flows.get());

        let _ = send_from(latest, &switch, 1_000);
        remote.begin_poll();
        assert_eq!(measured.poll(&mut remote, at(5)).unwrap(), PollOutcome::Written { overrun: 0 });
        let flows = measured.flows.get();
        assert!(flows > before / 2.0 && flows < before * 2.0, "{flows}, {before} before");
    }

    #[test]
    fn an_offset_is_refused_once_the_switch_has_started_again() {
        let began_ns = START_NS - 5_000_000_000;
        let (switch, stream) = world("st-hll", &format!(", clock_offset_ns: {began_ns}"));
        let (mut measured, mut remote) = measured(&stream);
        assert_eq!(measured.poll(&mut remote, at(0)).unwrap(), PollOutcome::Begun);
        let latest = send(&switch, 1_000);
        assert_eq!(measured.poll(&mut remote, latest).unwrap(), PollOutcome::Written { overrun: 0 });

        switch.start_again_at(latest.0);
        let mut latest = latest;
        for _ in 0..3 {
            latest = send_from(latest, &switch, 1_000);
            remote.begin_poll();
            let error = measured.poll(&mut remote, latest).unwrap_err();
            assert!(matches!(error, PollError::StartedAgain), "{error}");
        }
    }

    #[test]
    fn an_offset_of_another_time_is_refused_by_the_first_packets() {
        // As that of a switch that started again while the agent was away.
        let began_ns = START_NS - 100_000_000_000;
        let (switch, stream) = world("st-hll", &format!(", clock_offset_ns: {began_ns}"));
        let (mut measured, mut remote) = measured(&stream);
        assert_eq!(measured.poll(&mut remote, at(0)).unwrap(), PollOutcome::Begun);

        let latest = send(&switch, 1_000);
        remote.begin_poll();
        let error = measured.poll(&mut remote, latest).unwrap_err();
        assert!(matches!(error, PollError::Offset(_)), "{error}");
        assert!(chain(&error).contains("clock_offset_ns is not that of its time: correct it"), "{}", chain(&error));
        assert!(chain(&error).contains("packets came since the poll before"), "{}", chain(&error));
    }

    #[test]
    fn an_agent_that_starts_again_counts_the_packets_of_its_own_intervals_and_all_flows_of_the_window() {
        let (switch, stream) = world("st-hll", "");
        let (mut first, mut remote) = measured(&stream);
        assert_eq!(first.poll(&mut remote, at(1)).unwrap(), PollOutcome::Begun);
        let latest = send(&switch, 1_000);
        assert_eq!(first.poll(&mut remote, at(2)).unwrap(), PollOutcome::Written { overrun: 0 });
        let (flows, [packets, ..]) = (first.flows.get(), first.metrics.counts());
        drop((first, remote));

        let (mut again, mut remote) = measured(&stream);
        assert_eq!(again.poll(&mut remote, at(2)).unwrap(), PollOutcome::Begun);
        assert_eq!(again.metrics.counts(), [0; 3]);
        // Of the same flows.
        let _ = send_from(latest, &switch, 500);
        remote.begin_poll();
        assert_eq!(again.poll(&mut remote, at(3)).unwrap(), PollOutcome::Written { overrun: 0 });
        assert!(again.flows.get() > flows / 2.0 && again.flows.get() < flows * 2.0, "{}", again.flows.get());
        assert!(again.metrics.counts()[0] < packets, "{:?}", again.metrics.counts());
    }

    #[test]
    fn the_window_of_the_configuration_has_to_be_that_of_the_file() {
        let (_switch, mut stream) = world("st-hll", "");
        let synopses = stream.synopses.as_mut().unwrap();
        synopses.cardinality.as_mut().unwrap().window_ms = NonZeroU32::new(100);

        let (switch, synopses) = (stream.switch.as_ref().unwrap(), stream.synopses.as_ref().unwrap());
        let error = SwitchCardinality::new(&stream, switch, synopses, Path::new(SOCKET)).unwrap_err().to_string();
        assert!(error.contains("has a window of 33554432 ns, synopses.cardinality.window_ms is 100"), "{error}");
    }
}
