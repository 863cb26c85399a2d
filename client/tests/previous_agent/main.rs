//! The client of today with an agent of before.
//!
//! Nothing has been released, and protocol and layout are both at version 1. But fields were added since they were
//! first written down: process metrics that are not wanted, values that change together, rings of spans, counters of a
//! word per thread, declared aggregation, refusals for a while. This agent knows none of them. It is what a node has
//! whose services were upgraded before its agents.

#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]
#![expect(clippy::panic, reason = "an agent of before takes no other messages")]

#[path = "../fake_agent/mod.rs"]
#[expect(dead_code, reason = "the agent can do more than is wanted here")]
mod fake_agent;
mod protocol;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fake_agent::{FakeAgent, WAIT};
use prost::Message as _;
use region::{AcceptedRegion, ReadMapping, fd_passing};
use support::frames::framed;
use uview::{Cause, Client, Connection, Scale, Service, TraceContext};
use wire::frame::Frames;
use wire::layout::{Header, MAGIC, RegionSize, Slot};

use protocol::{Accepted, AgentMessage, FromAgent, FromService, Kind, Refused, Series, Welcome};

/// The one version of protocol and layout that an agent of before speaks and reads.
const VERSION: u32 = 1;

/// What an agent of before knows.
#[derive(Debug, Default)]
struct Knowledge {
    service: Option<String>,
    series: BTreeMap<String, Series>,
    regions: BTreeMap<u32, AcceptedRegion>,
    retired: u32,
    socket: Option<UnixStream>,
}

impl Knowledge {
    /// The slots of a series from its first one on.
    fn words(&self, name: &str) -> Option<Vec<u64>> {
        let series = self.series.get(name)?;
        let region = self.regions.get(&series.region)?;
        let mut words = vec![0; region.size().words()];
        ReadMapping::map(region.as_fd(), region.size()).ok()?.copy_into(&mut words).ok()?;
        Some(words.split_off(Slot(series.first_slot).word()))
    }

    /// The heartbeat of the first region, whose header this agent reads as it was first laid out.
    fn heartbeat(&self) -> Option<u64> {
        let region = self.regions.get(&0)?;
        let mut words = vec![0; region.size().words()];
        ReadMapping::map(region.as_fd(), region.size()).ok()?.copy_into(&mut words).ok()?;
        assert_eq!(words[..2], [MAGIC, u64::from(VERSION)]);
        Header::decode(&words).ok().map(|header| header.heartbeat)
    }
}

/// An agent of before, for one connection.
struct PreviousAgent {
    known: Arc<Mutex<Knowledge>>,
    thread: thread::JoinHandle<()>,
}

impl PreviousAgent {
    fn start(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let known = Arc::new(Mutex::new(Knowledge::default()));
        let thread = thread::spawn({
            let known = Arc::clone(&known);
            move || converse(&listener.accept().unwrap().0, &known)
        });
        Self { known, thread }
    }

    fn known(&self) -> MutexGuard<'_, Knowledge> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `condition` holds of what the agent knows.
    #[track_caller]
    fn until(&self, what: &str, condition: impl Fn(&Knowledge) -> bool) {
        WAIT.until(what, || condition(&self.known()).then_some(()));
    }

    /// Ends as suddenly as by kill -9.
    fn end(self) {
        let socket = self.known().socket.take().unwrap();
        socket.shutdown(std::net::Shutdown::Both).unwrap();
        self.thread.join().unwrap();
    }
}

fn converse(mut socket: &UnixStream, known: &Mutex<Knowledge>) {
    let known = || known.lock().unwrap_or_else(PoisonError::into_inner);
    known().socket = socket.try_clone().ok();
    let (mut frames, mut descriptors, mut buffer) = (Frames::default(), Vec::new(), [0; 4096]);
    let mut messages = 0;
    while let Ok(got @ 1..) = fd_passing::receive(socket, &mut buffer, &mut descriptors) {
        frames.push(&buffer[..got]);
        while let Some(frame) = frames.next_frame().unwrap() {
            messages += 1;
            let mut answers = taken(&mut known(), protocol::ServiceMessage::decode(frame).unwrap(), &mut descriptors);
            answers.push(FromAgent::Accepted(Accepted { messages }));
            let answers = answers.into_iter().map(|answer| framed(&AgentMessage { message: Some(answer) }));
            let _ = socket.write_all(&answers.collect::<Vec<_>>().concat());
        }
    }
}

