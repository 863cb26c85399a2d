//! Fuzz targets: every decoder of bytes from outside, and a member of a cluster among others that lie. The fuzzer
//! (`fuzz/`) runs them; `corpus.rs` replays the corpus.
//!
//! A target returns nothing. It proves that no input makes it panic, and checks invariants of accepted input.

mod elf;
mod exposition;
mod gossip_member;
mod local;
mod one_way;
mod replies;
mod switch;
mod synopsis;
mod traces;
mod turns;

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

pub use elf::elf;
pub use exposition::exposition;
pub use gossip_member::gossip_member;
pub use local::{expression, head_sampling, operators_request, packet_filter, proc_text, ring};
pub use one_way::one_way;
pub use replies::{receiver_reply, upstream_reply};
pub use switch::switch;
pub use synopsis::synopsis;
pub use traces::{gossip, gzip, otlp_json, otlp_logs, otlp_request};
pub use turns::turns;

/// A target with its name, which is also the folder of its corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets, by name.
pub const TARGETS: [Target; 37] = [
    ("attach", attach),
    ("capture", capture),
    ("columns", columns),
    ("control", control),
    ("elf", elf),
    ("exposition", exposition),
    ("expression", expression),
    ("frames", frames),
    ("gossip", gossip),
    ("gossip_member", gossip_member),
    ("gzip", gzip),
    ("head_sampling", head_sampling),
    ("header", header),
    ("host_config", host_config),
    ("host_message", host_message),
    ("model", model),
    ("nic_config", nic_config),
    ("one_way", one_way),
    ("operators_request", operators_request),
    ("otlp_json", otlp_json),
    ("otlp_logs", otlp_logs),
    ("otlp_request", otlp_request),
    ("packet_filter", packet_filter),
    ("proc_text", proc_text),
    ("queue_pair", queue_pair),
    ("receipt", receipt),
    ("receiver_reply", receiver_reply),
    ("recording", recording),
    ("registration", registration),
    ("ring", ring),
    ("span_record", span_record),
    ("switch", switch),
    ("synopsis", synopsis),
    ("table", table),
    ("turns", turns),
    ("upstream_reply", upstream_reply),
    ("worker_message", worker_message),
];

/// Messages of the regions socket: requests to the host agent and replies to the NIC agent, as frames in chunks whose
/// length is the first byte.
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

/// A packet capture; also the same bytes as one packet of each link type: read, parsed, paired and identified.
pub fn capture(bytes: &[u8]) {
    use packets::{Frame, Link};

    let paired = |frame: &Frame<'_>| {
        let key = synopses::digest::DigestKey::new(1);
        for view in [packets::View::Outer, packets::View::Inner] {
            let Ok(packet) = packets::parse(frame, view) else { continue };
            assert!(packet.segment.len() <= frame.bytes.len(), "no bytes outside the capture are read");
            let _ = packets::Pair::ALL.map(|pair| pair.roles(&packet, &key));
            let _ = packets::identity::digest(&packet, &key);
        }
    };
    for link in [Link::Ethernet, Link::Ip, Link::Cooked] {
        paired(&Frame { bytes, length: bytes.len() as u32, time_ns: 0, link });
    }
    let Ok(mut file) = packets::file::Capture::new(std::io::Cursor::new(bytes.to_vec())) else { return };
    let (mut frames, mut flows, mut last_ns) = (0, flows(), 0);
    let mut take = |frame: &Frame<'_>| {
        frames += 1;
        paired(frame);
        if let Ok(packet) = packets::parse(frame, packets::View::Outer) {
            assert!(flows.insert(&packet), "all packets are of the stream");
            last_ns = packet.time_ns;
        }
    };
    if let Err(error) = packets::source::read_all(&mut file, &mut take) {
        check_message(&error);
    }
    assert!(frames <= bytes.len() / 16, "each frame has a header of its own");
    check_interval(&flows.end_interval(last_ns, 9));
    // The clock is set back; silence follows, until the end of all time.
    flows.set_back(0);
    check_interval(&flows.end_interval(u64::MAX, 9));
}

/// Who is in a stream of all packets, whatever their times are.
fn flows() -> packets::Flows {
    let settings = packets::FlowsSettings {
        filter: packets::Filter::default(),
        reordering: Some(packets::flows::PrefixLengths::default()),
        heavy: Some((packets::flows::Key::Flow, packets::flows::Weight::Bytes)),
        window_ns: Some(1_000_000),
        secret: 1,
    };
    packets::Flows::new(&settings).expect("possible settings")
}

