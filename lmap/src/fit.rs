//! Training: fits a pipeline to rows.
//!
//! Rows from before the detector was armed have no verdict, and may contain a fault. The first fit uses them all. A
//! later fit leaves them out once ten times as many rows have a verdict ([`Settings::unjudged_share`]), and leaves out
//! rows far above γ ([`Settings::left_out_above`]). So a fault during warm-up is in the model until the fit at 2,000
//! rows, not for ever. Letting earlier fits judge the warm-up was tried: it drops start-ups, which happen again.

use crate::aligned::Aligned;
use crate::basis::Basis;
use crate::column::{Column, ColumnKind};
use crate::constants::{Constant, ConstantRule};
use crate::eigen::{NotConverged, Symmetric, symmetric_values};
use crate::estimates::estimates;
use crate::footprint::MIN_SKETCH_ROWS;
use crate::frequent_directions::{FrequentDirections, SketchError};
use crate::groups::Groups;
use crate::history::History;
use crate::kernels::column_gram::ColumnGram;
use crate::kernels::gram::Gram;
use crate::kernels::widest;
use crate::lanes::{add_scaled, padded};
use crate::latch::Latches;
use crate::levels::{adds_up, is_level};
use crate::long_rows::LongRows;
use crate::onsets::Onsets;
use crate::pipeline::Pipeline;
use crate::pools::Pools;
use crate::quantile::{QUANTILES, percentile, sorted};
use crate::rows::{Mark, RowVerdict};
use crate::scorer::{MIN_VARIANCE, Projection, Scorer};
use crate::settings::{ScoreForm, Settings, Threshold};
use crate::standard::{Standard, StandardRule, moments};

/// Share of rows in which an indicator has to stand still, to be judged as one.
const INDICATOR_STILL: f64 = 0.9;

/// The margin of groups over longer rows, as a share of that of rows: an average has no bursts. With the whole margin
/// three of ten recordings of each weakness were missed (`lmap/evaluation/tests/weaknesses`).
const LONG_MARGIN: f64 = 2.0 / 3.0;
/// The least threshold of a group over longer rows, in deviations.
const MIN_LONG_ROOT: f64 = 0.5;
/// The least limit of a group over longer rows: margins are at least 1.
pub(crate) const MIN_LONG_LIMIT: f64 = LONG_MARGIN * MIN_LONG_ROOT;

/// Why a fit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFitted {
    /// Too few rows are usable.
    TooFewRows,
    /// A decomposition failed.
    NotConverged,
}

impl From<NotConverged> for NotFitted {
    fn from(_: NotConverged) -> Self {
        Self::NotConverged
    }
}

impl From<SketchError> for NotFitted {
    fn from(_: SketchError) -> Self {
        Self::NotConverged
    }
}

/// The training rows of one fit.
pub(crate) struct Training<'a> {
    columns: &'a [Column],
    settings: &'a Settings,
    values: Vec<f64>,
    marks: Vec<Mark>,
}

/// What is known of the columns of features.
#[derive(Clone, Copy)]
struct Features<'a> {
    columns: &'a [Column],
    /// Columns that are increments, ascending.
    levels: &'a [u32],
    /// Columns that are estimates, ascending.
    estimates: &'a [u32],
}

/// A fitted pipeline without its threshold, and the scores of its training rows.
struct Core {
    standard: Standard,
    scorer: Scorer,
    history: History,
    scores: Vec<f64>,
}

impl<'a> Training<'a> {
    /// `values` holds rows with one value per column, oldest first, each with its mark. Missing values at the start of
    /// a column are replaced by its first value. An unwatched column counts as always missing.
    pub(crate) fn new(columns: &'a [Column], settings: &'a Settings, mut values: Vec<f64>, marks: Vec<Mark>) -> Self {
        let m = columns.len();
        for (column, spec) in columns.iter().enumerate() {
            if !spec.watched {
                values.iter_mut().skip(column).step_by(m).for_each(|value| *value = f64::NAN);
                continue;
            }
            let first = values.iter().skip(column).step_by(m).copied().find(|value| !value.is_nan());
            let missing = values.iter_mut().skip(column).step_by(m).take_while(|value| value.is_nan());
            missing.for_each(|value| *value = first.unwrap_or(f64::NAN));
        }
        Self { columns, settings, values, marks }
    }

