//! Novelty: rows of an episode that say something which it has not said yet.
//!
//! An episode lasts while scores are high, which may be long after its cause: memory that a burst took and nobody gives
//! back stays where it is, and a gauge latches after many rows only. Another fault would begin no episode meanwhile. So
//! rows of an episode are judged a second time, without what is known of it.
//!
//! # Rule
//! A column belongs to the episode once it stands out by [`OUT`] deviations, its own or those from what the others let
//! expect, and until it has not done so for [`LEAVES`] rows. Known is what lies between 0 and [`TIMES`] its largest
//! deviation so far, in either direction, and at least [`OUT`]. There it says nothing, and is replaced by what the
//! other columns let expect, like a missing value. Beyond it, the excess counts. All other columns count as they are.
//! The score of what is left is divided by [`CAUTION`], then smoothed, capped and compared with the threshold as that
//! of the row is. Once it has been quiet for as many rows as end an episode, what would begin one begins another. Until
//! it has begun, a row over the threshold does not become known.
//!
//! An indicator, and waiting for too long ([`Saturation`](crate::Saturation)), say something in each of their rows:
//! they begin another episode if they have not been part of this one for as many rows.
//!
//! Longer rows have no part in it: what is known of an episode is of single rows, and an average holds both. So a
//! second fault that only they show begins no other episode.
//!
//! # Memory
//! 21 B for each column, and 4 B for each direction, with [`Settings::novelty`](crate::Settings::novelty).

use crate::aligned::Narrow;
use crate::episode::{Episode, Episodes};
use crate::onsets::Deviations;
use crate::pipeline::Pipeline;
use crate::scorer::{Projection, Scorer};
use crate::settings::Settings;

/// A column stands out at this many deviations.
const OUT: f64 = 3.0;
/// Rows in succession in which a column does not stand out, until it is no longer part of the episode.
const LEAVES: u8 = 10;
/// A column says something new from this many times its largest deviation on. In simulated faults whose strength
/// fluctuates, 1.25 and 1.5 began more second episodes.
const TIMES: f64 = 2.0;
/// The score of what is new is divided by this: there is an alarm already, and a column that is replaced leaves a
/// residual.
const CAUTION: f64 = 1.25;
/// How often columns that say nothing are replaced by what the others let expect: what is left of their residuals falls
/// with each time. Once was too little where many belong to the episode; four times found no more.
const ROUNDS: usize = 2;

/// How a row of an episode was judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpisodeRow {
    /// Whether its smoothed score counts as over γ.
    pub(crate) lasts: bool,
    /// Whether it counts whatever its score: an indicator moved, or waiting takes too long.
    pub(crate) by_itself: bool,
}

/// What is known of the episode that is on, and what the newest row says beyond.
#[derive(Clone, Debug)]
pub(crate) struct Novelty {
    /// Whether an episode is followed.
    on: bool,
    /// On while rows say something new. It begins with the episode; each later beginning is another one's.
    fresh: Episodes,
    /// The smoothed score of what rows say beyond what is known.
    steady: f64,
    /// Per column that belongs to the episode, its largest deviation above 0, and below; otherwise 0. Padded.
    above: Narrow,
    below: Narrow,
    /// Per column, rows since it stood out.
    ordinary: Vec<u8>,
    /// What the newest row says beyond what is known.
    projection: Projection,
    /// Whether another episode began with the newest row.
    begins: bool,
}

impl Novelty {
    /// Of rows that `scorer` judges; `None` if the settings do not ask for it, and for the paper's forms.
    pub(crate) fn of(scorer: &Scorer, settings: &Settings) -> Option<Self> {
        let projection = Projection::of(scorer);
        let (wide, narrow) = (projection.z.len(), projection.residual.len());
        (settings.novelty && scorer.is_scaled()).then(|| Self {
            on: false,
            fresh: Episodes::new(settings.episode),
            steady: 0.0,
            above: Narrow::zeros(narrow),
            below: Narrow::zeros(narrow),
            ordinary: vec![0; wide],
            projection,
            begins: false,
        })
    }

    /// An episode begins with the row that `pipeline` judged last. Never allocates.
    pub(crate) fn begin(&mut self, pipeline: &Pipeline) {
        (self.on, self.begins, self.steady) = (true, false, pipeline.gamma_in_force());
        self.fresh.begin();
        self.above.fill(0.0);
        self.below.fill(0.0);
        self.ordinary.fill(0);
        // What the others let expect is not known: columns belong to it by their own deviations.
        self.projection.z.copy_from_slice(&pipeline.projection.z);
        self.projection.residual.fill(0.0);
        self.know(pipeline);
    }