/// Counts are numbers, and of what was checked at most all was out of order.
fn check_interval(interval: &packets::flows::FlowsInterval) {
    let distinct = interval.distinct.expect("distinct items are counted");
    let packets::flows::LastingInterval { flows, sources, fan_in } = distinct.lasting;
    let counts = [distinct.flows, distinct.sources, distinct.ports, flows, sources, fan_in];
    assert!(counts.iter().all(|count| count.is_finite() && *count >= 0.0), "{distinct:?}");
    let reordering = interval.reordering.as_ref().expect("the order is checked");
    assert!(reordering.out_of_order <= reordering.checked && reordering.checked <= interval.packets, "{reordering:?}");
    let heavy = interval.heavy.as_ref().expect("flows are weighed");
    assert!(heavy.top_share().is_none_or(|share| (0.0..=1.0).contains(&share)), "{heavy:?}");
}

/// A file that describes the columns of another file.
pub fn columns(bytes: &[u8]) {
    let metrics = ["cpu", "requests", "rss"].map(str::to_owned);
    match Columns::read(bytes, "columns.csv".as_ref(), &metrics, nic_agent::fingerprint) {
        Ok(read) => {
            assert_eq!(read.columns.len(), metrics.len(), "each metric has a column");
            assert!(
                read.columns.iter().all(|column| usize::from(column.group) < read.groups.len()),
                "groups have names"
            );
            assert!(read.counters.is_sorted() && read.counters.iter().all(|&at| at < metrics.len()));
        }
        Err(error) => check_message(&error),
    }
}

/// The receipt file of a host agent: the bytes as they are, and after a valid first line.
pub fn receipt(bytes: &[u8]) {
    use host_agent::receipts::StoredReceipt;

    let whole = format!("uview receipt 1 {:08x} {}\n", crc32fast::hash(bytes), bytes.len());
    for file in [bytes, &[whole.as_bytes(), bytes].concat()] {
        match StoredReceipt::decode(file) {
            Ok(stored) => {
                let again = StoredReceipt::decode(&stored.encode());
                assert!(again.is_ok_and(|again| again == stored), "encoding and decoding again gives the same");
                let mut ledger = hooks::receipt::DailyLedger::new(hooks::receipt::LedgerLimits::default());
                ledger.resume(stored.pages, &stored.waiting, hooks::tracing::LossReason::Killed);
                drop(hooks::receipt::DailyLedger::merge(ledger.pages().chain(ledger.pages())));
            }
            Err(error) => check_message(&error),
        }
    }
}

/// The configuration file of a host agent.
pub fn host_config(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    match host_agent::config::Config::parse(text) {
        Ok(config) => assert!(config.settings(Incarnation(1)).is_ok(), "an accepted configuration is usable"),
        Err(error) => check_message(&error),
    }
}

/// The configuration file of a NIC agent.
pub fn nic_config(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    match nic_agent::config::Config::parse(text) {
        Ok(config) => assert!(config.settings().detector.checked().is_ok(), "an accepted configuration is usable"),
        Err(error) => check_message(&error),
    }
}

/// A file of metrics for replay, compressed or not.
pub fn table(bytes: &[u8]) {
    let read =
        if bytes.starts_with(&[0x1f, 0x8b]) { table::read(MultiGzDecoder::new(bytes)) } else { table::read(bytes) };
    match read {
        Ok(table) => {
            let rows = table.rows().len();
            assert!(rows > 0 && table.metrics.iter().all(|name| !name.is_empty()), "a table has rows and names");
            assert!(table.rows().flatten().all(|value| !value.is_infinite()), "a value is a number or missing");
            let missing = table.rows().flatten().filter(|value| value.is_nan()).count();
            assert_eq!(missing, table.missing + table.not_finite, "missing values are counted");
            let lengths = [table.times.as_ref().map(Vec::len), table.labels.as_ref().map(Vec::len)];
            assert!(lengths.iter().flatten().all(|length| *length == rows), "each row has its time and its label");
            assert!(table.interval().is_none_or(|interval| interval > 0.0), "the interval is positive");
        }
        Err(error) => {
            check_message(&error);
            assert!(!error.advice().is_empty());
        }
    }
}

fn check_message(error: &dyn core::error::Error) {
    assert!(!error.to_string().is_empty(), "an error has a message");
}

/// Any message from a host agent to a NIC worker.
pub fn host_message(bytes: &[u8]) {
    let Ok(message) = proto::control::HostMessage::decode(bytes) else { return };
    match message.message {
        Some(FromHost::SetLmap(lmap)) => control(&lmap.encode_to_vec()),
        Some(FromHost::QueuePair(reply)) => queue_pair(&reply.host.unwrap_or_default().encode_to_vec()),
        _ => {}
    }
}

