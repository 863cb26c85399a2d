//! What the data plane tells the control plane.

use super::segment::Prefix;

/// A record that was evicted, or is there at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Prefix of the record's flow, not of the packet that evicted it.
    pub prefix: Prefix,
    /// Packets checked since the flow's admission. Its first packet is not checked.
    pub packets: u32,
    /// Packets out of order among them.
    pub out_of_order: u32,
}

/// What happens to the flows at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// They stay, with counts of 0: events across the boundary are not lost.
    KeepFlows,
    /// All records are emptied, and places come from a new seed, so that crafted collisions end.
    Reseed(u64),
}

/// Counts of events. A segment is ignored, monitored or passed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of all segments.
    pub segments: u64,
    /// Segments that are not watched: no payload, SYN, RST.
    pub ignored: u64,
    /// Segments of resident flows, and first ones of admitted flows.
    pub monitored: u64,
    /// Flows that got a record.
    pub admitted: u64,
    /// Flows whose record went to another flow.
    pub evicted: u64,
    /// Reports of evicted records, and of those at the end of an interval.
    pub reports: u64,
    /// Jumps of more than the largest window.
    pub jumps: u64,
    /// Times before the last one of a record.
    pub clock_anomalies: u64,
}

impl Counters {
    /// All counters, in a fixed order.
    pub(super) fn words(&mut self) -> [&mut u64; 8] {
        let Self { segments, ignored, monitored, admitted, evicted, reports, jumps, clock_anomalies } = self;
        [segments, ignored, monitored, admitted, evicted, reports, jumps, clock_anomalies]
    }
}

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visit {
    /// Its flow has a record; another flow's may have been reported for it.
    Monitored(Option<Report>),
    /// Its flow has none.
    PassedBy,
}
