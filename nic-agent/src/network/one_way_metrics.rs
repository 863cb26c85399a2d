//! The metrics of a one-way stream.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::OnceLock;

use agent_runtime::Count;
use client::{Client, Counter, Gauge, Group, Service};
use one_way::{Flags, Report};

use super::silence::Silence;
use super::stream_service::stream_service;

const NS: f64 = 1e9;

/// The metrics of one stream. Its service is registered with the first trusted figure: before, an LMAP has nothing to
/// learn from.
#[derive(Debug)]
pub(super) struct OneWayMetrics {
    service: Service,
    interval_ms: NonZeroU32,
    instruments: OnceLock<Instruments>,
    /// Unparsable frames that are not written yet.
    refused: Count,
    /// Frames dropped by the kernel that are not written yet.
    dropped: Count,
}

/// The instruments of one stream.
#[derive(Debug)]
struct Instruments {
    mean: Gauge,
    deviation: Gauge,
    loss: Gauge,
    peer: Silence,
    path: Silence,
    // How good these figures are. No detector watches them.
    sent: Counter,
    received: Counter,
    trusted: Gauge,
    packets: Gauge,
    clock: Gauge,
    clock_error: Gauge,
    flags: Vec<(Flags, Gauge)>,
    lost: Counter,
    late: Counter,
    odd: Counter,
    refused: Counter,
    dropped: Counter,
    // Last: dropping it unregisters the metrics.
    client: Client,
}

impl OneWayMetrics {
    pub(super) fn new(service: &str, socket: &Path, interval_ms: NonZeroU32) -> Self {
        let service = stream_service(service, socket, interval_ms);
        Self {
            service,
            interval_ms,
            instruments: OnceLock::new(),
            refused: Count::default(),
            dropped: Count::default(),
        }
    }

    /// Writes the report of one interval. Figures that are not trusted are written as missing.
    pub(super) fn write(&self, report: &Report) {
        let is_known = report.trusted_mean_ns().is_some() || report.trusted_loss().is_some();
        let instruments = match self.instruments.get() {
            Some(instruments) => instruments,
            None if is_known => {
                self.instruments.get_or_init(|| Instruments::new(self.service.clone(), self.interval_ms))
            }
            None => return,
        };
        instruments.write(report);
        instruments.refused.add(self.refused.take());
        instruments.dropped.add(self.dropped.take());
        instruments.client.changed();
    }

    /// Adds frames that could not be parsed.
    pub(super) fn refused(&self, frames: u64) {
        self.refused.add(frames);
    }

    /// Adds frames that the kernel dropped.
    pub(super) fn dropped(&self, frames: u64) {
        self.dropped.add(frames);
    }
}

impl Instruments {
    fn new(service: Service, interval_ms: NonZeroU32) -> Self {
        let client = client::connect(service);
        let gauge = |name: &str, unit: &str, group| client.gauge(name).unit(unit).group(group).register();
        let counter = |name: &str, group| client.counter(name).unit("{packet}").group(group).register();
        let (watched, measurement) = (Group::Network, Group::Measurement);
        let flags = Flags::ALL.map(|(flag, name)| (flag, gauge(&format!("network.flag.{name}"), "1", measurement)));
        Self {
            mean: gauge("network.owd.mean", "s", watched),
            deviation: gauge("network.owd.deviation", "s", watched),
            loss: gauge("network.loss", "1", watched),
            peer: Silence::new(gauge("network.peer.silence", "s", watched), interval_ms),
            path: Silence::new(gauge("network.packets.silence", "s", watched), interval_ms),
            sent: counter("network.packets.sent", measurement),
            received: counter("network.packets.received", measurement),
            trusted: gauge("network.owd.trusted", "1", measurement),
            packets: gauge("network.owd.packets", "{packet}", measurement),
            clock: gauge("network.clock.ahead", "s", measurement),
            clock_error: gauge("network.clock.error", "s", measurement),
            flags: flags.into(),
            lost: counter("network.packets.lost", measurement),
            late: counter("network.packets.late", measurement),
            odd: counter("network.packets.odd", measurement),
            refused: counter("network.packets.refused", measurement),
            dropped: counter("network.packets.dropped_by_kernel", measurement),
            client,
        }
    }

