//! A real Prometheus as the receiver, without an out-of-order window: nothing is refused, samples from before a trigger
//! can be queried, and stock rules give the same on the baseline as on the true values at the same instants.
//! `cargo xtask ci` runs it where Prometheus is installed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what a test prepares has to work, or the test fails")]

use core::num::NonZeroU64;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use agent_runtime::http_client::Endpoint;
use hooks::paths::{BOUNDS, Durations};
use hooks::sampling::{self, Row, SamplingPolicy, SamplingRule, Series as Resolution};
use hooks::tracing::TraceId;
use remote_write::client::Client;
use remote_write::encoding::{Encoder, Version};
use remote_write::feed::Column;
use remote_write::naming::MetricType;
use remote_write::queue::QueueLimits;
use remote_write::reading::{Histogram, Reading};
use remote_write::series::{Exemplar, Owner, Point, Series, SeriesMetadata, ServiceNumber};
use remote_write::shipper::{Delivery, Shipper, ShipperSettings, Step, Timestamp, VersionPolicy};
use support::wait::Wait;
use wire::backoff::RetryRule;
use wire::histogram::Scale;
use wire::metric::{Group, Kind, Series as Metric};
use wire::name::{Labels, MetricName, Unit};
use wire::time::{Interval, Nanos, UnixNanos};

/// Rows, one a second.
const SECONDS: u64 = 1200;
/// Period in which the service is in trouble.
const TROUBLE: core::ops::Range<u64> = 600..620;
/// Period in which Prometheus is down.
const DOWN: core::ops::Range<u64> = 700..760;
/// When the service ends.
const GONE: u64 = SECONDS + 100;
/// Seconds between two samples of the baseline.
const BASELINE: u64 = 30;

