//! A service against agents that are absent, late, killed, restarted, dying, unresponsive, or send garbage.

mod fake_agent;

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fake_agent::{Behaviour, FakeAgent, WAIT};
use support::wait::Wait;
use uview::{Cause, Client, Connection, Incarnation, Limits, Service};
use wire::metric::Kind;
use wire::proto::registration as proto;
use wire::registration::ServiceMessage;

/// Less than the longest period of a heartbeat.
const BEFORE_THE_NEXT_BEAT: Wait = Wait::up_to(Duration::from_secs(30)).pausing(Duration::from_millis(1));

struct SocketFolder(tempfile::TempDir);

impl SocketFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder can be made"))
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("services.sock")
    }

    fn connect(&self) -> Client {
        uview::connect(Service::new("payment").instance("payment-1").label("version", "1.2").socket(self.socket()))
    }
}

fn registered(client: &Client, agent: u64) {
    let wanted = Connection::Registered { agent: Incarnation(agent) };
    WAIT.until(&format!("{wanted:?}"), || (client.status().connection == wanted).then_some(()));
}

#[test]
fn a_service_works_without_an_agent() {
    let folder = SocketFolder::new();
    let client = folder.connect();
    let counter = client.counter("requests").register();
    let gauge = client.gauge("depth").register();
    let histogram = client.histogram("duration").unit("s").parts_per_unit(1_000_000).register();

    (0..1000).for_each(|_| counter.add(1));
    gauge.set(2.5);
    histogram.observe_duration(Duration::from_millis(3));

    assert_eq!((counter.get(), gauge.get(), histogram.count(), histogram.sum()), (1000, 2.5, 1, 3000));
    let status = WAIT.until("an attempt", || {
        let status = client.status();
        matches!(status.connection, Connection::Waiting { attempts: 1.., error: Some(_) }).then_some(status)
    });
    assert_eq!((status.series, status.detached, status.connections), (3, 0, 0));
    assert!(status.problems.is_empty(), "{status}");
}

#[test]
fn an_agent_that_appears_later_is_told_everything() {
    let folder = SocketFolder::new();
    let client = folder.connect();
    let counter = client.counter("requests").label("route", "/pay").unit("{request}").register();
    client.up_down_counter("active").register().add(-2);
    counter.add(41);

    let agent = FakeAgent::start(&folder.socket(), 1);
    agent.until("both series", |state| (state.series().len() == 2).then_some(()));
    registered(&client, 1);
    counter.add(1);

    agent.look(|state| {
        let Some(ServiceMessage::Hello(hello)) = state.messages.first() else { unreachable!("a hello comes first") };
        assert_eq!((&*hello.service.to_string(), &*hello.instance.to_string()), ("payment", "payment-1"));
        assert_eq!(hello.labels.get("version"), Some("1.2"));
        assert_eq!(state.value(r#"requests{route="/pay"}"#), Some(42));
        assert_eq!(state.value("active"), Some((-2_i64) as u64));
        let series = &state.series()[0].series;
        assert_eq!((series.kind, series.unit.as_ref().unwrap().to_string()), (Kind::Counter, "{request}".into()));
    });
}

#[test]
fn an_agent_that_was_killed_and_is_back_gets_the_same_memory_and_is_told_everything_again() {
    let folder = SocketFolder::new();
    let client = folder.connect();
    let counter = client.counter("requests").register();
    let first = FakeAgent::start(&folder.socket(), 1);
    registered(&client, 1);
    counter.add(10);
    let memory = first.look(|state| {
        assert_eq!(state.value("requests"), Some(10));
        state.inodes()
    });

    drop(first);
    WAIT.until("the loss is seen", || matches!(client.status().connection, Connection::Waiting { .. }).then_some(()));
    counter.add(10);
    let late = client.gauge("registered.meanwhile").register();
    late.set(1.5);
    let second = FakeAgent::start(&folder.socket(), 2);
    registered(&client, 2);
    counter.add(10);

    second.look(|state| {
        assert_eq!(state.inodes(), memory);
        assert_eq!(state.series().len(), 2);
        assert_eq!(state.value("requests"), Some(30));
        assert_eq!(state.value("registered.meanwhile"), Some(1.5_f64.to_bits()));
    });
    assert!(client.status().connections >= 2);
}

#[test]
fn what_is_registered_while_connected_is_told_at_once_and_a_second_region_follows_the_first() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::start(&folder.socket(), 1);
    let client = folder.connect();
    let counters: Vec<_> = (0..3000).map(|n| client.counter(&format!("m{n}")).register()).collect();
    for counter in &counters {
        counter.add(7);
    }

    agent.until("all series", |state| (state.series().len() == 3000).then_some(()));
    registered(&client, 1);

    agent.look(|state| {
        assert_eq!(state.regions.iter().map(|region| region.size().bytes()).collect::<Vec<_>>(), [16384, 32768]);
        let words = [state.words(0), state.words(1)];
        let values = state.series().into_iter().map(|placed| words[placed.region as usize][placed.first.word()]);
        assert!(values.into_iter().all(|value| value == 7));
    });
    assert_eq!(client.status().regions, 2);
}

#[test]
fn an_agent_that_dies_while_it_is_connected_to_is_not_believed() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::with_behaviour(&folder.socket(), 1, Behaviour::Dying(3));
    let client = folder.connect();
    let _counter = client.counter("requests").register();

    registered(&client, 1);

    assert_eq!(agent.look(|state| state.connections), 4);
    assert_eq!(client.status().connections, 4);
}

