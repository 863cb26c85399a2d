//! Messages of a service, byte for byte: as releases without declarations wrote and read them, and as this one does.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what a test prepares has to work, or the test fails")]

use prost::Message as _;
use wire::metric::{Aggregation, Declaration};
use wire::proto::registration as proto;
use wire::registration::{PlacedSeries, ServiceMessage};

/// A gauge `queue` in `{item}` at slot 5 of region 0, in a message that adds it: without declarations.
const EARLIER: [u8; 25] = *b"\x1a\x17\x0a\x15\x0a\x05queue\x18\x03\x22\x06{item}\x38\x05\x50\x01";
/// The same with an aggregation by max, worth reading every 5,000 ms.
const NOW: [u8; 33] = *b"\x1a\x1f\x0a\x1d\x0a\x05queue\x18\x03\x22\x06{item}\x38\x05\x50\x01\x62\x03max\x68\x88\x27";

/// A series as releases without declarations know it.
#[derive(Clone, PartialEq, prost::Message)]
struct EarlierSeries {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(string, tag = "4")]
    unit: String,
    #[prost(uint32, tag = "6")]
    region: u32,
    #[prost(uint32, tag = "7")]
    first_slot: u32,
    #[prost(uint64, tag = "10")]
    parts_per_unit: u64,
    #[prost(uint32, tag = "11")]
    shards: u32,
}

fn series(bytes: &[u8]) -> PlacedSeries {
    let ServiceMessage::AddSeries(series) = ServiceMessage::decode(bytes).unwrap() else { panic!("it adds a series") };
    series.into_iter().next().unwrap().unwrap()
}

fn written(series: PlacedSeries) -> Vec<u8> {
    proto::ServiceMessage::from(&ServiceMessage::AddSeries(vec![Ok(series)])).encode_to_vec()
}

#[test]
fn an_earlier_client_declares_nothing_and_what_declares_nothing_is_written_as_it_was() {
    let read = series(&EARLIER);

    assert_eq!(read.declared, Declaration::NONE);
    assert_eq!(written(read), EARLIER);
}

#[test]
fn a_declaration_is_written_as_it_is_read() {
    let read = series(&NOW);

    assert_eq!(read.declared.aggregation(), Some(&Aggregation::Max));
    assert_eq!(read.declared.to_message(), ("max".to_owned(), 5000));
    assert_eq!(written(read), NOW);
}

#[test]
fn an_earlier_agent_reads_a_declared_series_as_one_that_declares_nothing() {
    // The series itself, within its two envelopes.
    let [earlier, now] = [&EARLIER[4..], &NOW[4..]].map(|bytes| EarlierSeries::decode(bytes).unwrap());

    assert_eq!(now, earlier);
    assert_eq!((now.name.as_str(), now.unit.as_str(), now.first_slot), ("queue", "{item}", 5));
}
