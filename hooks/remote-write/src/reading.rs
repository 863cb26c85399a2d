//! Values read at the baseline's instants that are not in rows: `up`, and histograms with their buckets.
//!
//! In remote write a histogram is a classic one: a cumulative counter for each bound, `…_bucket` with the bound as
//! `le`, and the sum and count. Series of a histogram that is not read any more end; so does `up` when it becomes
//! unknown.
//!
//! In OTLP a histogram is one series, and one sample.
//!
//! A receiver accepts an exemplar only if it is later than the one before in its series, so each is sent once.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::sampling::{self, Ledger, SampleLossReason};
use wire::time::UnixNanos;

use crate::feed::series_factory::SeriesFactory;
use crate::naming::{MetricType, metric_name, unit_name};
use crate::series::{Attachment, Distribution, Exemplar, Point, Series, SeriesMetadata, start_before};

/// Values read of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Whether a replica is up and measured; `None` if unknown.
    pub up: Option<bool>,
    /// Histograms, cumulative since each began.
    pub histograms: Vec<Histogram>,
}

/// A histogram. Name and labels are unique within a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Name as the service has it, such as `http.server.request.duration`.
    pub name: &'static str,
    /// Unit in UCUM.
    pub unit: &'static str,
    /// Help text, for metadata.
    pub help: &'static str,
    /// Labels as the service has them.
    pub labels: Vec<(String, String)>,
    /// Inclusive upper bounds in its unit, ascending.
    pub bounds: Arc<[f64]>,
    /// Counts per bucket, one more than there are bounds. Not cumulative over buckets.
    pub counts: Vec<u64>,
    /// Sum of the measured values, in its unit.
    pub sum: f64,
    /// For each bucket a request of a kept trace that it counts.
    pub exemplars: Vec<Option<Exemplar>>,
}

/// The series of one histogram.
#[derive(Debug)]
struct HistogramSeries {
    /// One series for each bound, infinity, the sum and the count; in OTLP one in all.
    series: Vec<Arc<Series>>,
    /// End of the last sent exemplar, by bucket.
    shown_ms: Vec<i64>,
    /// It was part of the last reading.
    read: bool,
}