    /// Processes another row of the episode, which `pipeline` judged last. Returns whether another one begins with it.
    /// O(m k). Never allocates.
    pub(crate) fn step(&mut self, pipeline: &Pipeline, row: EpisodeRow, settings: &Settings) -> bool {
        if !self.on {
            self.begin(pipeline);
            return false;
        }
        let score = self.score(pipeline) / CAUTION;
        let gamma = pipeline.gamma_in_force();
        let threshold = gamma * settings.episode_margin;
        let weight = 2.0 / (settings.smoothing_span + 1.0);
        self.steady += weight * (score.min(gamma * settings.cap()) - self.steady);
        let is_over = row.by_itself || (row.lasts && self.steady >= threshold);
        let was_quiet = self.fresh.rows() == 0;
        self.begins = self.fresh.step(is_over) == Episode::Began;
        let may_begin = was_quiet && !self.begins && (row.by_itself || score >= threshold);
        if !may_begin {
            self.know(pipeline);
        }
        self.begins
    }

    /// No episode is on.
    pub(crate) fn end(&mut self) {
        (self.on, self.begins) = (false, false);
    }

    /// A gap in time before the next row: earlier rows no longer count towards a beginning.
    pub(crate) fn gap(&mut self) {
        self.steady = 0.0;
        self.fresh.gap();
    }

    /// What the newest row says beyond what was known, if another episode began with it.
    pub(crate) fn told(&self) -> Option<&Projection> {
        self.begins.then_some(&self.projection)
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.projection.bytes()
            + size_of::<f32>() * (self.above.len() + self.below.len())
            + self.ordinary.len()
    }

    /// The score of what the newest row says beyond what is known. Finite, at least 0.
    fn score(&mut self, pipeline: &Pipeline) -> f64 {
        let Self { above, below, projection, .. } = self;
        let (above, below, row) = (&*above, &*below, &pipeline.projection.z);
        let known = || above.iter().zip(below.iter()).map(|(above, below)| (f64::from(*above), f64::from(*below)));
        for ((new, z), (above, below)) in projection.z.iter_mut().zip(row.iter()).zip(known()) {
            *new = beyond(*z, above, below);
        }
        let mut square = pipeline.scorer.score(projection);
        let says_nothing = |z: f64, (above, below): (f64, f64)| above > below && beyond(z, above, below) == 0.0;
        let rounds = if row.iter().zip(known()).any(|(z, known)| says_nothing(*z, known)) { ROUNDS } else { 0 };
        for _ in 0..rounds {
            let Projection { z: new, residual, .. } = &mut *projection;
            for (((new, residual), z), known) in new.iter_mut().zip(residual.iter()).zip(row.iter()).zip(known()) {
                if says_nothing(*z, known) {
                    *new -= f64::from(*residual);
                }
            }
            square = pipeline.scorer.score(projection);
        }
        let group = pipeline.group_square(projection);
        (square + pipeline.constant_square()).max(group).sqrt().min(f64::MAX)
    }

    /// The newest row is known from now on.
    fn know(&mut self, pipeline: &Pipeline) {
        let Self { above, below, ordinary, projection, .. } = self;
        let Deviations { z: new, residual, weight, .. } = pipeline.scorer.deviations(projection);
        let least = OUT / TIMES;
        let columns = above.iter_mut().zip(below.iter_mut()).zip(ordinary).zip(pipeline.projection.z.iter());
        let judged = new.iter().zip(residual).zip(weight);
        for ((((above, below), ordinary), z), ((new, residual), weight)) in columns.zip(judged) {
            let off = z - new + f64::from(*residual);
            if z.abs() >= OUT || off * off * f64::from(*weight) >= OUT * OUT {
                *ordinary = 0;
                (*above, *below) = (above.max(z.max(least) as f32), below.min(z.min(-least) as f32));
                continue;
            }
            *ordinary = ordinary.saturating_add(1);
            if *ordinary >= LEAVES {
                (*above, *below) = (0.0, 0.0);
            }
        }
    }
}

/// What `z` says beyond what is known: 0 within, `z` itself for a column that does not belong to the episode.
fn beyond(z: f64, above: f64, below: f64) -> f64 {
    (z - TIMES * above).max(0.0) + (z - TIMES * below).min(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_within_twice_what_was_seen_says_nothing() {
        let seen = |z| beyond(z, 10.0, -4.0);

        assert_eq!([-9.0, -8.0, -1.0, 0.0, 20.0, 25.0].map(seen), [-1.0, 0.0, 0.0, 0.0, 0.0, 5.0]);
    }

    #[test]
    fn a_column_that_does_not_belong_to_the_episode_counts_as_it_is() {
        assert_eq!([-2.5, 0.0, 40.0].map(|z| beyond(z, 0.0, 0.0)), [-2.5, 0.0, 40.0]);
    }

    #[test]
    fn a_column_that_fell_and_then_rises_says_so() {
        assert_eq!(beyond(6.0, 0.0, -30.0), 6.0);
    }
}