    /// Fits a pipeline to the rows that count as normal, of which there must be `least`.
    ///
    /// O(n m k) for the sketch, and O(min(n, m)³) for choosing k.
    pub(crate) fn fit(&self, least: usize) -> Result<Pipeline, NotFitted> {
        let normal: Vec<bool> = self.marks.iter().map(|mark| mark.verdict == RowVerdict::Normal).collect();
        let possible: Vec<bool> = self.marks.iter().map(|mark| mark.verdict != RowVerdict::Above).collect();
        let unjudged = (count(&possible) - count(&normal)) as f64;
        let judged_alone = count(&normal) >= least && unjudged <= self.settings.unjudged_share * count(&normal) as f64;
        self.fit_to(if judged_alone { &normal } else { &possible }, least)
    }

    fn fit_to(&self, taken: &[bool], least: usize) -> Result<Pipeline, NotFitted> {
        let (n, m) = (count(taken), self.columns.len());
        if n < least.max(2) {
            return Err(NotFitted::TooFewRows);
        }
        let levels = self.levels(taken);
        let mut features = self.features(&levels, taken);
        self.still_indicators(&mut features);
        let estimates = estimates(self.columns, &levels, self.settings.score);
        let of = Features { columns: self.columns, levels: &levels, estimates: &estimates };
        let core = core(&features, of, self.settings.rank, self.settings)?;
        let in_sample = sorted(core.scores.clone());
        let Thresholds { gamma, groups, long_rows } = thresholds(&features, of, &core, &in_sample, self.settings)?;
        let latches = Latches::new(self.columns, &core.standard.roles, &levels, self.settings.latch_rows);
        let constant_rule = ConstantRule {
            weight: self.settings.constant_weight,
            share: self.settings.constant_share * self.settings.episode_margin.powi(2),
            counted: self.settings.constants_counted,
            returns: self.settings.constants_return,
        };
        let pool_rows = self.settings.pool_rows.filter(|_| self.settings.score == ScoreForm::Scaled);
        Ok(Pipeline {
            latches,
            pools: Pools::new(self.columns, &core.standard.roles, &levels, pool_rows),
            constants: Constant::list(self.columns, &core.standard, &levels, constant_rule, pool_rows),
            levels,
            constant_rule,
            projection: Projection::of(&core.scorer),
            onsets: Onsets::new(m),
            groups,
            long_rows,
            sketch_rows: core.history.sketch().sketch_rows(),
            standard: core.standard,
            scorer: core.scorer,
            history: Some(core.history),
            sketch_changed: true,
            gamma,
            factor: 1.0,
            averaged: n,
            quantiles: QUANTILES.map(|percent| percentile(&in_sample, percent)),
            moved: 0,
        })
    }

    /// An indicator that stood still in almost all rows is a constant: in the others there was the fault that it
    /// indicates, which is not normal, and is to be seen again.
    fn still_indicators(&self, features: &mut [f64]) {
        let m = self.columns.len();
        let indicators = self.columns.iter().enumerate().filter(|(_, column)| column.indicator);
        for (column, _) in indicators {
            let values = sorted(features.iter().skip(column).step_by(m).copied().collect());
            let Some(&usual) = values.get(values.len() / 2) else { continue };
            let still = values.iter().filter(|value| **value == usual).count() as f64;
            if still >= INDICATOR_STILL * values.len() as f64 {
                features.iter_mut().skip(column).step_by(m).for_each(|value| *value = usual);
            }
        }
    }

    /// Levels and standardisation of all rows, constants left out, whatever the score's form.
    pub(crate) fn prepare(&self) -> (Vec<u32>, Standard) {
        let all = vec![true; self.marks.len()];
        let levels = self.levels(&all);
        let features = self.features(&levels, &all);
        let standard = Standard::fit(&features, self.columns.len(), standard_rule(self.settings, false));
        let standard = standard.with_errors(&estimates(self.columns, &levels, self.settings.score));
        (levels, standard)
    }

