//! Every decoder of bytes that come from outside. The fuzzer (`fuzz/`) drives them; `corpus.rs` replays the inputs that are kept.
//!
//! A target returns nothing: what it proves is that no bytes make it panic, and that what it accepts holds.

mod compared;
mod traces;

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

pub use compared::exchange;
pub use traces::{otlp_json, otlp_request, words};

/// A target and its name, which is that of its corpus' folder.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 22] = [
    ("attach", attach),
    ("capture", capture),
    ("columns", columns),
    ("control", control),
    ("exchange", exchange),
    ("frames", frames),
    ("header", header),
    ("host_config", host_config),
    ("host_message", host_message),
    ("model", model),
    ("nic_config", nic_config),
    ("otlp_json", otlp_json),
    ("otlp_request", otlp_request),
    ("queue_pair", queue_pair),
    ("receipt_books", receipt_books),
    ("recording", recording),
    ("registration", registration),
    ("span_record", span_record),
    ("synopsis", synopsis),
    ("table", table),
    ("words", words),
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

/// A capture of packets, and the same bytes as one packet of each link: read, taken apart, paired and named.
pub fn capture(bytes: &[u8]) {
    use packets::{Frame, Link};

    let paired = |frame: &Frame<'_>| {
        let key = synopses::digest::DigestKey::new(1);
        for view in [packets::View::Outer, packets::View::Inner] {
            let Ok(packet) = packets::parse(frame, view) else { continue };
            assert!(packet.segment.len() <= frame.bytes.len(), "nothing is read that was not captured");
            let _ = packets::Pair::ALL.map(|pair| pair.roles(&packet, &key));
            let _ = packets::identity::digest(&packet, &key);
        }
    };
    for link in [Link::Ethernet, Link::Ip, Link::Cooked] {
        paired(&Frame { bytes, length: bytes.len() as u32, time_ns: 0, link });
    }
    let Ok(mut file) = packets::file::Capture::new(std::io::Cursor::new(bytes.to_vec())) else { return };
    let mut frames = 0;
    let mut take = |frame: &Frame<'_>| {
        frames += 1;
        paired(frame);
    };
    if let Err(error) = packets::frame::read_all(&mut file, &mut take) {
        is_said(&error);
    }
    assert!(frames <= bytes.len() / 16, "each frame has a header of its own");
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

/// The file of a host agent's receipt, whole and as what follows its first line.
pub fn receipt_books(bytes: &[u8]) {
    use host_agent::receipts::Stored;

    let whole = format!("uview receipt 1 {:08x} {}\n", crc32fast::hash(bytes), bytes.len());
    for file in [bytes, &[whole.as_bytes(), bytes].concat()] {
        match Stored::decode(file) {
            Ok(stored) => {
                let again = Stored::decode(&stored.encode());
                assert!(again.is_ok_and(|again| again == stored), "what was read is written and read again");
                let mut books = hooks::receipt::Books::new(hooks::receipt::BookLimits::default());
                books.resume(stored.pages, &stored.waiting, hooks::tracing::Loss::Killed);
                drop(hooks::receipt::Books::together(books.pages().chain(books.pages())));
            }
            Err(error) => is_said(&error),
        }
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

/// A record of a span ring, as the words that a service left there.
pub fn span_record(bytes: &[u8]) {
    use wire::span_record::{About, NOTES_BYTES, RECORD_WORDS, Record};

    let mut words = [0; RECORD_WORDS];
    for (word, eight) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..eight.len()].copy_from_slice(eight);
        *word = u64::from_le_bytes(whole);
    }
    match Record::decode(&words) {
        Ok(record) => {
            assert!(record.notes().count() <= NOTES_BYTES / 4 && record.name().len() <= NOTES_BYTES);
            assert!(!matches!(record.about, About::Span(head) if head.kind > 5));
        }
        Err(error) => is_said(&error),
    }
}

/// A synopsis of packets: the bytes as they are, and as the payload of each kind with a good checksum, which no fuzzer would guess.
pub fn synopsis(bytes: &[u8]) {
    decode_synopsis(bytes);
    for kind in synopses::encoding::KINDS {
        decode_synopsis(&synopses::encoding::seal(kind, bytes));
    }
}

