//! The messages of registration as they were first written down, before anything was added to them.

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct ServiceMessage {
    #[prost(oneof = "FromService", tags = "1, 2, 3, 4")]
    pub message: Option<FromService>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum FromService {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    AddRegion(AddRegion),
    #[prost(message, tag = "3")]
    AddSeries(AddSeries),
    #[prost(message, tag = "4")]
    RetireSeries(RetireSeries),
}

#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    #[prost(string, tag = "2")]
    pub service: String,
    #[prost(string, tag = "3")]
    pub instance: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AddRegion {
    #[prost(uint32, tag = "1")]
    pub region: u32,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    #[prost(uint64, tag = "3")]
    pub layout_version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum Kind {
    Unspecified = 0,
    Counter = 1,
    UpDownCounter = 2,
    Gauge = 3,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
pub struct AddSeries {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Series {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "Kind", tag = "3")]
    pub kind: i32,
    #[prost(string, tag = "4")]
    pub unit: String,
    #[prost(uint32, tag = "6")]
    pub region: u32,
    #[prost(uint32, tag = "7")]
    pub first_slot: u32,
    #[prost(uint32, tag = "8")]
    pub sub_bits: u32,
    #[prost(uint32, tag = "9")]
    pub max_bits: u32,
    #[prost(uint64, tag = "10")]
    pub parts_per_unit: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RetireSeries {
    #[prost(message, repeated, tag = "1")]
    pub runs: Vec<SlotRun>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SlotRun {
    #[prost(uint32, tag = "1")]
    pub region: u32,
    #[prost(uint32, tag = "2")]
    pub first_slot: u32,
    #[prost(uint32, tag = "3")]
    pub slots: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct AgentMessage {
    #[prost(oneof = "FromAgent", tags = "1, 2, 3, 4")]
    pub message: Option<FromAgent>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum FromAgent {
    #[prost(message, tag = "1")]
    Welcome(Welcome),
    #[prost(message, tag = "2")]
    Refused(Refused),
    #[prost(message, tag = "3")]
    Released(RetireSeries),
    #[prost(message, tag = "4")]
    Accepted(Accepted),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Welcome {
    #[prost(uint64, tag = "1")]
    pub agent_incarnation: u64,
    #[prost(uint32, tag = "2")]
    pub heartbeat_ms: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Refused {
    #[prost(string, tag = "1")]
    pub what: String,
    #[prost(string, tag = "2")]
    pub reason: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Accepted {
    #[prost(uint64, tag = "1")]
    pub messages: u64,
}
