//! What is known of a stream that is compared with another agent's, as metrics of its service.

use std::path::Path;

use client::{Client, Counter, Gauge, Group, Service};
use exchange::{Flags, Report};

const NS: f64 = 1e9;

/// The metrics of one stream.
#[derive(Debug)]
pub(super) struct Figures {
    mean: Gauge,
    deviation: Gauge,
    loss: Gauge,
    trusted: Gauge,
    rests_on: Gauge,
    clock: Gauge,
    clock_error: Gauge,
    flags: Vec<(Flags, Gauge)>,
    sent: Counter,
    received: Counter,
    lost: Counter,
    late: Counter,
    odd: Counter,
    refused: Counter,
    dropped: Counter,
    // Last: the values go away with it.
    _client: Client,
}

impl Figures {
    pub(super) fn new(service: &str, socket: &Path) -> Self {
        let client = client::connect(Service::new(service).socket(socket));
        let gauge = |name: &str, unit: &str| client.gauge(name).unit(unit).group(Group::Network).register();
        let counter = |name: &str| client.counter(name).unit("{packet}").group(Group::Network).register();
        let flags = Flags::ALL.map(|(flag, name)| (flag, gauge(&format!("network.flag.{name}"), "1")));
        let figures = Self {
            mean: gauge("network.owd.mean", "s"),
            deviation: gauge("network.owd.deviation", "s"),
            loss: gauge("network.loss", "1"),
            trusted: gauge("network.owd.trusted", "1"),
            rests_on: gauge("network.owd.packets", "{packet}"),
            clock: gauge("network.clock.ahead", "s"),
            clock_error: gauge("network.clock.error", "s"),
            flags: flags.into(),
            sent: counter("network.packets.sent"),
            received: counter("network.packets.received"),
            lost: counter("network.packets.lost"),
            late: counter("network.packets.late"),
            odd: counter("network.packets.odd"),
            refused: counter("network.packets.refused"),
            dropped: counter("network.packets.dropped_by_kernel"),
            _client: client,
        };
        // Until something is known.
        figures.write_unknown();
        figures
    }

    fn write_unknown(&self) {
        for gauge in [&self.mean, &self.deviation, &self.loss, &self.clock, &self.clock_error] {
            gauge.set(f64::NAN);
        }
        self.trusted.set(0.0);
        self.rests_on.set(0.0);
    }

    /// One interval's report. What is not to be acted upon is missing.
    pub(super) fn write(&self, report: &Report) {
        let mean = report.trusted_mean_ns();
        self.mean.set(mean.map_or(f64::NAN, |mean| mean / NS));
        self.deviation.set(report.trusted_deviation_ns().map_or(f64::NAN, |deviation| deviation / NS));
        self.loss.set(report.trusted_loss().unwrap_or(f64::NAN));
        self.trusted.set(f64::from(u8::from(mean.is_some())));
        self.rests_on.set(report.packets as f64);
        self.clock.set(report.clock.map_or(f64::NAN, |clock| clock.ahead_ns as f64 / NS));
        self.clock_error.set(report.clock_error_ns.map_or(f64::NAN, |error_ns| error_ns as f64 / NS));
        for (flag, gauge) in &self.flags {
            gauge.set(f64::from(u8::from(report.flags.any(*flag))));
        }
        self.sent.add(report.sent.unwrap_or(0));
        self.received.add(report.received.unwrap_or(0));
        // Where it is not known who was lost, nobody is.
        if report.trusted_loss().is_some() {
            self.lost.add(report.lost);
            self.late.add(report.late);
            self.odd.add(report.odd);
        }
    }

    /// Frames that are no packets.
    pub(super) fn refused(&self, frames: u64) {
        self.refused.add(frames);
    }

    /// Frames that the kernel dropped.
    pub(super) fn dropped(&self, frames: u64) {
        self.dropped.add(frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_flagged_is_missing_and_its_flag_is_there() {
        let figures = Figures::new("network.a", Path::new("/nowhere/services.sock"));
        assert!(figures.mean.get().is_nan() && figures.trusted.get() == 0.0);
        let good = Report {
            mean_ns: Some(2e6),
            deviation_ns: Some(1e6),
            loss: Some(0.01),
            sent: Some(1_000),
            received: Some(990),
            lost: 10,
            packets: 990,
            ..Report::unknown(0, Flags::NONE)
        };

        figures.write(&good);
        let known = [&figures.mean, &figures.deviation, &figures.loss, &figures.trusted].map(Gauge::get);
        assert_eq!((known, figures.lost.get()), ([2e-3, 1e-3, 0.01, 1.0], 10));

        figures.write(&Report { flags: Flags::SUSPECT_CLOCK | Flags::MISSED, ..good });
        let known = [&figures.mean, &figures.deviation, &figures.loss].map(|gauge| gauge.get().is_nan());
        assert_eq!((known, figures.trusted.get(), figures.lost.get()), ([true; 3], 0.0, 10));
        let flagged: Vec<_> =
            figures.flags.iter().filter(|(_, gauge)| gauge.get() == 1.0).map(|(flag, _)| *flag).collect();
        assert_eq!(flagged, [Flags::MISSED, Flags::SUSPECT_CLOCK]);

        // A clock that nobody keeps has no known error, and is told of; the figures are there.
        assert!(figures.clock_error.get().is_nan());
        figures.write(&Report { clock_error_ns: Some(30_000), ..good });
        assert_eq!((figures.clock_error.get(), figures.mean.get()), (3e-5, 2e-3));
        figures.write(&Report { flags: Flags::UNSYNCHRONISED, ..good });
        assert!(figures.clock_error.get().is_nan() && figures.mean.get() == 2e-3 && figures.loss.get() == 0.01);

        // A thin delay is missing, a loss beside it is not.
        figures.write(&Report { flags: Flags::THIN, ..good });
        assert!(figures.mean.get().is_nan() && figures.loss.get() == 0.01);
    }
}
