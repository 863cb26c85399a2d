//! Remote write samples: encoding speed, and size compared with Prometheus itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use prost::Message as _;
use remote_write::encoding::{Encoder, Version};
use remote_write::message::{Label, Sample, TimeSeries, WriteRequest};
use remote_write::naming::MetricType;
use remote_write::series::{Owner, Point, Series, SeriesMetadata, ServiceNumber};
use support::clock::Stopwatch;
use support::sink;

use super::super::figure::{Figure, Goal};
use super::super::metric_set::Noise;
use super::super::pair::{Pair, measure, per_second};
use super::super::prometheus::Exposition;
use crate::unavailable::Unavailable;

const SAMPLES: usize = 10_000;
const MIN: f64 = 1e6;
/// Number of targets of Prometheus, each with the hundred metrics, scraped every second.
const TARGETS: usize = 10;
/// Number of Prometheus's requests to compare.
const REQUESTS: usize = 60;
const WITHIN: Duration = Duration::from_secs(90);

fn series(number: usize, labels: Vec<(String, String)>) -> Arc<Series> {
    let owner = Owner { service: ServiceNumber(0), series: hooks::sampling::Series::Dense };
    let about = SeriesMetadata { kind: MetricType::Gauge, unit: String::new(), help: String::new(), start_ms: 0 };
    Arc::new(Series::new(number as u64, owner, labels, about))
}

/// One sample of each of ten thousand series as an agent has them: 125 per service, six labels.
fn points() -> Vec<Point> {
    let one = |number: usize| {
        let (service, metric) = (number / 125, number % 125);
        let labels = [
            ("__name__", format!("http_server_request_{}_seconds_total", metric / 5)),
            ("http_request_method", "POST".to_owned()),
            ("http_route", format!("/api/v1/orders/{}", metric % 5)),
            ("instance", "node-17.example".to_owned()),
            ("job", format!("service-{service}")),
            ("uview_resolution", "dense".to_owned()),
        ];
        let series = series(number, labels.map(|(name, value)| (name.to_owned(), value)).into());
        Point::new(series, 1_700_000_000_000, Some((number as f64).sqrt()))
    };
    (0..SAMPLES).map(one).collect()
}

fn sample(point: &Point) -> Sample {
    Sample { value: f64::from_bits(point.bits), timestamp: point.at_ms }
}

/// The message as structs.
fn by_structs(points: &[Point]) -> WriteRequest {
    let label = |(name, value): (&str, &str)| Label { name: name.to_owned(), value: value.to_owned() };
    let one = |point: &Point| TimeSeries {
        labels: point.series.labels().map(label).collect(),
        samples: vec![sample(point)],
        exemplars: Vec::new(),
    };
    WriteRequest { timeseries: points.iter().map(one).collect() }
}

/// Processor time per sample of a 1.0 or 2.0 body, against a message that prost encodes from structs with labels that
/// are there already, as uview's are.
pub fn encode(name: &str, version: Version) -> Result<Figure> {
    let (points, mut encoder, mut snappy) = (points(), Encoder::new(), snap::raw::Encoder::new());
    let mut ready = by_structs(&points);
    let mut ours = || black_box(encoder.body(version, black_box(&points)).map(<[u8]>::len)).err();
    let mut failed = None;
    let measured = measure(
        SAMPLES as u64,
        |_| failed = ours().or(failed.take()),
        |_| {
            for (series, point) in ready.timeseries.iter_mut().zip(black_box(&points)) {
                series.samples[0] = sample(point);
            }
            _ = black_box(snappy.compress_vec(&black_box(&ready).encode_to_vec()));
        },
    );
    let anew = measure(
        SAMPLES as u64,
        |_| failed = ours().or(failed.take()),
        |_| _ = black_box(snappy.compress_vec(&by_structs(black_box(&points)).encode_to_vec())),
    );
    failed.map_or(Ok(()), |error| Err(error).context("not encoded"))?;
    let rate = per_second(measured.ours);
    let peer = "prost with structs as 1.0, labels ready, and snap";
    let figure = Figure::new(name, "ns per sample", peer, measured, Goal::Stated);
    let note = format!(
        "{rate:.0} samples/s per core; the bar is on ours alone; both sides have the six labels of each series ready{}; a \
         peer that makes the structs anew, twelve Strings a sample, takes {:.0} ns, a ratio of {:.3}",
        if version == Version::V1 {
            ", ours encoded already"
        } else {
            "; ours looks each label up in the table of strings of 2.0, the peer's message is 1.0"
        },
        anew.peer,
        anew.ratio
    );
    Ok(figure.judged("≥ 1000000 samples/s per core", rate >= MIN, note))
}

/// A running Prometheus. Dropping this ends it.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.0.kill(); // gone already: that is what was wanted
        _ = self.0.wait();
    }
}

