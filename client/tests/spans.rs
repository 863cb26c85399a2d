//! What the agent reads from the ring of a service that uses `tracing`.

#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

#[expect(dead_code, reason = "the agent can do more than is wanted here")]
mod fake_agent;

use core::fmt;
use std::os::fd::AsFd as _;

use fake_agent::{FakeAgent, WAIT};
use region::ReadMapping;
use region::ring::RingReader;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use uview::spans::SpanLayer;
use uview::{Client, Connection, Service, SpanKind, TraceContext};
use wire::registration::ServiceMessage;
use wire::span_record::{Head, Note, Record, Status, Subject};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A value that records an event when it is printed.
struct Chatty;

impl fmt::Debug for Chatty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tracing::info!("printed");
        f.write_str("chatty")
    }
}

/// A service with an agent that has its ring.
struct SpanFixture {
    client: Client,
    reader: RingReader,
    _agent: FakeAgent,
    _folder: tempfile::TempDir,
}

impl SpanFixture {
    fn new(work: impl FnOnce(&Client)) -> Self {
        Self::with_layer(Client::span_layer, work)
    }

    fn with_layer(layer: impl FnOnce(&Client) -> SpanLayer, work: impl FnOnce(&Client)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("services.sock");
        let agent = FakeAgent::start(&socket, 1);
        let client = uview::connect(Service::new("payment").socket(socket));
        let subscriber = tracing_subscriber::registry().with(layer(&client));
        tracing::subscriber::with_default(subscriber, || work(&client));
        let memory = agent.until("a ring", |state| {
            state.ring.as_ref().map(|ring| ReadMapping::map(ring.as_fd(), ring.size()).unwrap())
        });
        Self { client, reader: RingReader::new(memory, 0), _agent: agent, _folder: folder }
    }

    fn records(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        let polled = self.reader.poll(|words| records.push(Record::decode(words).unwrap()));
        assert_eq!((polled.read, polled.lost), (records.len() as u64, region::ring::LostRecords::default()));
        records
    }
}

fn head(record: &Record) -> Head {
    match record.subject {
        Subject::Span(head) => head,
        Subject::Keep(_) => unreachable!("{record:?}"),
    }
}

fn call() -> TraceContext {
    TraceContext::extract(|name| if name == "traceparent" { Some(CALLER) } else { Some("ot=rv:0123456789abcd") })
        .unwrap()
}

#[test]
fn spans_within_each_other_are_one_trace() {
    let mut fixture = SpanFixture::new(|_| {
        let outer = tracing::info_span!("POST /pay", otel.kind = "server", amount = 12, share = 0.5, paid = true);
        let _in = outer.enter();
        tracing::info_span!("charge", card = %"visa").in_scope(|| ());
        tracing::info_span!(parent: None, "apart").in_scope(|| ());
    });

    let records = fixture.records();

    let names: Vec<_> = records.iter().map(Record::name).collect();
    assert_eq!(names, ["charge", "apart", "POST /pay"], "as they ended");
    let [charge, apart, pay] = [0, 1, 2].map(|n: usize| head(&records[n]));
    assert_eq!((pay.kind, pay.parent, charge.kind), (2, None, 1));
    assert_eq!((charge.trace, charge.parent), (pay.trace, Some(pay.span)));
    assert!(apart.trace != pay.trace && apart.parent.is_none());
    assert!(pay.start <= charge.start && charge.end <= pay.end && charge.start <= charge.end);
    let notes: Vec<_> = records[2].notes().collect();
    let attributes = [Note::Integer("amount", 12), Note::Float("share", 0.5), Note::Bool("paid", true)];
    assert_eq!(notes[1..4], attributes);
    assert!(records[0].notes().any(|note| note == Note::Text("card", "visa")));
    assert!(records[0].notes().any(|note| note == Note::Text("target", "spans")));
}

