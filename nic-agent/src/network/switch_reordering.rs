//! Packets out of order by prefix, of a switch.

use std::path::Path;

use client::Gauge;
use packets::flows::FlowsInterval;
use packets::switch::readout::{ReorderingReadout, SwitchReordering as Interval};
use packets::switch::registers::SwitchRegisters as _;
use wire::time::{Nanos, UnixNanos};

use super::flow_metrics::FlowMetrics;
use super::switch_measurement::{Measurement, PollError, PollOutcome};
use super::switch_registers::RemoteSwitch;
use crate::config::{StreamConfig, SwitchConfig, SwitchFileError, SynopsesConfig};

/// What is read of reordering by prefix, and its metrics.
#[derive(Debug)]
pub(super) struct SwitchReordering {
    readout: ReorderingReadout,
    overrun: Gauge,
    lost_polls: Gauge,
    // Last: dropping it unregisters the metrics.
    metrics: FlowMetrics,
}

impl SwitchReordering {
    /// Before the first poll.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file of constants is not that of reordering by prefix.
    pub(super) fn new(
        stream: &StreamConfig,
        switch: &SwitchConfig,
        synopses: &SynopsesConfig,
        socket: &Path,
    ) -> Result<Self, SwitchFileError> {
        let interval = Nanos::from_millis(stream.interval_ms.get().into());
        let readout = switch.reordering(interval.0)?;
        let settings = synopses.settings("", stream.interval_ms, 0);
        let metrics = FlowMetrics::new(&stream.service(), socket, stream.interval_ms, &settings);
        Ok(Self {
            readout,
            overrun: metrics.flag("network.flag.overrun"),
            lost_polls: metrics.flag("network.flag.lost_polls"),
            metrics,
        })
    }

    /// Writes an interval. Reports that were overwritten are no random choice: figures are missing then.
    fn write(&self, interval: Interval) {
        let flag = |number: u64| f64::from(u8::from(number > 0));
        let Interval { frames, reordering, overrun } = interval;
        self.overrun.set(flag(overrun));
        self.lost_polls.set(flag(frames.lost_polls));
        self.metrics.refused(frames.refused);
        if reordering.is_none() {
            self.metrics.write_missing(frames.packets);
            return;
        }
        let (heavy, distinct) = (None, None);
        self.metrics.write(&FlowsInterval { packets: frames.packets, reordering, heavy, distinct });
    }
}

impl Measurement for SwitchReordering {
    fn program(&self) -> &'static str {
        self.readout.program()
    }

    fn poll(&mut self, switch: &mut RemoteSwitch, now: UnixNanos) -> Result<PollOutcome, PollError> {
        // Frames last: a packet that was checked has been a frame.
        let (samples, rows) = self.readout.sizes();
        let block = switch.reordering(samples, rows)?;
        let frames = switch.frames()?;
        let Some(interval) = self.readout.read(&frames, &block, now.0, 1)? else {
            return Ok(PollOutcome::Begun);
        };
        let overrun = interval.overrun;
        self.write(interval);
        Ok(PollOutcome::Written { overrun })
    }

    fn write_lost(&self) {
        self.lost_polls.set(1.0);
        self.metrics.write_missing(0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use equality::control::Switch;
    use equality::interpreter::Machine;
    use equality::programs::Subject;
    use equality::traffic::Streams;
    use packets::switch::readout::FrameInterval;

    use super::*;
    use crate::config::Config;

    #[test]
    fn shares_of_prefixes_are_written_with_the_worst_one_and_are_missing_with_an_overrun() {
        let subject = Subject::of_name("reordering").unwrap();
        let machine = Machine::new(subject.load().unwrap().into());
        let switch = Switch::start(machine, TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let (control, constants) = (switch.address(), subject.folder().join("constants.p4"));
        let source = format!("switch: {{control: '{control}', constants: {}}}", constants.display());
        let text = format!("network: {{streams: [{{name: a, {source}, synopses: {{reordering: {{}}}}}}]}}\n");
        let stream = Config::parse(&text).unwrap().network.streams.remove(0);
        let (config, synopses) = (stream.switch.as_ref().unwrap(), stream.synopses.as_ref().unwrap());
        let socket = Path::new("/nowhere/services.sock");
        let mut measured = SwitchReordering::new(&stream, config, synopses, socket).unwrap();
        let mut remote = RemoteSwitch::connect(&config.control, measured.program()).unwrap();
        let polled = measured.poll(&mut remote, UnixNanos::from_secs(1)).unwrap();
        assert_eq!(polled, PollOutcome::Begun);

        for captured in Streams::new(9).take(800) {
            switch.process(&captured).unwrap();
        }
        remote.begin_poll();
        let polled = measured.poll(&mut remote, UnixNanos::from_secs(2)).unwrap();
        assert_eq!(polled, PollOutcome::Written { overrun: 0 });
        let values = measured.metrics.values();
        let [share, prefixes] = ["network.reordering.share", "network.reordering.prefixes"].map(|name| values[name]);
        // 15 of 100 segments are late.
        assert!(share > 0.05 && share < 0.5 && prefixes >= 1.0, "{values:?}");
        let about = measured.metrics.subject("network.reordering.prefix.share").unwrap();
        assert!(about.contains("packets checked)") && about.contains('/'), "{about}");
        assert_eq!((values.len(), measured.overrun.get(), measured.lost_polls.get()), (3, 0.0, 0.0));
        let [packets, ..] = measured.metrics.counts();
        assert!(packets > 700, "{packets}");

        let frames = FrameInterval { packets: 5, refused: 0, lost_polls: 1 };
        measured.write(Interval { frames, reordering: None, overrun: 6 });
        assert!(measured.metrics.values().values().all(|value| value.is_nan()));
        assert_eq!((measured.overrun.get(), measured.lost_polls.get()), (1.0, 1.0));
        assert_eq!(measured.metrics.counts()[0], packets + 5);
    }
}