/// The configuration of one LMAP.
pub fn control(bytes: &[u8]) {
    let Ok(message) = proto::control::Lmap::decode(bytes) else { return };
    let Ok(spec) = LmapSpec::decode(&message) else { return };
    let again = LmapSpec::decode(&proto::control::Lmap::from(&spec));
    assert_eq!(again, Ok(spec), "accepted input survives a round trip");
}

/// A stream of frames, in chunks whose length is the first byte.
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

/// The header of a region, as written by a service.
pub fn header(bytes: &[u8]) {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let _ = Header::decode(&words);
}

/// Offsets in a model file: length and checksum of the payload, and start of the payload.
const MODEL_LENGTH: core::ops::Range<usize> = 12..16;
const MODEL_CHECKSUM: core::ops::Range<usize> = 16..20;
const MODEL_PAYLOAD: usize = 20;

/// A model file: the bytes as they are, and with correct length and checksum, which a fuzzer would not guess.
pub fn model(bytes: &[u8]) {
    decode_model(bytes);
    if bytes.len() < MODEL_PAYLOAD {
        return;
    }
    let mut repaired = bytes.to_vec();
    let payload = &bytes[MODEL_PAYLOAD..];
    repaired[MODEL_LENGTH].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    repaired[MODEL_CHECKSUM].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    decode_model(&repaired);
}

fn decode_model(bytes: &[u8]) {
    let Ok(model) = lmap::Model::decode(bytes) else { return };
    let again = lmap::Model::decode(&model.encode());
    assert!(again.is_ok(), "accepted input survives a round trip: {again:?}");
}

/// The description of a queue pair that each agent gets from the other.
pub fn queue_pair(bytes: &[u8]) {
    let Ok(message) = proto::control::QueuePair::decode(bytes) else { return };
    let Ok(end) = Endpoint::decode(Some(&message)) else { return };
    let again = Endpoint::decode(Some(&proto::control::QueuePair::from(&end)));
    assert_eq!(again, Ok(end), "accepted input survives a round trip");
}

/// A recording: the bytes as they are, and as payloads of valid blocks, which a fuzzer would not guess: a byte for the
/// kind, one for the length, then the payload.
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
        interval: recording.interval,
        columns: recording.columns.clone(),
    };
    let (mut encoder, mut file) = recording::Encoder::new(head).expect("accepted input can be encoded");
    for (time, row) in recording.times.iter().zip(recording.rows()) {
        file.extend(encoder.push(*time, row).expect("rows are as wide as the head").unwrap_or_default());
    }
    file.extend(encoder.finish());
    let again = recording::decode(&file).expect("encoded rows can be decoded");
    let bits =
        |recording: &recording::Recording| -> Vec<u64> { recording.rows().flatten().map(|v| v.to_bits()).collect() };
    assert!(again.complete && again.times == recording.times, "times survive a round trip");
    assert_eq!(bits(&again), bits(&recording), "values survive a round trip");
}

/// A message from a service to a host agent.
pub fn registration(bytes: &[u8]) {
    let Ok(message) = ServiceMessage::decode(bytes) else { return };
    let again = proto::registration::ServiceMessage::from(&message).encode_to_vec();
    assert!(ServiceMessage::decode(&again).is_ok(), "accepted input survives a round trip");
}

/// A record of a span ring, as words written by a service.
pub fn span_record(bytes: &[u8]) {
    use wire::span_record::{NOTES_BYTES, RECORD_WORDS, Record, Subject};

    let mut words = [0; RECORD_WORDS];
    for (word, eight) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..eight.len()].copy_from_slice(eight);
        *word = u64::from_le_bytes(whole);
    }
    match Record::decode(&words) {
        Ok(record) => {
            assert!(record.notes().count() <= NOTES_BYTES / 4 && record.name().len() <= NOTES_BYTES);
            assert!(record.events().all(|event| event.name.len() <= 255), "its length is a byte");
            let attributes = (0..record.events().count()).map(|event| record.event_attributes(event).count());
            assert!(attributes.sum::<usize>() <= NOTES_BYTES / 4, "each has a head of four bytes");
            assert!(!matches!(record.subject, Subject::Span(head) if head.kind > 5));
        }
        Err(error) => check_message(&error),
    }
}

/// A message from a worker to a host agent.
pub fn worker_message(bytes: &[u8]) {
    let Ok(message) = proto::control::WorkerMessage::decode(bytes) else { return };
    match message.message {
        Some(Message::Verdicts(verdicts)) => {
            for verdict in verdicts.verdicts.iter().filter_map(Verdict::decode) {
                assert!(verdict.score.is_finite() && verdict.score >= 0.0, "a score is finite and not negative");
            }
        }
        Some(Message::ConnectQueuePair(connect)) => drop(Endpoint::decode(connect.worker.as_ref())),
        _ => {}
    }
}
