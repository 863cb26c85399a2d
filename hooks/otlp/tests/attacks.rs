//! Hostile or broken clients that send valid OTLP: memory stays within its limits, other clients' traces are kept, and
//! the ledger balances. In virtual time; the allocator counts memory per test thread.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use hooks::tracing::{BudgetRule, DropReason, Limits, LossReason, Metric, OrderKey, Policy, Switches};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use otlp::{Finding, TailSampler, TailSettings, Timestamp};
use prost::Message as _;
use support::otlp::{text, traces};
use wire::time::{Nanos, UnixNanos};

const MIB: usize = 1 << 20;
/// For buffered spans; reserved from the start.
const WAITING: usize = 32 * MIB;
/// For everything else: names, paths, origins, reasons, ledger, requests to send.
const REST: isize = 24 << 20;
/// Midday of some day, in seconds.
const NOON: u64 = 1_700_000_000;
/// Spans of a request.
const BATCH: u64 = 1_000;

fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(NOON).plus(monotonic) }
}

/// A tail under attack, and what it had before.
struct Victim {
    tail: TailSampler,
    before: isize,
}

impl Victim {
    /// Keeps traces for verdicts and errors; `budget` in bytes per second.
    fn new(budget: u64) -> Self {
        let settings = TailSettings {
            limits: Limits { bytes: WAITING, ..Limits::default() },
            key: OrderKey::new(7),
            switches: Switches { floor: None, latency: false, ..Switches::default() },
            budget: BudgetRule { bytes_per_s: budget, ..BudgetRule::default() },
            frontends: vec!["frontend".to_owned()],
            node: "node-7".to_owned(),
        };
        let tail = TailSampler::new(&settings, at(0)).unwrap();
        allocations::take_peak();
        Self { tail, before: allocations::live() }
    }

    /// Ingests a request. `body` is the attacker's memory, allocated all the time.
    fn take(&mut self, body: &[u8], millis: u64) {
        self.tail.ingest(body, at(millis)).unwrap();
    }

    /// Memory stayed within limits, except for `others` bytes of the test itself, and the ledger balances.
    fn assert_bounds(&self, others: usize) {
        assert!(self.tail.account().balances(), "{:?}", self.tail.account());
        let waiting = self.tail.memory();
        assert!(waiting <= WAITING + 16 * MIB, "{} MiB", waiting / MIB);
        let most = allocations::take_peak() - self.before - others as isize;
        assert!(most <= REST, "{} KiB more than at the beginning", most / 1024);
    }
}

fn id(trace: u64) -> [u8; 16] {
    u128::from(trace + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes()
}

fn span(trace: u64, own: u8, parent: u8, when: Timestamp) -> Span {
    support::otlp::span(u128::from_be_bytes(id(trace)), own, parent, "POST /pay", when.wall.0)
}

fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    traces(service, spans).encode_to_vec()
}

/// A request with a trace of one span for each of `numbers`, without a parent or with one that never arrives.
fn singles(numbers: core::ops::Range<u64>, parent: u8, when: Timestamp) -> Vec<u8> {
    request("payment", numbers.map(|number| span(number, 1, parent, when)).collect())
}

/// Overwrites the marks in `body` with the number of their span, from `first` on, in eight digits.
fn numbered(body: &mut [u8], places: &[usize], first: u64) {
    for (place, number) in places.iter().zip(first..) {
        body[*place..*place + 8].copy_from_slice(format!("{number:08}").as_bytes());
    }
}

/// Offsets of the eight bytes `mark` in `body`.
fn marks(body: &[u8], mark: [u8; 8]) -> Vec<usize> {
    let places: Vec<_> = (0..body.len() - 7).filter(|place| body[*place..].starts_with(&mark)).collect();
    assert_eq!(places.len() as u64, BATCH);
    places
}

/// A request of single-span traces whose ids have a mark in the middle.
fn marked(service: &str, name: &str, when: Timestamp) -> Vec<u8> {
    let one = |_| {
        let id = *b"abcd\0\0\0\0\0\0\0\0efgh";
        Span { trace_id: id.to_vec(), name: name.to_owned(), ..span(0, 1, 0, when) }
    };
    request(service, (0..BATCH).map(one).collect())
}

/// An honest request through the frontend and payment.
fn honest(victim: &mut Victim, trace: u64, millis: u64) {
    let when = at(millis);
    victim.take(&request("payment", vec![span(trace, 2, 1, when)]), millis);
    victim.take(&request("frontend", vec![span(trace, 1, 0, when)]), millis);
}

/// Teaches the sampler paths: from traces that were buffered to the end.
fn taught(victim: &mut Victim) {
    (0..200).for_each(|number| honest(victim, 1_000_000_000 + number, number));
    victim.tail.tick(at(61_000));
}

