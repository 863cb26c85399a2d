//! Services that record spans into a ring and have no exporter: real processes, some of which are killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use client::{Limits, TraceId};
use region::fd_passing;
use region::ring::{RingWriter, size_for};
use rustix::fs::{FallocateFlags, fallocate, fstat};
use tracing_subscriber::layer::SubscriberExt as _;
use wire::layout::{Slot, VERSION};
use wire::proto::operators::{ReceiptLine, ReceiptRequest};
use wire::proto::registration::agent_message::Message;
use wire::registration::ServiceMessage;

use crate::agent::{Agent, WAIT};
use crate::otlp::{ReceivedSpans, upstream};
use crate::service::Service;

/// The service of these tests, in its own process. It reads commands and reports when each is done.
#[test]
#[ignore = "it is run by other tests"]
fn a_service_of_its_own() {
    let limits = Limits { spans: 64, ..Limits::default() };
    let uview = client::connect(client::Service::new("payment").instance("payment-1").limits(limits));
    let subscriber = tracing_subscriber::registry().with(uview.span_layer());
    tracing::subscriber::with_default(subscriber, || {
        for line in std::io::stdin().lines() {
            let line = line.unwrap();
            let (what, how_many) = line.split_once(' ').unwrap();
            for n in 0..how_many.parse::<u64>().unwrap() {
                let span = tracing::info_span!("POST /pay", otel.kind = "server", n);
                let _in = span.enter();
                tracing::info_span!("charge", card = "visa").in_scope(|| ());
                if what == "ask" {
                    uview.trigger(client::spans::context(&span).unwrap().trace, "a refund of more than was paid");
                }
            }
            println!("\ndone {line}");
        }
    });
}

/// That service, running.
struct ServiceProcess(Child);

impl ServiceProcess {
    fn start(agent: &Agent) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "spans::a_service_of_its_own", "--ignored", "--nocapture"]);
        command.env("UVIEW_SOCKET", &agent.at.services).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Sends a command and waits until it is done.
    fn does(&mut self, what: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{what}").unwrap();
        let done = format!("done {what}");
        let said = BufReader::new(self.0.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
        assert!({ said }.any(|line| line == done), "it ended before it was done");
    }

    /// Ends the process by SIGKILL.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn agent(traces: &str) -> (Agent, ReceivedSpans) {
    let (address, received) = upstream();
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{address}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {traces}\n"
    ));
    (agent, received)
}

/// The service and the name of all spans received.
fn names(received: &ReceivedSpans) -> Vec<(String, String)> {
    let received = received.lock().unwrap_or_else(PoisonError::into_inner);
    let resources = received.iter().flat_map(|request| &request.resource_spans);
    let spans = resources.flat_map(|resource| {
        let service = format!("{:?}", resource.resource.as_ref().unwrap().attributes[0].value.as_ref().unwrap());
        resource.scope_spans.iter().flat_map(move |scope| {
            let service = service.clone();
            scope.spans.iter().map(move |span| (service.clone(), span.name.clone()))
        })
    });
    spans.collect()
}

