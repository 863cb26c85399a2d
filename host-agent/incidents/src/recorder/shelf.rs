//! Records that are kept, encoded, within a budget of bytes: the oldest go first.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use wire::incident::{IncidentId, IncidentIdError};
use wire::proto::operators::{Incident, IncidentSummary};

use super::record::{MAX_RECORD_BYTES, fit, summary};
use crate::words;

/// Bytes that a record counts for beside those of its encoding: its line of the list, its entry, its place on a disk.
pub const RECORD_COST: usize = 4_096;

/// What is to be done on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Write these bytes as the record of the incident, in the place of earlier ones.
    Write(IncidentId, Vec<u8>),
    /// Remove the record: others have taken its place.
    Remove(IncidentId),
}

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// They are too many.
    #[error("{0} bytes are more than a record has")]
    Length(usize),
    /// They are no record.
    #[error("it is no record of an incident")]
    Decode(#[from] prost::DecodeError),
    /// Its id is none.
    #[error(transparent)]
    Id(#[from] IncidentIdError),
}

/// Why no incident was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// None begins so.
    #[error("no incident {text}: {kept} are kept, the oldest make room; `uview incidents` lists them")]
    None {
        /// What was asked for.
        text: String,
        /// How many are kept.
        kept: usize,
    },
    /// Several begin so.
    #[error("{fitting} incidents begin with {text}: name one with more characters; `uview incidents` lists them")]
    Several {
        /// What was asked for.
        text: String,
        /// How many begin so.
        fitting: usize,
    },
    /// It is of another node.
    #[error("this is the node {here}; incidents of {node} are there")]
    Elsewhere {
        /// The node that was asked for.
        node: String,
        /// Name of this node.
        here: String,
    },
}

#[derive(Clone, Debug)]
struct Record {
    bytes: Vec<u8>,
    summary: IncidentSummary,
}

/// The records by id.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    budget: usize,
    bytes: usize,
    records: BTreeMap<IncidentId, Record>,
    /// Those that differ from what is on the disk.
    changed: BTreeSet<IncidentId>,
    gone: BTreeSet<IncidentId>,
}

impl Shelf {
    pub(super) const fn new(budget: usize) -> Self {
        Self { budget, bytes: 0, records: BTreeMap::new(), changed: BTreeSet::new(), gone: BTreeSet::new() }
    }

    pub(super) fn has(&self, id: IncidentId) -> bool {
        self.records.contains_key(&id)
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn summaries(&self) -> BTreeMap<IncidentId, IncidentSummary> {
        self.records.iter().map(|(id, record)| (*id, record.summary.clone())).collect()
    }

    pub(super) fn get(&self, id: IncidentId) -> Option<Incident> {
        // It was encoded here, or decoded before.
        Incident::decode(&self.records.get(&id)?.bytes[..]).ok()
    }

    /// Puts `record` in the place of an earlier one of the same id.
    pub(super) fn put(&mut self, id: IncidentId, mut record: Incident) {
        fit(&mut record);
        self.changed.insert(id);
        self.gone.remove(&id);
        self.insert(id, &record);
    }

    fn insert(&mut self, id: IncidentId, record: &Incident) {
        let record = Record { bytes: record.encode_to_vec(), summary: summary(record) };
        self.bytes += record.bytes.len() + RECORD_COST;
        if let Some(before) = self.records.insert(id, record) {
            self.bytes -= before.bytes.len() + RECORD_COST;
        }
    }

    /// Takes a record of an earlier run. One that was not over then ends with what is known.
    pub(super) fn restore(&mut self, bytes: &[u8]) -> Result<IncidentId, RestoreError> {
        if bytes.len() > MAX_RECORD_BYTES {
            return Err(RestoreError::Length(bytes.len()));
        }
        let mut record = Incident::decode(bytes)?;
        let id: IncidentId = record.id.parse()?;
        if record.ended_unix_ns == 0 {
            record.cut_short = true;
            let last = record.services.iter().map(|of| {
                let scored = of.ratios_from_s.saturating_add(of.ratios.len() as u64 * u64::from(of.ratio_step_s));
                of.began_unix_ns.max(of.peak_unix_ns).max(scored.saturating_mul(1_000_000_000))
            });
            let last = last.max().unwrap_or_default().max(record.began_unix_ns).max(1);
            record.ended_unix_ns = last;
            record.services.iter_mut().filter(|of| of.ended_unix_ns == 0).for_each(|of| of.ended_unix_ns = last);
            words::mark(&mut record);
            fit(&mut record);
            self.changed.insert(id);
        }
        self.insert(id, &record);
        Ok(id)
    }

    /// `step` was not done.
    pub(super) fn again(&mut self, step: &Step) {
        match step {
            Step::Write(id, _) if self.records.contains_key(id) => drop(self.changed.insert(*id)),
            Step::Remove(id) if !self.records.contains_key(id) => drop(self.gone.insert(*id)),
            _ => {}
        }
    }

    pub(super) fn is_written(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty()
    }

    /// What is to be done on the disk. The oldest make room, but for those that are `open`.
    pub(super) fn take_steps(&mut self, open: &BTreeSet<IncidentId>) -> Vec<Step> {
        while self.bytes > self.budget
            && let Some(oldest) = self.records.keys().find(|id| !open.contains(id)).copied()
            && let Some(record) = self.records.remove(&oldest)
        {
            self.bytes -= record.bytes.len() + RECORD_COST;
            self.changed.remove(&oldest);
            self.gone.insert(oldest);
        }
        let gone = core::mem::take(&mut self.gone).into_iter().map(Step::Remove);
        let changed = core::mem::take(&mut self.changed).into_iter();
        let written = changed.filter_map(|id| Some(Step::Write(id, self.records.get(&id)?.bytes.clone())));
        // What makes room comes first: the disk may be full.
        gone.chain(written).collect()
    }
}
