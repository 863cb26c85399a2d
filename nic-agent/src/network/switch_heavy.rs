//! The heavy flows of a stream, of PRECISION in a switch. It keeps digests of flows, and none of their names: whose
//! they are is not said.

use std::path::Path;

use client::Gauge;
use packets::FlowsSettings;
use packets::flows::FlowsInterval;
use packets::switch::readout::{HeavyFlows, HeavyReadout, SwitchHeavyFlows};
use packets::switch::registers::{HeavyBlock, SwitchRegisters as _};
use wire::time::UnixNanos;

use super::flow_metrics::{FlowMetrics, TOP_TALKER};
use super::switch_measurement::{Measurement, PollError, PollOutcome};
use super::switch_registers::RemoteSwitch;
use crate::config::{StreamConfig, SwitchConfig, SwitchFileError, SynopsesConfig};

const HEAVY_FLOWS: &str = "network.flows.heavy";

/// What is read of PRECISION, and its metrics.
#[derive(Debug)]
pub(super) struct SwitchHeavy {
    readout: HeavyReadout,
    clock_offset_ns: Option<i64>,
    /// Whether the switch has started again, which makes a configured offset wrong.
    started_again: bool,
    share: Gauge,
    heavy: Gauge,
    overrun: Gauge,
    lost_polls: Gauge,
    // Last: dropping it unregisters the metrics.
    metrics: FlowMetrics,
}

impl SwitchHeavy {
    /// Before the first poll.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file of constants is not that of PRECISION with epochs for such intervals.
    pub(super) fn new(
        stream: &StreamConfig,
        switch: &SwitchConfig,
        synopses: &SynopsesConfig,
        socket: &Path,
    ) -> Result<Self, SwitchFileError> {
        let readout = switch.heavy(stream.interval_ms)?;
        // Those of a host are about somebody.
        let settings = FlowsSettings { heavy: None, ..synopses.settings("", stream.interval_ms, 0) };
        let metrics = FlowMetrics::new(&stream.service(), socket, stream.interval_ms, &settings);
        Ok(Self {
            readout,
            clock_offset_ns: switch.clock_offset_ns,
            started_again: false,
            share: metrics.gauge(TOP_TALKER, "1"),
            heavy: metrics.gauge(HEAVY_FLOWS, "{flow}"),
            overrun: metrics.flag("network.flag.overrun"),
            lost_polls: metrics.flag("network.flag.lost_polls"),
            metrics,
        })
    }

    fn write(&self, interval: &SwitchHeavyFlows) {
        let flag = |number: u64| f64::from(u8::from(number > 0));
        let SwitchHeavyFlows { frames, flows, overrun } = *interval;
        self.overrun.set(flag(overrun));
        self.lost_polls.set(flag(frames.lost_polls));
        self.metrics.set_subject(TOP_TALKER, &flows.as_ref().map_or_else(String::new, heaviest));
        self.share.set(flows.and_then(|flows| flows.lasting_share).unwrap_or(f64::NAN));
        self.heavy.set(flows.and_then(|flows| flows.heavy).map_or(f64::NAN, |heavy| heavy as f64));
        self.metrics.refused(frames.refused);
        let (reordering, heavy, distinct) = (None, None, None);
        self.metrics.write(&FlowsInterval { packets: frames.packets, reordering, heavy, distinct });
    }
}

/// The heaviest flow, which has no name here, and its weight.
fn heaviest(flows: &HeavyFlows) -> String {
    if flows.heaviest == 0 {
        return String::new();
    }
    format!("a flow ({} of {} packets)", flows.heaviest, flows.packets)
}

