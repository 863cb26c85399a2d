//! The host agent with a worker that says what was recorded.

use std::num::NonZeroU64;

use host_agent::control_plane::{Action, ConnectionId, ControlPlane, Descriptor, Event, Identity, Peer, Settings};
use wire::control::{Episode, State};
use wire::id::{Incarnation, RegionId};
use wire::layout::{RegionSize, Slot, VERSION};
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::proto::control::QueuePair;
use wire::proto::operators::{LmapStatus, WorkerStatus};
use wire::registration::{Hello, PlacedSeries, ServiceMessage, Shards};
use wire::time::{Interval, Nanos};

use super::*;

const SERVICE: ConnectionId = ConnectionId(1);
const WORKER: ConnectionId = ConnectionId(2);
/// Time of the recorded summary, in nanoseconds since 1970, and of the row that was judged after it.
const SUMMARY_AT: u64 = 1_800_000_000_000_000_000;
const ROW_AT: u64 = SUMMARY_AT + 100_000_000;

/// A host agent with the service payment, which counts requests.
struct Node {
    plane: ControlPlane,
    now: Nanos,
    actions: Vec<Action>,
}

impl Node {
    fn with(transport: &str) -> Self {
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        let settings = Settings { transports: vec![transport.to_owned()], ..Settings::new(Incarnation(9), interval) };
        let mut plane = ControlPlane::new(settings);
        plane.service_connected(Nanos::ZERO, SERVICE, Peer { pid: 100, uid: 1000, cgroup: String::new() });
        let (service, instance) = (ServiceName::new("payment").unwrap(), InstanceName::new("payment-1").unwrap());
        let hello = ServiceMessage::Hello(Hello::new(service, instance, Labels::default()));
        let region = ServiceMessage::AddRegion { region: 0, size: RegionSize::ONE_PAGE, layout_version: VERSION };
        let series = Series {
            name: MetricName::new("requests").unwrap(),
            labels: Labels::default(),
            kind: Kind::Counter,
            unit: None,
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        };
        let declared = Declaration::NONE;
        let series = PlacedSeries { series, region: 0, first: Slot(0), shards: Shards::ONE, declared };
        for (message, descriptor) in [
            (hello, Descriptor::None),
            (region, Descriptor::Accepted(RegionId(1))),
            (ServiceMessage::AddSeries(vec![Ok(series)]), Descriptor::None),
        ] {
            plane.service_message(Nanos::ZERO, SERVICE, message, &descriptor);
        }
        Self { plane, now: Nanos::ZERO, actions: Vec::new() }
    }

    /// Lets time pass, in which changes are sent.
    fn pass(&mut self) {
        self.now = self.now.plus(Nanos::from_millis(500));
        self.plane.poll(self.now);
        self.actions.extend(self.plane.take_actions());
    }

    fn receive(&mut self, message: WorkerMessage) {
        if let Some(FromWorker::Hello(hello)) = &message.message {
            self.plane.worker_connected(self.now, WORKER, &Identity::Anyone, hello);
        } else {
            self.plane.worker_message(self.now, WORKER, message);
        }
        self.actions.extend(self.plane.take_actions());
    }

    /// What was sent to the worker.
    fn sent(&self) -> impl Iterator<Item = &FromHost> {
        self.actions.iter().filter_map(|action| match action {
            Action::ToWorker { message, .. } => message.message.as_ref(),
            _ => None,
        })
    }
}

fn is_about_the_summary(lmap: &LmapStatus) {
    let LmapStatus { state, rows, rows_needed, gamma, scores, samples, discarded, columns, unwatched, .. } = lmap;
    assert_eq!((state.as_str(), *rows, *rows_needed, *gamma), ("armed", 120, 121, 12.5));
    assert_eq!((scores.as_slice(), *samples, *discarded, *columns, *unwatched), (&[3.5, 4.25][..], 300, 7, 1, 5));
    let LmapStatus { alarms_per_day, gamma_factor, threshold_noise, judged_us, fetch_us, .. } = lmap;
    assert_eq!((*alarms_per_day, *gamma_factor, *threshold_noise), (2.0, 1.25, 2.5));
    assert_eq!((*judged_us, *fetch_us, lmap.learning_rows, lmap.learning_needed), (100_000, 50_000, 7, 120));
    assert_eq!((lmap.at_unix_ns, lmap.silent_replicas.as_slice()), (SUMMARY_AT, &["payment-1".to_owned()][..]));
    let reason = &lmap.reasons[0];
    assert_eq!((reason.metric.as_str(), reason.since_us), ("requests", 200_000));
    assert_eq!((reason.share, reason.seen, reason.expected), (0.75, 70.0, 50.0));
    assert_eq!((lmap.groups[0].group.as_str(), lmap.groups[0].share), ("cpu", 0.5));
}

