//! A viewer of the live page that reads nothing, while there is more to send than sockets hold.

use std::io::{BufRead, BufReader};
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;

use agent_runtime::clock::unix_now;
use region::OwnedRegion;
use wire::layout::{RegionSize, Slot};
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{Labels, MetricName};
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{LmapSummary, Reason, Statistic, Summary};
use wire::registration::{PlacedSeries, ServiceMessage, Shards};

use crate::agent::{Agent, WAIT};
use crate::live_page::{Browser, event};
use crate::service::Service;
use crate::worker::Worker;

/// Services, and reasons of each: what they say takes more than a connection buffers, 4 MiB here and 128 KiB there.
const SERVICES: u32 = 150;
const REASONS: usize = 12;
const MORE_THAN_BUFFERED: usize = 6 << 20;

/// A series whose title is as long as sixteen labels are.
fn series() -> PlacedSeries {
    let labels: Vec<_> = (0..Labels::LIMIT).map(|number| (format!("label-{number:02}"), "x".repeat(250))).collect();
    let series = Series {
        name: MetricName::new("requests").unwrap(),
        labels: Labels::new(labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))).unwrap(),
        kind: Kind::Counter,
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    PlacedSeries { series, region: 0, first: Slot(0), shards: Shards::ONE, declared: Declaration::NONE }
}

fn register(agent: &Agent, name: &str) -> (Service, OwnedRegion) {
    let mut service = Service::connect(agent);
    service.hello(name);
    let region = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
    service.add_region(Some(region.as_fd()), RegionSize::ONE_PAGE);
    service.send(&ServiceMessage::AddSeries(vec![Ok(series())]));
    assert!(service.wait_accepted(3).is_empty());
    (service, region)
}

/// Reads up to the end of the first event, which comes in many chunks. Returns how many bytes those are.
fn bytes_of_event(reader: &mut impl BufRead) -> usize {
    let (mut bytes, mut line) = (0, Vec::new());
    while line != b"\n" {
        line.clear();
        let more = reader.read_until(b'\n', &mut line).unwrap();
        assert!(more > 0, "the page closed the events");
        bytes += more;
    }
    bytes
}

#[test]
fn a_viewer_that_never_reads_is_closed_and_counted_and_another_goes_on() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let mut summaries = Vec::new();
    let mut services = Vec::new();
    for number in 0..SERVICES {
        let name = format!("service-{number}");
        services.push(register(&agent, &name));
        let (epoch, lmap) = worker.set_where(|lmap| lmap.service == name && !lmap.metrics.is_empty());
        let (metric, statistic) = (lmap.metrics[0].metric, Statistic::Increment as i32);
        let reason = Reason { metric, statistic, share: 0.08, seen: 2.0, expected: 1.0, ..Reason::default() };
        let (lmap, reasons) = (lmap.lmap, vec![reason; REASONS]);
        summaries.push(LmapSummary { lmap, epoch, gamma: 4.0, reasons, ..LmapSummary::default() });
    }
    worker.send(FromWorker::Summary(Summary { at_unix_ns: unix_now().0, lmaps: summaries, ..Summary::default() }));
    let browser = Browser::open(&agent);
    let mut reading = WAIT.until("a snapshot with all that they say", || {
        let mut reader = BufReader::new(browser.viewer());
        (bytes_of_event(&mut reader) > MORE_THAN_BUFFERED).then(|| reader.lines())
    });
    let slow = |count: u64| agent.get("/metrics").1.contains(&format!("uview_host_slow_page_viewers_total {count}\n"));
    assert!(slow(0));

    let silent = browser.viewer();
    WAIT.until("the end of the one that does not read", || slow(1).then_some(()));

    let _late = register(&agent, "late");
    let found = (0..100).map(|_| event(&mut reading)).find(|(_, data)| data.contains("\"service\":\"late\""));
    assert_eq!(found.unwrap().0, "delta", "it has read everything, and is sent what changes");
    assert!(slow(1), "nobody else was closed");
    drop(silent);
}
