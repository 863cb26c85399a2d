//! Which replica stands out: whose value made a column other than was expected of it.
//!
//! A column is made of one value of each replica. Each has a usual value, its mean in ordinary rows. In proportion to
//! these, what was expected of the column is expected of its replicas. A replica *stands out* if
//!
//! 1. with its expected value in place of its own at least half of the column's deviation is gone,
//! 2. with that of any other one at most half as much is gone,
//! 3. relative to what was expected, it has changed at least twice as much as the others together.
//!
//! Otherwise none does: what happened to all replicas alike names none of them, however large one is.
//!
//! Pure. Nothing is known of a column whose replicas have no usual values yet.

use wire::id::ReplicaId;

use crate::aggregation::Method;

/// Least part of a column's deviation that goes with the replica that stands out.
const MIN_PART: f64 = 0.5;
/// Any other replica explains at most this share of what that one does.
const OTHERS_SHARE: f64 = 0.5;
/// So many times as much it has changed as the others.
const TIMES: f64 = 2.0;
/// Weight of a new value in the usual one.
const NEW_WEIGHT: f64 = 1.0 / 8.0;

/// What was seen of a column, and what was expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deviation {
    pub(crate) seen: f64,
    pub(crate) expected: f64,
}

/// How the values of replicas make the value of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Combination<'a> {
    /// By an aggregation.
    By(&'a Method),
    /// As their mean, weighted: the mean of merged histograms.
    WeightedMean,
    /// As the largest one, about: a high percentile of merged histograms.
    Largest,
}

impl Combination<'_> {
    /// The column's value; NaN if no replica has one. `given` is a buffer.
    fn of(self, values: impl Iterator<Item = f64>, weights: &[f64], given: &mut Vec<f64>) -> f64 {
        match self {
            Self::By(method) => {
                given.clear();
                given.extend(values.filter(|value| !value.is_nan()));
                method.apply(given)
            }
            Self::WeightedMean => {
                let weighted = values.zip(weights).filter(|(value, weight)| !value.is_nan() && **weight > 0.0);
                let add = |(sum, all): (f64, f64), (value, weight): (f64, &f64)| (sum + value * weight, all + weight);
                let (sum, all) = weighted.fold((0.0, 0.0), add);
                sum / all
            }
            Self::Largest => values.fold(f64::NAN, f64::max),
        }
    }
}

/// A replica's usual value after one more ordinary row. NaN is unknown and missing.
pub(crate) fn usual_after(usual: f64, value: f64) -> f64 {
    match (usual.is_nan(), value.is_nan()) {
        (true, _) => value,
        (false, true) => usual,
        (false, false) => usual + (value - usual) * NEW_WEIGHT,
    }
}

/// The values of one column's replicas. Its memory is used again for the next column.
#[derive(Debug, Default)]
pub(crate) struct ReplicaValues {
    replicas: Vec<ReplicaId>,
    /// NaN is missing.
    values: Vec<f64>,
    /// NaN is unknown. While it looks for one that stands out, what is expected of each.
    usual: Vec<f64>,
    weights: Vec<f64>,
    given: Vec<f64>,
}

impl ReplicaValues {
    /// Makes room for `replicas`, so that nothing is allocated later.
    pub(crate) fn reserve(&mut self, replicas: usize) {
        self.clear();
        self.replicas.reserve(replicas);
        for values in [&mut self.values, &mut self.usual, &mut self.weights, &mut self.given] {
            values.clear();
            values.reserve(replicas);
        }
    }

    /// Forgets all values.
    pub(crate) fn clear(&mut self) {
        self.replicas.clear();
        self.values.clear();
        self.usual.clear();
        self.weights.clear();
    }

    /// Adds a replica with its value, its usual one, and the weight of the value.
    pub(crate) fn push(&mut self, replica: ReplicaId, value: f64, usual: f64, weight: f64) {
        self.replicas.push(replica);
        self.values.push(value);
        self.usual.push(usual);
        self.weights.push(weight);
    }