#[test]
fn an_agent_of_another_protocol_is_told_in_the_status_until_it_is_upgraded() {
    let folder = SocketFolder::new();
    let old = FakeAgent::with_behaviour(&folder.socket(), 1, Behaviour::Older(usize::MAX));
    let client = folder.connect();
    let counter = client.counter("requests").register();
    let gauge = client.gauge("depth").register();
    counter.add(10);

    let status = WAIT.until("the refusal", || Some(client.status()).filter(|status| !status.problems.is_empty()));
    let refusal = status.problems[0].to_string();
    assert!(refusal.contains("speaks protocol") && refusal.contains("upgrade the agent first"), "{refusal}");
    assert!(!matches!(status.connection, Connection::Registered { .. }), "{status}");
    old.until("another try", |state| (state.ended >= 2).then_some(()));
    drop(old);
    counter.add(10);
    gauge.set(2.5);
    let new = FakeAgent::start(&folder.socket(), 2);
    registered(&client, 2);

    let status = client.status();
    assert!(status.problems.is_empty(), "what the old one refused the new one has taken: {status}");
    assert_eq!(status.protocol_errors, 0, "a refusal is no garbage");
    new.look(|state| {
        assert_eq!((state.value("requests"), state.value("depth")), (Some(20), Some(2.5_f64.to_bits())));
    });
}

#[test]
fn garbage_from_an_agent_ends_the_connection_and_is_counted_and_the_service_goes_on() {
    let folder = SocketFolder::new();
    let undecodable = b"\x04\0\0\0\xff\xff\xff\xff".to_vec();
    let garbage = vec![u32::MAX.to_le_bytes().to_vec(), undecodable, vec![0xa5; 5000]];
    let agent = FakeAgent::with_behaviour(&folder.socket(), 1, Behaviour::Garbage(garbage));
    let client = folder.connect();
    let counter = client.counter("requests").register();

    registered(&client, 1);
    counter.add(3);

    assert_eq!(client.status().protocol_errors, 3);
    assert_eq!(agent.look(|state| state.value("requests")), Some(3));

    agent.send_bytes(&[0xff; 64]);
    WAIT.until("garbage after the welcome is counted too", || (client.status().protocol_errors == 4).then_some(()));
    registered(&client, 1);
}

#[test]
fn messages_that_mean_nothing_here_change_nothing() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::start(&folder.socket(), 1);
    let client = folder.connect();
    let _counter = client.counter("requests").register();
    registered(&client, 1);

    // A message of a later release; an acceptance of messages never sent; a release of slots never retired; a heartbeat
    // period below the minimum.
    agent.send_bytes(&[0, 0, 0, 0]);
    agent.send(proto::agent_message::Message::Acknowledgement(proto::Acknowledgement { messages: u64::MAX }));
    let run = proto::SlotRun { region: 9, first_slot: u32::MAX, slots: u32::MAX };
    agent.send(proto::agent_message::Message::Release(proto::SlotRelease { runs: vec![run] }));
    agent.send(proto::agent_message::Message::Welcome(proto::Welcome {
        agent_incarnation: 1,
        heartbeat_ms: 1,
        ..Default::default()
    }));
    let refused = proto::Refusal { what: "requests".into(), reason: "\u{7}not today".into(), retry_after_ms: 0 };
    agent.send(proto::agent_message::Message::Refusal(refused));

    let problems = WAIT.until("the refusal", || Some(client.status().problems).filter(|problems| !problems.is_empty()));
    assert_eq!(problems[0].to_string(), "the agent refuses requests: not today");
    registered(&client, 1);
    assert_eq!((client.status().protocol_errors, client.status().connections), (0, 1));
}