fn is_about_the_counters(worker: &WorkerStatus) {
    let WorkerStatus { ticks, late_ticks, failed_regions, failed_batches, .. } = *worker;
    assert_eq!((ticks, late_ticks, failed_regions, failed_batches), (10, 1, 2, 3));
    let WorkerStatus { lost_verdicts, cpu_ns, connections, revoked_regions, acknowledged_epoch, .. } = *worker;
    assert_eq!((lost_verdicts, cpu_ns, connections, revoked_regions), (5, 6_000_000, 8, 9));
    assert_eq!((worker.transport.as_str(), acknowledged_epoch), ("shm", 1));
}

fn is_about_the_verdict(event: &Event) {
    let verdict = &event.verdict;
    assert_eq!((event.at.0, verdict.score, verdict.gamma), (ROW_AT, 20.0, Some(12.5)));
    assert_eq!((verdict.state, verdict.episode), (State::Armed, Episode::Began));
    assert_eq!(event.reasons[0].series.name.as_str(), "requests");
    let row = verdict.row.as_ref().unwrap();
    assert_eq!((row.score, row.shares[0].share, row.cut), (21.5, 0.75, true));
    let features = verdict.features.as_ref().unwrap();
    assert_eq!((features.values.as_slice(), features.residuals.as_slice()), (&[70.0][..], &[4.5][..]));
}

#[test]
fn a_host_agent_takes_what_a_worker_of_each_protocol_says_as_it_was_meant() {
    for protocol in PROTOCOLS {
        let mut node = Node::with("shm");
        let mut messages = messages::<WorkerMessage>(protocol, "worker").into_iter();
        let (_, hello) = messages.next().unwrap();
        node.receive(hello);
        let welcome = node.sent().find_map(|sent| match sent {
            FromHost::Welcome(welcome) => Some(welcome.protocol),
            _ => None,
        });
        assert_eq!(welcome, Some(protocol));
        (0..3).for_each(|_| node.pass());
        assert!(node.sent().any(|sent| matches!(sent, FromHost::SetLmap(lmap) if lmap.lmap == 1)), "it gets an LMAP");

        for (name, message) in messages {
            // There is no queue pair with shared memory: see the other test.
            if name != "connect_queue_pair" {
                node.receive(message);
            }
        }
        node.pass();

        let counters = node.plane.counters();
        assert_eq!((counters.verdicts, counters.rows, counters.taken_models), (1, 1, 1));
        assert_eq!((counters.region_problems, counters.lmap_problems), (1, 1));
        let dropped = [counters.unexpected_messages, counters.malformed_verdicts, counters.unknown_epochs];
        assert_eq!((dropped, counters.stale_summaries, counters.refused_workers), ([0; 3], 0, 0));
        let status = node.plane.status();
        is_about_the_summary(&status.lmaps[0]);
        is_about_the_counters(&status.workers[0]);
        let event = node.actions.iter().find_map(|action| match action {
            Action::Dispatch(event) => Some(&**event),
            _ => None,
        });
        is_about_the_verdict(event.unwrap());
        let rows = node.actions.iter().find_map(|action| match action {
            Action::Rows(batch) => Some(&batch.rows),
            _ => None,
        });
        let row = &rows.unwrap()[0];
        assert_eq!((row.at_unix_ns, row.score, row.values.as_slice()), (ROW_AT, 20.0, &[70.0][..]));
        let kept: Vec<_> =
            node.plane.kept_models().map(|((service, _), _, model)| (service.as_str(), &*model.bytes)).collect();
        assert_eq!(kept, [("payment", b"learnt".as_slice())]);
        assert!(node.sent().any(|sent| matches!(sent, FromHost::Goodbye(_))), "the worker that leaves may end");
    }
}

#[test]
fn a_host_agent_connects_the_queue_pair_of_a_worker_of_each_protocol() {
    for protocol in PROTOCOLS {
        let mut node = Node::with("verbs");
        let (mut asked, messages) = (None, messages::<WorkerMessage>(protocol, "worker"));
        for (_, message) in messages {
            match &message.message {
                Some(FromWorker::ConnectQueuePair(connect)) => asked = connect.worker.clone(),
                Some(FromWorker::Hello(_)) => {}
                _ => continue,
            }
            node.receive(message);
        }

        let connected = node.actions.iter().find_map(|action| match action {
            Action::ConnectQueuePair { attempt, peer, .. } => Some((*attempt, QueuePair::from(peer))),
            _ => None,
        });
        assert_eq!(connected, Some((2, asked.unwrap())));
    }
}