    /// The replica that stands out; the only one, if there is one only; `None` if none does. Changes the usual values.
    /// O(replicas). Allocates nothing if there is room.
    pub(crate) fn outlier(&mut self, combination: Combination<'_>, deviation: Deviation) -> Option<ReplicaId> {
        if let [only] = self.replicas[..] {
            return Some(only);
        }
        let Deviation { seen, expected } = deviation;
        self.set_expected(combination, expected);
        let away = combination.of(self.values.iter().copied(), &self.weights, &mut self.given) - expected;
        let is_above = seen > expected && away > 0.0;
        let is_below = seen < expected && away < 0.0;
        if !(is_above || is_below) {
            return None;
        }
        let parts = self.farthest().map(|of| of.map(|at| (at, self.part(at, combination, (expected, away)))));
        let (at, own, next) = match parts {
            [None, _] => return None,
            [Some((at, own)), None] => (at, own, 0.0),
            [Some((_, less)), Some((at, more))] if more > less => (at, more, less),
            [Some((at, more)), Some((_, less))] => (at, more, less),
        };
        let is_most = own >= MIN_PART && next <= OTHERS_SHARE * own;
        (is_most && self.is_alone(at)).then(|| self.replicas[at])
    }

    /// Makes of each usual value what is expected of the replica: all in proportion, so that together they make
    /// `expected`, if they can. A new replica is expected to do as the others usually do.
    fn set_expected(&mut self, combination: Combination<'_>, expected: f64) {
        let Self { values, usual, weights, given, .. } = self;
        let known = usual.iter().filter(|usual| !usual.is_nan());
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count): (f64, f64), usual| (sum + *usual, count + 1.0));
        let mean = sum / count;
        for (usual, value) in usual.iter_mut().zip(values.iter()) {
            if usual.is_nan() && !value.is_nan() {
                *usual = mean;
            }
        }
        let scale = expected / combination.of(usual.iter().copied(), weights, given);
        if scale.is_finite() && scale > 0.0 {
            for usual in usual.iter_mut() {
                *usual *= scale;
            }
        }
    }

    /// How far the value at `at` is from what is expected of it, by its weight; NaN without a value.
    fn distance(&self, at: usize) -> f64 {
        self.weights[at] * (self.values[at] - self.usual[at]).abs()
    }

    /// The two places with the largest distances.
    fn farthest(&self) -> [Option<usize>; 2] {
        let (mut first, mut second) = (None, None);
        let far = |of: Option<usize>| of.map_or(0.0, |at| self.distance(at));
        for at in 0..self.replicas.len() {
            if self.distance(at) > far(first) {
                (first, second) = (Some(at), first);
            } else if self.distance(at) > far(second) {
                second = Some(at);
            }
        }
        [first, second]
    }

    /// The part of the deviation `away` from `expected` that is gone with the expected value in place of that at `at`.
    fn part(&mut self, at: usize, combination: Combination<'_>, (expected, away): (f64, f64)) -> f64 {
        let Self { values, usual, weights, given, .. } = self;
        let each = values.iter().zip(usual.iter()).enumerate();
        let each = each.map(|(other, (value, usual))| if other == at { *usual } else { *value });
        1.0 - ((combination.of(each, weights, given) - expected) / away).abs()
    }

    /// Whether the replica at `at` has changed so much more than the others.
    fn is_alone(&self, at: usize) -> bool {
        let size = |of: usize| self.weights[of] * self.usual[of].abs();
        let others = (0..self.replicas.len()).filter(|other| *other != at && !self.distance(*other).is_nan());
        let add = |(moved, all): (f64, f64), other| (moved + self.distance(other), all + size(other));
        let (moved, all) = others.fold((0.0, 0.0), add);
        self.distance(at) * all >= TIMES * moved * size(at)
    }
}

#[cfg(test)]
mod tests;
