//! Decoders of messages about traces, from services and other nodes.

use core::convert::Infallible;
use std::io::Read as _;

use flate2::bufread::MultiGzDecoder;
use hooks::coherence::GossipMessage;
use hooks::tracing::LogReason;
use otlp::Signal;
use otlp::codec::{RawLog, annotate_log, count, mask, mask_logs, rename, resources, scan, scan_logs};
use otlp::gzip::GzipError;
use prost::Message as _;
use wire::proto;

/// Masked keys; the second is also the key by which resources are renamed.
const MASKED: [&str; 2] = ["user.email", "service.name"];
/// Maximal length of a transcoded request.
const LIMIT: usize = 1 << 16;

/// An OTLP request with spans: scanned, counted, masked and renamed.
pub fn otlp_request(bytes: &[u8]) {
    let mut seen = 0;
    let scanned = scan(bytes, |group, span| {
        seen += 1;
        let _name = group.service_name();
        if let Ok(span) = span {
            assert!(span.name.len() <= span.encoded.len() && span.encoded.len() <= bytes.len());
        }
    });
    assert_eq!(scanned.map(|()| seen), count(bytes), "either every item is passed on, or the request is refused");
    if let Err(error) = &scanned {
        super::check_message(error);
        assert_eq!(seen, 0, "a refused request passes no items on");
    }
    let mut sent = 0;
    let walked = resources(bytes, |resource| {
        sent += resource.encoded.len();
        let _names = (resource.service_name(), resource.text(b"service.instance.id"));
    });
    assert!(sent <= bytes.len() && (walked.is_ok() || scanned.is_err()), "resources of a good request can be visited");
    let keys = MASKED.map(str::to_owned);
    if let Ok(Some(masked)) = mask(bytes, &keys) {
        assert_eq!(count(&masked), count(bytes), "masking removes no items");
        let again = mask(&masked, &keys).expect("a masked request can be read");
        assert!(again.is_none_or(|again| again == masked), "masking is idempotent");
    }
    if let Ok(Some(renamed)) = rename(bytes, &|_| Some("ours".to_owned())) {
        assert_eq!(count(&renamed), count(bytes), "renaming removes no items");
    }
}

/// An OTLP request with log records: scanned, counted, masked, and each record given its reason.
pub fn otlp_logs(bytes: &[u8]) {
    let (mut seen, mut annotated) = (0, Vec::new());
    let scanned = scan_logs(bytes, |group, log| {
        seen += 1;
        let _name = group.service_name();
        let Ok(log) = log else { return };
        assert!(log.encoded.len() <= bytes.len() && log.severity.number() <= 24);
        assert!(log.body(100).is_none_or(|body| body.len() <= 300), "at most 100 bytes become text");
        annotate_log(log.encoded, &LogReason::Error(log.severity), &mut annotated);
        assert!(annotated.starts_with(log.encoded), "what was sent is not touched");
        let again = RawLog::read(&annotated).expect("an annotated record can be read");
        assert_eq!((again.trace, again.at, again.severity), (log.trace, log.at, log.severity));
        assert_eq!(again.text(b"uview.policy"), Some("error"));
    });
    assert_eq!(scanned.map(|()| seen), count(bytes), "either every item is passed on, or the request is refused");
    if let Err(error) = &scanned {
        super::check_message(error);
        assert_eq!(seen, 0, "a refused request passes no items on");
    }
    let keys = MASKED.map(str::to_owned);
    if let Ok(Some(masked)) = mask_logs(bytes, &keys) {
        assert_eq!(count(&masked), count(bytes), "masking removes no items");
        let again = mask_logs(&masked, &keys).expect("a masked request can be read");
        assert!(again.is_none_or(|again| again == masked), "masking is idempotent");
    }
}

/// OTLP/JSON, of each signal.
pub fn otlp_json(bytes: &[u8]) {
    for signal in [Signal::Traces, Signal::Metrics, Signal::Logs] {
        match otlp::json::transcode(signal, bytes, LIMIT) {
            Ok(request) => {
                assert!(request.len() <= LIMIT, "the length limit holds");
                assert!(count(&request).is_ok(), "a transcoded request can be read");
            }
            Err(error) => super::check_message(&error),
        }
    }
}

/// A gzip stream, as bodies of OTLP requests are: unpacked within every bound, to what another decoder makes of it.
pub fn gzip(bytes: &[u8]) {
    let mut reserved = 0;
    let unpacked = otlp::gzip::unpack(bytes, LIMIT, |more| {
        reserved += more;
        Ok::<(), Infallible>(())
    });
    assert!(reserved <= LIMIT + 1, "memory over the limit is not asked for");
    let mut other = Vec::new();
    let is_taken = MultiGzDecoder::new(bytes).take(LIMIT as u64 + 1).read_to_end(&mut other).is_ok();
    match unpacked {
        Ok(unpacked) => {
            assert!(unpacked.len() <= LIMIT.min(reserved), "the length limit holds");
            // The other decoder may refuse it for a header's checksum.
            assert!(!is_taken || unpacked == other, "both decoders yield the same");
        }
        Err(error) => {
            super::check_message(&error);
            let is_malformed = matches!(error, GzipError::Malformed(_));
            assert!(!(is_malformed && is_taken && other.len() <= LIMIT), "what another decoder takes is not malformed");
        }
    }
}

/// A gossip message of another node about kept traces.
pub fn gossip(bytes: &[u8]) {
    let Ok(message) = proto::gossip::GossipMessage::decode(bytes) else { return };
    match GossipMessage::decode(&message) {
        Ok(decoded) => {
            let encoded = decoded.encode();
            let again = GossipMessage::decode(&encoded).expect("accepted input survives a round trip");
            assert_eq!(again.encode().encode_to_vec(), encoded.encode_to_vec(), "encoding again gives the same");
        }
        Err(error) => super::check_message(&error),
    }
}