    /// The columns that are levels, as set by the user or found by the rule.
    fn levels(&self, taken: &[bool]) -> Vec<u32> {
        let m = self.columns.len();
        let value = |row: usize, column: usize| self.values[row * m + column];
        let rows = indexes(taken);
        let steps: Vec<usize> =
            rows.iter().copied().filter(|&row| row > 0 && taken[row - 1] && !self.marks[row].restarted).collect();
        let found = |(column, spec): (usize, &Column)| {
            let by_rule = || {
                // An estimate is of a window: its value says all.
                let rule = self.settings.levels.filter(|_| spec.kind == ColumnKind::Gauge && !spec.estimated)?;
                let values: Vec<f64> = rows.iter().map(|&row| value(row, column)).collect();
                let moves: Vec<f64> = steps.iter().map(|&row| value(row, column) - value(row - 1, column)).collect();
                let (mean, deviation) = moments(values.iter().copied());
                let moves_at_all = adds_up(&moves) || deviation > self.settings.constant_below * mean.abs();
                Some(moves_at_all && is_level(&values, &moves, rule))
            };
            spec.level.or_else(by_rule).unwrap_or(false).then_some(column as u32)
        };
        let mut levels: Vec<_> = self.columns.iter().enumerate().filter_map(found).collect();
        levels.shrink_to_fit();
        levels
    }

    /// The selected rows, with levels as increments.
    fn features(&self, levels: &[u32], taken: &[bool]) -> Vec<f64> {
        let m = self.columns.len();
        let mut out = Vec::with_capacity(count(taken) * m);
        for row in indexes(taken) {
            let values = &self.values[row * m..(row + 1) * m];
            let start = out.len();
            out.extend_from_slice(values);
            let restarted = row == 0 || self.marks[row].restarted;
            for &level in levels {
                let column = level as usize;
                let before = if restarted { values[column] } else { self.values[(row - 1) * m + column] };
                out[start + column] = values[column] - before;
            }
        }
        out
    }
}

/// Standardisation, sketch, basis and variances of rows of features. `rank`: k, or `None` to choose it.
fn core(features: &[f64], of: Features<'_>, rank: Option<usize>, settings: &Settings) -> Result<Core, NotFitted> {
    let m = of.columns.len();
    let n = features.len() / m;
    let standard = Standard::fit(features, m, standard_rule(settings, settings.score != ScoreForm::Scaled));
    let standard = standard.with_errors(of.estimates);
    let mut z = vec![0.0; n * padded(m)];
    for (row, z) in features.chunks_exact(m).zip(z.chunks_exact_mut(padded(m))) {
        standard.row(row, z);
    }
    let rank = match rank {
        Some(rank) => rank,
        None => rank_for(&z, m, settings.variance_share)?.min(n / 4),
    };
    let most = settings.sketch_rows.map_or(m, |rows| rows.min(m));
    let rank = rank.min(most.saturating_sub(1)).max(1);
    let sketch_rows = settings.sketch_rows.unwrap_or(MIN_SKETCH_ROWS.max(2 * rank));
    let mut sketch = FrequentDirections::new(m, sketch_rows, settings.sketch)?;
    let basis = empty_basis(rank, m);
    let scorer = Scorer::new(settings.score, settings.residual_floor, &basis, m);
    let mut scorer = scorer.with_errors(&standard.errors(of.estimates), &basis);
    let mut projection = Projection::of(&scorer);
    for z in z.chunks_exact_mut(padded(m)) {
        projection.z.copy_from_slice(z);
        scorer.prepare(&mut projection);
        z.copy_from_slice(&projection.z);
        if sketch.push(&projection.z) {
            sketch.shrink(0)?;
        }
    }
    scorer.set_basis(&sketch.basis(rank)?);
    let (residual, inside) = variances(&scorer, &mut projection, &z);
    scorer.set_variances(&residual, inside);
    let scores = scores_of(&standard, &scorer, features, m);
    Ok(Core { standard, scorer, history: History::of(sketch, &z), scores })
}

fn standard_rule(settings: &Settings, watch_constants: bool) -> StandardRule {
    let Settings { clip, deviation_floor, constant_below, .. } = *settings;
    StandardRule { clip, deviation_floor, constant_below, watch_constants }
}

fn empty_basis(rank: usize, m: usize) -> Basis {
    Basis::new(Aligned::zeros(rank * padded(m)), rank, m)
}

/// The population variances of residuals and coordinates over rows of z.
fn variances(scorer: &Scorer, projection: &mut Projection, z: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let width = projection.z.len();
    let n = (z.len() / width) as f64;
    let (mut mean_residual, mut mean_inside) = (vec![0.0; width], vec![0.0; projection.coordinates.len()]);
    let mut each = |visit: &mut dyn FnMut(&Projection)| {
        for z in z.chunks_exact(width) {
            projection.z.copy_from_slice(z);
            scorer.score(projection);
            visit(projection);
        }
    };
    each(&mut |projection| {
        add_share(&mut mean_residual, 1.0 / n, &projection.residual);
        add_share(&mut mean_inside, 1.0 / n, &projection.coordinates);
    });
    let (mut residual, mut inside) = (vec![0.0; width], vec![0.0; mean_inside.len()]);
    each(&mut |projection| {
        add_squares(&mut residual, &projection.residual, &mean_residual);
        add_squares(&mut inside, &projection.coordinates, &mean_inside);
    });
    for sum in &mut residual {
        *sum /= n;
    }
    for sum in &mut inside {
        *sum = (*sum / n).max(MIN_VARIANCE);
    }
    (residual, inside)
}