#[test]
fn a_trace_goes_on_from_its_caller_and_to_whom_is_called() {
    let mut sent = Vec::new();
    let mut fixture = SpanFixture::new(|_| {
        let span = tracing::info_span!("POST /pay", otel.kind = "server");
        assert!(uview::spans::set_parent(&span, &call()));
        span.in_scope(|| {
            let inner = tracing::info_span!("GET /stock", otel.kind = "client");
            uview::spans::context(&inner).unwrap().inject(|name, value| sent.push((name, value.to_owned())));
        });
        assert!(uview::spans::context(&tracing::Span::none()).is_none());
    });

    let records = fixture.records();

    let (inner, outer) = (head(&records[0]), head(&records[1]));
    let caller = call();
    assert_eq!(
        (outer.trace.get(), outer.parent.unwrap().get()),
        (u128::from_be_bytes(caller.trace.to_bytes()), 0xb7ad_6b71_6920_3331)
    );
    assert_eq!((inner.trace, inner.kind), (outer.trace, 3));
    let expected = format!("00-{}-{:016x}-01", caller.trace, inner.span);
    assert_eq!(sent, [("traceparent", expected), ("tracestate", "ot=rv:0123456789abcd".to_owned())]);
    assert!(records.iter().all(|record| record.notes().any(|note| note == Note::State("ot=rv:0123456789abcd"))));
}

#[test]
fn errors_names_and_late_fields_are_told() {
    let mut fixture = SpanFixture::new(|_| {
        let span = tracing::info_span!("request", late = tracing::field::Empty, otel.name = tracing::field::Empty);
        span.record("late", 7);
        span.record("otel.name", "GET /{id}");
        span.in_scope(|| tracing::error!("no {}", "money"));
        drop(span);
        tracing::info_span!("said so", otel.status_code = "ok").in_scope(|| tracing::warn!("not an error"));
    });

    let records = fixture.records();

    assert_eq!((records[0].name(), head(&records[0]).status), ("GET /{id}", Status::Error));
    assert!(records[0].notes().any(|note| note == Note::Integer("late", 7)));
    assert!(records[0].notes().any(|note| note == Note::Message("no money")));
    assert_eq!(head(&records[1]).status, Status::Ok);
}

#[test]
fn a_value_that_records_an_event_when_it_is_printed_meets_no_lock() {
    let mut fixture = SpanFixture::new(|_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let work = || {
            let span = tracing::info_span!("request", late = tracing::field::Empty);
            let _in = span.enter();
            span.record("late", tracing::field::debug(Chatty));
            tracing::info!(value = ?Chatty, "said");
        };
        let thread = std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, work));
        WAIT.until("the end of the span", || thread.is_finished());
        thread.join().unwrap();
    });

    let records = fixture.records();

    assert_eq!(records[0].notes().last(), Some(Note::Text("late", "chatty")));
    assert_eq!(events(&records[0]), ["printed", "said"]);
}

#[test]
fn a_span_that_a_program_begins_itself_is_recorded_when_it_is_dropped() {
    let mut sent = Vec::new();
    let mut fixture = SpanFixture::new(|client| {
        let mut pay = client.span("POST /pay");
        pay.set_kind(SpanKind::Server);
        pay.set_parent(&call());
        pay.set_text("card", "visa");
        pay.set_integer("amount", 12);
        pay.set_float("share", 0.5);
        pay.set_bool("paid", true);
        let mut stock = client.span("GET /stock");
        let context = pay.context().unwrap();
        stock.set_parent(&context);
        context.inject(|name, value| sent.push((name, value.to_owned())));
        stock.fail("no stock");
        stock.fail("and no money");
        stock.keep("sold out");
        drop(stock);
        drop(client.span("apart"));
    });

    let records = fixture.records();

    let names: Vec<_> = records.iter().map(Record::name).collect();
    assert_eq!(names, ["sold out", "GET /stock", "apart", "POST /pay"], "as they ended");
    let [stock, apart, pay] = [1, 2, 3].map(|n: usize| head(&records[n]));
    let caller = call();
    assert_eq!(
        (pay.trace.get(), pay.parent.unwrap().get()),
        (u128::from_be_bytes(caller.trace.to_bytes()), 0xb7ad_6b71_6920_3331)
    );
    assert_eq!((pay.kind, pay.status, stock.kind, stock.status), (2, Status::Unset, 1, Status::Error));
    assert_eq!((stock.trace, stock.parent), (pay.trace, Some(pay.span)));
    assert!(apart.trace != pay.trace && apart.parent.is_none());
    assert!(pay.start <= stock.start && stock.start <= stock.end && stock.end <= pay.end);
    assert!(matches!(records[0].subject, Subject::Keep(trace) if trace == pay.trace));
    let notes: Vec<_> = records[3].notes().collect();
    let attributes =
        [Note::Text("card", "visa"), Note::Integer("amount", 12), Note::Float("share", 0.5), Note::Bool("paid", true)];
    assert_eq!((&notes[1..5], notes[5]), (&attributes[..], Note::State("ot=rv:0123456789abcd")));
    let messages: Vec<_> = records[1].notes().filter(|note| matches!(note, Note::Message(_))).collect();
    assert_eq!(messages, [Note::Message("no stock")]);
    let parent = format!("00-{}-{:016x}-01", caller.trace, pay.span);
    assert_eq!(sent, [("traceparent", parent), ("tracestate", "ot=rv:0123456789abcd".to_owned())]);
}

