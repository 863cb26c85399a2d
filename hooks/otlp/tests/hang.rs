//! Look-back, in virtual time: a service hangs, SDKs send ended spans every five seconds, and the verdict comes when
//! all is over. Also: the reported look-back is the real one.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::collections::{BTreeMap, BTreeSet};

use hooks::tracing::{BudgetRule, Limits, Metric, OrderKey, Switches, TraceId};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::{Finding, TailSampler, TailSettings, Timestamp};
use prost::Message as _;
use support::otlp::traces;
use wire::time::{Nanos, UnixNanos};

/// Midday of some day, in seconds.
const NOON: u64 = 1_700_000_000;
/// Every SDK's batch, in milliseconds.
const BATCH: u64 = 5_000;
/// Duration of a request that does not hang, in milliseconds.
const USUAL: u64 = 20;
/// Between two requests, which go through payment and catalog in turn.
const EVERY: u64 = 10;
/// Payment hangs in this period.
const HANGS: [u64; 2] = [80_000, 90_000];
/// Time of payment's verdict: what ended is counted six seconds later, every second.
const VERDICT: u64 = HANGS[1] + 1_000 + 6_000;

fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(NOON).plus(monotonic) }
}

/// A sampler that keeps traces only for verdicts and services' triggers.
fn tail(bytes: usize) -> TailSampler {
    let settings = TailSettings {
        limits: Limits { bytes, trace_bytes: 64 << 10, ..Limits::default() },
        key: OrderKey::new(7),
        switches: Switches { floor: None, error: false, latency: false, ..Switches::default() },
        // It is about memory.
        budget: BudgetRule { bytes_per_s: 1 << 30, ..BudgetRule::default() },
        frontends: vec!["frontend".to_owned()],
        node: "node-7".to_owned(),
    };
    TailSampler::new(&settings, at(0)).unwrap()
}

fn id(trace: u64) -> [u8; 16] {
    // Spread over all ids, as random ones are.
    u128::from(trace).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes()
}

fn span(trace: u64, number: u8, [start, end]: [u64; 2]) -> Span {
    Span {
        trace_id: id(trace).to_vec(),
        span_id: vec![number; 8],
        parent_span_id: if number == 1 { Vec::new() } else { vec![number - 1; 8] },
        name: if number == 1 { format!("GET /{}", trace % 2) } else { "handle".to_owned() },
        kind: 2,
        start_time_unix_nano: at(start).wall.0,
        end_time_unix_nano: at(end).wall.0,
        ..Span::default()
    }
}

fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    traces(service, spans).encode_to_vec()
}

/// Spans by the batch that has them: send time and service.
#[derive(Default)]
struct Batches(BTreeMap<(u64, &'static str), Vec<Span>>);

impl Batches {
    /// Requests that begin before `until`; those that find payment hanging end with it.
    fn of(until: u64) -> Self {
        let mut batches = Self::default();
        for (trace, start) in (0..until).step_by(EVERY as usize).enumerate() {
            let (trace, pays) = (trace as u64, trace % 2 == 1);
            let hangs = pays && (HANGS[0]..HANGS[1]).contains(&start);
            let end = USUAL + if hangs { HANGS[1] } else { start };
            // Services did not begin at the same time.
            for (service, number, offset) in
                [("frontend", 1, 1_300), (if pays { "payment" } else { "catalog" }, 2, 3_700)]
            {
                let sent = (end - offset.min(end)).next_multiple_of(BATCH) + offset;
                batches.0.entry((sent, service)).or_default().push(span(trace, number, [start, end]));
            }
        }
        batches
    }

    /// Ingests all that is sent until `until`, with ticks.
    fn play(&mut self, tail: &mut TailSampler, until: u64) {
        while let Some(entry) = self.0.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((sent, service), spans) = entry.remove_entry();
            tail.ingest(&request(service, spans), at(sent)).unwrap();
            tail.tick(at(sent));
        }
        tail.tick(at(until));
    }
}

/// Spans of each kept trace; none is marked incomplete.
fn whole(tail: &mut TailSampler) -> BTreeMap<Vec<u8>, BTreeSet<u8>> {
    let mut kept: BTreeMap<Vec<u8>, BTreeSet<u8>> = BTreeMap::new();
    for batch in tail.take_batches() {
        let request = ExportTraceServiceRequest::decode(&batch.request[..]).unwrap();
        for span in request.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans) {
            assert!(!span.attributes.iter().any(|said| said.key == "uview.incomplete"), "{span:?}");
            kept.entry(span.trace_id).or_default().insert(span.span_id[0]);
        }
    }
    kept
}