fn add_share(sums: &mut [f64], share: f64, values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += share * f64::from(*value);
    }
}

fn add_squares(sums: &mut [f64], values: &[f32], means: &[f64]) {
    for ((sum, value), mean) in sums.iter_mut().zip(values).zip(means) {
        *sum += (f64::from(*value) - mean).powi(2);
    }
}

/// Scores of rows of features, without the constants' part and not smoothed.
fn scores_of(standard: &Standard, scorer: &Scorer, features: &[f64], m: usize) -> Vec<f64> {
    let mut projection = Projection::of(scorer);
    let score = |row| {
        standard.row(row, &mut projection.z);
        scorer.score(&mut projection).sqrt().min(f64::MAX)
    };
    features.chunks_exact(m).map(score).collect()
}

/// Of rows of features, what [`Groups`] compares of each group; then what [`LongRows`] does.
fn roots_of(standard: &Standard, judged: &Thresholds, features: &[f64], m: usize) -> Vec<Vec<f64>> {
    let (count, mut long_rows) = (judged.groups.len(), judged.long_rows.clone());
    let (mut z, mut roots) = (vec![0.0; padded(m)], vec![Vec::new(); 2 * count]);
    for row in features.chunks_exact(m) {
        standard.row(row, &mut z);
        let squares = judged.groups.squares(&z).into_iter().take(count).chain(long_rows.push(&z));
        for (roots, square) in roots.iter_mut().zip(squares) {
            roots.push(square.sqrt());
        }
    }
    roots
}

/// What a fit compares scores, and groups of columns, with.
struct Thresholds {
    gamma: f64,
    groups: Groups,
    long_rows: LongRows,
}

/// γ and the limits of groups by the rule of the settings, with a minimum, since rows of constants alone score 0.
fn thresholds(
    features: &[f64],
    of: Features<'_>,
    core: &Core,
    in_sample: &[f64],
    settings: &Settings,
) -> Result<Thresholds, NotFitted> {
    let Features { columns, levels, .. } = of;
    let m = columns.len();
    let n = features.len() / m;
    let rank = core.scorer.basis.rank();
    let groups = Groups::new(columns);
    let margin = settings.group_margin.filter(|_| settings.score == ScoreForm::Scaled && groups.len() > 1);
    let long_rows = LongRows::new(columns, levels, &groups, settings.long_rows.filter(|_| margin.is_some()));
    let mut judged = Thresholds { gamma: f64::MAX, groups, long_rows };
    let at = |scores: Vec<f64>| percentile(&sorted(scores), settings.percentile);
    let judged_by = |by: &[f64], rows: &[f64]| -> Result<(Vec<f64>, Vec<Vec<f64>>), NotFitted> {
        let judge = self::core(by, of, Some(rank.min(by.len() / m / 4).max(1)), settings)?;
        let roots = margin.map(|_| roots_of(&judge.standard, &judged, rows, m));
        Ok((scores_of(&judge.standard, &judge.scorer, rows, m), roots.unwrap_or_default()))
    };
    let own = percentile(in_sample, settings.percentile);
    let is_capped = settings.gamma_cap < f64::MAX;
    let unseen = if is_capped || settings.threshold == Threshold::Crosswise {
        unseen(features, of, core, settings)?
    } else {
        1.0
    };
    let others = match settings.threshold {
        Threshold::InSample => None,
        Threshold::Crosswise => {
            let (first, second) = features.split_at(n / 2 * m);
            let (mut scores, mut roots) = judged_by(first, second)?;
            let (more_scores, more_roots) = judged_by(second, first)?;
            scores.extend(more_scores);
            roots.iter_mut().zip(more_roots).for_each(|(all, more)| all.extend(more));
            Some((scores, roots))
        }
        Threshold::HeldOutTail => {
            let (head, tail) = features.split_at(n * 4 / 5 * m);
            Some(judged_by(head, tail)?)
        }
    };
    let (others, roots_of_others) = others.map_or((None, Vec::new()), |(scores, roots)| (Some(at(scores)), roots));
    let gamma = threshold(settings.threshold, own, others);
    let gamma = if settings.threshold == Threshold::Crosswise { gamma.max(own * unseen) } else { gamma };
    let cap = if is_capped { settings.gamma_cap * unseen * percentile(in_sample, 50.0) } else { f64::MAX };
    // Estimates may all be off at once: those of who is there count the same clients.
    let least = if settings.score == ScoreForm::Scaled { core.scorer.error_square().sqrt().max(1.0) } else { 1e-6 };
    let gamma = gamma.min(cap).clamp(least, f64::MAX);
    let Some(margin) = margin else { return Ok(Thresholds { gamma, ..judged }) };
    let own = roots_of(&core.standard, &judged, features, m);
    let mut others = roots_of_others.into_iter().map(at);
    let mut found = own.into_iter().map(|own| threshold(settings.threshold, at(own), others.next()));
    let limits = found.by_ref().take(judged.groups.len()).map(|root| margin * root.max(1.0)).collect();
    judged.long_rows =
        judged.long_rows.limited(found.map(|root| LONG_MARGIN * margin * root.max(MIN_LONG_ROOT)).collect());
    Ok(Thresholds { gamma, groups: judged.groups.limited(limits), ..judged })
}