/// Names of what happened within a span.
fn events(record: &Record) -> Vec<&str> {
    record.events().map(|event| event.name).collect()
}

#[test]
fn events_within_a_span_are_its_events_with_level_and_fields() {
    let mut fixture = SpanFixture::new(|_| {
        let span = tracing::info_span!("POST /pay");
        span.in_scope(|| {
            tracing::info!(attempt = 2, late = true, after = 0.5, why = "timeout", card = ?Some(7), "tried {}", "again");
            tracing::debug!("too verbose");
            tracing::info_span!("charge").in_scope(|| {
                tracing::error!(n = u64::MAX, "refused");
                tracing::warn!(parent: &span, "slow");
            });
        });
        tracing::info!("outside");
    });

    let records = fixture.records();

    let [charge, pay] = &records[..] else { unreachable!("{records:?}") };
    assert_eq!((events(charge), events(pay)), (vec!["refused"], vec!["tried again", "slow"]));
    let of = |record, event| Record::event_attributes(record, event).collect::<Vec<_>>();
    let level = |level| Note::Text("level", level);
    let fields = [
        level("INFO"),
        Note::Integer("attempt", 2),
        Note::Bool("late", true),
        Note::Float("after", 0.5),
        Note::Text("why", "timeout"),
        Note::Text("card", "Some(7)"),
    ];
    assert_eq!((of(pay, 0), of(pay, 1)), (fields.to_vec(), vec![level("WARN")]));
    assert_eq!(of(charge, 0), [level("ERROR"), Note::Text("n", "18446744073709551615")]);
    assert_eq!((head(pay).status, head(charge).status), (Status::Unset, Status::Error));
    let times: Vec<_> = pay.events().map(|event| event.at).collect();
    assert!(times.is_sorted() && head(pay).start <= times[0] && times[1] <= head(pay).end, "{times:?}");
}

#[test]
fn records_of_the_facade_log_do_not_say_where_they_are_and_a_level_of_an_events_own_is_the_only_one() {
    let mut fixture = SpanFixture::new(|_| {
        tracing::info_span!("work").in_scope(|| {
            // As `tracing-log` passes them on.
            tracing::info!(
                log.target = "a crate",
                log.module_path = "a crate::module",
                log.file = "src/module.rs",
                log.line = 7_u32,
                log.attempts = 2,
                "said"
            );
            tracing::warn!(level = "battery low", "switched off");
            tracing::warn!(level = 3, "filled");
        });
    });

    let records = fixture.records();

    let of = |event| Record::event_attributes(&records[0], event).collect::<Vec<_>>();
    assert_eq!(events(&records[0]), ["said", "switched off", "filled"]);
    assert_eq!(of(0), [Note::Text("level", "INFO"), Note::Integer("log.attempts", 2)]);
    assert_eq!((of(1), of(2)), (vec![Note::Text("level", "battery low")], vec![Note::Integer("level", 3)]));
}

