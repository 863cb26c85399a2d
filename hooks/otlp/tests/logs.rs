//! Tail sampling of log records in virtual time: requests and verdicts in, requests with kept records out.
#![expect(clippy::panic, clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use hooks::tracing::{Account, BudgetRule, Limits, LogPolicy, LogRule, LossReason, OrderKey, Switches, Threshold};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use otlp::{Finding, LogSettings, TailSampler, TailSettings, Timestamp};
use prost::Message as _;
use support::otlp::{resource, string, traces};
use wire::time::{Nanos, UnixNanos};

/// Midday of some day, in seconds.
const NOON: u64 = 1_700_000_000;
const INFO: i32 = 9;
const ERROR: i32 = 17;

fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(NOON).plus(monotonic) }
}

fn sampler(floor: Option<f64>, budget: BudgetRule, logs: LogSettings) -> TailSampler {
    let floor = floor.map(|share| Threshold::keeping(share).unwrap());
    let settings = TailSettings {
        limits: Limits { bytes: 32 << 20, ..Limits::default() },
        key: OrderKey::new(7),
        switches: Switches { floor, ..Switches::default() },
        budget,
        frontends: vec!["frontend".to_owned()],
        node: "node-7".to_owned(),
    };
    let mut tail = TailSampler::new(&settings, at(0)).unwrap();
    tail.keep_logs(&logs).unwrap();
    tail
}

/// Without a floor.
fn tail() -> TailSampler {
    let rule = LogRule { floor: None, ..LogRule::default() };
    sampler(None, BudgetRule::default(), LogSettings { rule, ..LogSettings::default() })
}

/// A record in `trace` (0: in none).
fn log(trace: u128, severity: i32, text: &str, when: Timestamp) -> LogRecord {
    LogRecord {
        time_unix_nano: when.wall.0,
        severity_number: severity,
        body: Some(string(text)),
        trace_id: if trace == 0 { Vec::new() } else { trace.to_be_bytes().to_vec() },
        ..LogRecord::default()
    }
}

fn request(service: &str, log_records: Vec<LogRecord>) -> Vec<u8> {
    let mut request = support::otlp::logs(service, log_records);
    "scope".clone_into(&mut request.resource_logs[0].scope_logs[0].schema_url);
    request.encode_to_vec()
}

fn send(tail: &mut TailSampler, service: &str, records: Vec<LogRecord>, when: Timestamp) {
    let sent = records.len() as u64;
    let counts = tail.ingest_logs(&request(service, records), when).unwrap();
    assert_eq!((counts.accepted, counts.malformed, counts.over_limit), (sent, 0, 0));
}

/// A request's first span, which may have failed.
fn span(tail: &mut TailSampler, trace: u128, failed: bool, when: Timestamp) {
    let status = failed.then(|| Status { code: 2, ..Status::default() });
    let span = Span { status, ..support::otlp::span(trace, 1, 0, "POST /pay", when.wall.0) };
    tail.ingest(&traces("frontend", vec![span]).encode_to_vec(), when).unwrap();
}

fn finding(service: &str, when: Timestamp) -> Finding<'_> {
    Finding {
        service,
        from: when.wall,
        at: when.wall,
        breakdown: None,
        score: 12.0,
        gamma: 4.0,
        metrics: Vec::new(),
        incident: "node-7/20261127-064215-123".into(),
    }
}

/// Kept records: service, text, and the attributes that were added. The record without them is that which was sent.
fn kept(tail: &mut TailSampler) -> Vec<(String, String, Vec<String>)> {
    let mut all = Vec::new();
    for batch in tail.take_log_batches() {
        let request = ExportLogsServiceRequest::decode(&batch.request[..]).unwrap();
        let before = all.len();
        for resource in request.resource_logs {
            let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
                Some(Value::StringValue(text)) => text,
                other => panic!("{other:?}"),
            };
            let service = text(resource.resource.unwrap().attributes.remove(0).value);
            for scope in resource.scope_logs {
                assert_eq!(scope.schema_url, "scope");
                for record in scope.log_records {
                    let added = record.attributes.into_iter().map(|pair| text(pair.value)).collect();
                    all.push((service.clone(), text(record.body), added));
                }
            }
        }
        assert_eq!(all.len() - before, batch.spans);
    }
    all
}

fn texts(tail: &mut TailSampler) -> Vec<String> {
    kept(tail).into_iter().map(|(_, text, _)| text).collect()
}