/// Takes what it understands; refuses by name what it does not.
fn taken(known: &mut Knowledge, message: protocol::ServiceMessage, descriptors: &mut Vec<OwnedFd>) -> Vec<FromAgent> {
    match message.message {
        Some(FromService::Hello(hello)) => {
            assert_eq!(hello.protocol, VERSION, "an agent of before would refuse it");
            known.service = Some(format!("{} {}", hello.service, hello.instance));
            vec![FromAgent::Welcome(Welcome { agent_incarnation: 1, heartbeat_ms: 10 })]
        }
        Some(FromService::AddRegion(added)) => {
            assert_eq!(added.layout_version, u64::from(VERSION), "an agent of before would refuse it");
            let region = AcceptedRegion::accept(descriptors.remove(0), RegionSize::new(added.bytes).unwrap()).unwrap();
            known.regions.insert(added.region, region);
            Vec::new()
        }
        Some(FromService::AddSeries(added)) => {
            let refused = |series: &Series| {
                FromAgent::Refused(Refused { what: series.name.clone(), reason: format!("kind {}", series.kind) })
            };
            let (good, bad): (Vec<_>, Vec<_>) = added
                .series
                .into_iter()
                .partition(|series| Kind::try_from(series.kind).is_ok_and(|kind| kind != Kind::Unspecified));
            known.series.extend(good.into_iter().map(|series| (series.name.clone(), series)));
            bad.iter().map(refused).collect()
        }
        Some(FromService::RetireSeries(retired)) => {
            known.retired += retired.runs.iter().map(|run| run.slots).sum::<u32>();
            vec![FromAgent::Released(retired)]
        }
        None => panic!("a message that an agent of before does not know"),
    }
}

/// A service that uses all that was added since.
fn service(socket: &Path) -> Client {
    let service = Service::new("payment").instance("payment-1").socket(socket).label("version", "2");
    uview::connect(service.without_process_metrics().changes_every(Duration::from_millis(20)))
}

fn is_registered(client: &Client) -> bool {
    matches!(client.status().connection, Connection::Registered { .. })
}

#[test]
fn what_an_agent_of_before_knows_arrives_and_what_it_refuses_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let agent = PreviousAgent::start(&socket);
    let client = service(&socket);
    let requests = client.counter("requests").unit("{request}").aggregation("max").register();
    let active = client.up_down_counter("active").aggregation("p90").register();
    let depth = client.gauge("depth").read_every(Duration::from_secs(5)).register();
    let duration = client.histogram("duration").unit("s").parts_per_unit(1_000_000).register();
    let sharded = client.sharded_counter("sharded").register();

    requests.add(42);
    active.add(-3);
    depth.set(2.5);
    duration.observe(1_234);
    sharded.add(1);

    let has = |name: &str, word: u64| {
        agent.until(&format!("{name} is {word}"), |known| known.words(name).is_some_and(|words| words[0] == word));
    };
    has("requests", 42);
    has("active", (-3_i64) as u64);
    has("depth", 2.5_f64.to_bits());
    agent.until("duration is there", |known| {
        let (Some(words), Some(series)) = (known.words("duration"), known.series.get("duration")) else { return false };
        let scale = Scale::new(series.sub_bits, series.max_bits).unwrap();
        assert_eq!((series.unit.as_str(), series.parts_per_unit), ("s", 1_000_000));
        (words[scale.bucket(1_234) as usize], words[scale.sum_slot() as usize]) == (1, 1_234)
    });
    WAIT.until("registered", || is_registered(&client).then_some(()));
    assert_eq!(agent.known().service.as_deref(), Some("payment payment-1"));
    assert!(!agent.known().series.contains_key("sharded"), "it would read the first word only");
    let causes: Vec<_> = client.status().problems.into_iter().map(|problem| problem.cause).collect();
    let told = Cause::Refused { what: "sharded".to_owned(), reason: "kind 5".to_owned() };
    assert_eq!(causes, [told]);
    assert_eq!(sharded.get(), 1, "it counts all the same");

    client.remove(requests);
    agent.until("it is retired", |known| known.retired == 1);
}

#[test]
fn an_agent_that_knows_nothing_of_changes_sees_the_heart_beat() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let agent = PreviousAgent::start(&socket);
    let client = service(&socket);
    let _requests = client.counter("requests").register();

    agent.until("a region", |known| known.heartbeat().is_some());
    let before = agent.known().heartbeat().unwrap();
    agent.until("ten beats", |known| known.heartbeat().is_some_and(|beats| beats >= before + 10));
}

#[test]
fn a_ring_of_spans_is_a_region_without_series_and_an_upgraded_agent_gets_everything() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let before = PreviousAgent::start(&socket);
    let client = service(&socket);
    let requests = client.counter("requests").register();
    let sharded = client.sharded_counter("sharded").register();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let caller = TraceContext::extract(|name| (name == "traceparent").then_some(parent)).unwrap();
    client.trigger(caller.trace, "a refund");
    requests.add(1);
    sharded.add(1);
    before.until("both regions", |known| known.regions.len() == 2 && known.series.len() == 1);
    WAIT.until("registered", || is_registered(&client).then_some(()));

    before.end();
    WAIT.until("it is gone", || (!is_registered(&client)).then_some(()));
    requests.add(1);
    sharded.add(1);
    let after = FakeAgent::start(&socket, 2);

    after.until("everything", |state| {
        (state.value("requests") == Some(2) && state.value("sharded").is_some() && state.ring.is_some()).then_some(())
    });
    WAIT.until("registered", || is_registered(&client).then_some(()));
    assert_eq!(client.status().problems, [], "what the agent of before refused is forgotten");
}