fn count(agent: &Agent, name: &str) -> u64 {
    let page = agent.get("/metrics").1;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("uview_host_{name}_total ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

#[test]
fn spans_of_a_service_without_an_exporter_are_upstream_also_those_before_it_was_killed() {
    let (agent, received) = agent("{keep: all}");
    let mut service = ServiceProcess::start(&agent);

    service.does("record 3");
    WAIT.until("three requests", || (names(&received).len() == 6).then_some(()));
    service.does("record 20");
    service.kill();

    WAIT.until("what was written before", || (names(&received).len() == 46).then_some(()));
    let names = names(&received);
    assert!(names.iter().all(|(service, _)| service.contains("payment")), "{names:?}");
    assert_eq!(names.iter().filter(|(_, name)| name == "POST /pay").count(), 23);
    assert_eq!((count(&agent, "ring_spans"), count(&agent, "overwritten_ring_records")), (46, 0));
}

#[test]
fn a_ring_that_is_too_small_loses_the_oldest_and_every_span_is_counted() {
    let (agent, received) = agent("{keep: all}");
    let mut service = ServiceProcess::start(&agent);

    service.does("record 20000");
    service.does("record 1");
    service.kill();

    let lost = || count(&agent, "overwritten_ring_records") + count(&agent, "unfinished_ring_records");
    WAIT.until("every span", || (count(&agent, "ring_spans") + lost() == 40_002).then_some(()));
    // How many depends on scheduling. 64 records are written in less time than the agent pauses.
    assert!(lost() > 0, "nothing was lost");
    WAIT.until("what was read", || (names(&received).len() as u64 == count(&agent, "ring_spans")).then_some(()));
}

#[test]
fn a_trace_that_a_service_asks_for_is_kept_with_its_reason_and_no_other() {
    let (agent, received) = agent("{keep: tail, decision_wait_ms: 2000, floor: 0, latency: false}");
    let mut service = ServiceProcess::start(&agent);

    service.does("record 5");
    service.does("ask 1");
    service.does("record 5");

    WAIT.until("the trace", || (names(&received).len() == 2).then_some(()));
    WAIT.until("all others dropped", || {
        agent.get("/metrics").1.contains("dropped_spans_total{reason=\"aged\"} 20").then_some(())
    });
    let text = format!("{:?}", received.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(text.contains("a refund of more than was paid") && text.contains("\"trigger\""), "{text}");
    assert_eq!(names(&received).len(), 2);
    assert_eq!((count(&agent, "triggered_traces"), count(&agent, "refused_triggers")), (1, 0));
    let mut operators = agent.operators();
    let receipt = operators.runtime.block_on(operators.client.receipt(ReceiptRequest {})).unwrap().into_inner();
    let line = |of: fn(&ReceiptLine) -> u64| receipt.days.iter().flat_map(|day| &day.services).map(of).sum::<u64>();
    assert_eq!((line(|line| line.seen_spans), line(|line| line.kept_spans)), (22, 2));
    assert_eq!((line(|line| line.requests), line(|line| line.kept_requests)), (11, 1));
    let grown = |name: &str| receipt.days.iter().filter_map(|day| day.grown.get(name)).sum::<u64>();
    assert_eq!((grown("dropped_spans.aged"), grown("ring_spans"), grown("triggered_traces")), (20, 22, 1));
    assert!(receipt.days.iter().flat_map(|day| &day.services).all(|line| line.service == "payment"));
}

#[test]
fn where_otlp_is_off_a_service_learns_that_nobody_takes_its_spans() {
    let agent = Agent::start();
    let uview = client::connect(client::Service::new("payment").socket(&agent.at.services));

    uview.trigger(TraceId::from_bytes([1; 16]).unwrap(), "why");

    WAIT.until("the problem", || uview.status().to_string().contains("nobody takes spans").then_some(()));
}

#[test]
fn where_all_is_watched_only_spans_of_rings_are_taken_too_and_counted() {
    let agent = Agent::with(
        "process_metrics: {enabled: false}\n\
         otlp: {watch_only: true, listen_grpc: '127.0.0.1:0', listen_http: '127.0.0.1:0'}\n",
    );
    let mut service = ServiceProcess::start(&agent);

    service.does("record 3");

    WAIT.until("three requests of two spans", || {
        let counted = "uview_host_unforwarded_otlp_items_total{signal=\"traces\"} 6\n";
        agent.get("/metrics").1.contains(counted).then_some(())
    });
}

#[test]
fn a_ring_of_which_memory_is_freed_is_not_read_any_more_costs_nothing_and_is_named() {
    let (agent, received) = agent("{keep: all}");
    let mut hostile = Service::connect(&agent);
    hostile.hello("hostile");
    let size = size_for(1024).unwrap();
    let ring = RingWriter::create("hostile", size).unwrap();
    let bytes = Service::frame(&ServiceMessage::AddSpanRing { size, layout_version: VERSION, first_ticket: 0 });
    assert_eq!(fd_passing::send(&hostile.stream, &bytes, Some(ring.region().as_fd())).unwrap(), bytes.len());
    hostile.wait_accepted(2);
    let pages = || fstat(ring.region().as_fd()).unwrap().st_blocks / 8;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;

    // As many tickets as there are records make the agent look at all of them, page by page.
    let mut tickets = 0;
    let mut free = || {
        tickets += 1024;
        fallocate(ring.region().as_fd(), punch, 0, size.bytes() as u64).unwrap();
        ring.region().slot(Slot(0)).unwrap().store(tickets, Ordering::Relaxed);
    };
    WAIT.until("the agent to give the ring up", || {
        free();
        (count(&agent, "freed_span_rings") == 1).then_some(())
    });
    free();
    let mut service = ServiceProcess::start(&agent);
    service.does("record 3");
    WAIT.until("the other's spans", || (names(&received).len() == 6).then_some(()));

    assert_eq!(pages(), 1, "the agent allocated pages that it read");
    let problems = agent.status().problems;
    let named = "hostile hostile-1: span ring: its service has freed ";
    assert!(problems.iter().any(|line| line.contains(named)), "{problems:?}");
    let refusal = loop {
        if let Some(Message::Refusal(refusal)) = hostile.receive() {
            break refusal;
        }
    };
    assert!(refusal.what == "span ring" && refusal.reason.contains("has freed"), "{refusal:?}");
    assert_eq!(count(&agent, "freed_span_rings"), 1);
}

#[test]
fn whatever_lies_in_a_ring_nothing_malformed_goes_on_and_others_are_read() {
    let (agent, received) = agent("{keep: all}");
    let mut hostile = Service::connect(&agent);
    hostile.hello("hostile");
    let size = size_for(64).unwrap();
    let ring = RingWriter::create("hostile", size).unwrap();
    let bytes = Service::frame(&ServiceMessage::AddSpanRing { size, layout_version: VERSION, first_ticket: 3 });
    for _ in 0..2 {
        assert_eq!(fd_passing::send(&hostile.stream, &bytes, Some(ring.region().as_fd())).unwrap(), bytes.len());
    }
    let refused = hostile.wait_accepted(3);
    assert_eq!(refused.iter().map(|refused| &*refused.what).collect::<Vec<_>>(), ["span ring"], "a second one");

    // Arbitrary words with consecutive tickets, then tickets that jump.
    for n in 0..1_000_u64 {
        let word = |i: u64| (n * 64 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 50);
        ring.push(&std::array::from_fn::<u64, 63, _>(|i| word(i as u64)));
    }
    WAIT.until("what is no record", || (count(&agent, "malformed_ring_records") > 0).then_some(()));
    ring.region().slot(Slot(0)).unwrap().store(u64::MAX - 1, Ordering::Relaxed);
    WAIT.until("a jump", || (count(&agent, "overwritten_ring_records") > 1 << 40).then_some(()));
    ring.region().slot(Slot(0)).unwrap().store(5, Ordering::Relaxed);
    let mut service = ServiceProcess::start(&agent);
    service.does("record 3");

    WAIT.until("the other's spans", || (names(&received).len() >= 6).then_some(()));
    assert_eq!(names(&received).iter().filter(|(service, _)| service.contains("payment")).count(), 6);
}