/// A Prometheus that does not outlive its test.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    fn start(folder: &Path, address: SocketAddr) -> Self {
        let config = folder.join("prometheus.yml");
        std::fs::write(&config, "global: {}\n").unwrap();
        let child = Command::new("prometheus")
            .arg("--web.enable-remote-write-receiver")
            .arg("--enable-feature=exemplar-storage")
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--config.file={}", config.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Prometheus is installed (Debian: apt-get install prometheus)");
        let started = Self { child, address };
        Wait::up_to(Duration::from_mins(1)).pausing(Duration::from_millis(50)).until("Prometheus is ready", || {
            let status = started.get("/-/ready").map(|(status, _)| status);
            if status == Some(200) { Ok(()) } else { Err(status) }
        });
        started
    }

    /// Status and body. Uses HTTP/1.0, so that the body ends with the connection.
    fn get(&self, target: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        write!(stream, "GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Response of an API endpoint to an expression.
    fn ask(&self, endpoint: &str, expression: &str, more: &str) -> serde_json::Value {
        let hex = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
        let encoded: String = expression.bytes().flat_map(|byte| ['%', hex(byte >> 4), hex(byte & 15)]).collect();
        let (status, body) = self.get(&format!("/api/v1/{endpoint}?query={encoded}&{more}")).unwrap();
        assert_eq!(status, 200, "{expression}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Exemplars of `expression` in a period, in seconds since 1970: bound, trace and value.
    fn exemplars(&self, expression: &str, from: u64, to: u64) -> Vec<(String, String, f64)> {
        let answer = self.ask("query_exemplars", expression, &format!("start={from}&end={to}"));
        let of = |series: &serde_json::Value| {
            let bound = series["seriesLabels"]["le"].as_str().unwrap().to_owned();
            let one = move |exemplar: &serde_json::Value| {
                let trace = exemplar["labels"]["trace_id"].as_str().unwrap().to_owned();
                (bound.clone(), trace, exemplar["value"].as_str().unwrap().parse().unwrap())
            };
            series["exemplars"].as_array().unwrap().iter().map(one).collect::<Vec<_>>()
        };
        answer["data"].as_array().unwrap().iter().flat_map(of).collect()
    }

    /// Result of an expression at `at` seconds since 1970: the values of each series.
    fn query(&self, expression: &str, at: u64) -> Vec<Vec<(f64, f64)>> {
        let answer = self.ask("query", expression, &format!("time={at}"));
        let pair = |pair: &serde_json::Value| (pair[0].as_f64().unwrap(), pair[1].as_str().unwrap().parse().unwrap());
        let series = answer["data"]["result"].as_array().unwrap().iter();
        let values = series.map(|series| match series.get("values") {
            Some(values) => values.as_array().unwrap().iter().map(pair).collect(),
            None => vec![pair(&series["value"])],
        });
        values.collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn column(name: &str, kind: Kind, unit: &str, place: usize) -> Column {
    let series = Metric {
        name: MetricName::new(name).unwrap(),
        labels: Labels::new([("http.route", "/pay")]).unwrap(),
        kind,
        unit: Some(Unit::new(unit).unwrap()),
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    Column { series, statistic: kind.statistics()[place] }
}

fn columns() -> Vec<Column> {
    let histogram = Kind::Histogram(Scale::DEFAULT);
    vec![
        column("shop.requests", Kind::Counter, "{request}", 0),
        column("shop.queue", Kind::Gauge, "{item}", 0),
        column("shop.duration", histogram, "s", 0),
        column("shop.duration", histogram, "s", 1),
        column("shop.duration", histogram, "s", 2),
    ]
}

/// Values in second `n`.
fn values(n: u64) -> [f64; 5] {
    let wave = (n as f64 / 40.0).sin();
    let requests = (100.0 + 50.0 * wave).round();
    [requests, 20.0 + 10.0 * wave, requests, 0.020 + 0.005 * wave, 0.080]
}

/// Durations of the requests of second `n`: some milliseconds, and half a second more in trouble.
fn durations(n: u64) -> impl Iterator<Item = Nanos> {
    let more = if TROUBLE.contains(&n) { 500_000 } else { 0 };
    (0..values(n)[0] as u64).map(move |k| Nanos::from_micros(700 + more + (n * 37 + k * k * 13) % 40_000))
}

/// Whether the service responds: it hangs for a while.
const fn is_up(n: u64) -> bool {
    n < 800 || n >= 900
}

/// Whether the baseline has a sample in second `n`.
const fn is_instant(begin: u64, n: u64) -> bool {
    n == 1 || (begin + n).is_multiple_of(BASELINE)
}

/// The trace of the slowest request of second `n`. Kept of those in trouble.
fn trace(n: u64) -> TraceId {
    TraceId::new(u128::from(n).to_be_bytes()).unwrap()
}

/// The reading in second `n`.
fn reading(n: u64, counted: &Durations) -> Reading {
    let seconds = |length: Nanos| length.0 as f64 / 1e9;
    let shown = |kept: hooks::paths::Exemplar| {
        Exemplar::new(&kept.trace.to_string(), seconds(kept.took), kept.at.millis() as i64)
    };
    let histogram = Histogram {
        name: "traces.span.metrics.duration",
        unit: "s",
        help: "durations of requests",
        labels: vec![("span.name".to_owned(), "POST /pay".to_owned())],
        bounds: BOUNDS.map(seconds).into(),
        counts: counted.counts().to_vec(),
        sum: seconds(counted.sum()),
        exemplars: counted.exemplars().map(|kept| kept.map(shown)).collect(),
    };
    Reading { up: Some(is_up(n)), histograms: vec![histogram] }
}

/// A series of the true values.
fn true_series(number: u64, name: &str, more: (&str, &str), kind: MetricType) -> Arc<Series> {
    let owner = Owner { service: ServiceNumber(999), series: sampling::Series::Baseline };
    let labels = [("__name__", name), ("instance", "truth"), ("job", "shop"), more];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let metadata = SeriesMetadata { kind, unit: String::new(), help: String::new(), start_ms: 0 };
    Arc::new(Series::new(number, owner, labels, metadata))
}

/// True values of a histogram and of `up` at the baseline's instants: each request compared with each bound.
fn true_durations(begin: u64) -> Vec<Point> {
    let name = "traces_span_metrics_duration_seconds";
    let all: Vec<(u64, Nanos)> = (1..=SECONDS).flat_map(|n| durations(n).map(move |took| (n, took))).collect();
    let instants: Vec<u64> = (1..=SECONDS).filter(|n| is_instant(begin, *n)).collect();
    let points = |series: Arc<Series>, value: &dyn Fn(u64) -> f64| {
        let point = |n: &u64| Point::new(Arc::clone(&series), 1000 * (begin + n) as i64, Some(value(*n)));
        instants.iter().map(point).collect::<Vec<_>>()
    };
    let mut out = Vec::new();
    let bounds = BOUNDS.into_iter().map(|bound| (format!("{:?}", bound.0 as f64 / 1e9), bound));
    for (number, (le, bound)) in (10..).zip(bounds.chain([("+Inf".to_owned(), Nanos::NEVER)])) {
        let series = true_series(number, &format!("{name}_bucket"), ("le", &le), MetricType::Histogram);
        let below = |n: u64| all.iter().filter(|(when, took)| *when <= n && *took <= bound).count() as f64;
        out.extend(points(series, &below));
    }
    let sum = |n: u64| all.iter().filter(|(when, _)| *when <= n).map(|(_, took)| took.0).sum::<u64>() as f64 / 1e9;
    out.extend(points(true_series(40, &format!("{name}_sum"), ("a", ""), MetricType::Histogram), &sum));
    let count = |n: u64| all.iter().filter(|(when, _)| *when <= n).count() as f64;
    out.extend(points(true_series(41, &format!("{name}_count"), ("a", ""), MetricType::Histogram), &count));
    let up = |n: u64| f64::from(u8::from(is_up(n)));
    out.extend(points(true_series(42, "up", ("a", ""), MetricType::Gauge), &up));
    out
}

/// True values at the baseline's instants, under `instance="truth"`.
fn truth(begin: u64) -> Vec<Point> {
    let series = |number: u64, name: &str, kind| true_series(number, name, ("http_route", "/pay"), kind);
    let (requests, queue) =
        (series(1, "shop_requests_total", MetricType::Counter), series(2, "shop_queue", MetricType::Gauge));
    let (mut sum, mut counts, mut gauges) = (0.0, Vec::new(), Vec::new());
    for n in 1..=SECONDS {
        sum += values(n)[0];
        if is_instant(begin, n) {
            let at_ms = 1000 * (begin + n) as i64;
            counts.push(Point::new(Arc::clone(&requests), at_ms, Some(sum)));
            gauges.push(Point::new(Arc::clone(&queue), at_ms, Some(values(n)[1])));
        }
    }
    counts.append(&mut gauges);
    counts.append(&mut true_durations(begin));
    counts
}

fn settings(begin: u64) -> ShipperSettings {
    ShipperSettings {
        instance: "node-1".into(),
        labels: Vec::new(),
        rule: SamplingRule { policy: SamplingPolicy::Score { theta: 1.0 }, budget: None, ..SamplingRule::default() },
        queue: QueueLimits::default(),
        version: VersionPolicy::Negotiated,
        retry: RetryRule::default(),
        began: UnixNanos::from_secs(begin),
    }
}

/// Sends what is due at `now`, until nothing is due, or there is no reply.
async fn exchange(shipper: &mut Shipper, client: &mut Client, now: Timestamp) {
    loop {
        let (version, body, failures) = match shipper.poll(now.monotonic) {
            Step::Wait(_) => return,
            Step::Send(request) => (request.version, request.copy(), request.failures),
        };
        let report = client.send(version, body, failures).await;
        match shipper.complete(&report.reply, now, 0.0) {
            Delivery::Retry(_) => return,
            Delivery::Refused { .. } | Delivery::Unexpected => panic!("at {now:?}: {}", report.text),
            Delivery::Accepted(_) | Delivery::OtherVersion(_) => {}
        }
    }
}

/// Plays all rows faster than real time; Prometheus is killed and restarted meanwhile.
async fn play(shipper: &mut Shipper, begin: u64, folder: &Path, address: SocketAddr) -> Prometheus {
    let second = Interval::new(Nanos::from_secs(1)).unwrap();
    let url = format!("http://{address}/api/v1/write");
    let receiver = Endpoint { url, headers: Vec::new(), ca: None, timeout: Duration::from_secs(30) };
    let mut client = Client::new(&receiver).unwrap();
    let mut running = Some(Prometheus::start(folder, address));
    let at = |n: u64| Timestamp { monotonic: Nanos::from_secs(n), wall: UnixNanos::from_secs(begin + n) };
    let shop = shipper.service("shop", second);
    shipper.set_columns(shop, &columns(), second, at(0));
    let mut counted = Durations::default();
    for n in 1..=SECONDS {
        if n == DOWN.start {
            running = None;
        } else if n == DOWN.end {
            running = Some(Prometheus::start(folder, address));
        }
        let score = if TROUBLE.contains(&n) { 3.0 } else { 0.2 };
        shipper.row(shop, &Row { at: at(n).wall, values: &values(n), score: Some(score) }, at(n));
        durations(n).for_each(|took| counted.count(took));
        if TROUBLE.contains(&n) {
            let took = durations(n).max().unwrap();
            counted.keep(hooks::paths::Exemplar { trace: trace(n), took, at: at(n).wall, incident: None });
        }
        if shipper.is_reading_due(at(n).wall) {
            shipper.read(shop, &reading(n, &counted), at(n));
        }
        exchange(shipper, &mut client, at(n)).await;
    }
    // Any back-off is over by then.
    for n in SECONDS..SECONDS + 100 {
        exchange(shipper, &mut client, at(n)).await;
    }
    shipper.end(shop, at(GONE));
    exchange(shipper, &mut client, at(GONE + 2)).await;
    let points = truth(begin);
    let body = Encoder::new().body(Version::V1, &points).map(bytes::Bytes::copy_from_slice).unwrap();
    let report = client.send(Version::V1, body, 0).await;
    assert_eq!(report.text, "", "the truth is taken");
    running.unwrap()
}

/// Only kept traces are exemplars, each in the bucket that counts its request.
fn only_kept_traces_are_shown(prometheus: &Prometheus, begin: u64) {
    let shown = prometheus.exemplars("traces_span_metrics_duration_seconds_bucket", begin, begin + SECONDS);
    assert!(shown.iter().any(|(_, id, _)| *id == trace(TROUBLE.end - 1).to_string()), "{shown:?}");
    for (bound, id, value) in &shown {
        let (n, bound) = (u64::from_str_radix(id, 16).unwrap(), bound.parse::<f64>().unwrap());
        assert!(TROUBLE.contains(&n) && *value <= bound && *value > bound / 2.5, "{bound}: {id}, {value}");
    }
}

#[test]
#[ignore = "needs Prometheus (Debian: apt-get install prometheus); cargo xtask ci runs it where it is installed"]
fn prometheus_takes_everything_and_the_baseline_can_be_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // All of it in the past, since Prometheus does not show the future; but not long ago, which it does not take.
    let begin = unix_now().second() - SECONDS - 120;
    let mut shipper = Shipper::new(settings(begin)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let prometheus = runtime.block_on(play(&mut shipper, begin, folder.path(), address));

    // Nothing was refused, and everything arrived.
    let counters = shipper.counters();
    assert_eq!(counters.refused, 0);
    assert!(counters.failed > 3, "it was down for a minute: {counters:?}");
    let end = begin + SECONDS;
    for series in [Resolution::Baseline, Resolution::Dense] {
        let totals = shipper.totals(series);
        assert!(totals.balances() && totals.queued == 0, "{totals:?}");
        let matcher = if series == Resolution::Dense { "\"dense\"" } else { "\"\"" };
        let expression = format!("{{job=\"shop\",instance=\"node-1\",uview_resolution={matcher}}}[1h]");
        let there: usize = prometheus.query(&expression, end).iter().map(Vec::len).sum();
        assert_eq!(there as u64, totals.sent, "{totals:?}");
    }

    // The rows before the trigger are there, second by second, with the right values.
    let dense = prometheus.query("shop_queue{uview_resolution=\"dense\",http_route=\"/pay\"}[1h]", end);
    let seconds: Vec<u64> = dense[0].iter().map(|(at, _)| *at as u64 - begin).collect();
    assert_eq!(seconds, (TROUBLE.start - 30..TROUBLE.end + 5).collect::<Vec<_>>());
    assert!(dense[0].iter().all(|(at, value)| *value == values(*at as u64 - begin)[1]));

    // Stock rules, on the baseline and on the true values at the same instants.
    let mut compared = 0;
    for rule in [
        "rate(shop_requests_total{S}[5m])",
        "increase(shop_requests_total{S}[10m])",
        "sum by (http_route) (rate(shop_requests_total{S}[5m]))",
        "avg_over_time(shop_queue{S}[10m])",
        "max_over_time(shop_queue{S}[10m])",
        "absent(shop_queue{S})",
        "absent(shop_nothing{S})",
        "histogram_quantile(0.5, rate(traces_span_metrics_duration_seconds_bucket{S}[5m]))",
        "histogram_quantile(0.99, sum by (le) (rate(traces_span_metrics_duration_seconds_bucket{S}[5m])))",
        "increase(traces_span_metrics_duration_seconds_count{S}[10m])",
        "rate(traces_span_metrics_duration_seconds_sum{S}[5m]) / rate(traces_span_metrics_duration_seconds_count{S}[5m])",
        "up{S}",
        "avg_over_time(up{S}[10m])",
        "absent(up{S})",
        "absent(up{S} == 1)",
    ] {
        for at in (begin + 310..end).step_by(70) {
            let of = |instance: &str| {
                let selector = format!("job=\"shop\",instance=\"{instance}\",uview_resolution=\"\"");
                prometheus.query(&rule.replace('S', &selector), at)
            };
            let (ours, theirs) = (of("node-1"), of("truth"));
            assert_eq!(ours.len(), theirs.len(), "{rule} at {}", at - begin);
            for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
                assert!((ours.1 - theirs.1).abs() <= 0.01 * theirs.1.abs(), "{rule}: {ours:?}, {theirs:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 150, "{compared}");

    // A hanging service is down, and one that is gone has no series: by the stale marker, not five minutes later.
    let up = |n: u64| prometheus.query("up{instance=\"node-1\"}", begin + n).first().map(|series| series[0].1);
    assert_eq!(
        [up(799), up(850), up(960), up(GONE - 1), up(GONE + 1)],
        [Some(1.0), Some(0.0), Some(1.0), Some(1.0), None]
    );

    only_kept_traces_are_shown(&prometheus, begin);
    assert_eq!((counters.exemplars, counters.lost_exemplars), (counters.sent_exemplars, 0));
    println!(
        "version {:?}, {counters:?}, baseline {:?}, dense {:?}",
        shipper.version(),
        shipper.totals(Resolution::Baseline),
        shipper.totals(Resolution::Dense)
    );
}