#[test]
fn what_one_agent_refused_the_next_one_may_take() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::start(&folder.socket(), 1);
    let client = folder.connect();
    registered(&client, 1);
    let refused = proto::Refusal { what: "hello".into(), reason: "no room".into(), retry_after_ms: 0 };
    agent.send(proto::agent_message::Message::Refusal(refused));
    WAIT.until("the refusal", || (!client.status().problems.is_empty()).then_some(()));

    drop(agent);
    let _agent = FakeAgent::start(&folder.socket(), 2);
    registered(&client, 2);

    assert!(client.status().problems.is_empty());
}

#[test]
fn an_agent_that_never_reads_holds_up_neither_registration_nor_the_end() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::with_behaviour(&folder.socket(), 1, Behaviour::Unresponsive);
    let client = folder.connect();
    agent.until("a connection", |state| (state.connections == 1).then_some(()));

    // More than a socket buffer holds.
    let long = "x".repeat(200);
    let counters: Vec<_> = (0..4000).map(|n| client.counter(&format!("{long}{n}")).register()).collect();
    for counter in &counters {
        counter.add(1);
    }
    assert_eq!(client.status().series, 4000);
    WAIT.until("a connection without an answer", || {
        (client.status().connection == Connection::Registering).then_some(())
    });

    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        drop(client);
        done.send(()).expect("the test waits");
    });
    ended.recv_timeout(Duration::from_mins(1)).expect("the thread is never in the middle of something long");
}

#[test]
fn the_heart_beats_with_and_without_an_agent_and_stops_with_the_client() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::start(&folder.socket(), 1);
    let client = folder.connect();
    let counter = client.counter("requests").register();
    registered(&client, 1);

    let before = agent.look(fake_agent::AgentState::heartbeat);
    WAIT.until("five beats", || (agent.look(fake_agent::AgentState::heartbeat) >= before + 5).then_some(()));

    drop(client);
    agent.until("the end", |state| (state.ended == 1).then_some(()));
    let last = agent.look(fake_agent::AgentState::heartbeat);
    counter.add(5);

    assert_eq!(counter.get(), 5);
    assert_eq!(agent.look(|state| state.value("requests")), Some(5), "the handle keeps the region");
    assert_eq!(agent.look(fake_agent::AgentState::heartbeat), last);
}

#[test]
fn a_service_whose_heart_beats_once_a_minute_is_back_before_the_next_beat() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::start(&folder.socket(), 1);
    let client = folder.connect();
    let _counter = client.counter("requests").register();
    registered(&client, 1);
    let slow =
        proto::Welcome { agent_incarnation: 1, heartbeat_ms: 60_000, takes_subjects: true, ..Default::default() };
    agent.send(proto::agent_message::Message::Welcome(slow));
    let (mut last, mut same) = (0, 0);
    WAIT.until("the heart beats slowly", || {
        let beats = agent.look(fake_agent::AgentState::heartbeat);
        (last, same) = (beats, if beats == last { same + 1 } else { 0 });
        (same > 50).then_some(())
    });

    drop(agent);
    let _next = FakeAgent::start(&folder.socket(), 2);

    let again = Connection::Registered { agent: Incarnation(2) };
    BEFORE_THE_NEXT_BEAT.until("the next agent", || (client.status().connection == again).then_some(()));
}

#[test]
fn clones_of_a_client_are_one_client() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::start(&folder.socket(), 1);
    let client = folder.connect();
    let clone = client.clone();
    drop(client);

    clone.counter("requests").register().add(1);
    registered(&clone, 1);

    assert_eq!(agent.look(|state| (state.connections, state.value("requests"))), (1, Some(1)));
}

