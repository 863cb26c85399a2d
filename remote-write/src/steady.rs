//! What is read of a service at the baseline's instants and is made of no row: `up`, and histograms with their buckets.
//!
//! A histogram is what Prometheus calls a classic one: a counter for each bound that counts what is not above it, under `…_bucket` with the bound as
//! `le`, the sum and the count. Series of a histogram that is not read any more end, and so does `up` where it is not said any more.
//!
//! In OTLP a histogram is one series, and one sample.
//!
//! A receiver takes an exemplar only if it is later than the one before in its series, so each is sent once.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::sampling::{self, Ledger, LostSample};
use hooks::time::UnixNanos;

use crate::feed::Naming;
use crate::naming::{MetricType, metric_name, unit_name};
use crate::series::{About, Beside, Distribution, Exemplar, Point, Series};

/// What was read of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Whether it is there and measured; `None` if that cannot be said.
    pub up: Option<bool>,
    /// Histograms, cumulative since each began.
    pub histograms: Vec<Histogram>,
}

/// A histogram. Name and labels together belong to one of a service at the most.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// As the service has it, `http.server.request.duration` say.
    pub name: &'static str,
    /// In UCUM.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Labels, as the service has them.
    pub labels: Vec<(String, String)>,
    /// Upper bounds in its unit, rising; each belongs to its bucket.
    pub bounds: Arc<[f64]>,
    /// What was counted between the bounds, one more than there are bounds. Not added up.
    pub counts: Vec<u64>,
    /// The sum of what was counted, in its unit.
    pub sum: f64,
    /// For each count a request of a kept trace that it counts.
    pub exemplars: Vec<Option<Exemplar>>,
}

/// The series of one histogram.
#[derive(Debug)]
struct Known {
    /// One for each bound, that of infinity, the sum and the count; the first of them alone in OTLP.
    series: Vec<Arc<Series>>,
    /// When the exemplar ended that was sent last, of each bucket.
    shown_ms: Vec<i64>,
    /// It was there at the last reading.
    read: bool,
}

/// Name and labels of a histogram.
type Key = (&'static str, Vec<(String, String)>);

/// What is known of a service's readings. Memory: about 14 KiB for a histogram of 16 bounds.
#[derive(Debug)]
pub(crate) struct Steady {
    up: Option<Arc<Series>>,
    histograms: BTreeMap<Key, Known>,
    last_ms: u64,
}

impl Steady {
    /// Nothing was read, and nothing up to `not_before_ms` will be sent.
    pub(crate) const fn new(not_before_ms: u64) -> Self {
        Self { up: None, histograms: BTreeMap::new(), last_ms: not_before_ms }
    }

    /// The time of the last sample or mark.
    pub(crate) const fn last_ms(&self) -> u64 {
        self.last_ms
    }

    /// Something was read at `at`. Samples, and marks of what is not there any more, go to `out`; `books` have the samples.
    pub(crate) fn read(
        &mut self,
        reading: &Reading,
        at: UnixNanos,
        naming: &mut Naming<'_>,
        books: &mut Ledger,
        out: &mut Vec<Point>,
    ) {
        let of = |histogram: &Histogram| if naming.is_otlp() { 1 } else { histogram.counts.len() as u64 + 2 };
        let samples = u64::from(reading.up.is_some()) + reading.histograms.iter().map(of).sum::<u64>();
        books.seen += samples;
        books.handed += samples;
        if at.millis() <= self.last_ms {
            return books.lose(LostSample::OutOfOrder, samples);
        }
        // What was not there at the reading before began since.
        let since_ms = self.last_ms.max(1) as i64;
        self.last_ms = at.millis();
        let at_ms = self.last_ms as i64;
        match reading.up {
            Some(up) => {
                let series = self.up.get_or_insert_with(|| up_series(naming));
                out.push(Point::new(Arc::clone(series), at_ms, Some(f64::from(u8::from(up)))));
            }
            None => out.extend(self.up.take().map(|series| Point::new(series, at_ms, None))),
        }
        for histogram in &reading.histograms {
            let key = (histogram.name, histogram.labels.clone());
            let known = self.histograms.entry(key).or_insert_with(|| Known::new(histogram, since_ms, naming));
            known.read = true;
            if naming.is_otlp() {
                known.send_whole(histogram, at_ms, out);
            } else {
                known.send(histogram, at_ms, out);
            }
        }
        self.histograms.retain(|_, known| {
            let there = core::mem::take(&mut known.read);
            if !there {
                known.end(at_ms, out);
            }
            there
        });
    }

    /// The service is gone: its series end, after everything that was sent.
    pub(crate) fn end(&mut self, at: UnixNanos, out: &mut Vec<Point>) {
        self.last_ms = at.millis().max(self.last_ms + 1);
        let at_ms = self.last_ms as i64;
        out.extend(self.up.take().map(|series| Point::new(series, at_ms, None)));
        for known in core::mem::take(&mut self.histograms).into_values() {
            known.end(at_ms, out);
        }
    }
}

fn up_series(naming: &mut Naming<'_>) -> Arc<Series> {
    let help = "1 while a replica is there and measured, 0 while all of them are silent".to_owned();
    let about = About { kind: MetricType::Gauge, unit: String::new(), help, start_ms: 0 };
    naming.series(sampling::Series::Baseline, "up", [], about)
}

impl Known {
    fn new(histogram: &Histogram, since_ms: i64, naming: &mut Naming<'_>) -> Self {
        if naming.is_otlp() {
            let labels = histogram.labels.iter().map(|(key, value)| (&**key, &**value));
            let (unit, help) = (histogram.unit.to_owned(), histogram.help.to_owned());
            let about = About { kind: MetricType::Histogram, unit, help, start_ms: since_ms };
            let series = vec![naming.series(sampling::Series::Baseline, histogram.name, labels, about)];
            return Self { series, shown_ms: vec![i64::MIN; histogram.counts.len()], read: false };
        }
        let unit = unit_name(histogram.unit);
        let name = format!("{}_{unit}", metric_name(histogram.name));
        let mut one = |suffix: &str, bound: Option<&str>| {
            let labels = histogram.labels.iter().map(|(key, value)| (&**key, &**value));
            let labels = labels.filter(|(key, _)| *key != "le").chain(bound.map(|bound| ("le", bound)));
            let (unit, help) = (unit.clone(), histogram.help.to_owned());
            let about = About { kind: MetricType::Histogram, unit, help, start_ms: since_ms };
            naming.series(sampling::Series::Baseline, &format!("{name}{suffix}"), labels, about)
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
        let whole = Some(Arc::new(Beside::Distribution(whole)));
        out.extend(self.series.first().map(|series| Point { beside: whole, ..point(series) }));
    }

    fn send(&mut self, histogram: &Histogram, at_ms: i64, out: &mut Vec<Point>) {
        let mut below = 0_u64;
        for (place, count) in histogram.counts.iter().enumerate() {
            below = below.saturating_add(*count);
            let beside = self.unsent(histogram, place).map(|exemplar| Arc::new(Beside::Exemplar(exemplar.clone())));
            let series = self.series.get(place).map(Arc::clone);
            out.extend(series.map(|series| Point { beside, ..Point::new(series, at_ms, Some(below as f64)) }));
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