#[test]
fn how_verbose_events_are_recorded_can_be_said() {
    for (most, expected) in [
        (LevelFilter::OFF, &[][..]),
        (LevelFilter::WARN, &["warned", "failed"][..]),
        (LevelFilter::TRACE, &["traced", "warned", "failed"][..]),
    ] {
        let layer = |client: &Client| client.span_layer().with_events(most);
        let mut fixture = SpanFixture::with_layer(layer, |_| {
            tracing::info_span!("work").in_scope(|| {
                tracing::trace!("traced");
                tracing::warn!("warned");
                tracing::error!("failed");
            });
        });

        let records = fixture.records();

        assert_eq!(events(&records[0]), expected, "{most}");
        assert!(records[0].notes().any(|note| note == Note::Message("failed")));
    }
}

#[test]
fn events_without_end_leave_room_for_attributes_and_one_without_a_message_says_where_it_is() {
    let mut fixture = SpanFixture::new(|_| {
        let span = tracing::info_span!("work", late = tracing::field::Empty);
        span.in_scope(|| (0..1_000).for_each(|_| tracing::info!("something happened")));
        span.record("late", 7);
        drop(span);
        tracing::info_span!("silent").in_scope(|| tracing::info!(n = 1));
    });

    let records = fixture.records();

    // 27 bytes each, and 13 of its level.
    assert_eq!((records[0].events().count(), records[0].left_out()), (5, 995));
    assert!(records[0].notes().any(|note| note == Note::Integer("late", 7)));
    let names = events(&records[1]);
    assert!(matches!(names[..], [name] if name.contains("spans.rs")), "{names:?}");
}

#[test]
fn the_last_events_give_way_to_the_status_message_and_the_tracestate() {
    let message = "x".repeat(100);
    let mut fixture = SpanFixture::new(|_| {
        let span = tracing::info_span!("work", big = %"y".repeat(160));
        uview::spans::set_parent(&span, &call());
        span.in_scope(|| {
            (0..10).for_each(|_| tracing::info!("something happened"));
            tracing::error!("{message}");
        });
    });

    let records = fixture.records();

    for note in [Note::Message(&message), Note::State("ot=rv:0123456789abcd")] {
        assert!(records[0].notes().any(|other| other == note), "{note:?}");
    }
    // Two of five with their levels, five that came later, and the error's own.
    assert_eq!((records[0].events().count(), records[0].left_out()), (3, 10));
}

#[test]
fn events_of_a_span_that_a_program_begins_itself_take_attributes() {
    let mut fixture = SpanFixture::new(|client| {
        let mut pay = client.span("POST /pay");
        pay.last_event().set_integer("of no event", 1);
        pay.event("retried").set_integer("attempt", 2).set_text("why", "timeout");
        pay.set_text("card", "visa");
        pay.last_event().set_float("after", 0.5).set_bool("late", true);
        pay.event("given up");
    });

    let records = fixture.records();

    assert_eq!((events(&records[0]), records[0].left_out()), (vec!["retried", "given up"], 0));
    let attributes = [
        Note::Integer("attempt", 2),
        Note::Text("why", "timeout"),
        Note::Float("after", 0.5),
        Note::Bool("late", true),
    ];
    assert_eq!(records[0].event_attributes(0).collect::<Vec<_>>(), attributes);
    assert_eq!(records[0].event_attributes(1).count(), 0);
    assert_eq!(records[0].notes().last(), Some(Note::Text("card", "visa")));
}

#[test]
fn a_wish_that_a_trace_be_kept_is_told_with_its_reason() {
    let mut fixture = SpanFixture::new(|client| client.trigger(call().trace, "a refund"));

    let records = fixture.records();

    assert_eq!(records[0].name(), "a refund");
    assert!(
        matches!(records[0].subject, Subject::Keep(trace) if trace.get() == u128::from_be_bytes(call().trace.to_bytes()))
    );
}

