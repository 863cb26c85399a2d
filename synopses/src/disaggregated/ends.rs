//! The two NICs at the ends of a path agree, epoch by epoch, which of them counts a flow.
//!
//! One end makes the tables of their path, the *owner*; the other takes them. A table is for one epoch, and is made in
//! the epoch before from the loads of the one before that. Messages may be lost, late or repeated, and ends restart. An
//! end follows a table only if it knows that the other end has it, and counts every flow in an epoch without one. So
//! what goes wrong costs accuracy: a flow is then counted at more ends than necessary, and never at none.
//!
//! Of one epoch and path there is one table at most. An owner that restarts makes none for an epoch that its
//! predecessor may have made one for, and who takes tables refuses a second one for an epoch.

use alloc::vec::Vec;

use thiserror::Error;

use super::header::{Estimate, NoEstimate};
use super::load::{LoadTable, Weighting};
use super::path::{Path, PathError};
use super::sizing::count_for_error;
use crate::digest::Digest;

/// Tables that are kept: of the next epoch, of the current one, and of the last, whose flows are estimated.
const KEPT: usize = 3;

/// What an end says of an epoch that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndReport {
    /// The epoch's number.
    pub epoch: u32,
    /// Packets that passed the end, whether it counted them or not: its load if it counts all.
    pub passed: u64,
}

/// How tables are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanSettings {
    /// w, counters of a row of the smaller fragment, at least 1.
    pub counters: u32,
    /// y, the error in packets that is to be unlikely.
    pub error: f64,
}

/// The path over these fragments for the next epoch: K from the mean load by Markov's bound ([`count_for_error`]),
/// weights strictly by load.
///
/// `loads` are packets that passed, not the sums of the counters. Those fall at the end that does not count, so a
/// choice by them would go back and forth.
///
/// # Errors
///
/// [`PathError`] if there are too many fragments, or one of them twice.
pub fn plan(fragments: &[u32], loads: &LoadTable, settings: PlanSettings, seed: u64) -> Result<Path, PathError> {
    let known: Vec<f64> = fragments.iter().filter_map(|id| loads.load(*id)).map(|load| load as f64).collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let count = count_for_error(fragments.len(), settings.counters, settings.error, mean.max(1.0));
    Path::weighted(fragments, count, &loads.weights(fragments, Weighting::Strict), seed)
}

/// A table of one path, for one epoch.
#[derive(Clone, Debug)]
pub struct EpochTable {
    /// The run of the owner that made it, a random number.
    pub run: u64,
    /// The epoch that it is for.
    pub epoch: u32,
    /// Fragments (the owner's first), K, weights, and the seed of the choice.
    pub path: Path,
}

/// Which flows of a path an end counted in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// All of them.
    All,
    /// Those that chose it, by the table of this run of the owner.
    Chosen(u64),
}

/// The end that makes tables.
#[derive(Clone, Debug)]
pub struct PathOwner {
    run: u64,
    ends: [u32; 2],
    settings: PlanSettings,
    /// Tables are made for later epochs only.
    after: u32,
    /// The newest tables, and whether the other end has them.
    tables: [Option<(EpochTable, bool)>; KEPT],
}

impl PathOwner {
    /// The owner's end of the path between fragments `own` and `other`, in a `run` that began in epoch `now`.
    #[must_use]
    pub const fn new(own: u32, other: u32, settings: PlanSettings, run: u64, now: u32) -> Self {
        Self { run, ends: [own, other], settings, after: now.saturating_add(1), tables: [const { None }; KEPT] }
    }

    /// The table for the next epoch, from reports of the epoch before `now`. The same one again if it was made. `None`
    /// unless both reports are of that epoch, and in the epoch after a start: an earlier run may have made that table.
    pub fn plan(&mut self, now: u32, own: EndReport, other: EndReport, seed: u64) -> Option<&EpochTable> {
        let epoch = now.checked_add(1)?;
        let is_of_last = |report: EndReport| report.epoch.checked_add(1) == Some(now);
        if !(epoch > self.after && is_of_last(own) && is_of_last(other)) {
            return None;
        }
        let place = epoch as usize % KEPT;
        if self.tables[place].as_ref().is_none_or(|(table, _)| table.epoch != epoch) {
            let loads = self.ends.into_iter().zip([own.passed, other.passed]).collect();
            let path = plan(&self.ends, &loads, self.settings, seed).ok()?;
            self.tables[place] = Some((EpochTable { run: self.run, epoch, path }, false));
            // Whatever the clock does: of each epoch at most one table.
            self.after = self.after.max(now);
        }
        self.tables[place].as_ref().map(|(table, _)| table)
    }

