//! Every decoder of bytes that come from outside. The fuzzer (`fuzz/`) drives them; `corpus.rs` replays the inputs that are kept.
//!
//! A target returns nothing: what it proves is that no bytes make it panic, and that what it accepts holds.

use evaluation::columns::Columns;
use evaluation::table;
use flate2::bufread::MultiGzDecoder;
use prost::Message as _;
use recording::BlockKind;
use wire::control::{LmapSpec, Verdict};
use wire::frame::Frames;
use wire::id::Incarnation;
use wire::layout::Header;
use wire::proto;
use wire::proto::control::host_message::Message as FromHost;
use wire::proto::control::worker_message::Message;
use wire::rdma::Endpoint;
use wire::registration::ServiceMessage;

/// A target and its name, which is that of its corpus' folder.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 14] = [
    ("attach", attach),
    ("columns", columns),
    ("control", control),
    ("frames", frames),
    ("header", header),
    ("host_config", host_config),
    ("host_message", host_message),
    ("model", model),
    ("nic_config", nic_config),
    ("queue_pair", queue_pair),
    ("recording", recording),
    ("registration", registration),
    ("table", table),
    ("worker_message", worker_message),
];

/// What goes over the regions socket: a request to the host agent, an answer to the NIC agent, in frames cut where the bytes say.
pub fn attach(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else { return };
    let mut frames = Frames::default();
    for part in stream.chunks(usize::from(cut).max(1)) {
        frames.push(part);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => {
                    drop(proto::attach::AttachRequest::decode(frame));
                    drop(proto::attach::AttachReply::decode(frame));
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// A file that says what the metrics of another file are.
pub fn columns(bytes: &[u8]) {
    let metrics = ["cpu", "requests", "rss"].map(str::to_owned);
    match Columns::read(bytes, "columns.csv".as_ref(), &metrics, nic_agent::fingerprint) {
        Ok(read) => {
            assert_eq!(read.columns.len(), metrics.len(), "each metric is something");
            assert!(
                read.columns.iter().all(|column| usize::from(column.group) < read.groups.len()),
                "groups have names"
            );
            assert!(read.counters.is_sorted() && read.counters.iter().all(|&at| at < metrics.len()));
        }
        Err(error) => is_said(&error),
    }
}

/// The configuration file of a host agent.
pub fn host_config(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    match host_agent::config::Config::parse(text) {
        Ok(config) => assert!(config.settings(Incarnation(1)).is_ok(), "what was accepted can be used"),
        Err(error) => is_said(&error),
    }
}

/// The configuration file of a NIC agent.
pub fn nic_config(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    match nic_agent::config::Config::parse(text) {
        Ok(config) => assert!(config.settings().detector.checked().is_ok(), "what was accepted can be used"),
        Err(error) => is_said(&error),
    }
}

/// A file of metrics to be replayed, compressed or not.
pub fn table(bytes: &[u8]) {
    let read =
        if bytes.starts_with(&[0x1f, 0x8b]) { table::read(MultiGzDecoder::new(bytes)) } else { table::read(bytes) };
    match read {
        Ok(table) => {
            let rows = table.rows().len();
            assert!(rows > 0 && table.metrics.iter().all(|name| !name.is_empty()), "a table has rows and names");
            assert!(table.rows().flatten().all(|value| !value.is_infinite()), "a value is a number or missing");
            let missing = table.rows().flatten().filter(|value| value.is_nan()).count();
            assert_eq!(missing, table.missing + table.not_finite, "what is missing is counted");
            let lengths = [table.times.as_ref().map(Vec::len), table.labels.as_ref().map(Vec::len)];
            assert!(lengths.iter().flatten().all(|length| *length == rows), "each row has its time and its label");
            assert!(table.interval().is_none_or(|interval| interval > 0.0), "time goes on");
        }
        Err(error) => {
            is_said(&error);
            assert!(!error.advice().is_empty());
        }
    }
}

fn is_said(error: &dyn core::error::Error) {
    assert!(!error.to_string().is_empty(), "what is wrong is said");
}

/// Any message of a host agent, as a NIC worker gets it.
pub fn host_message(bytes: &[u8]) {
    let Ok(message) = proto::control::HostMessage::decode(bytes) else { return };
    match message.message {
        Some(FromHost::SetLmap(lmap)) => control(&lmap.encode_to_vec()),
        Some(FromHost::QueuePair(answer)) => queue_pair(&answer.host.unwrap_or_default().encode_to_vec()),
        _ => {}
    }
}

/// The configuration of one LMAP.
pub fn control(bytes: &[u8]) {
    let Ok(message) = proto::control::Lmap::decode(bytes) else { return };
    let Ok(spec) = LmapSpec::decode(&message) else { return };
    let again = LmapSpec::decode(&proto::control::Lmap::from(&spec));
    assert_eq!(again, Ok(spec), "what was accepted survives the way");
}

/// A stream of frames, cut where the bytes say.
pub fn frames(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else { return };
    let mut frames = Frames::default();
    for part in stream.chunks(usize::from(cut).max(1)) {
        frames.push(part);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => drop(ServiceMessage::decode(frame)),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// The first words of a region that a service wrote.
pub fn header(bytes: &[u8]) {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let _ = Header::decode(&words);
}

/// Where a model file keeps the length and the checksum of its payload, and where that begins.
const MODEL_LENGTH: core::ops::Range<usize> = 12..16;
const MODEL_CHECKSUM: core::ops::Range<usize> = 16..20;
const MODEL_PAYLOAD: usize = 20;

/// A model file: as it is, and with length and checksum put right, which no fuzzer would guess.
pub fn model(bytes: &[u8]) {
    decode_model(bytes);
    if bytes.len() < MODEL_PAYLOAD {
        return;
    }
    let mut mended = bytes.to_vec();
    let payload = &bytes[MODEL_PAYLOAD..];
    mended[MODEL_LENGTH].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    mended[MODEL_CHECKSUM].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    decode_model(&mended);
}

fn decode_model(bytes: &[u8]) {
    let Ok(model) = lmap::Model::decode(bytes) else { return };
    let again = lmap::Model::decode(&model.encode());
    assert!(again.is_ok(), "what was accepted survives the way: {again:?}");
}

/// What either agent gets of the other's queue pair.
pub fn queue_pair(bytes: &[u8]) {
    let Ok(message) = proto::control::QueuePair::decode(bytes) else { return };
    let Ok(end) = Endpoint::decode(Some(&message)) else { return };
    let again = Endpoint::decode(Some(&proto::control::QueuePair::from(&end)));
    assert_eq!(again, Ok(end), "what was accepted survives the way");
}

/// A recording: the bytes as they are, and as the payloads of whole blocks, which no fuzzer would guess: a byte for the kind, one for the
/// length, the payload.
pub fn recording(bytes: &[u8]) {
    decode_recording(bytes);
    let kinds = [BlockKind::Head, BlockKind::Rows, BlockKind::Labels, BlockKind::End];
    let mut file = b"uvROWS\r\n\x01\0\0\0".to_vec();
    let mut rest = bytes;
    while let Some(([kind, length], payload)) = rest.split_first_chunk::<2>() {
        let (payload, after) = payload.split_at(payload.len().min(usize::from(*length)));
        file.extend(recording::write_block(kinds[usize::from(kind % 4)], payload));
        rest = after;
    }
    decode_recording(&file);
}

fn decode_recording(bytes: &[u8]) {
    let Ok(recording) = recording::decode(bytes) else { return };
    let head = recording::Head {
        service: recording.service.clone(),
        interval_ns: recording.interval_ns,
        columns: recording.columns.clone(),
    };
    let (mut encoder, mut file) = recording::Encoder::new(head).expect("what was accepted can be written");
    for (time, row) in recording.times_unix_ns.iter().zip(recording.rows()) {
        file.extend(encoder.push(*time, row).expect("rows are as wide as the head").unwrap_or_default());
    }
    file.extend(encoder.finish());
    let again = recording::decode(&file).expect("what was written can be read");
    let bits =
        |recording: &recording::Recording| -> Vec<u64> { recording.rows().flatten().map(|v| v.to_bits()).collect() };
    assert!(again.complete && again.times_unix_ns == recording.times_unix_ns, "times survive the way");
    assert_eq!(bits(&again), bits(&recording), "values survive the way");
}

/// What a host agent gets from a service.
pub fn registration(bytes: &[u8]) {
    let Ok(message) = ServiceMessage::decode(bytes) else { return };
    let again = proto::registration::ServiceMessage::from(&message).encode_to_vec();
    assert!(ServiceMessage::decode(&again).is_ok(), "what was accepted survives the way");
}

/// What a host agent gets from a worker.
pub fn worker_message(bytes: &[u8]) {
    let Ok(message) = proto::control::WorkerMessage::decode(bytes) else { return };
    match message.message {
        Some(Message::Verdicts(verdicts)) => {
            for verdict in verdicts.verdicts.iter().filter_map(Verdict::decode) {
                assert!(verdict.score.is_finite() && verdict.score >= 0.0, "a verdict's score is a score");
            }
        }
        Some(Message::ConnectQueuePair(connect)) => drop(Endpoint::decode(connect.worker.as_ref())),
        _ => {}
    }
}
