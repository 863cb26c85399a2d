//! Regions that a client of each layout's release wrote are read as they were meant: `tests/layout/VERSION`, made by
//! the client's example `golden_region`.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use region::ring::RingReader;
use region::{AcceptedRegion, ReadMapping};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use wire::frame::Frames;
use wire::layout::{Header, RegionSize, VERSION};
use wire::metric::Kind;
use wire::registration::{PlacedSeries, ServiceMessage};
use wire::span_record::{Note, Record, Subject};

fn folder(version: u64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/layout/{version}"))
}

/// The file as a service would share it.
fn memory(path: &Path) -> (OwnedFd, RegionSize) {
    let bytes = fs::read(path).expect("the example has written it");
    let memory = memfd_create("golden", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("descriptors are left");
    rustix::io::write(&memory, &bytes).expect("memory is left");
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).expect("it has no seals yet");
    let size = RegionSize::new(bytes.len() as u64).expect("it was written by a client");
    (memory, size)
}

fn messages(version: u64) -> Vec<ServiceMessage> {
    let mut frames = Frames::default();
    frames.push(&fs::read(folder(version).join("messages")).expect("the example has written it"));
    let mut messages = Vec::new();
    while let Some(frame) = frames.next_frame().expect("it was written by a client") {
        messages.push(ServiceMessage::decode(frame).expect("fields are only ever added"));
    }
    assert_eq!(frames.pending(), 0);
    messages
}

/// What an agent reads from a series.
fn value(placed: &PlacedSeries, words: &[u64]) -> String {
    let first = placed.first.word();
    match placed.series.kind {
        Kind::Counter => placed.shards.places(placed.first).map(|slot| words[slot.word()]).sum::<u64>().to_string(),
        Kind::UpDownCounter => words[first].cast_signed().to_string(),
        Kind::Gauge => f64::from_bits(words[first]).to_string(),
        Kind::Histogram(scale) => {
            let slots = &words[first..][..scale.slots() as usize];
            let (sum, buckets) = slots.split_last().expect("a histogram has slots");
            let median = scale.quantile(buckets, 0.5).expect("it is not empty");
            format!("{} values, sum {sum}, median {median}", buckets.iter().sum::<u64>())
        }
    }
}

#[test]
fn a_metric_region_of_every_layout_is_read_as_it_was_meant() {
    for version in 1..=VERSION {
        let (memory, size) = memory(&folder(version).join("metrics"));
        let accepted = AcceptedRegion::accept(memory, size).unwrap();
        let mut words = vec![0; size.words()];
        ReadMapping::map(accepted.as_fd(), size).unwrap().copy_into(&mut words).unwrap();
        let messages = messages(version);

        assert!(Header::decode(&words).is_ok_and(|header| header.generation.0 == 1));
        let ServiceMessage::Hello(hello) = &messages[0] else { panic!("{:?}", messages[0]) };
        assert_eq!((hello.service.as_str(), hello.instance.as_str()), ("payment", "payment-1"));
        let said = |message: &ServiceMessage| matches!(message, ServiceMessage::AddRegion { region: 0, size: said, layout_version } if (*said, *layout_version) == (size, version));
        assert!(messages.iter().any(said));
        let series = messages.iter().filter_map(|message| match message {
            ServiceMessage::AddSeries(series) => Some(series.iter().map(|series| series.as_ref().unwrap())),
            _ => None,
        });
        let mut read: Vec<_> = series
            .flatten()
            .map(|placed| {
                let unit = placed.series.unit.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{} [{unit}] {}", placed.series.title(), value(placed, &words))
            })
            .collect();
        read.sort();
        let expected = [
            "active [] -3",
            "duration [s] 5 values, sum 1099561629676, median 992",
            "messages [] 6",
            "requests{route=\"/pay\"} [{request}] 7",
            "temperature [Cel] 21.5",
        ];
        assert_eq!(read, expected, "version {version}");
    }
}

#[test]
fn a_span_ring_of_every_layout_is_read_as_it_was_meant() {
    for version in 1..=VERSION {
        let (memory, size) = memory(&folder(version).join("spans"));
        let messages = messages(version);
        let ring = messages.iter().find_map(|message| match message {
            ServiceMessage::AddSpanRing { size, first_ticket, .. } => Some((*size, *first_ticket)),
            _ => None,
        });
        let (announced, first_ticket) = ring.unwrap();
        assert_eq!(announced, size);

        let mut reader = RingReader::new(ReadMapping::map(memory.as_fd(), size).unwrap(), first_ticket);
        let mut records = Vec::new();
        reader.poll(|words| records.push(Record::decode(words).unwrap()));

        assert_eq!(records.len(), 1, "version {version}");
        assert!(matches!(records[0].subject, Subject::Keep(trace) if trace.get().to_be_bytes() == [7; 16]));
        assert!(records[0].notes().any(|note| matches!(note, Note::Name("amount above 10"))));
    }
}
