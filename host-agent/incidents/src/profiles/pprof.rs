//! Messages of pprof's `profile.proto`, as far as they are needed. Texts are numbers of a table whose first is empty.

use wire::proto::operators::{IncidentProfile, IncidentStack};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) kind: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct File {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) time_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(super) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(super) period: i64,
}

/// One location and one function for each name.
pub(super) fn of(profile: &IncidentProfile) -> File {
    let (samples, count) = (ValueType { kind: 1, unit: 2 }, profile.names.len() as u64);
    let mut texts = vec![String::new(), "samples".to_owned(), "count".to_owned(), profile.event.clone()];
    let first = texts.len() as i64;
    texts.extend(profile.names.iter().cloned());
    let sample = |stack: &IncidentStack| Sample {
        location_id: stack.frames.iter().rev().map(|name| u64::from(*name) + 1).filter(|id| *id <= count).collect(),
        value: vec![i64::try_from(stack.samples).unwrap_or(i64::MAX)],
    };
    File {
        sample_type: vec![samples],
        sample: profile.stacks.iter().map(sample).collect(),
        location: (1..=count).map(|id| Location { id, line: vec![Line { function_id: id }] }).collect(),
        function: (1..=count).map(|id| Function { id, name: first + id as i64 - 1 }).collect(),
        string_table: texts,
        time_nanos: i64::try_from(profile.began_unix_ns).unwrap_or(i64::MAX),
        period_type: Some(ValueType { kind: 3, unit: 2 }),
        period: 1,
    }
}