fn account(tail: &TailSampler) -> Account {
    let account = *tail.log_account().unwrap();
    assert!(account.balances(), "{account:?}");
    account
}

#[test]
fn records_follow_their_trace_whether_they_come_before_or_after_its_decision() {
    let mut tail = tail();
    let records = |text: &str, when| vec![log(1, INFO, &format!("{text} 1"), when), log(2, INFO, text, when)];
    send(&mut tail, "payment", records("before", at(0)), at(0));
    span(&mut tail, 1, true, at(500));
    span(&mut tail, 2, false, at(500));
    assert!(kept(&mut tail).is_empty(), "waiting records leave at a tick");
    tail.tick(at(600));
    send(&mut tail, "cart", records("after", at(700)), at(700));

    let why = || vec!["trace".to_owned(), "its trace is kept: frontend: POST /pay ended in an error".to_owned()];
    let expected = [("payment", "before 1"), ("cart", "after 1")];
    assert_eq!(kept(&mut tail), expected.map(|(service, text)| (service.to_owned(), text.to_owned(), why())));
    assert_eq!((account(&tail).seen.spans, account(&tail).kept.spans, account(&tail).waiting.spans), (4, 2, 2));

    tail.tick(at(61_000));
    assert!(kept(&mut tail).is_empty());
    assert_eq!((account(&tail).waiting.spans, account(&tail).kept.spans), (0, 2));
    let page = tail.ledger().pages().next().unwrap();
    let lines = ["payment", "cart"].map(|service| page.services[service].logs);
    assert!(lines.iter().all(|line| line.seen.spans == 2 && line.kept[LogPolicy::Trace as usize].spans == 1));
    assert!(tail.ledger().waiting_logs().is_empty());
}

#[test]
fn what_a_service_wrote_in_its_alarm_is_kept_also_if_the_verdict_comes_later() {
    let mut tail = tail();
    let write = |tail: &mut TailSampler, service: &str, seconds: u64| {
        let when = at(seconds * 1_000 + 100);
        send(tail, service, vec![log(0, INFO, &format!("{service} {seconds}"), when)], when);
    };
    for second in 0..10 {
        write(&mut tail, "payment", second);
        write(&mut tail, "cart", second);
    }
    tail.verdict(finding("payment", at(5_000)), at(10_000));
    tail.tick(at(10_100));

    // The second of the verdict, and the one before it.
    let all = kept(&mut tail);
    assert_eq!(all.iter().map(|(_, text, _)| text.as_str()).collect::<Vec<_>>(), ["payment 4", "payment 5"]);
    assert_eq!(all[0].2, ["lmap", "payment: score 12.0, threshold 4.0", "node-7/20261127-064215-123"]);

    tail.verdict(finding("payment", at(10_800)), at(10_900));
    write(&mut tail, "payment", 10);
    write(&mut tail, "cart", 10);
    write(&mut tail, "payment", 13);
    assert_eq!(texts(&mut tail), ["payment 10"], "at once, while the alarm is on");
    tail.tick(at(11_500));
    assert_eq!(texts(&mut tail), ["payment 9"]);
    account(&tail);
}

#[test]
fn errors_are_kept_by_themselves_and_other_severities_are_not() {
    let mut tail = tail();
    let severities = [0, 1, 9, 16, ERROR, 20, 21, 24, 25, -1];
    let records = severities.map(|severity| log(0, severity, &severity.to_string(), at(0))).to_vec();
    send(&mut tail, "payment", records, at(0));

    let all = kept(&mut tail);
    assert_eq!(all.iter().map(|(_, text, _)| text.as_str()).collect::<Vec<_>>(), ["17", "20", "21", "24"]);
    assert_eq!(all[0].2, ["error", "severity ERROR"]);
    assert_eq!(account(&tail).waiting.spans, 6);
}

