//! Series, and a receiver as strict as Prometheus without an out-of-order window.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::sampling;
use prost::Message as _;
use remote_write::encoding::Version;
use remote_write::message::{self, v2};
use remote_write::naming::MetricType;
use remote_write::series::{Owner, Point, STALE_NAN, Series, SeriesMetadata, ServiceNumber};

/// A series with these labels.
pub fn series(number: u64, service: u32, labels: &[(&str, &str)], metadata: SeriesMetadata) -> Arc<Series> {
    let owner = Owner { service: ServiceNumber(service), series: sampling::Series::Baseline };
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Arc::new(Series::new(number, owner, labels, metadata))
}

/// A gauge of `service`.
pub fn gauge(number: u64, service: u32) -> Arc<Series> {
    let metadata = SeriesMetadata { kind: MetricType::Gauge, unit: String::new(), help: String::new(), start_ms: 0 };
    series(number, service, &[("__name__", &format!("g{number}")), ("job", &format!("s{service}"))], metadata)
}

/// A sample of `series`.
pub fn point(series: &Arc<Series>, at_ms: i64, value: f64) -> Point {
    Point::new(Arc::clone(series), at_ms, Some(value))
}

/// Labels of a series.
pub type Labels = Vec<(String, String)>;

/// Samples that a receiver has stored.
#[derive(Debug, Default)]
pub struct ReceivedSeries {
    /// Timestamps and bits of the values, by labels.
    pub series: BTreeMap<Labels, Vec<(i64, u64)>>,
}

/// Decodes a request of either version.
pub fn decoded(version: Version, body: &[u8]) -> Vec<(Labels, Vec<(i64, u64)>)> {
    let message = snap::raw::Decoder::new().decompress_vec(body).expect("one block of Snappy");
    assert_ne!(version, Version::Otlp, "that is not for this receiver");
    match version {
        Version::V1 | Version::Otlp => {
            let request = message::WriteRequest::decode(&message[..]).expect("a WriteRequest");
            let one = |series: message::TimeSeries| {
                let labels = series.labels.into_iter().map(|label| (label.name, label.value)).collect();
                (labels, series.samples.iter().map(|sample| (sample.timestamp, sample.value.to_bits())).collect())
            };
            request.timeseries.into_iter().map(one).collect()
        }
        Version::V2 => {
            let request = v2::Request::decode(&message[..]).expect("a Request");
            assert_eq!(request.symbols[0], "", "the table begins with nothing");
            let text = |place: &u32| request.symbols[*place as usize].clone();
            let one = |series: &v2::TimeSeries| {
                assert_ne!(series.metadata.expect("metadata is always there").r#type, 0);
                let labels = series.labels_refs.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
                (labels, series.samples.iter().map(|sample| (sample.timestamp, sample.value.to_bits())).collect())
            };
            request.timeseries.iter().map(one).collect()
        }
    }
}

impl ReceivedSeries {
    /// Stores a request as a receiver without an out-of-order window does, or returns what is wrong with it.
    pub fn take(&mut self, version: Version, body: &[u8]) -> Result<u64, String> {
        let mut written = 0;
        for (labels, samples) in decoded(version, body) {
            let sorted = labels.windows(2).all(|pair| pair[0].0 < pair[1].0);
            if !(sorted && labels.iter().all(|(name, value)| !name.is_empty() && !value.is_empty())) {
                return Err(format!("labels {labels:?}"));
            }
            let stored = self.series.entry(labels.clone()).or_default();
            for (at, bits) in samples {
                match stored.last() {
                    Some(&(last, _)) if at < last => return Err(format!("{labels:?}: {at} after {last}")),
                    Some(&(last, known)) if at == last && bits != known => {
                        return Err(format!("{labels:?}: {at} again"));
                    }
                    Some(&(last, _)) if at == last => {}
                    _ => stored.push((at, bits)),
                }
                written += 1;
            }
        }
        Ok(written)
    }

    /// Number of samples in series with the label, without stale markers.
    pub fn samples(&self, name: &str, value: Option<&str>) -> u64 {
        let has =
            |labels: &Labels| labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()) == value;
        let series = self.series.iter().filter(|(labels, _)| has(labels));
        series.map(|(_, samples)| samples.iter().filter(|(_, bits)| *bits != STALE_NAN).count() as u64).sum()
    }
}