fn decode_synopsis(bytes: &[u8]) {
    use synopses::finecomb;
    use synopses::fridge::{Fridge, Fridges, Histogram};

    if let Ok(mut fridge) = Fridge::decode(bytes, MOST_SLOTS) {
        let again = Fridge::decode(&fridge.encode(), MOST_SLOTS).expect("what was accepted survives the way");
        assert_eq!(again.tally(), fridge.tally());
        use_it(|digest, now| fridge.insert(digest, now));
        use_it(|digest, now| assert!(fridge.answer(digest, now).is_none_or(|report| report.weight() >= 0.999)));
    }
    if let Ok(mut fridges) = Fridges::decode(bytes, MOST_SLOTS) {
        let again = Fridges::decode(&fridges.encode(), MOST_SLOTS).expect("what was accepted survives the way");
        assert_eq!(again.tally(), fridges.tally());
        use_it(|digest, now| fridges.insert(digest, now));
        use_it(|digest, now| assert!(fridges.answer(digest, now).is_none_or(|report| report.total_weight() >= 0.999)));
    }
    if let Ok(mut histogram) = Histogram::decode(bytes) {
        assert_eq!(
            Histogram::decode(&histogram.encode()).as_ref(),
            Ok(&histogram),
            "what was accepted survives the way"
        );
        if let Some(median) = histogram.estimate(0.5) {
            assert!(median.low_ns <= median.delay_ns && median.delay_ns <= median.high_ns, "{median:?}");
        }
        let other = histogram.clone();
        histogram.merge(&other).expect("one shape");
    }
    let settings = finecomb::Settings::one_bank(8, 0.5, 2, 1);
    if let Ok(comb) = finecomb::Comb::decode(bytes, &settings) {
        let again = finecomb::Comb::decode(&comb.encode(), &settings).expect("what was accepted survives the way");
        assert_eq!(again.packets(), comb.packets());
        let received = finecomb::Interval::without_stash(again);
        for rule in [finecomb::Rule::Lda, finecomb::Rule::LdaPlus, finecomb::Rule::FineComb] {
            let found = received.estimate(&comb, rule, finecomb::Solver::Elimination, finecomb::Deviation::PerBucket);
            assert_eq!(
                found.expect("one kind").loss.unwrap_or_default(),
                0.0,
                "nothing was lost between it and itself"
            );
        }
    }
    decode_rda(bytes);
}

/// Cells and counters of one who may lie about what is in them: whatever they say, decoding them ends.
fn decode_rda(bytes: &[u8]) {
    use synopses::rda::{Cache, Deviation, Ids, Layout, Rda, Reconciliation, Settings, XorCounters};

    for layout in [Layout::Banks, Layout::Flat] {
        let settings = Settings { banks: 2, layout, ids: Ids::Checked8, ..Settings::default() };
        let Ok(rda) = Rda::decode(bytes, &settings, MOST_SLOTS) else { continue };
        let again = Rda::decode(&rda.encode(), &settings, MOST_SLOTS).expect("what was accepted survives the way");
        assert_eq!(again.packets(), rda.packets());
        let mut ours = Cache::new(64, settings.ids).expect("possible");
        use_it(|digest, now| ours.insert(digest, now));
        let mut exchange = Reconciliation::new(ours, rda).expect("same ids");
        for round in 0..4 {
            let answers: Vec<_> = exchange.missing().iter().map(|id| (*id, (id % 4 != round).then_some(*id))).collect();
            exchange.answer(&answers).expect("what was asked");
        }
        let found = exchange.estimate(Deviation::PerBucket);
        assert!(found.packets <= found.sent, "no more packets are useful than were sent");
        assert!(found.mean_ns.is_none_or(f64::is_finite) && found.lost <= found.sent);
    }
    if let Ok(mut counters) = XorCounters::decode(bytes, 1) {
        assert_eq!(
            XorCounters::decode(&counters.encode(), 1).as_ref(),
            Ok(&counters),
            "what was accepted survives the way"
        );
        assert!(counters.estimate(&XorCounters::new(1)).is_ok_and(f64::is_finite));
        let other = counters.clone();
        counters.merge(&other).expect("one seed");
        assert_eq!(counters.estimate(&XorCounters::new(1)), Ok(0.0), "what comes twice cancels out");
    }
}

/// Slots that a synopsis may ask for.
const MOST_SLOTS: usize = 4096;

/// A few packets, which what was decoded has to bear.
fn use_it(mut packet: impl FnMut(synopses::digest::Digest, u64)) {
    (0..64).for_each(|number| packet(synopses::digest::Digest((number << 58) | number), number << 20));
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