impl Measurement for SwitchHeavy {
    fn program(&self) -> &'static str {
        self.readout.program()
    }

    fn poll(&mut self, switch: &mut RemoteSwitch, now: UnixNanos) -> Result<PollOutcome, PollError> {
        if self.started_again {
            return Err(PollError::StartedAgain);
        }
        // The time first: its epoch is over when the entries are read. Frames last: a packet of a flow has been a
        // frame.
        let switch_ns = match self.clock_offset_ns {
            Some(offset_ns) => now.0.saturating_add_signed(offset_ns.saturating_neg()),
            None => switch.elapsed_ns()?,
        };
        let block = HeavyBlock::read(switch, self.readout.rows())?;
        let frames = switch.frames()?;
        let is_configured = self.clock_offset_ns.is_some();
        let read = self.readout.read(&frames, &block, now.0, switch_ns);
        let Some(interval) = read.map_err(|error| PollError::of_readout(error, is_configured))? else {
            self.started_again = is_configured && self.readout.has_started_again();
            return if self.started_again { Err(PollError::StartedAgain) } else { Ok(PollOutcome::Begun) };
        };
        self.write(&interval);
        Ok(PollOutcome::Written { overrun: interval.overrun })
    }

    fn write_lost(&self) {
        self.share.set(f64::NAN);
        self.heavy.set(f64::NAN);
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
    use equality::traffic::{START_NS, Streams};

    use super::*;
    use crate::config::Config;
    use crate::error::chain;

    /// When the switch starts.
    const BEGAN_NS: u64 = START_NS - 5_000_000_000;
    /// An interval of the agent, in milliseconds: epochs of the program are 2.1 ms long.
    const INTERVAL_MS: u32 = 2;

    /// The time at which an interval of the agent ends.
    fn at(interval: u64) -> UnixNanos {
        UnixNanos(START_NS + interval * u64::from(INTERVAL_MS) * 1_000_000)
    }

    /// A switch that runs PRECISION, and a stream that looks for its heavy flows.
    fn world(more: &str) -> (Switch, StreamConfig) {
        let subject = Subject::of_name("precision").unwrap();
        let machine = Machine::new(subject.load().unwrap().into());
        let switch = Switch::start_at(machine, TcpListener::bind("127.0.0.1:0").unwrap(), BEGAN_NS).unwrap();
        let (control, constants) = (switch.address(), subject.folder().join("constants.p4"));
        let source = format!("switch: {{control: '{control}', constants: {}{more}}}", constants.display());
        let synopses = "synopses: {heavy_hitters: {by: flow, weight: packets}}";
        let text = format!("network: {{streams: [{{name: a, {source}, {synopses}}}]}}\n");
        let mut stream = Config::parse(&text).unwrap().network.streams.remove(0);
        stream.interval_ms = NonZeroU32::new(INTERVAL_MS).unwrap();
        (switch, stream)
    }

    fn measured(stream: &StreamConfig) -> (SwitchHeavy, RemoteSwitch) {
        let (switch, synopses) = (stream.switch.as_ref().unwrap(), stream.synopses.as_ref().unwrap());
        let measured = SwitchHeavy::new(stream, switch, synopses, Path::new("/nowhere/services.sock")).unwrap();
        let remote = RemoteSwitch::connect(&switch.control, measured.program()).unwrap();
        (measured, remote)
    }

    /// Sends a thousand frames in five milliseconds from this time on. Returns when the last one came.
    fn send_from(begin: UnixNanos, switch: &Switch) -> UnixNanos {
        let mut latest_ns = begin.0;
        for captured in Streams::new(9).take(1_000) {
            latest_ns += 5_000;
            switch.process(&Captured { time_ns: latest_ns, ..captured }).unwrap();
        }
        UnixNanos(latest_ns)
    }

    #[test]
    fn the_share_of_the_heaviest_flow_is_written_about_nobody() {
        let (switch, stream) = world("");
        let (mut measured, mut remote) = measured(&stream);
        assert_eq!(measured.poll(&mut remote, at(1)).unwrap(), PollOutcome::Begun);

        // Frames in an epoch of 2.1 ms, and one in the next epoch, which the switch says in microseconds.
        let first_ns = BEGAN_NS + (3_000 << 21);
        for (number, captured) in (0..).zip(Streams::new(9).take(1_500)) {
            switch.process(&Captured { time_ns: first_ns + number * 1_000, ..captured }).unwrap();
        }
        let next = Streams::new(9).next().unwrap();
        switch.process(&Captured { time_ns: first_ns + (1 << 21) + 5_000, ..next }).unwrap();
        remote.begin_poll();
        assert_eq!(measured.poll(&mut remote, at(2)).unwrap(), PollOutcome::Written { overrun: 0 });

        let share = measured.share.get();
        assert!(share > 0.01 && share < 0.2, "{share} of 48 flows");
        assert!(measured.heavy.get() >= 1.0, "{}", measured.heavy.get());
        let about = measured.metrics.subject(TOP_TALKER).unwrap();
        assert!(about.starts_with("a flow (") && about.ends_with(" packets)"), "{about}");
        let [packets, refused, dropped] = measured.metrics.counts();
        assert!(packets > 1_300 && packets + refused <= 1_501 && dropped == 0, "{packets}, {refused}");
        assert_eq!((measured.overrun.get(), measured.lost_polls.get()), (0.0, 0.0));
        assert_eq!(measured.metrics.merged(), (0.0, 0), "the flag is never missing");

        let frames = packets::switch::readout::FrameInterval { packets: 5, refused: 0, lost_polls: 1 };
        measured.write(&SwitchHeavyFlows { frames, flows: None, overrun: 1 });
        assert!(measured.share.get().is_nan() && measured.heavy.get().is_nan());
        assert_eq!((measured.overrun.get(), measured.lost_polls.get()), (1.0, 1.0));
        measured.write_lost();
        assert_eq!(measured.metrics.counts()[0], packets + 5);
    }

    #[test]
    fn an_offset_is_refused_once_the_switch_has_started_again() {
        let (switch, stream) = world(&format!(", clock_offset_ns: {BEGAN_NS}"));
        let (mut measured, mut remote) = measured(&stream);
        assert_eq!(measured.poll(&mut remote, at(0)).unwrap(), PollOutcome::Begun);
        let mut latest = send_from(at(0), &switch);
        assert_eq!(measured.poll(&mut remote, latest).unwrap(), PollOutcome::Written { overrun: 0 });
        assert!(measured.share.get() > 0.0, "{measured:?}");

        switch.start_again_at(latest.0);
        for _ in 0..3 {
            latest = send_from(latest, &switch);
            remote.begin_poll();
            let error = measured.poll(&mut remote, latest).unwrap_err();
            assert!(matches!(error, PollError::StartedAgain), "{error}");
        }
    }

    #[test]
    fn an_offset_of_another_time_is_refused_by_the_first_packets() {
        // As that of a switch that started again while the agent was away.
        let (switch, stream) = world(&format!(", clock_offset_ns: {}", START_NS - 100_000_000_000));
        let (mut measured, mut remote) = measured(&stream);
        assert_eq!(measured.poll(&mut remote, at(0)).unwrap(), PollOutcome::Begun);

        let latest = send_from(at(0), &switch);
        remote.begin_poll();
        let error = measured.poll(&mut remote, latest).unwrap_err();
        assert!(matches!(error, PollError::Offset(_)), "{error}");
        assert!(chain(&error).contains("clock_offset_ns is not that of its time: correct it"), "{}", chain(&error));
    }
}
