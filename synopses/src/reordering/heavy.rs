//! Heavy flows in the manner of PRECISION, with the packets out of order of each.

use alloc::boxed::Box;
use alloc::vec;

use super::report::{Counters, Report, Visit};
use super::segment::{Event, Prefix, Segment};
use super::settings::{Reports, Settings};
use crate::digest::Mixer;
use crate::rap::{Coins, Layout as _, Stages};

/// A heavy flow. 32 bytes. It is empty if its count is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heavy {
    pub(super) flow: u64,
    pub(super) prefix: Prefix,
    /// Estimated packets, partly inherited: decides about eviction only.
    pub(super) count: u32,
    /// Packets checked since admission, without the first one.
    pub(super) checked: u32,
    pub(super) events: u32,
    pub(super) state: u32,
}

pub(super) const NONE: Heavy = Heavy { flow: 0, prefix: Prefix(0), count: 0, checked: 0, events: 0, state: 0 };

/// d stages of heavy flows. Rows are chosen by prefix, flows are compared, so that a prefix has at most d flows in it.
/// Used through [`super::Reordering`].
#[derive(Clone, Debug)]
pub struct HeavyFlows {
    pub(super) records: Box<[Heavy]>,
    pub(super) coins: Coins,
    rows: usize,
    settings: Settings,
    mixer: Mixer,
}

impl HeavyFlows {
    /// Settings have been checked.
    pub(super) fn new(settings: &Settings, rows: usize) -> Self {
        Self {
            records: vec![NONE; rows * settings.stages].into_boxed_slice(),
            coins: Coins::new(settings.seed),
            rows,
            settings: *settings,
            mixer: Mixer::new(settings.seed, 4),
        }
    }

    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    pub(super) const fn mixer(&self) -> u64 {
        self.mixer.constant()
    }

    #[inline]
    pub(super) fn places(&self, prefix: Prefix) -> impl Iterator<Item = usize> + use<> {
        let (hash, rows, stages) = (self.mixer.mix_number(prefix.0), self.rows, self.settings.stages);
        (0..stages).map(move |stage| Stages::place(hash, stage, stages, rows))
    }

    /// A watched segment. O(d).
    #[inline]
    pub(super) fn visit(&mut self, segment: &Segment, counters: &mut Counters) -> Visit {
        let (flow, definition) = (segment.fingerprint(), self.settings.definition);
        let new = Heavy { flow, prefix: segment.prefix, count: 1, state: definition.first(segment), ..NONE };
        let (mut least, mut at_least) = (u32::MAX, None);
        for at in self.places(segment.prefix) {
            let record = &mut self.records[at];
            if record.count == 0 {
                *record = new;
                counters.admitted += 1;
                return Visit::Monitored(None);
            }
            if record.flow == flow {
                match definition.advance(&mut record.state, segment) {
                    Event::InOrder => {}
                    Event::OutOfOrder => record.events = record.events.saturating_add(1),
                    Event::Jump => counters.jumps += 1,
                    Event::KeepAlive => return Visit::Monitored(None),
                }
                record.checked = record.checked.saturating_add(1);
                record.count = record.count.saturating_add(1);
                return Visit::Monitored(None);
            }
            if record.count < least {
                (least, at_least) = (record.count, Some(at));
            }
        }
        match at_least {
            Some(at) if self.coins.admit(self.settings.admission, least.into(), 1) => {
                let report = self.report(&self.records[at]);
                self.records[at] = Heavy { count: least + 1, ..new };
                counters.admitted += 1;
                counters.evicted += 1;
                Visit::Monitored(report)
            }
            _ => Visit::PassedBy,
        }
    }

    /// A new connection of a resident flow, which keeps its counts.
    pub(super) fn restart(&mut self, segment: &Segment) {
        let resident = self.places(segment.prefix).find(|at| {
            let record = &self.records[*at];
            record.count > 0 && record.flow == segment.fingerprint()
        });
        if let Some(at) = resident {
            self.records[at].state = self.settings.definition.first(segment);
        }
    }

    fn report(&self, record: &Heavy) -> Option<Report> {
        let Heavy { prefix, checked, events, .. } = *record;
        let suspicious = f64::from(events) > self.settings.heavy_share * f64::from(checked);
        let always = self.settings.reports == Reports::Always && checked > 0;
        (always || suspicious).then_some(Report { prefix, packets: checked, out_of_order: events })
    }

    /// Reports all records that are to be reported, and sets their counts of packets and events to 0.
    pub(super) fn drain(&mut self, mut send: impl FnMut(Report)) {
        for at in 0..self.records.len() {
            if let Some(report) = self.report(&self.records[at]) {
                send(report);
            }
            let record = &mut self.records[at];
            (record.checked, record.events) = (0, 0);
        }
    }

    /// Empties all records, and places prefixes and draws coins by a new seed.
    pub(super) fn reseed(&mut self, seed: u64) {
        self.records.fill(NONE);
        self.mixer = Mixer::new(seed, 4);
        self.coins.reseed(seed);
        self.settings.seed = seed;
    }
}