#[test]
fn traces_that_hung_for_ten_seconds_are_kept_whole_when_the_verdict_comes_after_the_batches() {
    let mut tail = tail(64 << 20);
    let mut batches = Batches::of(VERDICT);
    batches.play(&mut tail, VERDICT);
    assert!(whole(&mut tail).is_empty(), "nothing is kept before");

    let metric = Metric {
        title: "duration.p99".into(),
        unit: "s".into(),
        seen: 9.9,
        expected: 0.02,
        of_distribution: true,
        replica: "".into(),
    };
    let (from, at_end) = (at(HANGS[1]).wall, at(HANGS[1] + 1_000).wall);
    let finding = Finding {
        service: "payment",
        from,
        at: at_end,
        breakdown: None,
        score: 40.0,
        gamma: 4.0,
        metrics: vec![metric],
        incident: "".into(),
    };
    tail.verdict(finding, at(VERDICT));
    batches.play(&mut tail, VERDICT + 2 * BATCH);

    let kept = whole(&mut tail);
    let hung: Vec<_> =
        (HANGS[0]..HANGS[1]).step_by(EVERY as usize).map(|start| start / EVERY).filter(|t| t % 2 == 1).collect();
    let found = hung.iter().filter(|trace| kept.get(&id(**trace)[..]).is_some_and(|spans| spans.len() == 2)).count();
    assert_eq!(hung.len(), 500);
    assert!(found * 100 >= hung.len() * 95, "{found} of {}", hung.len());
    // And little else: traces through payment within the verdict's period, and no others.
    assert!(kept.len() <= found + 150, "{} traces are kept", kept.len());
    let others = (0..VERDICT / EVERY).step_by(2).filter(|trace| kept.contains_key(&id(*trace)[..])).count();
    assert_eq!(others, 0);
}

/// Memory for less than half of the buffered spans, beside remembered decisions.
const SHORT: usize = 14 << 20;

/// Look-back at `now`, and the share of traces since then that can still be kept; measured by triggering every one of
/// them. Then what the sampler reports of both.
fn reach(bytes: usize, now: u64) -> [(f64, f64); 2] {
    let mut tail = tail(bytes);
    let mut arrived = BTreeMap::new();
    for trace in 0..now / EVERY {
        let when = trace * EVERY;
        let span = Span { name: "GET /".to_owned() + &"x".repeat(2_000), ..span(trace, 1, [when, when]) };
        tail.ingest(&request("frontend", vec![span]), at(when)).unwrap();
        tail.tick(at(when));
        arrived.insert(trace, when);
    }
    let reported = tail.look_back(at(now).monotonic);
    let had: Vec<u64> = arrived
        .iter()
        .filter(|(trace, _)| tail.trigger(TraceId::new(id(**trace)).unwrap(), "test", at(now)))
        .map(|(_, when)| *when)
        .collect();
    let oldest = *had.first().unwrap();
    let came = arrived.values().filter(|when| **when >= oldest).count();
    [((now - oldest) as f64 / 1e3, had.len() as f64 / came as f64), (reported.reach.as_secs_f64(), reported.share)]
}

#[test]
fn the_achieved_look_back_is_within_five_percent_of_what_asking_for_every_trace_finds() {
    // A young agent, one that has run for long, and one whose memory is short.
    for (bytes, now) in [(64 << 20, 20_000), (64 << 20, 100_000), (SHORT, 100_000)] {
        let [(truth, found), (said, share)] = reach(bytes, now);

        assert!((said - truth).abs() <= truth * 0.05, "{bytes} bytes at {now}: {truth} s, said {said} s");
        assert!((share - found).abs() <= found * 0.05, "{bytes} bytes at {now}: a share of {found}, said {share}");
    }
    let [(_, found), _] = reach(SHORT, 100_000);
    assert!(found < 0.9, "memory was not short: {found}");
}
