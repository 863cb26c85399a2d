//! What is known of a stream that is compared with another agent's, as metrics of its service.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, Counter, Gauge, Group, Service};
use exchange::{Flags, Report};

use super::Silence;

const NS: f64 = 1e9;

/// What is known of one stream. It is a service from its first figure on: before, there is nothing that an LMAP could learn from.
#[derive(Debug)]
pub(super) struct Figures {
    service: Service,
    interval_ms: NonZeroU32,
    metrics: OnceLock<Metrics>,
    /// Frames that are no packets, and frames that the kernel dropped, that were not told yet.
    refused: AtomicU64,
    dropped: AtomicU64,
}

/// The metrics of one stream.
#[derive(Debug)]
struct Metrics {
    mean: Gauge,
    deviation: Gauge,
    loss: Gauge,
    peer: Silence,
    path: Silence,
    // What these rest on, and how good they are: not judged.
    sent: Counter,
    received: Counter,
    trusted: Gauge,
    rests_on: Gauge,
    clock: Gauge,
    clock_error: Gauge,
    flags: Vec<(Flags, Gauge)>,
    lost: Counter,
    late: Counter,
    odd: Counter,
    refused: Counter,
    dropped: Counter,
    // Last: the values go away with it.
    client: Client,
}

impl Figures {
    pub(super) fn new(service: &str, socket: &Path, interval_ms: NonZeroU32) -> Self {
        let service = super::service(service, socket, interval_ms);
        Self { service, interval_ms, metrics: OnceLock::new(), refused: AtomicU64::new(0), dropped: AtomicU64::new(0) }
    }

    /// One interval's report. What is not to be acted upon is missing.
    pub(super) fn write(&self, report: &Report) {
        let is_known = report.trusted_mean_ns().is_some() || report.trusted_loss().is_some();
        let metrics = match self.metrics.get() {
            Some(metrics) => metrics,
            None if is_known => self.metrics.get_or_init(|| Metrics::new(self.service.clone(), self.interval_ms)),
            None => return,
        };
        metrics.write(report);
        metrics.refused.add(self.refused.swap(0, Ordering::Relaxed));
        metrics.dropped.add(self.dropped.swap(0, Ordering::Relaxed));
        metrics.client.changed();
    }

    /// Frames that are no packets.
    pub(super) fn refused(&self, frames: u64) {
        self.refused.fetch_add(frames, Ordering::Relaxed);
    }

    /// Frames that the kernel dropped.
    pub(super) fn dropped(&self, frames: u64) {
        self.dropped.fetch_add(frames, Ordering::Relaxed);
    }
}

impl Metrics {
    fn new(service: Service, interval_ms: NonZeroU32) -> Self {
        let client = client::connect(service);
        let gauge = |name: &str, unit: &str, group| client.gauge(name).unit(unit).group(group).register();
        let counter = |name: &str, group| client.counter(name).unit("{packet}").group(group).register();
        let (judged, beside) = (Group::Network, Group::Measurement);
        let flags = Flags::ALL.map(|(flag, name)| (flag, gauge(&format!("network.flag.{name}"), "1", beside)));
        Self {
            mean: gauge("network.owd.mean", "s", judged),
            deviation: gauge("network.owd.deviation", "s", judged),
            loss: gauge("network.loss", "1", judged),
            peer: Silence::new(gauge("network.peer.silence", "s", judged), interval_ms),
            path: Silence::new(gauge("network.packets.silence", "s", judged), interval_ms),
            sent: counter("network.packets.sent", beside),
            received: counter("network.packets.received", beside),
            trusted: gauge("network.owd.trusted", "1", beside),
            rests_on: gauge("network.owd.packets", "{packet}", beside),
            clock: gauge("network.clock.ahead", "s", beside),
            clock_error: gauge("network.clock.error", "s", beside),
            flags: flags.into(),
            lost: counter("network.packets.lost", beside),
            late: counter("network.packets.late", beside),
            odd: counter("network.packets.odd", beside),
            refused: counter("network.packets.refused", beside),
            dropped: counter("network.packets.dropped_by_kernel", beside),
            client,
        }
    }

    fn write(&self, report: &Report) {
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
        self.peer.write(report.flags.any(Flags::NO_PEER_DATA));
        self.path.write(report.received == Some(0) && report.sent.is_some_and(|sent| sent > 0));
        self.sent.add(report.sent.unwrap_or(0));
        self.received.add(report.received.unwrap_or(0));
        // Where it is not known who was lost, nobody is.
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
    fn what_is_flagged_is_missing_and_its_flag_is_there() {
        let figures = Figures::new("network.a", Path::new("/nowhere/services.sock"), NonZeroU32::MIN);
        figures.refused(2);
        figures.write(&Report::unknown(0, Flags::NO_PEER_DATA));
        assert!(figures.metrics.get().is_none(), "a stream of which nothing was ever known is no service");
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
        let metrics = figures.metrics.get().unwrap();
        assert_eq!(metrics.refused.get(), 2);
        let known = [&metrics.mean, &metrics.deviation, &metrics.loss, &metrics.trusted].map(Gauge::get);
        assert_eq!((known, metrics.lost.get()), ([2e-3, 1e-3, 0.01, 1.0], 10));

        figures.write(&Report { flags: Flags::SUSPECT_CLOCK | Flags::MISSED, ..good });
        let known = [&metrics.mean, &metrics.deviation, &metrics.loss].map(|gauge| gauge.get().is_nan());
        assert_eq!((known, metrics.trusted.get(), metrics.lost.get()), ([true; 3], 0.0, 10));
        let flagged: Vec<_> =
            metrics.flags.iter().filter(|(_, gauge)| gauge.get() == 1.0).map(|(flag, _)| *flag).collect();
        assert_eq!(flagged, [Flags::MISSED, Flags::SUSPECT_CLOCK]);

        // A clock that nobody keeps has no known error, and is told of; the figures are there.
        assert!(metrics.clock_error.get().is_nan());
        figures.write(&Report { clock_error_ns: Some(30_000), ..good });
        assert_eq!((metrics.clock_error.get(), metrics.mean.get()), (3e-5, 2e-3));
        figures.write(&Report { flags: Flags::UNSYNCHRONISED, ..good });
        assert!(metrics.clock_error.get().is_nan() && metrics.mean.get() == 2e-3 && metrics.loss.get() == 0.01);

        // A thin delay is missing, a loss beside it is not.
        figures.write(&Report { flags: Flags::THIN, ..good });
        assert!(metrics.mean.get().is_nan() && metrics.loss.get() == 0.01);
    }

    #[test]
    fn what_stays_away_is_silent_for_longer_and_longer() {
        let interval_ms = NonZeroU32::new(500).unwrap();
        let figures = Figures::new("network.a", Path::new("/nowhere/services.sock"), interval_ms);
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
            figures.write(report);
            let metrics = figures.metrics.get().unwrap();
            [&metrics.peer, &metrics.path].map(|silence| silence.gauge.get())
        };

        assert_eq!(silences(&good), [0.0, 0.0]);
        assert_eq!(silences(&cut), [0.0, 0.5]);
        assert_eq!(silences(&cut), [0.0, 1.0]);
        assert_eq!(silences(&alone), [0.5, 0.0], "nothing is known of what arrived");
        assert_eq!(silences(&alone), [1.0, 0.0]);
        // Where nothing is sent, nothing can arrive.
        assert_eq!(silences(&Report { sent: Some(0), ..cut }), [0.0, 0.0]);
    }
}