    fn write(&self, report: &Report) {
        let mean = report.trusted_mean_ns();
        self.mean.set(mean.map_or(f64::NAN, |mean| mean / NS));
        self.deviation.set(report.trusted_deviation_ns().map_or(f64::NAN, |deviation| deviation / NS));
        self.loss.set(report.trusted_loss().unwrap_or(f64::NAN));
        self.trusted.set(f64::from(u8::from(mean.is_some())));
        self.packets.set(report.packets as f64);
        self.clock.set(report.clock.map_or(f64::NAN, |clock| clock.ahead_ns as f64 / NS));
        self.clock_error.set(report.clock_error_ns.map_or(f64::NAN, |error_ns| error_ns as f64 / NS));
        for (flag, gauge) in &self.flags {
            gauge.set(f64::from(u8::from(report.flags.any(*flag))));
        }
        self.peer.write(report.flags.any(Flags::NO_PEER_DATA));
        self.path.write(report.received == Some(0) && report.sent.is_some_and(|sent| sent > 0));
        self.sent.add(report.sent.unwrap_or(0));
        self.received.add(report.received.unwrap_or(0));
        // If the loss is not trusted, no packet is counted as lost.
        if report.trusted_loss().is_some() {
            self.lost.add(report.lost);
            self.late.add(report.late);
            self.odd.add(report.odd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flagged_figure_is_missing_and_its_flag_is_set() {
        let metrics = OneWayMetrics::new("network.a", Path::new("/nowhere/services.sock"), NonZeroU32::MIN);
        metrics.refused(2);
        metrics.write(&Report::unknown(0, Flags::NO_PEER_DATA));
        assert!(metrics.instruments.get().is_none(), "a stream without any trusted figure has no service");
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

        metrics.write(&good);
        let instruments = metrics.instruments.get().unwrap();
        assert_eq!(instruments.refused.get(), 2);
        let known =
            [&instruments.mean, &instruments.deviation, &instruments.loss, &instruments.trusted].map(Gauge::get);
        assert_eq!((known, instruments.lost.get()), ([2e-3, 1e-3, 0.01, 1.0], 10));

        metrics.write(&Report { flags: Flags::SUSPECT_CLOCK | Flags::MISSED, ..good });
        let known = [&instruments.mean, &instruments.deviation, &instruments.loss].map(|gauge| gauge.get().is_nan());
        assert_eq!((known, instruments.trusted.get(), instruments.lost.get()), ([true; 3], 0.0, 10));
        let flagged: Vec<_> =
            instruments.flags.iter().filter(|(_, gauge)| gauge.get() == 1.0).map(|(flag, _)| *flag).collect();
        assert_eq!(flagged, [Flags::MISSED, Flags::SUSPECT_CLOCK]);

        // An unsynchronised clock has no known error; delay and loss are written all the same.
        assert!(instruments.clock_error.get().is_nan());
        metrics.write(&Report { clock_error_ns: Some(30_000), ..good });
        assert_eq!((instruments.clock_error.get(), instruments.mean.get()), (3e-5, 2e-3));
        metrics.write(&Report { flags: Flags::UNSYNCHRONISED, ..good });
        assert!(
            instruments.clock_error.get().is_nan() && instruments.mean.get() == 2e-3 && instruments.loss.get() == 0.01
        );

        // With the flag thin, the delay is missing and the loss is not.
        metrics.write(&Report { flags: Flags::THIN, ..good });
        assert!(instruments.mean.get().is_nan() && instruments.loss.get() == 0.01);
    }

    #[test]
    fn silence_grows_with_each_interval_without_data() {
        let interval_ms = NonZeroU32::new(500).unwrap();
        let metrics = OneWayMetrics::new("network.a", Path::new("/nowhere/services.sock"), interval_ms);
        let good = Report {
            mean_ns: Some(2e6),
            loss: Some(0.0),
            sent: Some(10),
            received: Some(10),
            ..Report::unknown(0, Flags::NONE)
        };
        let cut = Report { mean_ns: None, loss: Some(1.0), received: Some(0), lost: 10, ..good };
        let alone = Report { sent: Some(10), ..Report::unknown(0, Flags::NO_PEER_DATA) };
        let silences = |report| {
            metrics.write(report);
            let instruments = metrics.instruments.get().unwrap();
            [&instruments.peer, &instruments.path].map(Silence::seconds)
        };

        assert_eq!(silences(&good), [0.0, 0.0]);
        assert_eq!(silences(&cut), [0.0, 0.5]);
        assert_eq!(silences(&cut), [0.0, 1.0]);
        assert_eq!(silences(&alone), [0.5, 0.0], "nothing is known of what arrived");
        assert_eq!(silences(&alone), [1.0, 0.0]);
        // If nothing is sent, nothing can arrive.
        assert_eq!(silences(&Report { sent: Some(0), ..cut }), [0.0, 0.0]);
    }
}
