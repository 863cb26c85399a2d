//! Rows of a worker reach a remote monitor as two series, and every sample is accounted for.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::clock::unix_now;
use prost::Message as _;
use remote_write::message::{TimeSeries, WriteRequest};
use remote_write::series::STALE_NAN;
use support::http::HttpMessage;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{LmapSummary, Row, Rows, Summary};

use crate::agent::{Agent, WAIT};
use crate::service::Service;
use crate::worker::Worker;

pub type ReceivedSeries = Arc<Mutex<Vec<TimeSeries>>>;

/// A receiver of 1.0: it parses a 2.0 request as empty, and does not report what it wrote.
pub fn receiver() -> (SocketAddr, ReceivedSeries) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = ReceivedSeries::default();
    let into = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            while let Some(HttpMessage { body, .. }) = HttpMessage::read(&mut reader) {
                let message = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
                let request = WriteRequest::decode(&message[..]).unwrap();
                into.lock().unwrap_or_else(PoisonError::into_inner).extend(request.timeseries);
                reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            }
        }
    });
    (address, received)
}

pub fn labels(series: &TimeSeries) -> Vec<(&str, &str)> {
    series.labels.iter().map(|label| (&*label.name, &*label.value)).collect()
}

/// The value of a metric on `/metrics`.
fn metric(agent: &Agent, name: &str) -> u64 {
    let (_, page) = agent.get("/metrics");
    let line =
        page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_else(|| panic!("{page}"));
    line.parse().unwrap()
}

#[test]
fn rows_become_a_baseline_and_a_dense_series_that_end_with_their_service() {
    let (address, received) = receiver();
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         remote_write: {{url: 'http://{address}/write', instance: node-1, baseline_ms: 100, dense: {{policy: score, budget: null}}}}\n"
    ));
    let mut worker = Worker::connect(&agent, 0);
    let (service, _region) = Service::register(&agent, "cart", &["requests"]);
    let (epoch, lmap) = worker.set();
    // γ is 10, so a score of 20 is above it.
    let summary = LmapSummary { lmap: lmap.lmap, epoch, gamma: 10.0, ..LmapSummary::default() };
    let begin = unix_now().0 + 1_000_000_000;
    let row = |n: u64| {
        let score = if n == 5 { 20.0 } else { 1.0 };
        Row { at_unix_ns: begin + n * 1_000_000_000, score, values: vec![3.0] }
    };
    worker.send(FromWorker::Summary(Summary { at_unix_ns: begin, lmaps: vec![summary], ..Summary::default() }));
    WAIT.until("the agent watches the rows", || (metric(&agent, "uview_host_hooks") == 3).then_some(()));
    // γ is read with each collection.
    WAIT.until("γ is known", || {
        let known = agent.status().lmaps.iter().any(|lmap| lmap.gamma == 10.0);
        known.then_some(())
    });
    WAIT.until("a look since", || {
        worker.send(FromWorker::Rows(Rows { lmap: lmap.lmap, epoch, rows: vec![row(1)] }));
        (metric(&agent, "uview_host_replayed_rows_total") > 3).then_some(())
    });
    worker.send(FromWorker::Rows(Rows { lmap: lmap.lmap, epoch, rows: (2..8).map(row).collect() }));
    // The row above γ and those before it (pre_trigger_rows is 30), except one that was suppressed for its age.
    WAIT.until("samples were taken", || {
        let sent = metric(&agent, "uview_host_sent_samples_total{series=\"dense\"}");
        (sent >= 7).then_some(())
    });
    let up = |value: f64| {
        let all = received.lock().unwrap_or_else(PoisonError::into_inner);
        let of_up = |series: &&TimeSeries| series.labels[0].value == "up" && series.labels[2].value == "cart";
        let mut samples = all.iter().filter(of_up).flat_map(|series| &series.samples);
        samples.any(|sample| sample.value == value).then_some(())
    };
    WAIT.until("the service is up", || up(1.0));
    let (silent_replicas, lmap) = (vec![lmap.replicas[0].replica], lmap.lmap);
    let silent = LmapSummary { lmap, epoch, gamma: 10.0, silent_replicas, ..LmapSummary::default() };
    worker.send(FromWorker::Summary(Summary { at_unix_ns: begin, lmaps: vec![silent], ..Summary::default() }));
    WAIT.until("the service is silent", || up(0.0));
    drop(service);
    let all = WAIT.until("the series end", || {
        let all = received.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let marks = all.iter().flat_map(|series| &series.samples).filter(|sample| sample.value.to_bits() == STALE_NAN);
        // Two series of the metric, and one of `up`.
        (marks.count() == 3).then_some(all)
    });

    let of = |dense: bool| {
        let mut expected = vec![
            ("__name__", "requests_total"),
            ("instance", "node-1"),
            ("job", "cart"),
            ("uview_resolution", "dense"),
        ];
        expected.truncate(if dense { 4 } else { 3 });
        let series = all.iter().filter(move |series| labels(series) == expected);
        series.flat_map(|series| &series.samples).filter(|sample| !sample.value.is_nan()).collect::<Vec<_>>()
    };
    let second = |at: i64| at - (begin / 1_000_000) as i64;
    let dense: Vec<_> = of(true).iter().map(|sample| (second(sample.timestamp), sample.value)).collect();
    assert_eq!(dense, (1..8).map(|n| (1000 * n, 3.0 * n as f64)).collect::<Vec<_>>());
    assert!(!of(false).is_empty(), "{all:?}");
    assert_eq!(metric(&agent, "uview_host_remote_write_fallbacks_total"), 1);
    assert_eq!(metric(&agent, "uview_host_seen_samples_total{series=\"dense\"}"), 7);
    assert_eq!(metric(&agent, "uview_host_lost_samples_total{series=\"dense\",reason=\"refused\"}"), 0);
}
