//! What is usual of each replica, and which of them makes a column unusual.

use std::collections::BTreeMap;

use wire::id::{MetricId, ReplicaId};

use super::scalars::Scalars;
use super::{AggregatedColumn, Columns, Member};
use crate::outlier::{Combination, Deviation, ReplicaValues, usual_after};

/// Every so many rows, an ordinary one changes what is usual: the mean is over some 64 rows.
const EVERY_ROWS: u64 = 8;

impl Columns {
    /// The row that was read last is an ordinary one: its values change what is usual of each replica, in one of eight
    /// rows. O(series). Never allocates.
    pub(crate) fn learn_usual(&mut self) {
        if !self.ticks.is_multiple_of(EVERY_ROWS) {
            return;
        }
        let Self { aggregated, members, scalars, usual, histograms, .. } = self;
        for aggregated in &*aggregated {
            let mut at = aggregated.members.start;
            for words in replicas(&members[aggregated.members.clone()]) {
                usual[at] = usual_after(usual[at], value(scalars, words));
                at += words.len();
            }
        }
        histograms.learn_usual();
    }

    /// The replica that makes `column` deviate from what was expected in the row that was read last; `None` if none
    /// stands out, or if the column is derived from those of several replicas. O(columns + replicas). Allocates nothing
    /// if `values` has room for all replicas.
    pub(crate) fn outlier(&self, column: usize, deviation: Deviation, values: &mut ReplicaValues) -> Option<ReplicaId> {
        if self.only_replica.is_some() {
            return self.only_replica;
        }
        if let Some(aggregated) = self.aggregated.iter().find(|aggregated| aggregated.column == column) {
            values.clear();
            let mut at = aggregated.members.start;
            for words in replicas(&self.members[aggregated.members.clone()]) {
                if let Some(first) = words.first() {
                    values.push(self.scalars.replica(first.series), value(&self.scalars, words), self.usual[at], 1.0);
                }
                at += words.len();
            }
            return values.outlier(Combination::By(aggregated.method.as_ref()?), deviation);
        }
        self.histograms.of_column(column).map_or_else(
            || self.scalars.replica_of_column(column),
            |histogram| histogram.outlier((column, self.observations_held), deviation, values),
        )
    }

    /// What is usual of each replica by metric; of one that was alone, its last value.
    pub(super) fn usual_of_replicas(&self) -> BTreeMap<(MetricId, ReplicaId), f64> {
        let alone = self.scalars.all().filter(|(_, _, cell)| (*cell as usize) < self.infos.len());
        let alone = alone.map(|((metric, location, _), _, cell)| ((metric, location.replica), self.scalars.cell(cell)));
        let several = self.aggregated.iter().flat_map(|AggregatedColumn { metric, members, .. }| {
            let replica = move |at: usize| self.scalars.replica(self.members[at].series);
            members.clone().map(move |at| ((*metric, replica(at)), self.usual[at]))
        });
        alone.chain(several).filter(|(_, usual)| !usual.is_nan()).collect()
    }

    /// The same with what is `known` to be usual.
    #[must_use]
    pub(super) fn with_usual(mut self, known: &BTreeMap<(MetricId, ReplicaId), f64>) -> Self {
        for aggregated in &self.aggregated {
            for at in aggregated.members.clone().filter(|at| !self.members[*at].further_word) {
                let replica = self.scalars.replica(self.members[at].series);
                self.usual[at] = *known.get(&(aggregated.metric, replica)).unwrap_or(&f64::NAN);
            }
        }
        self
    }
}

/// The words of each replica.
fn replicas(members: &[Member]) -> impl Iterator<Item = &[Member]> {
    members.chunk_by(|_, next| next.further_word)
}

/// A replica's value, the sum of its `words`; NaN if none has one.
fn value(scalars: &Scalars, words: &[Member]) -> f64 {
    let values = words.iter().map(|word| scalars.cell(word.cell)).filter(|value| !value.is_nan());
    values.reduce(|sum, value| sum + value).unwrap_or(f64::NAN)
}