impl Prometheus {
    /// Starts it: scrapes `targets` every second and sends the samples to `receiver`.
    fn start(folder: &std::path::Path, targets: &[SocketAddr], receiver: SocketAddr) -> Result<Self> {
        let mut jobs = String::new();
        for (number, target) in targets.iter().enumerate() {
            writeln!(jobs, "  - job_name: service-{number}\n    static_configs: [{{targets: ['{target}']}}]")?;
        }
        let config = folder.join("prometheus.yml");
        let head = format!("global: {{scrape_interval: 1s}}\nremote_write:\n  - url: http://{receiver}/api/v1/write\n");
        fs::write(&config, format!("{head}scrape_configs:\n{jobs}"))?;
        let mut command = Command::new("prometheus");
        command.arg("--web.listen-address=127.0.0.1:0").arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let none =
            |error| Unavailable(format!("prometheus cannot be started (Debian: apt-get install prometheus): {error}"));
        Ok(Self(child.map_err(none)?))
    }
}

/// Bytes per sample in uview's bodies, against Prometheus's own with the same samples in the same requests.
pub fn bytes(name: &str) -> Result<Figure> {
    let expositions: Vec<_> = (0..TARGETS).map(|_| Arc::new(Exposition::new())).collect();
    let targets = expositions.iter().map(Exposition::serve).collect::<std::io::Result<Vec<_>>>()?;
    let (sender, received) = mpsc::channel();
    let receiver = sink::serve(move || {
        let sender = sender.clone();
        // The receiver closes when there is enough.
        move |body: &[u8]| _ = sender.send(body.to_vec())
    })?;
    let folder = tempfile::tempdir()?;
    let _prometheus = Prometheus::start(folder.path(), &targets, receiver)?;
    let (clock, mut noise) = (Stopwatch::start(), Noise(1 << 40));
    let (mut encoder, mut sizes, mut seen) = (Encoder::new(), Sizes::default(), BTreeSet::new());
    while sizes.requests < REQUESTS {
        ensure!(clock.elapsed() < WITHIN, "Prometheus sent {} requests of {REQUESTS} only", sizes.requests);
        for exposition in &expositions {
            exposition.write(&mut noise);
        }
        let Ok(body) = received.recv_timeout(Duration::from_millis(100)) else { continue };
        sizes.add(&body, &mut encoder, &mut seen)?;
    }
    let each = |bytes: usize| bytes as f64 / sizes.samples as f64;
    let pair = Pair::once(each(sizes.one), each(sizes.theirs));
    let peer = "Prometheus's own sender (1.0), the same samples in the same requests";
    let mut figure = Figure::new(name, "bytes per sample", peer, pair, Goal::AtMost(1.0));
    figure.note = format!(
        "{} samples of {} series in {} requests; the messages are the same byte for byte before they are compressed, so that this compares the \
         crate snap with Prometheus's Snappy encoder; as 2.0, with metadata, {:.3} bytes",
        sizes.samples,
        seen.len(),
        sizes.requests,
        each(sizes.two)
    );
    println!("{name}: {:.3} bytes against {:.3}; {}", figure.value, figure.peer_value, figure.note);
    Ok(figure)
}

/// Bytes of bodies with the same samples.
#[derive(Debug, Default)]
struct Sizes {
    requests: usize,
    samples: usize,
    theirs: usize,
    one: usize,
    two: usize,
}

impl Sizes {
    /// Adds a request of Prometheus. Ignores one without samples.
    fn add(&mut self, body: &[u8], encoder: &mut Encoder, seen: &mut BTreeSet<Vec<(String, String)>>) -> Result<()> {
        let message = snap::raw::Decoder::new().decompress_vec(body).context("no Snappy")?;
        let request = WriteRequest::decode(&message[..]).context("no request of 1.0")?;
        let mut points = Vec::new();
        for (number, one) in request.timeseries.iter().enumerate() {
            let labels: Vec<_> = one.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect();
            seen.insert(labels.clone());
            let series = series(number, labels);
            let point = |sample: &Sample| Point::new(Arc::clone(&series), sample.timestamp, Some(sample.value));
            points.extend(one.samples.iter().map(point));
        }
        if points.is_empty() {
            return Ok(());
        }
        let one = encoder.body(Version::V1, &points)?.len();
        let ours = WriteRequest::decode(encoder.message()).context("ours is no request of 1.0")?;
        ensure!(ours.encode_to_vec() == request.encode_to_vec(), "encoding again does not give the same bytes");
        (self.requests, self.samples) = (self.requests + 1, self.samples + points.len());
        (self.theirs, self.one) = (self.theirs + body.len(), self.one + one);
        self.two += encoder.body(Version::V2, &points)?.len();
        Ok(())
    }
}
