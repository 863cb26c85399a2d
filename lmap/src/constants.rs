//! Columns that were constant in training, and what it adds to a score that they move.

use crate::column::Column;
use crate::estimates::error;
use crate::intake::Intake;
use crate::pools::{Patience, TIMES};
use crate::standard::{Role, Standard};

/// A constant counts as moved if it moves by more than this,
const MOVED: f64 = 1e-9;
/// and by more than this share of its value in training: five times the deviation up to which a column is a constant.
const MOVED_SHARE: f64 = 2.5e-3;

/// How much moving constants add to the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConstantRule {
    /// Minimum per column, in deviations.
    pub(crate) weight: f64,
    /// Share of γ² per column, if that is more than the minimum.
    pub(crate) share: f64,
    /// Maximum number of columns that count in one row.
    pub(crate) counted: u32,
    /// Whether the return to the value of training counts as a move.
    pub(crate) returns: bool,
}

impl ConstantRule {
    /// The square that `moved` columns add to the square of a score whose threshold is `gamma`.
    pub(crate) fn square(self, moved: u32, gamma: f64) -> f64 {
        (self.weight * self.weight).max(self.share * gamma * gamma) * f64::from(moved.min(self.counted))
    }
}

/// A column that was constant in training: its value, or, for a level, its increment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constant {
    pub(crate) column: u32,
    baseline: Baseline,
    /// The minimum move that counts.
    least: f64,
    /// Whether its move is a fault by itself.
    pub(crate) indicator: bool,
    /// Of a pool: for how long its growth says nothing.
    patience: Option<Patience>,
    /// Whether it moved in the row scored last.
    pub(crate) moved: bool,
}

/// The value that a constant is compared with.
#[derive(Clone, Copy, Debug)]
enum Baseline {
    /// Its value in training (NaN if returns count), and its value after the last move.
    Value { trained: f64, last: f64 },
    /// For a level: its increment in training.
    Increment(f64),
}

impl Constant {
    /// Every one of `columns` that is constant by its role. `pool_rows`: for how long growth of a pool says nothing.
    pub(crate) fn list(
        columns: &[Column],
        standard: &Standard,
        levels: &[u32],
        rule: ConstantRule,
        pool_rows: Option<usize>,
    ) -> Vec<Self> {
        let constants =
            (0..standard.roles.len() as u32).filter(|&column| standard.roles[column as usize] == Role::Constant);
        let constant = |column: u32| {
            let mean = standard.mean[column as usize];
            let baseline = match levels.binary_search(&column) {
                Ok(_) => Baseline::Increment(mean),
                Err(_) => Baseline::Value { trained: if rule.returns { f64::NAN } else { mean }, last: mean },
            };
            let of = columns.get(column as usize);
            let indicator = of.is_some_and(|of| of.indicator);
            let patience = pool_rows.filter(|_| of.is_some_and(|of| of.pool)).map(Patience::new);
            // A fit watches an estimate, whatever it did. In a model of before it may be a constant.
            let is_value = matches!(baseline, Baseline::Value { .. });
            let error = if is_value && of.is_some_and(|of| of.estimated) { error(mean) } else { 0.0 };
            let least = MOVED.max(MOVED_SHARE * mean.abs()).max(error);
            Self { column, baseline, least, indicator, patience, moved: false }
        };
        let mut constants: Vec<_> = constants.map(constant).collect();
        constants.shrink_to_fit();
        constants
    }

    /// Whether it moved in this row. A return to the value of training is no move: otherwise one burst of page faults
    /// would count in two rows and be an alarm.
    #[inline]
    pub(crate) fn step(&mut self, intake: &Intake) -> bool {
        let value = intake.value(self.column as usize);
        let grows = self.grows(value, value - intake.before(self.column as usize));
        let moved = match &mut self.baseline {
            Baseline::Value { trained, last } => {
                let moved = (value - *last).abs() > self.least;
                if moved {
                    *last = value;
                }
                let back = (value - *trained).abs() <= self.least;
                moved && !back
            }
            Baseline::Increment(increment) => {
                (value - intake.before(self.column as usize) - *increment).abs() > self.least
            }
        };
        let waits = self.patience.as_mut().is_some_and(|patience| patience.step(moved && grows));
        let moved = moved && !waits && !intake.restarted();
        // What is not written stays clean in the cache: a service at rest has a hundred constants.
        if self.moved != moved {
            self.moved = moved;
        }
        moved
    }

    /// Whether it grows with this value, after this move, and holds at most twice what it did in training.
    fn grows(&self, value: f64, moved: f64) -> bool {
        match self.baseline {
            Baseline::Value { trained, last } => value > last && value <= TIMES * trained.abs(),
            Baseline::Increment(increment) => moved > increment,
        }
    }

    /// Whether a row with this value, and this move since the row before, would count as a move.
    pub(crate) fn would_move(&self, value: f64, moved: f64) -> bool {
        let far = |from: f64| (value - from).abs() > self.least;
        if self.patience.is_some_and(Patience::would_wait) && self.grows(value, moved) {
            return false;
        }
        match self.baseline {
            Baseline::Value { trained, last } => far(last) && (trained.is_nan() || far(trained)),
            Baseline::Increment(increment) => (moved - increment).abs() > self.least,
        }
    }
}
