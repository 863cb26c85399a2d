//! Replies of receivers: the upstream, remote write, webhooks.

use agent_runtime::http_client::{excerpt, retry_after};
use otlp::{Encoding, Signal};
use page::older::{self, PastScores, Reach};
use remote_write::encoding::Version;
use remote_write::reply::{Reply, ReplyAction, RequestContext, interpret};
use webhooks::{AlertEvent, AlertGroups, AlertKind, Delivery, GroupingRule, Step};
use wire::backoff::RetryRule;
use wire::time::{Nanos, UnixNanos};

/// The wall-clock time at which replies arrive.
const NOW: UnixNanos = UnixNanos::from_secs(1_700_000_000);
/// Bytes of the request to the upstream.
const REQUEST_BYTES: usize = 1000;
/// Samples of the request of remote write.
const POINTS: u64 = 10;

/// A reply of the OTLP upstream: the first byte is the gRPC code, the next two the HTTP status, the rest is the body,
/// the details of the status, or the header `Retry-After`.
pub fn upstream_reply(bytes: &[u8]) {
    let Some((&[code, high, low], body)) = bytes.split_first_chunk() else { return };
    for signal in [Signal::Traces, Signal::Metrics, Signal::Logs] {
        for encoding in [Encoding::Protobuf, Encoding::Json] {
            let rejected = otlp::reply::rejected(signal, encoding, body, REQUEST_BYTES);
            assert!(rejected <= REQUEST_BYTES as u64, "no more is rejected than was sent");
        }
    }
    let code = tonic::Code::from(i32::from(code));
    let status = tonic::Status::with_details(code, String::from_utf8_lossy(body), body.to_vec().into());
    let failure = otlp::reply::grpc_failure(&status);
    assert!(failure.retryable || code != tonic::Code::Unavailable, "an upstream that is away is tried again");
    let status = hyper::StatusCode::from_u16(u16::from_be_bytes([high, low])).unwrap_or_default();
    let failure = otlp::reply::http_failure(status, core::str::from_utf8(body).ok(), NOW);
    assert!(!(status.is_success() && failure.retryable));
}

/// A reply of remote write or of a webhook's receiver: three bytes of status and flags, eight of a number in a header,
/// the rest is the header `Retry-After` or the body, which is also read as a Prometheus's answer with scores.
pub fn receiver_reply(bytes: &[u8]) {
    let Some((&[high, low, flags], rest)) = bytes.split_first_chunk() else { return };
    let Some((number, body)) = rest.split_first_chunk() else { return };
    let (status, written) = (u16::from_be_bytes([high, low]), u64::from_le_bytes(*number));
    let text = excerpt(body, status);
    assert!(text.chars().count() <= 420 && text.chars().all(wire::printable::is_printable), "{text:?}");

    for reach in [Reach::Day, Reach::Week] {
        let PastScores { scores, alarms } = older::past(body, reach).unwrap_or_default();
        assert!(scores.is_sorted_by(|a, b| a.second < b.second) && scores.iter().all(|score| score.ratio.is_finite()));
        assert!(alarms.is_sorted_by(|a, b| a.to <= b.from) && alarms.iter().all(|alarm| alarm.from <= alarm.to));
    }

    let header = core::str::from_utf8(body).ok().map(str::to_owned);
    let asked = header.as_deref().and_then(|text| retry_after(text, NOW));
    let reply = Reply::Http {
        status,
        samples_written: (flags & 1 != 0).then_some(written),
        exemplars_written: (flags & 2 != 0).then_some(written),
        any_written: flags & 4 != 0,
        retry_after: header,
    };
    let rule = RetryRule::default();
    let longest = rule.pauses.longest().max(rule.max_retry_after);
    let version = if flags & 8 == 0 { Version::V1 } else { Version::V2 };
    let (negotiable, confirmed, failures) = (flags & 16 != 0, flags & 32 != 0, u32::from_le_bytes([flags; 4]));
    let context = RequestContext { points: POINTS, version, negotiable, confirmed, failures };
    let rejecting = Reply::OtlpAccepted { rejected: written };
    let later = Reply::OtlpFailed { retryable: flags & 1 != 0, retry_after: Some(Nanos(written)) };
    for reply in [&reply, &rejecting, &later, &Reply::None] {
        match interpret(context, reply, &rule, NOW, 0.5) {
            ReplyAction::Written(written) => assert!(written <= POINTS, "no more is written than was sent"),
            ReplyAction::Retry(pause) => assert!(pause <= longest && pause > Nanos::ZERO, "{pause:?}"),
            ReplyAction::OtherVersion => assert!(negotiable && version == Version::V2),
        }
    }
    for reply in [webhooks::Reply::Http { status, retry_after: asked }, webhooks::Reply::None] {
        webhook(reply, longest);
    }
}

/// An alarm whose message gets `reply` again and again: it is sent until it is accepted or refused.
fn webhook(reply: webhooks::Reply, longest: Nanos) {
    let mut groups = AlertGroups::new(GroupingRule::default());
    let (service, text) = ("payment".to_owned(), String::new());
    let kind = AlertKind::Anomaly;
    let event = AlertEvent {
        service,
        kind,
        firing: true,
        begins: true,
        at: NOW,
        summary: text.clone(),
        description: text.clone(),
        incident: text,
    };
    let mut now = Nanos::from_secs(1);
    groups.record(event, now);
    for _ in 0..20 {
        match groups.next(now) {
            Step::Wait(until) => {
                assert!(until > now, "a wait for a time in the past");
                now = until;
            }
            Step::Send(_) => match groups.complete(reply, now, 0.5) {
                Delivery::Retry(pause) => assert!(pause <= longest && pause > Nanos::ZERO, "{pause:?}"),
                delivery => {
                    assert_ne!(delivery, Delivery::Unexpected, "a message was in flight");
                    break;
                }
            },
        }
    }
    assert_eq!(groups.len(), 1, "a service that fires is known");
}