/// Name and labels of a histogram.
type Key = (&'static str, Vec<(String, String)>);

/// Series of a service's readings. Memory: about 14 KiB for a histogram of 16 bounds.
#[derive(Debug)]
pub(crate) struct ReadingSeries {
    up: Option<Arc<Series>>,
    histograms: BTreeMap<Key, HistogramSeries>,
    last_ms: u64,
}

impl ReadingSeries {
    /// No series; nothing up to `not_before_ms` will be sent.
    pub(crate) const fn new(not_before_ms: u64) -> Self {
        Self { up: None, histograms: BTreeMap::new(), last_ms: not_before_ms }
    }

    /// Time of the last sample or stale marker.
    pub(crate) const fn last_ms(&self) -> u64 {
        self.last_ms
    }

    /// The wall clock was set back: what was sent after `last_ms` is forgotten.
    pub(crate) fn set_back(&mut self, last_ms: u64) {
        self.last_ms = self.last_ms.min(last_ms);
        for histogram in self.histograms.values_mut() {
            histogram.series.iter_mut().for_each(|series| start_before(series, last_ms));
            histogram.shown_ms.iter_mut().for_each(|shown| *shown = (*shown).min(last_ms as i64));
        }
    }

    /// Adds a reading at `at`. Samples, and stale markers of what is gone, go to `out`; samples are recorded in
    /// `ledger`.
    pub(crate) fn read(
        &mut self,
        reading: &Reading,
        at: UnixNanos,
        factory: &mut SeriesFactory<'_>,
        ledger: &mut Ledger,
        out: &mut Vec<Point>,
    ) {
        let of = |histogram: &Histogram| if factory.is_otlp() { 1 } else { histogram.counts.len() as u64 + 2 };
        let samples = u64::from(reading.up.is_some()) + reading.histograms.iter().map(of).sum::<u64>();
        ledger.seen += samples;
        ledger.in_flight += samples;
        if at.millis() <= self.last_ms {
            return ledger.lose(SampleLossReason::OutOfOrder, samples);
        }
        // What was not in the last reading began since.
        let since_ms = self.last_ms.max(1) as i64;
        self.last_ms = at.millis();
        let at_ms = self.last_ms as i64;
        match reading.up {
            Some(up) => {
                let series = self.up.get_or_insert_with(|| up_series(factory));
                out.push(Point::new(Arc::clone(series), at_ms, Some(f64::from(u8::from(up)))));
            }
            None => out.extend(self.up.take().map(|series| Point::new(series, at_ms, None))),
        }
        for histogram in &reading.histograms {
            let key = (histogram.name, histogram.labels.clone());
            let series =
                self.histograms.entry(key).or_insert_with(|| HistogramSeries::new(histogram, since_ms, factory));
            series.read = true;
            if factory.is_otlp() {
                series.send_whole(histogram, at_ms, out);
            } else {
                series.send(histogram, at_ms, out);
            }
        }
        self.histograms.retain(|_, series| {
            let present = core::mem::take(&mut series.read);
            if !present {
                series.end(at_ms, out);
            }
            present
        });
    }

    /// The service is gone: its series end, after everything that was sent.
    pub(crate) fn end(&mut self, at: UnixNanos, out: &mut Vec<Point>) {
        self.last_ms = at.millis().max(self.last_ms + 1);
        let at_ms = self.last_ms as i64;
        out.extend(self.up.take().map(|series| Point::new(series, at_ms, None)));
        for series in core::mem::take(&mut self.histograms).into_values() {
            series.end(at_ms, out);
        }
    }
}

fn up_series(factory: &mut SeriesFactory<'_>) -> Arc<Series> {
    let help = "1 while a replica is up and measured, 0 while all of them are silent".to_owned();
    let metadata = SeriesMetadata { kind: MetricType::Gauge, unit: String::new(), help, start_ms: 0 };
    factory.series(sampling::Series::Baseline, "up", [], metadata)
}

impl HistogramSeries {
    fn new(histogram: &Histogram, since_ms: i64, factory: &mut SeriesFactory<'_>) -> Self {
        if factory.is_otlp() {
            let labels = histogram.labels.iter().map(|(key, value)| (&**key, &**value));
            let (unit, help) = (histogram.unit.to_owned(), histogram.help.to_owned());
            let metadata = SeriesMetadata { kind: MetricType::Histogram, unit, help, start_ms: since_ms };
            let series = vec![factory.series(sampling::Series::Baseline, histogram.name, labels, metadata)];
            return Self { series, shown_ms: vec![i64::MIN; histogram.counts.len()], read: false };
        }
        let unit = unit_name(histogram.unit);
        let name = format!("{}_{unit}", metric_name(histogram.name));
        let mut one = |suffix: &str, bound: Option<&str>| {
            let labels = histogram.labels.iter().map(|(key, value)| (&**key, &**value));
            let labels = labels.filter(|(key, _)| *key != "le").chain(bound.map(|bound| ("le", bound)));
            let (unit, help) = (unit.clone(), histogram.help.to_owned());
            let metadata = SeriesMetadata { kind: MetricType::Histogram, unit, help, start_ms: since_ms };
            factory.series(sampling::Series::Baseline, &format!("{name}{suffix}"), labels, metadata)
        };
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}")).chain(["+Inf".to_owned()]);
        let mut series: Vec<_> = bounds.map(|bound| one("_bucket", Some(&bound))).collect();
        let shown_ms = vec![i64::MIN; series.len()];
        series.extend([one("_sum", None), one("_count", None)]);
        Self { series, shown_ms, read: false }
    }

    /// The exemplar of a bucket, unless it was sent.
    fn unsent<'a>(&mut self, histogram: &'a Histogram, place: usize) -> Option<&'a Exemplar> {
        let (shown, exemplar) = (self.shown_ms.get_mut(place)?, histogram.exemplars.get(place)?.as_ref()?);
        let is_new = exemplar.at_ms > *shown;
        *shown = exemplar.at_ms.max(*shown);
        Some(exemplar).filter(|_| is_new)
    }

    fn send_whole(&mut self, histogram: &Histogram, at_ms: i64, out: &mut Vec<Point>) {
        let exemplars =
            (0..histogram.counts.len()).filter_map(|place| self.unsent(histogram, place).cloned()).collect();
        let Histogram { counts, bounds, sum, .. } = histogram;
        let count = counts.iter().sum::<u64>() as f64;
        let whole = Distribution { counts: counts.clone(), bounds: Arc::clone(bounds), sum: *sum, exemplars };
        let point = |series| Point::new(Arc::clone(series), at_ms, Some(count));
        let whole = Some(Arc::new(Attachment::Distribution(whole)));
        out.extend(self.series.first().map(|series| Point { attachment: whole, ..point(series) }));
    }

    fn send(&mut self, histogram: &Histogram, at_ms: i64, out: &mut Vec<Point>) {
        let mut below = 0_u64;
        for (place, count) in histogram.counts.iter().enumerate() {
            below = below.saturating_add(*count);
            let attachment =
                self.unsent(histogram, place).map(|exemplar| Arc::new(Attachment::Exemplar(exemplar.clone())));
            let series = self.series.get(place).map(Arc::clone);
            out.extend(series.map(|series| Point { attachment, ..Point::new(series, at_ms, Some(below as f64)) }));
        }
        let others = self.series.iter().skip(histogram.counts.len());
        for (series, value) in others.zip([histogram.sum, below as f64]) {
            out.push(Point::new(Arc::clone(series), at_ms, Some(value)));
        }
    }

    fn end(&self, at_ms: i64, out: &mut Vec<Point>) {
        out.extend(self.series.iter().map(|series| Point::new(Arc::clone(series), at_ms, None)));
    }
}
