//! Fork while spans are recorded, alone in its process: a child must not come upon another test's threads.
#![expect(unsafe_code, reason = "the only safe way to fork is to run a closure before exec")]

#[expect(dead_code, reason = "one test needs a part of it")]
mod fake_agent;

use std::collections::HashSet;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use fake_agent::FakeAgent;
use region::ReadMapping;
use region::ring::RingReader;
use tracing::dispatcher::{Dispatch, with_default};
use tracing_subscriber::layer::SubscriberExt as _;
use uview::Service;
use wire::span_record::{Record, Subject};

fn record_ten(dispatch: &Dispatch) {
    with_default(dispatch, || (0..10).for_each(|_| tracing::info_span!("charge").in_scope(|| ())));
}

#[test]
fn a_childs_spans_have_ids_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let agent = FakeAgent::start(&socket, 1);
    let client = uview::connect(Service::new("payment").socket(&socket));
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(client.span_layer()));
    // From now on the thread has ids for more of them.
    record_ten(&dispatch);

    let childs = dispatch.clone();
    let mut child = Command::new("true");
    let before_exec = move || {
        record_ten(&childs);
        Ok(())
    };
    // SAFETY: the closure takes locks, which is not safe in a child in general. No other thread takes those of the
    // layer: this process runs nothing else.
    let status = unsafe { child.pre_exec(before_exec) }.status().unwrap();
    assert!(status.success());
    record_ten(&dispatch);

    let memory = agent
        .until("a ring", |state| state.ring.as_ref().map(|ring| ReadMapping::map(ring.as_fd(), ring.size()).unwrap()));
    let (mut traces, mut spans) = (HashSet::new(), HashSet::new());
    let polled = RingReader::new(memory, 0).poll(|words| match Record::decode(words).unwrap().subject {
        Subject::Span(head) => {
            traces.insert(head.trace);
            spans.insert(head.span);
        }
        Subject::Keep(_) => unreachable!("nobody asks for a trace"),
    });
    assert_eq!((polled.read, traces.len(), spans.len()), (30, 30, 30));
}