#[test]
fn spans_of_several_threads_share_the_ring() {
    let mut fixture = SpanFixture::new(|_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let dispatch = dispatch.clone();
                let work = || (0..100).for_each(|_| tracing::info_span!("work").in_scope(|| ()));
                scope.spawn(move || tracing::dispatcher::with_default(&dispatch, work));
            }
        });
    });

    let records = fixture.records();

    let mut ids: Vec<_> = records.iter().map(|record| head(record).span).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 400);
    assert!(fixture.client.status().problems.is_empty());
}

#[test]
fn nothing_of_an_earlier_span_is_told_of_those_that_take_its_place() {
    let mut fixture = SpanFixture::new(|_| {
        let full = tracing::info_span!("POST /pay", otel.kind = "server", card = "visa", late = tracing::field::Empty);
        assert!(uview::spans::set_parent(&full, &call()));
        full.record("late", 7);
        full.in_scope(|| {
            tracing::error!(n = 1, "refused");
            (0..10).for_each(|_| tracing::info!("something happened"));
        });
        drop(full);
        tracing::info_span!("charge").in_scope(|| ());
        tracing::info_span!("render", n = 1).in_scope(|| tracing::info!("done"));
    });

    let records = fixture.records();

    // Four events with a level fit beside the error.
    assert_eq!((records[0].notes().count(), records[0].events().count(), records[0].left_out()), (6, 5, 6));
    let target = Note::Text("target", "spans");
    let notes = |n: usize| records[n].notes().collect::<Vec<_>>();
    assert_eq!(notes(1), [Note::Name("charge"), target]);
    assert_eq!(notes(2), [Note::Name("render"), Note::Integer("n", 1), target]);
    assert_eq!((events(&records[1]), events(&records[2])), (vec![], vec!["done"]));
    for record in &records[1..] {
        let Head { trace, parent, kind, status, .. } = head(record);
        assert_eq!((parent, kind, status, record.left_out()), (None, 1, Status::Unset, 0));
        assert_ne!(trace, head(&records[0]).trace);
    }
}

#[test]
fn a_span_that_ends_on_another_thread_is_recorded_as_it_began() {
    let mut fixture = SpanFixture::new(|_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        for n in 0..20 {
            let outer = tracing::info_span!("begun here", n);
            let dispatch = dispatch.clone();
            // The registry releases a parent by the subscriber of the thread on which its child ends.
            let work = move || {
                drop(tracing::info_span!(parent: &outer, "there"));
                drop(outer);
            };
            std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, work)).join().unwrap();
        }
    });

    let records = fixture.records();

    let mut ids = Vec::new();
    assert_eq!(records.len(), 40);
    for (n, pair) in records.chunks(2).enumerate() {
        let (there, here) = (head(&pair[0]), head(&pair[1]));
        assert_eq!((pair[0].name(), pair[1].name()), ("there", "begun here"));
        assert_eq!((there.trace, there.parent, here.parent), (here.trace, Some(here.span), None));
        assert!(pair[1].notes().any(|note| note == Note::Integer("n", n as i64)));
        ids.extend([there.span, here.span]);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 40);
}

#[test]
fn the_next_agent_is_told_of_the_ring_and_where_to_begin() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let first = FakeAgent::start(&socket, 1);
    let client = uview::connect(Service::new("payment").socket(&socket));
    client.trigger(call().trace, "for the first agent");
    let told = |state: &fake_agent::AgentState| {
        state.messages.iter().find_map(|message| match message {
            ServiceMessage::AddSpanRing { first_ticket, .. } => Some(*first_ticket),
            _ => None,
        })
    };
    let is_registered = || matches!(client.status().connection, Connection::Registered { .. });
    assert_eq!(first.until("the ring", told), 0);
    WAIT.until("the answer", || is_registered().then_some(()));
    drop(first);
    WAIT.until("the end", || (!is_registered()).then_some(()));

    client.trigger(call().trace, "for the second agent");
    let second = FakeAgent::start(&socket, 2);

    assert_eq!(second.until("the ring", told), 1);
}
