//! What services, and other nodes, send about traces.

use hooks::coherence::Words;
use hooks::otlp::{count, mask, rename, scan};
use otlp::Signal;
use prost::Message as _;
use wire::proto;

/// The keys that are masked, one of which is also what a resource is renamed by.
const MASKED: [&str; 2] = ["user.email", "service.name"];
/// What JSON may become.
const LIMIT: usize = 1 << 16;

/// A request of OTLP with spans: found, counted, masked, renamed, waited with.
pub fn otlp_request(bytes: &[u8]) {
    let mut seen = 0;
    let scanned = scan(bytes, |group, span| {
        seen += 1;
        let _name = group.service_name();
        if let Ok(span) = span {
            assert!(span.name.len() <= span.encoded.len() && span.encoded.len() <= bytes.len());
        }
    });
    assert_eq!(scanned.map(|()| seen), count(bytes), "every item is shown, or all are refused");
    if let Err(error) = &scanned {
        super::is_said(error);
        assert_eq!(seen, 0, "a request that is refused has shown nothing");
    }
    let keys = MASKED.map(str::to_owned);
    if let Ok(Some(masked)) = mask(bytes, &keys) {
        assert_eq!(count(&masked), count(bytes), "masking takes nothing away");
        let again = mask(&masked, &keys).expect("what was written can be read");
        assert!(again.is_none_or(|again| again == masked), "what is masked stays as it is");
    }
    if let Ok(Some(renamed)) = rename(bytes, &|_| Some("ours".to_owned())) {
        assert_eq!(count(&renamed), count(bytes), "renaming takes nothing away");
    }
}

/// OTLP's JSON, of each signal.
pub fn otlp_json(bytes: &[u8]) {
    for signal in [Signal::Traces, Signal::Metrics, Signal::Logs] {
        match otlp::json::transcode(signal, bytes, LIMIT) {
            Ok(request) => {
                assert!(request.len() <= LIMIT, "no longer than it may be");
                assert!(count(&request).is_ok(), "what was written can be read");
            }
            Err(error) => super::is_said(&error),
        }
    }
}

/// What another node says about kept traces.
pub fn words(bytes: &[u8]) {
    let Ok(message) = proto::coherence::Words::decode(bytes) else { return };
    match Words::decode(&message) {
        Ok(words) => {
            let said = words.encode();
            let again = Words::decode(&said).expect("what was accepted survives the way");
            assert_eq!(again.encode().encode_to_vec(), said.encode_to_vec(), "as it was said");
        }
        Err(error) => super::is_said(&error),
    }
}
