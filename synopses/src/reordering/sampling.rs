//! The flow-sampling array: each flow is watched briefly, one flow per bucket at a time.

use alloc::boxed::Box;
use alloc::vec;

use super::report::{Counters, Report, Visit};
use super::segment::{Event, Prefix, Segment};
use super::settings::{BACKWARDS, Reports, Settings, SettingsError};
use crate::digest::{Mixer, place};

/// A record. 32 bytes. It is empty if its flow is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) flow: u64,
    pub(super) prefix: Prefix,
    /// What the definition remembers of the flow.
    pub(super) state: u32,
    /// When its last packet came.
    pub(super) tick: u32,
    /// Packets checked, without the first one.
    pub(super) packets: u16,
    pub(super) events: u16,
}

pub(super) const EMPTY: Sample = Sample { flow: 0, prefix: Prefix(0), state: 0, tick: 0, packets: 0, events: 0 };

/// Buckets that sample flows. A bucket belongs to prefixes, by hash; its record to one flow of them. Used through
/// [`super::Reordering`].
#[derive(Clone, Debug)]
pub struct SamplingArray {
    pub(super) records: Box<[Sample]>,
    timeout: u32,
    settings: Settings,
    mixer: Mixer,
}

impl SamplingArray {
    pub(super) fn new(settings: &Settings, buckets: usize) -> Result<Self, SettingsError> {
        let records = vec![EMPTY; buckets].into_boxed_slice();
        let mixer = Mixer::new(settings.seed, 3);
        Ok(Self { records, timeout: settings.checked()?, settings: *settings, mixer })
    }

    pub(super) const fn mixer(&self) -> u64 {
        self.mixer.constant()
    }

    /// T in ticks.
    pub(super) const fn timeout(&self) -> u32 {
        self.timeout
    }

    pub(super) fn bucket(&self, prefix: Prefix) -> usize {
        place((self.mixer.mix_number(prefix.0) >> 32) as u32, self.records.len() as u32) as usize
    }

    /// A watched segment. O(1).
    #[inline]
    pub(super) fn visit(&mut self, segment: &Segment, now: u32, counters: &mut Counters) -> Visit {
        let (bucket, flow) = (self.bucket(segment.prefix), segment.fingerprint());
        let record = &mut self.records[bucket];
        if record.flow == flow {
            match self.settings.definition.advance(&mut record.state, segment) {
                Event::InOrder => {}
                Event::OutOfOrder => record.events = record.events.saturating_add(1),
                Event::Jump => counters.jumps += 1,
                Event::KeepAlive => return Visit::Monitored(None),
            }
            record.packets = record.packets.saturating_add(1);
            record.tick = now;
            return Visit::Monitored(None);
        }
        let old = *record;
        if old.flow != 0 {
            let age = now.wrapping_sub(old.tick);
            let back = age >= BACKWARDS;
            counters.clock_anomalies += u64::from(back);
            let stale = !back && age > self.timeout;
            if !(stale || old.packets > self.settings.most_packets || old.events >= self.settings.least_events) {
                return Visit::PassedBy;
            }
            counters.evicted += 1;
        }
        counters.admitted += 1;
        let (prefix, state) = (segment.prefix, self.settings.definition.first(segment));
        *record = Sample { flow, prefix, state, tick: now, packets: 0, events: 0 };
        Visit::Monitored(self.report(&old))
    }

    /// A new connection of a resident flow, which keeps its counts.
    pub(super) fn restart(&mut self, segment: &Segment) {
        let bucket = self.bucket(segment.prefix);
        let record = &mut self.records[bucket];
        if record.flow == segment.fingerprint() {
            record.state = self.settings.definition.first(segment);
        }
    }

    fn report(&self, record: &Sample) -> Option<Report> {
        let always = self.settings.reports == Reports::Always && record.packets > 0;
        (always || record.events >= self.settings.least_events).then_some(Report {
            prefix: record.prefix,
            packets: record.packets.into(),
            out_of_order: record.events.into(),
        })
    }

    /// Reports all records that are to be reported, and sets their counts to 0.
    pub(super) fn drain(&mut self, mut send: impl FnMut(Report)) {
        for bucket in 0..self.records.len() {
            if let Some(report) = self.report(&self.records[bucket]) {
                send(report);
            }
            let record = &mut self.records[bucket];
            (record.packets, record.events) = (0, 0);
        }
    }

    /// Empties all records, and places prefixes by a new seed.
    pub(super) fn reseed(&mut self, seed: u64) {
        self.records.fill(EMPTY);
        self.mixer = Mixer::new(seed, 3);
        self.settings.seed = seed;
    }
}