/// A verdict about payment for a period.
fn alarm(victim: &mut Victim, [from, until]: [u64; 2], now: u64) {
    let metrics = vec![Metric {
        title: "p99".into(),
        unit: "s".into(),
        seen: 0.18,
        expected: 0.02,
        of_distribution: true,
        replica: "".into(),
    }];
    let (from, at_end) = (at(from).wall, at(until).wall);
    let finding = Finding {
        service: "payment",
        from,
        at: at_end,
        breakdown: None,
        score: 12.0,
        gamma: 4.0,
        metrics,
        incident: "".into(),
    };
    victim.tail.verdict(finding, at(now));
    victim.tail.tick(at(now));
}

/// All exported spans.
fn kept(victim: &mut Victim) -> Vec<Span> {
    let batches = victim.tail.take_batches();
    let requests = batches.iter().map(|batch| ExportTraceServiceRequest::decode(&batch.request[..]).unwrap());
    let scopes = requests.flat_map(|request| request.resource_spans).flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

/// Whether both spans of the honest request `trace` are among `kept`.
fn has(kept: &[Span], trace: u64) -> bool {
    kept.iter().filter(|span| span.trace_id == id(trace)).count() == 2
}

#[test]
fn one_trace_with_a_million_spans_is_cut_and_says_so_and_others_are_kept() {
    let mut victim = Victim::new(1 << 30);
    taught(&mut victim);
    honest(&mut victim, 7, 70_000);
    let mut spans: Vec<_> = (0..BATCH).map(|_| span(1, 1, 1, at(70_000))).collect();
    spans.iter_mut().zip(1_u64..).for_each(|(span, number)| span.span_id = number.to_be_bytes().to_vec());
    let body = request("payment", spans);

    (0..1_000).for_each(|_| victim.take(&body, 70_000));

    let lost = victim.tail.account().lost(LossReason::TraceFull).spans;
    assert!((900_000..1_000_000).contains(&lost), "{lost}");
    victim.assert_bounds(4 * body.len());
    alarm(&mut victim, [70_000, 70_000], 71_000);
    assert!(has(&kept(&mut victim), 7));
    assert!(victim.tail.account().balances());
}

#[test]
fn a_million_traces_of_one_span_give_way_by_rank_and_take_no_memory_beyond() {
    let mut victim = Victim::new(1 << 30);
    taught(&mut victim);
    let mut body = marked("payment", "POST /pay", at(70_000));
    let places = marks(&body, [0; 8]);

    for number in 0..1_000 {
        numbered(&mut body, &places, number * BATCH);
        victim.take(&body, 70_000 + number);
    }

    let account = victim.tail.account();
    assert_eq!(account.seen.spans, 1_000_000 + 400);
    assert!(
        account.lost(LossReason::Evicted).spans > 0 && account.lost(LossReason::Refused).spans > 500_000,
        "{account:?}"
    );
    assert!(account.waiting.spans > 100_000, "what memory there is, is used: {account:?}");
    // The test's own spans, as structs and encoded.
    victim.assert_bounds(20 * body.len());
}

#[test]
fn attributes_of_ten_megabytes_are_refused_and_what_waits_stays() {
    let mut victim = Victim::new(1 << 30);
    taught(&mut victim);
    honest(&mut victim, 7, 70_000);
    let mut long = span(1, 1, 0, at(70_000));
    long.attributes.push(text("note", &"x".repeat(10 * MIB)));
    let body = request("payment", vec![long]);

    (0..20).for_each(|_| victim.take(&body, 70_000));

    assert_eq!(victim.tail.account().lost(LossReason::TraceFull).spans, 1);
    // Having been refused once, its trace is lost as a whole.
    assert_eq!(victim.tail.account().lost(LossReason::Late).spans, 19);
    victim.assert_bounds(3 * body.len());
    alarm(&mut victim, [70_000, 70_000], 71_000);
    assert!(has(&kept(&mut victim), 7));
}

#[test]
fn parents_in_a_circle_or_missing_end_as_other_traces_do() {
    let mut victim = Victim::new(1 << 30);
    taught(&mut victim);
    for number in 0..2_000 {
        // Its own parent; two that are each other's; one whose parent is unknown.
        let when = at(70_000);
        let all =
            [span(number, 1, 1, when), span(number, 2, 3, when), span(number, 3, 2, when), span(number, 4, 9, when)];
        victim.take(&request("payment", all.into()), 70_000);
    }
    honest(&mut victim, 5_000, 70_000);

    let mut failed = span(0, 5, 5, at(70_001));
    failed.status = Some(Status { code: 2, ..Status::default() });
    victim.take(&request("payment", vec![failed]), 70_001);
    assert_eq!(kept(&mut victim).len(), 5, "a circle that failed is kept as it is");
    alarm(&mut victim, [70_000, 70_000], 71_000);
    assert!(has(&kept(&mut victim), 5_000));
    victim.tail.tick(at(140_000));

    assert_eq!(victim.tail.account().waiting.spans, 0);
    assert!(victim.tail.account().dropped(DropReason::Aged).spans >= 4 * 1_999);
    victim.assert_bounds(MIB);
}

#[test]
fn roots_that_never_come_are_not_waited_for() {
    let mut victim = Victim::new(1 << 30);
    taught(&mut victim);
    let mut most = 0;
    for number in 0..100 {
        let body = singles(number * BATCH..(number + 1) * BATCH, 9, at(70_000 + number));
        most = most.max(body.len());
        victim.take(&body, 70_000 + number);
    }
    honest(&mut victim, 1 << 40, 70_100);
    alarm(&mut victim, [70_000, 70_100], 71_000);

    let kept = kept(&mut victim);
    assert!(has(&kept, 1 << 40));
    // For a request that did not enter here, only payment's own span shows that it passed payment.
    victim.tail.tick(at(131_000));
    let account = victim.tail.account();
    assert_eq!(account.waiting.spans, 0, "{account:?}");
    assert_eq!(account.kept.spans as usize, kept.len());
    victim.assert_bounds(20 * most + kept.len() * 600);
}

#[test]
fn spans_of_1970_and_of_the_future_are_in_no_window_of_today_and_go_on_as_they_came() {
    let mut victim = Victim::new(1 << 30);
    taught(&mut victim);
    let told = |trace: u64, own: u8, parent: u8, [start, end]: [u64; 2]| {
        let span = span(trace, own, parent, at(70_000));
        Span { start_time_unix_nano: start, end_time_unix_nano: end, ..span }
    };
    let future = at(70_000).wall.0 + 365 * 86_400_000_000_000;
    for (trace, times) in [(1, [0, 5]), (2, [future, future + 5]), (3, [future, 0])] {
        victim.take(&request("payment", vec![told(trace, 2, 1, times)]), 70_000);
        victim.take(&request("frontend", vec![told(trace, 1, 0, times)]), 70_000);
    }
    honest(&mut victim, 7, 70_000);

    alarm(&mut victim, [70_000, 70_500], 71_000);
    let first = kept(&mut victim);
    assert!(has(&first, 7));
    assert_eq!(first.len(), 2, "{first:?}");

    // A failed one is exported with its original times.
    let mut failed = told(1, 3, 1, [0, u64::MAX]);
    failed.status = Some(Status { code: 2, ..Status::default() });
    victim.take(&request("payment", vec![failed]), 71_100);
    let mut times: Vec<_> = kept(&mut victim).iter().map(|span| span.end_time_unix_nano).collect();
    times.sort_unstable();
    assert_eq!(times, [5, 5, u64::MAX]);
    victim.assert_bounds(MIB);
}

#[test]
fn a_million_span_names_are_bounded_and_an_operation_that_was_known_stays_known() {
    let mut victim = Victim::new(1 << 30);
    taught(&mut victim);
    let mut body = marked("frontend", &format!("GET /--------/{}", "x".repeat(40)), at(70_000));
    let (ids, names) = (marks(&body, [0; 8]), marks(&body, *b"--------"));
    for number in 0..1_000 {
        numbered(&mut body, &ids, number * BATCH);
        numbered(&mut body, &names, number * BATCH);
        victim.take(&body, 70_000 + number);
        if number.is_multiple_of(100) {
            victim.tail.tick(at(70_000 + number));
        }
    }

    victim.assert_bounds(20 * body.len());
    let listed = victim.tail.operations(at(71_000).monotonic);
    assert!(listed.len() < 10_000, "{}", listed.len());
    assert!(listed.iter().any(|path| path.operation == "POST /pay" && path.services.len() == 2));
}

#[test]
fn endless_errors_spend_a_budget_and_no_memory() {
    let mut victim = Victim::new(10_000);
    let (mut most, mut out) = (0, 0);
    for number in 0..200_u64 {
        let failed = |n: u64| {
            let status = Some(Status { code: 2, ..Status::default() });
            Span { status, ..span(number * BATCH + n, 1, 0, at(number * 100)) }
        };
        let body = request("payment", (0..BATCH).map(failed).collect());
        most = most.max(body.len());
        victim.take(&body, number * 100);
        out += kept(&mut victim).len();
    }

    // 20 s at 10 kB/s, and what may be spent at once; each is some 90 bytes.
    assert!((100..20_000).contains(&out), "{out}");
    assert!(victim.tail.policies().yielded(Policy::Error) > 100_000);
    victim.assert_bounds(20 * most);
}
