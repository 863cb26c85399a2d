//! The rules of the control plane, one by one.

mod aggregation;
mod declared;
mod drains;
mod intervals;
mod lifecycle;
mod moves;
mod operator_models;
mod operators;
mod over_several;
mod pacing;
mod pods;
mod registration;
mod scores;
mod shares;
mod streams;
mod verbs;
mod workers;

use wire::id::{Incarnation, LmapId, RegionId, WorkerId};
use wire::layout::{RegionSize, VERSION};
use wire::metric::Series;
use wire::name::{InstanceName, Labels, ServiceName};
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::registration as to_service;
use wire::registration::{Hello, ServiceMessage, SlotRun};
use wire::time::{Interval, Nanos};

use super::testing::{OWNER, placed};
use super::*;

/// A control plane and its pending actions.
struct Node {
    plane: ControlPlane,
    now: Nanos,
    actions: Vec<Action>,
    last_region: u64,
}

fn settings() -> Settings {
    Settings::new(Incarnation(9), Interval::new(Nanos::from_millis(100)).unwrap())
}

fn service(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

impl Node {
    fn new(settings: Settings) -> Self {
        Self { plane: ControlPlane::new(settings), now: Nanos::ZERO, actions: Vec::new(), last_region: 0 }
    }

    /// Polls, and collects the actions.
    fn step(&mut self) -> &mut Self {
        self.plane.poll(self.now);
        self.actions.extend(self.plane.take_actions());
        self
    }

    /// Waits until changes are sent.
    fn settle(&mut self) -> &mut Self {
        self.pass(Nanos::from_millis(500))
    }

    fn pass(&mut self, time: Nanos) -> &mut Self {
        self.now = self.now.plus(time);
        self.step()
    }

    fn connect(&mut self, connection: u64) {
        self.connect_as(1000, connection);
    }

    fn connect_as(&mut self, uid: u32, connection: u64) {
        let peer = Peer { pid: 100 + connection as u32, uid, cgroup: String::new() };
        self.plane.service_connected(self.now, ConnectionId(connection), peer);
        self.step();
    }

    fn service_sends(&mut self, connection: u64, message: ServiceMessage) {
        self.plane.service_message(self.now, ConnectionId(connection), message, &Descriptor::None);
        self.step();
    }

    fn hello(&mut self, connection: u64, name: &str) {
        let instance = InstanceName::new(&format!("{name}-{connection}")).unwrap();
        self.service_sends(connection, ServiceMessage::Hello(Hello::new(service(name), instance, Labels::default())));
    }

    /// Hello of a service whose values are not about its process and change every `every`.
    fn hello_of_measured(&mut self, connection: u64, name: &str, every: Nanos) {
        let instance = InstanceName::new(&format!("{name}-{connection}")).unwrap();
        let hello = Hello::new(service(name), instance, Labels::default());
        let hello = Hello { process_metrics: false, changes_every: Some(Interval::new(every).unwrap()), ..hello };
        self.service_sends(connection, ServiceMessage::Hello(hello));
    }

    fn region(&mut self, connection: u64, number: u32) -> RegionId {
        self.last_region += 1;
        let id = RegionId(self.last_region);
        let message = ServiceMessage::AddRegion { region: number, size: RegionSize::ONE_PAGE, layout_version: VERSION };
        self.plane.service_message(self.now, ConnectionId(connection), message, &Descriptor::Accepted(id));
        self.step();
        id
    }

    fn series(&mut self, connection: u64, series: Series, first: u32) {
        self.service_sends(connection, ServiceMessage::AddSeries(vec![Ok(placed(series, 0, first))]));
    }

    fn retire(&mut self, connection: u64, first: u32, slots: u32) {
        let run = SlotRun { region: 0, first: wire::layout::Slot(first), slots };
        self.service_sends(connection, ServiceMessage::Retire(vec![run]));
    }

    fn gone(&mut self, connection: u64) {
        self.plane.service_gone(self.now, ConnectionId(connection));
        self.step();
    }

    /// A replica of `name` with these series, on slots 0, 1, …
    fn replica(&mut self, connection: u64, name: &str, series: &[Series]) -> RegionId {
        self.connect(connection);
        self.hello(connection, name);
        let region = self.region(connection, 0);
        for (slot, series) in (0..).zip(series) {
            self.series(connection, series.clone(), slot);
        }
        region
    }

    fn worker(&mut self, connection: u64, worker: u32, incarnation: u64) {
        self.worker_with(connection, worker, incarnation, &["shm"]);
    }

    fn worker_with(&mut self, connection: u64, worker: u32, incarnation: u64, transports: &[&str]) {
        let hello = proto::WorkerHello {
            protocol: wire::control::PROTOCOL,
            worker,
            incarnation,
            version: "test".into(),
            transports: transports.iter().map(ToString::to_string).collect(),
            takes_lowest_share: true,
            hands_over_models: true,
            reads_sample_times: true,
            ..proto::WorkerHello::default()
        };
        self.plane.worker_connected(self.now, ConnectionId(connection), &OWNER, &hello);
        self.step();
    }

    fn receive(&mut self, connection: u64, message: FromWorker) {
        let message = proto::WorkerMessage { message: Some(message) };
        self.plane.worker_message(self.now, ConnectionId(connection), message);
        self.step();
    }

    fn acknowledge(&mut self, connection: u64, epoch: u64) {
        self.receive(connection, FromWorker::Acknowledgement(proto::Acknowledgement { epoch }));
    }

    /// Takes all messages sent to the worker over this connection, with their epochs.
    fn sent(&mut self, connection: u64) -> Vec<(u64, Message)> {
        let mut sent = Vec::new();
        self.actions.retain(|action| match action {
            Action::ToWorker { connection: to, message, .. } if *to == ConnectionId(connection) => {
                sent.extend(message.message.clone().map(|inner| (message.epoch, inner)));
                false
            }
            _ => true,
        });
        sent
    }

    /// Takes the configurations sent over this connection; drops all other messages.
    fn set(&mut self, connection: u64) -> Vec<(u64, proto::Lmap)> {
        let sent = self.sent(connection);
        sent.into_iter()
            .filter_map(|(epoch, message)| match message {
                Message::SetLmap(lmap) => Some((epoch, lmap)),
                _ => None,
            })
            .collect()
    }

    /// Takes the refusals sent to a service.
    fn refusals(&mut self, connection: u64) -> Vec<String> {
        let messages = self.sent_to_service(connection);
        messages
            .into_iter()
            .filter_map(|message| match message {
                to_service::agent_message::Message::Refusal(refused) => {
                    Some(format!("{}: {}", refused.what, refused.reason))
                }
                _ => None,
            })
            .collect()
    }

    /// Takes the messages sent to a service.
    fn sent_to_service(&mut self, connection: u64) -> Vec<to_service::agent_message::Message> {
        let mut sent = Vec::new();
        self.actions.retain(|action| match action {
            Action::ToService { connection: to, message } if *to == ConnectionId(connection) => {
                sent.extend(message.message.clone());
                false
            }
            _ => true,
        });
        sent
    }

    /// The welcome that a service got.
    fn welcomed(&self, connection: u64) -> to_service::Welcome {
        let welcome = self.actions.iter().find_map(|action| match action {
            Action::ToService { connection: to, message } if *to == ConnectionId(connection) => {
                match &message.message {
                    Some(to_service::agent_message::Message::Welcome(welcome)) => Some(*welcome),
                    _ => None,
                }
            }
            _ => None,
        });
        welcome.expect("it was welcomed")
    }

    /// Takes an action; false if it is not there.
    fn did(&mut self, wanted: &Action) -> bool {
        let before = self.actions.len();
        self.actions.retain(|action| action != wanted);
        self.actions.len() < before
    }

    /// Takes the number of slot runs given back to a service.
    fn released(&mut self, connection: u64) -> usize {
        let messages = self.sent_to_service(connection);
        let runs = messages.into_iter().map(|message| match message {
            to_service::agent_message::Message::Release(released) => released.runs.len(),
            _ => 0,
        });
        runs.sum()
    }

    fn only_lmap(&self) -> LmapId {
        let list = self.plane.list();
        assert_eq!(list.lmaps.len(), 1, "{list:?}");
        LmapId(list.lmaps[0].lmap)
    }

    fn verdict(&mut self, connection: u64, lmap: LmapId, epoch: u64) {
        let verdict = proto::Verdict {
            lmap: lmap.0,
            epoch,
            score: 20.0,
            gamma: 4.0,
            state: proto::State::Armed.into(),
            episode: proto::Episode::Began.into(),
            reasons: Vec::new(),
            groups: Vec::new(),
            row: None,
            silent_replicas: Vec::new(),
            features: None,
        };
        self.receive(connection, FromWorker::Verdicts(proto::Verdicts { at_unix_ns: 1, verdicts: vec![verdict] }));
    }

    fn dispatched(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.actions.retain(|action| match action {
            Action::Dispatch(event) => {
                events.push((**event).clone());
                false
            }
            _ => true,
        });
        events
    }
}