#[test]
fn slots_of_a_removed_series_are_used_again_after_the_agents_release_only() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::start(&folder.socket(), 1);
    let client = folder.connect();
    let old = client.counter("old").register();
    old.add(99);
    registered(&client, 1);
    let slots = agent.look(|state| state.series()[0].run());

    client.remove(old);
    agent.until("the retirement", |state| (state.retired() == [slots]).then_some(()));
    let _second = client.counter("second").register();
    let second =
        agent.until("the second series", |state| state.series().get(1).map(wire::registration::PlacedSeries::run));
    assert_ne!(second, slots);
    assert_eq!(client.status().pending_release, 1);

    agent.release(&[slots]);
    WAIT.until("the release", || (client.status().pending_release == 0).then_some(()));
    let third = client.counter("third").register();
    third.add(1);

    let again =
        agent.until("the third series", |state| state.series().get(2).map(wire::registration::PlacedSeries::run));
    assert_eq!(again, slots);
    assert_eq!(agent.look(|state| state.value("third")), Some(1), "it started at 0");
}

#[test]
fn what_was_removed_while_no_agent_was_there_is_retired_at_the_next_one() {
    let folder = SocketFolder::new();
    let client = folder.connect();
    let old = client.counter("old").register();
    let first = FakeAgent::start(&folder.socket(), 1);
    registered(&client, 1);
    let slots = first.look(|state| state.series()[0].run());
    drop(first);
    WAIT.until("the loss", || matches!(client.status().connection, Connection::Waiting { .. }).then_some(()));

    client.remove(old);
    let _new = client.counter("new").register();
    let second = FakeAgent::start(&folder.socket(), 2);
    registered(&client, 2);

    second.look(|state| {
        assert_eq!(state.retired(), [slots]);
        let [only] = &state.series()[..] else { unreachable!("one series is live") };
        assert_ne!(only.run(), slots, "it is not released");
    });
}

#[test]
fn a_hundred_thousand_metrics_cost_what_the_limit_allows() {
    let folder = SocketFolder::new();
    let agent = FakeAgent::start(&folder.socket(), 1);
    let client = folder.connect();

    let counters: Vec<_> = (0..100_000).map(|n| client.counter(&format!("m{n}")).register()).collect();
    for counter in &counters {
        counter.add(1);
    }

    agent.until("4,096 series", |state| (state.series().len() == 4096).then_some(()));
    registered(&client, 1);
    let status = client.status();
    assert_eq!((status.series, status.detached, status.regions), (4096, 100_000 - 4096, 2));
    assert_eq!(status.problems.len(), 1, "{status}");
    assert!(counters.iter().all(|counter| counter.get() == 1));
}

#[test]
fn a_service_whose_own_name_is_not_allowed_counts_and_says_so() {
    let folder = SocketFolder::new();
    let client = uview::connect(Service::new("pay ment").socket(folder.socket()));
    let counter = client.counter("requests").register();
    counter.add(1);

    let status = client.status();

    assert_eq!((counter.get(), &status.connection), (1, &Connection::Off));
    assert!(matches!(status.problems[0].cause, Cause::Service(_)), "{status}");
}

#[test]
fn a_duplicate_with_another_kind_an_invalid_name_and_full_memory_are_told_in_the_status() {
    let folder = SocketFolder::new();
    let limits = Limits { regions: 0, ..Limits::default() };
    let client = uview::connect(Service::new("payment").socket(folder.socket()).limits(limits));
    let full = client.counter("full").register();
    let invalid = client.gauge("in valid").register();
    full.add(1);
    invalid.set(1.0);
    assert_eq!((full.get(), invalid.get()), (1, 1.0));

    let roomy = folder.connect();
    let _first = roomy.counter("a").register();
    let second = roomy.gauge("a").register();
    second.set(2.0);

    assert_eq!(second.get(), 2.0);
    let texts = |client: &Client| client.status().problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&client)[0], "0 regions are full: further series are not registered (see Limits::regions)");
    assert!(
        texts(&client)[1]
            .starts_with("metric \"in valid\" is not registered: metric name \"in valid\" has ' ' at byte 2")
    );
    assert_eq!(texts(&roomy), ["metric a is not registered as a gauge: it is a counter already"]);
}

#[test]
fn a_socket_path_that_cannot_be_is_told_in_the_status() {
    let client = uview::connect(Service::new("payment").socket("/".repeat(200)));

    WAIT.until("the error", || {
        matches!(client.status().connection, Connection::Waiting { error: Some(_), .. }).then_some(())
    });
}

/// Types that a service passes between its threads: compiles only if they are `Send`, `Sync` and `Clone`.
const _: () = {
    const fn passes<T: Send + Sync + Clone + 'static>() {}
    passes::<uview::Client>();
    passes::<uview::Counter>();
    passes::<uview::UpDownCounter>();
    passes::<uview::Gauge>();
    passes::<uview::Histogram>();
};