#[test]
fn a_share_is_kept_by_trace_or_by_content_and_every_node_keeps_the_same() {
    let rule = LogRule { floor: Threshold::keeping(0.1).ok(), error: false, lmap: false };
    let node = || sampler(None, BudgetRule::default(), LogSettings { rule, ..LogSettings::default() });
    let chosen = |tail: &mut TailSampler| {
        for number in 0..2_000_u128 {
            // Ids that are spread evenly, of half of the records.
            let trace = (number % 2) * (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            send(tail, "payment", vec![log(trace, ERROR, &format!("record {number}"), at(0))], at(0));
        }
        kept(tail)
    };

    let (one, other) = (chosen(&mut node()), chosen(&mut node()));

    assert_eq!(one, other);
    assert!((140..260).contains(&one.len()), "{}", one.len());
    assert_eq!(one[0].2, ["floor", "one of 10 %"]);
    // Where all traces of a share are kept, so are their records, before any span has come.
    let mut tail = sampler(
        Some(0.1),
        BudgetRule::default(),
        LogSettings { rule: LogRule { floor: None, ..rule }, ..LogSettings::default() },
    );
    send(&mut tail, "payment", vec![log(u128::MAX, INFO, "kept", at(0)), log(1, INFO, "not", at(0))], at(0));
    let all = kept(&mut tail);
    assert_eq!((all.len(), all[0].2[0].as_str(), all[0].2[1].as_str()), (1, "trace", "its trace is kept: one of 10 %"));
}

#[test]
fn what_is_kept_has_the_bytes_that_were_sent_with_the_reason_behind_them() {
    let mut tail = tail();
    let mut record = log(3, ERROR, "caf\u{e9}", at(0)).encode_to_vec();
    // An unknown field, and a body that is not UTF-8: the last one counts.
    record.extend([15 << 3 | 2, 3, 1, 2, 3, 5 << 3 | 2, 4, 1 << 3 | 2, 2, 0xff, 0xfe]);
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let sent = field(
        1,
        &[field(1, &field(15, b"resource")), field(2, &[field(15, b"scope"), field(2, &record)].concat())].concat(),
    );

    tail.ingest_logs(&sent, at(0)).unwrap();

    let batches = tail.take_log_batches();
    let got = &batches[0].request;
    let place = got.windows(record.len()).position(|part| part == record).unwrap();
    let (before, added) = (&got[..place], &got[place + record.len()..]);
    assert!(before.windows(8).any(|part| part == b"resource") && before.windows(5).any(|part| part == b"scope"));
    let expected = [("uview.policy", "error"), ("uview.reason", "severity ERROR")];
    let expected = expected
        .map(|(key, value)| field(6, &[field(1, key.as_bytes()), field(2, &field(1, value.as_bytes()))].concat()));
    assert_eq!(added, expected.concat());
}

#[test]
fn a_record_that_cannot_be_read_is_counted_and_the_others_are_taken() {
    let mut tail = tail();
    let good = request("payment", vec![log(0, ERROR, "good", at(0))]);
    // A second record, whose last field ends beyond it.
    let mut scope = ScopeLogs { schema_url: "scope".to_owned(), ..ScopeLogs::default() }.encode_to_vec();
    scope.extend([2 << 3 | 2, 3, 5 << 3 | 2, 100, 1]);
    let mut inner = ResourceLogs { resource: Some(resource("payment")), ..ResourceLogs::default() }.encode_to_vec();
    inner.extend([&[2 << 3 | 2, scope.len() as u8], &scope[..]].concat());
    let sent = [good, [&[1 << 3 | 2, inner.len() as u8], &inner[..]].concat()].concat();

    let counts = tail.ingest_logs(&sent, at(0)).unwrap();

    assert_eq!((counts.accepted, counts.malformed), (1, 1));
    assert_eq!(texts(&mut tail), ["good"]);
    assert_eq!(account(&tail).lost(LossReason::Malformed).spans, 1);
    assert!(tail.ingest_logs(&sent[..sent.len() - 1], at(0)).is_err(), "above its records it has to be whole");
    assert_eq!(account(&tail).seen.spans, 2);
}

#[test]
fn a_record_without_a_time_is_of_when_it_came() {
    let mut tail = tail();
    let records =
        [0, 1, u64::MAX].map(|time| LogRecord { time_unix_nano: time, ..log(0, INFO, &time.to_string(), at(0)) });
    let observed = LogRecord { observed_time_unix_nano: at(7_100).wall.0, ..records[0].clone() };
    send(&mut tail, "payment", records.to_vec(), at(5_100));
    send(&mut tail, "payment", vec![observed], at(5_100));

    tail.verdict(finding("payment", at(5_000)), at(6_000));
    tail.tick(at(6_000));
    assert_eq!(texts(&mut tail), ["0"], "not what is of 1970, or of the year 2554");
    tail.verdict(finding("payment", at(7_000)), at(7_000));
    tail.tick(at(8_000));
    assert_eq!(texts(&mut tail), ["0"], "when it was observed");
}

#[test]
fn a_flood_of_one_service_takes_nothing_of_another_and_no_more_memory() {
    let rule = LogRule { floor: None, ..LogRule::default() };
    let mut tail = sampler(None, BudgetRule::default(), LogSettings { rule, memory_bytes: 1 << 20 });
    send(&mut tail, "payment", (0..100).map(|n| log(1, INFO, &format!("p {n}"), at(0))).collect(), at(0));
    for _ in 0..100 {
        send(&mut tail, "noisy", (0..100).map(|n| log(n, INFO, &"x".repeat(500), at(1))).collect(), at(1));
    }

    let now = account(&tail);
    assert!(tail.log_memory() <= 1 << 20, "{}", tail.log_memory());
    assert!(now.lost(LossReason::Evicted).spans > 8_000, "{now:?}");
    span(&mut tail, 1, true, at(10));
    tail.tick(at(20));
    let payment = kept(&mut tail).into_iter().filter(|(service, ..)| service == "payment").count();
    assert_eq!(payment, 100);
    let page = tail.ledger().pages().next().unwrap();
    let gone = |service: &str| page.services[service].logs.gone.iter().map(|tally| tally.spans).sum::<u64>();
    assert_eq!((gone("payment"), gone("noisy")), (0, now.lost(LossReason::Evicted).spans));
}

#[test]
fn a_record_of_megabytes_waits_if_it_fits_and_is_lost_if_not() {
    let long = "x".repeat(15 << 20);
    let rule = LogRule { floor: None, ..LogRule::default() };
    let mut large = sampler(None, BudgetRule::default(), LogSettings { rule, ..LogSettings::default() });
    let mut small = sampler(None, BudgetRule::default(), LogSettings { rule, memory_bytes: 1 << 20 });
    for tail in [&mut large, &mut small] {
        send(tail, "payment", vec![log(1, INFO, &long, at(0)), log(1, INFO, "short", at(0))], at(0));
        span(tail, 1, true, at(10));
        tail.tick(at(20));
    }

    let lengths = |tail: &mut TailSampler| texts(tail).iter().map(String::len).collect::<Vec<_>>();
    // The budget lets one trace be larger than what is left of it; what follows is owed.
    assert_eq!((account(&large).waiting.spans, account(&small).lost(LossReason::Refused).spans), (0, 1));
    assert_eq!(lengths(&mut small), [5]);
    let lost = account(&large).lost(LossReason::OverBudget).spans;
    assert_eq!(lengths(&mut large).len() as u64 + lost, 2);
    // An error needs no memory to wait in.
    send(&mut small, "payment", vec![log(0, ERROR, &long, at(100))], at(100));
    assert_eq!(lengths(&mut small), [15 << 20]);
}

#[test]
fn what_is_kept_stays_within_the_budget_that_spans_have() {
    let budget = BudgetRule { bytes_per_s: 10_000, ..BudgetRule::default() };
    let rule = LogRule { floor: None, ..LogRule::default() };
    let mut tail = sampler(None, budget, LogSettings { rule, ..LogSettings::default() });
    for second in 0..60 {
        let when = at(second * 1_000);
        send(
            &mut tail,
            "payment",
            (0..100).map(|n| log(0, ERROR, &format!("{n} {}", "x".repeat(1_000)), when)).collect(),
            when,
        );
        tail.tick(when);
    }

    let now = account(&tail);
    let (rate, burst) = (budget.bytes_per_s, budget.bytes_per_s * 10);
    assert!(now.kept.bytes <= 60 * rate + burst + 4_000, "{now:?}");
    assert!(now.kept.bytes >= 30 * rate, "{now:?}");
    let refused = tail.yielded_logs(LogPolicy::Error);
    assert_eq!(refused + now.kept.spans, now.seen.spans, "each was kept, or there was no budget for it");
}

#[test]
fn where_records_pass_through_none_is_taken() {
    let settings = TailSettings {
        limits: Limits { bytes: 32 << 20, ..Limits::default() },
        key: OrderKey::new(7),
        switches: Switches::default(),
        budget: BudgetRule::default(),
        frontends: Vec::new(),
        node: "node-7".to_owned(),
    };
    let tail = TailSampler::new(&settings, at(0)).unwrap();

    assert!(!tail.keeps_logs() && tail.log_account().is_none() && tail.log_memory() == 0);
}