/// One threshold of the percentiles of rows in sample, and of rows that `others` judged.
fn threshold(rule: Threshold, own: f64, others: Option<f64>) -> f64 {
    match (rule, others) {
        (Threshold::Crosswise, Some(cross)) => (own * cross).sqrt(),
        (Threshold::HeldOutTail, Some(tail)) => tail,
        (_, None) | (Threshold::InSample, _) => own,
    }
}

/// The factor by which unseen rows score higher: every n-th row is scored by a fit to the others. The median over these
/// rows, since rare rows say more about tails than about the fit. At least 1, and close to 1 with many rows per column.
fn unseen(features: &[f64], of: Features<'_>, core: &Core, settings: &Settings) -> Result<f64, NotFitted> {
    let m = of.columns.len();
    let every = settings.held_out_every;
    if every == 0 {
        return Ok(1.0);
    }
    let rows_out = (features.len() / m).div_ceil(every);
    let mut left_out = Vec::with_capacity(rows_out * m);
    let mut seen = Vec::with_capacity(features.len() - left_out.capacity().min(features.len()));
    for (index, row) in features.chunks_exact(m).enumerate() {
        if index % every == 0 { &mut left_out } else { &mut seen }.extend_from_slice(row);
    }
    let judge = self::core(&seen, of, Some(core.scorer.basis.rank()), settings)?;
    let scores = scores_of(&judge.standard, &judge.scorer, &left_out, m);
    let pairs = scores.iter().zip(core.scores.iter().step_by(every)).filter(|(_, seen)| **seen > 0.0);
    let ratios = sorted(pairs.map(|(unseen, seen)| unseen / seen).collect());
    Ok(if ratios.is_empty() { 1.0 } else { percentile(&ratios, 50.0).max(1.0) })
}

/// The least number of directions that explain `share` of the variance of padded rows of m values.
fn rank_for(z: &[f64], m: usize, share: f64) -> Result<usize, NotConverged> {
    let width = padded(m);
    let n = z.len() / width;
    let mut mean = vec![0.0; width];
    z.chunks_exact(width).for_each(|row| add_scaled(&mut mean, 1.0 / n as f64, row));
    let mut centred = z.to_vec();
    centred.chunks_exact_mut(width).for_each(|row| add_scaled(row, -1.0, &mean));
    let size = n.min(m);
    let mut gram = Symmetric::new(size);
    if n < m {
        let stride = gram.stride();
        widest(Gram { rows: &centred, width, known: 0, out: gram.values_mut(), stride });
    } else {
        widest(ColumnGram { rows: &centred, width, out: gram.values_mut() });
    }
    let values = symmetric_values(gram)?;
    let total: f64 = values.iter().map(|value| value.max(0.0)).sum();
    let mut explained = 0.0;
    let short = values.iter().take_while(|value| {
        explained += value.max(0.0);
        explained < share * total
    });
    Ok(short.count() + 1)
}

fn count(taken: &[bool]) -> usize {
    taken.iter().filter(|&&taken| taken).count()
}

fn indexes(taken: &[bool]) -> Vec<usize> {
    taken.iter().enumerate().filter(|(_, taken)| **taken).map(|(row, _)| row).collect()
}
