//! All flows, for tests and comparisons.

use alloc::collections::BTreeMap;

use super::segment::{Definition, Event, Prefix, Segment};

/// Counts of each prefix, exact and without a bound. Takes memory for all flows, about 60 bytes each.
#[derive(Clone, Debug)]
pub struct Exact {
    definition: Definition,
    flows: BTreeMap<u64, u32>,
    prefixes: BTreeMap<Prefix, (u64, u64)>,
}

impl Exact {
    /// Knows no flow yet.
    #[must_use]
    pub const fn new(definition: Definition) -> Self {
        Self { definition, flows: BTreeMap::new(), prefixes: BTreeMap::new() }
    }

    /// Adds a segment.
    pub fn insert(&mut self, segment: &Segment) {
        let flow = segment.fingerprint();
        if !segment.is_watched() {
            if let Some(state) = self.flows.get_mut(&flow)
                && segment.control == super::Control::Syn
            {
                *state = self.definition.first(segment);
            }
            return;
        }
        let event = if let Some(state) = self.flows.get_mut(&flow) {
            self.definition.advance(state, segment)
        } else {
            self.flows.insert(flow, self.definition.first(segment));
            Event::InOrder
        };
        if event != Event::KeepAlive {
            let (packets, events) = self.prefixes.entry(segment.prefix).or_default();
            *packets += 1;
            *events += u64::from(event == Event::OutOfOrder);
        }
    }

    /// Packets, and those out of order, of each prefix.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, u64, u64)> {
        self.prefixes.iter().map(|(prefix, (packets, events))| (*prefix, *packets, *events))
    }

    /// Prefixes with at least β packets, of which more than a share of ε is out of order.
    pub fn heavy(&self, least_packets: u64, share: f64) -> impl Iterator<Item = Prefix> {
        let heavy = move |(_, packets, events): &(Prefix, u64, u64)| {
            *packets >= least_packets && *events as f64 > share * *packets as f64
        };
        self.iter().filter(heavy).map(|(prefix, ..)| prefix)
    }
}