    /// The other end has the table for `epoch`. Of no effect from that epoch on: this end already counts all in it.
    pub fn acknowledged(&mut self, now: u32, epoch: u32) {
        if let Some((table, has)) = &mut self.tables[epoch as usize % KEPT]
            && table.epoch == epoch
            && now < epoch
        {
            *has = true;
        }
    }

    /// The table for `epoch`, if both ends have it.
    #[must_use]
    pub fn agreed(&self, epoch: u32) -> Option<&EpochTable> {
        self.tables.iter().flatten().find(|(table, has)| *has && table.epoch == epoch).map(|(table, _)| table)
    }

    /// The table for `epoch`, whether the other end has it or not.
    #[must_use]
    pub fn table(&self, epoch: u32) -> Option<&EpochTable> {
        self.tables.iter().flatten().find(|(table, _)| table.epoch == epoch).map(|(table, _)| table)
    }
}

/// The end that takes tables.
#[derive(Clone, Debug)]
pub struct PathTaker {
    ends: [u32; 2],
    /// The newest tables.
    tables: [Option<EpochTable>; KEPT],
}

impl PathTaker {
    /// The end `own` of the path whose owner is the fragment `owner`.
    #[must_use]
    pub const fn new(own: u32, owner: u32) -> Self {
        Self { ends: [owner, own], tables: [const { None }; KEPT] }
    }

    /// Takes a table of the owner in epoch `now`. The same one may come again.
    ///
    /// # Errors
    ///
    /// [`TableRefused`], and then this end counts all flows in the table's epoch, or follows the one that it has.
    pub fn take(&mut self, now: u32, table: EpochTable) -> Result<(), TableRefused> {
        let wanted = now.saturating_add(1);
        if table.epoch < wanted {
            return Err(TableRefused::Late { epoch: table.epoch, now });
        }
        if table.epoch > wanted {
            return Err(TableRefused::Early { epoch: table.epoch, now });
        }
        if table.path.fragments() != self.ends {
            return Err(TableRefused::Ends(self.ends));
        }
        let place = &mut self.tables[table.epoch as usize % KEPT];
        if let Some(taken) = place.as_ref().filter(|taken| taken.epoch == table.epoch) {
            let is_same = taken.run == table.run && taken.path.is_same(&table.path);
            return if is_same { Ok(()) } else { Err(TableRefused::Second(table.epoch)) };
        }
        *place = Some(table);
        Ok(())
    }

    /// The table for `epoch`.
    #[must_use]
    pub fn table(&self, epoch: u32) -> Option<&EpochTable> {
        self.tables.iter().flatten().find(|table| table.epoch == epoch)
    }
}

/// Why a table is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableRefused {
    /// Its epoch has begun: flows are counted without it.
    #[error("a table for epoch {epoch} came in epoch {now}: too late; clocks may differ, or the epoch is too short")]
    Late {
        /// Epoch of the table.
        epoch: u32,
        /// The current epoch here.
        now: u32,
    },
    /// It is for a later epoch than the next.
    #[error("a table for epoch {epoch} came in epoch {now}: too early; clocks differ")]
    Early {
        /// Epoch of the table.
        epoch: u32,
        /// The current epoch here.
        now: u32,
    },
    /// It is about other fragments.
    #[error("the table is not about fragments {} and {} in this order", .0[0], .0[1])]
    Ends([u32; 2]),
    /// There is another one for this epoch.
    #[error("another table for epoch {0} was taken before")]
    Second(u32),
}

/// The count of a flow at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndCount {
    /// Which flows it counted.
    pub counting: Counting,
    /// The flow's count in its fragment.
    pub count: u32,
}

/// The packets of a flow in one epoch, from both ends' counts, the owner's first; `None` if an end has none of the
/// whole epoch. `table` is the epoch's table, if it is known here; `flow` is the flow's digest by the table's key.
///
/// The least count of those ends that are known to have counted the flow. At least the truth.
///
/// # Errors
///
/// [`NoEstimate`] if no end is known to have counted it.
pub fn combine(table: Option<&EpochTable>, flow: Digest, ends: [Option<EndCount>; 2]) -> Result<Estimate, NoEstimate> {
    let chosen = table.map(|table| (table.run, table.path.select(flow)));
    let counted = ends.iter().enumerate().filter_map(|(position, end)| {
        let end = (*end)?;
        let has = match end.counting {
            Counting::All => true,
            Counting::Chosen(run) => chosen.is_some_and(|(of, selection)| of == run && selection.contains(position)),
        };
        has.then_some(end.count)
    });
    let missing = NoEstimate::Skipped { touched: 0, chosen: table.map_or(1, |table| table.path.count()) };
    counted.min().map(Estimate::of).ok_or(missing)
}
