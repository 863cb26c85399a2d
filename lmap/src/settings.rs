//! Every constant of the pipeline as a field, with its default.
//!
//! The defaults were chosen on three data sets, one configuration for all; `docs/reproduction/detection.md` says what
//! such a choice is worth on data that it has not seen. [`Settings::paper`] is the pipeline as μView (Sec. 4.4)
//! describes it.

use thiserror::Error;

/// Every so many rows one is learnt.
const STRIDE: u32 = 5;
const MAX_STRIDE: f64 = 1e9;
/// Rows shorter than this, in seconds, are learnt as often as rows of this length.
const LEARNT_BY_TIME: f64 = 0.1;
/// Most rows that [`Settings::lasting`] averages into a longer one.
const MAX_LONG_ROWS: f64 = 10.0;
/// For so long the growth of a pool says nothing, and an alarm that begins with more load waits, in seconds.
const PATIENCE_SECONDS: f64 = 2.0;
/// The cap on a single row's score, as a multiple of the episode margin, at least: about as with rows of 100 ms.
const CAP_OVER_MARGIN: f64 = 4.0 / 3.0;

/// How a row's score is computed from its coordinates p = Uᵀz and its residual r = z − U p.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScoreForm {
    /// √(Σ rⱼ²/Vⱼ + Σ pᵢ²/Tᵢ + constants): residuals and coordinates in units of their own variance.
    Scaled,
    /// ‖r‖ (μView, Eq. 4.1). A column that was constant in training counts in its own unit.
    PaperAbsolute,
    /// ‖r‖ of the row scaled to unit length, in \[0, 1\]; 0 for a zero row.
    PaperRelative,
}

/// How often Frequent Directions decomposes its sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SketchForm {
    /// 2l rows, decomposed when full: O(m l) amortised per row.
    Buffered,
    /// l rows, decomposed at every row, as in the paper: O(m l²) per row.
    RowWise,
}

/// The training scores from whose percentile P the threshold γ is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threshold {
    /// √(P(in sample) · P(crosswise)). The former is too low; the latter, each half scored by a fit to the other, is
    /// too high. At least P(in sample) times the factor by which unseen rows score higher (see
    /// [`Settings::held_out_every`]).
    Crosswise,
    /// Scores of the rows that the basis was trained on: optimistic.
    InSample,
    /// Scores of the last fifth of the rows, by a fit to the first four fifths.
    HeldOutTail,
}

/// When a gauge is a *level*: it drifts or latches (resident memory, peaks) and is therefore judged by its increments.
///
/// With d the differences of the column x over training: `mean(d²) < roughness · var(x)` **and** one of: more than
/// `one_way` of the moves (d ≠ 0) have one sign; the means of the two halves are further apart than the root of the
/// mean of their variances; more than `latched` of the d are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelRule {
    /// Minimum number of training rows. Default: 120.
    pub rows: usize,
    /// Bound on mean(d²) / var(x). Default: 0.6.
    pub roughness: f64,
    /// Share of moves of one sign, in \[0, 1\]. Default: 0.8.
    pub one_way: f64,
    /// Share of rows without a move, in \[0, 1\]. Default: 0.9.
    pub latched: f64,
}

impl Default for LevelRule {
    fn default() -> Self {
        Self { rows: 120, roughness: 0.6, one_way: 0.8, latched: 0.9 }
    }
}

/// When rows over γ become an episode: an alarm that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeRule {
    /// Rows over γ, of the last `of`, that begin an episode. Default: 2.
    pub need: u32,
    /// Length of the window in rows, at most 64. Default: 3.
    pub of: u32,
    /// Consecutive quiet rows that end an episode. Default: 5.
    pub quiet: u32,
}

impl Default for EpisodeRule {
    fn default() -> Self {
        Self { need: 2, of: 3, quiet: 5 }
    }
}

/// Adjusts γ slowly towards a rate of alarms. It controls the long-run rate and cannot tell true alarms from false
/// ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlarmBudget {
    /// Target: rows per alarm, for instance 2,000.
    pub rows_per_alarm: f64,
    /// ln γ rises by this when an episode begins, and falls by step / rows_per_alarm per row outside. Default: 0.1.
    pub step: f64,
    /// Lower bound of the factor on γ. Default: 0.5.
    pub lowest: f64,
    /// Upper bound of the factor on γ. Default: 2.
    pub highest: f64,
}

impl AlarmBudget {
    /// One alarm in `rows` rows, with the default step and bounds.
    #[must_use]
    pub const fn one_in(rows: f64) -> Self {
        Self { rows_per_alarm: rows, step: 0.1, lowest: 0.5, highest: 2.0 }
    }

    /// `alarms` alarms per day with one row every `interval` seconds; at most one per row.
    #[must_use]
    pub fn per_day(alarms: f64, interval: f64) -> Self {
        Self::one_in((DAY / (alarms * interval)).clamp(1.0, 1e12))
    }
}

/// Seconds per day.
const DAY: f64 = 86_400.0;
/// Most rows of a sketch that can be set.
pub(crate) const MAX_SKETCH_ROWS: usize = 8_192;

/// The settings of one detector. [`Detector::new`](crate::Detector::new) validates them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How the score is computed. Default: [`ScoreForm::Scaled`].
    pub score: ScoreForm,
    /// How often the sketch is decomposed. Default: [`SketchForm::Buffered`].
    pub sketch: SketchForm,
    /// Rank k of the basis. `None`, the default: the least that explains [`variance_share`](Self::variance_share), at
    /// most a quarter of the training rows. Always limited to m − 1 and l − 1, at least 1.
    pub rank: Option<usize>,
    /// Rows l of the sketch. `None`, the default: max(25, 2k).
    pub sketch_rows: Option<usize>,
    /// Share of the training variance that the basis explains, in (0, 1\]. Default: 0.95.
    pub variance_share: f64,
    /// Soft clip: standardised values grow like a logarithm beyond this, in \[1, 1e12\]. Default: 50.
    pub clip: f64,
    /// Minimum of a column's deviation, as a share of its range in training, in \[0, 1\]. Default: 0.05.
    pub deviation_floor: f64,
    /// A column is a constant if its deviation is at most this share of its mean, in \[0, 1\]; for a column that
    /// accumulates, the same of its increments. Default: 0.0005. The memory of an idle process moves by less than that,
    /// and would otherwise raise an alarm at the next 100 KB.
    pub constant_below: f64,
    /// Minimum of a residual's deviation, in \[1e-6, 1e6\] standardised units. Default: 0.05.
    pub residual_floor: f64,
    /// What a column that was constant in training counts for when it moves, in deviations; at least 0. Default: 5.
    pub constant_weight: f64,
    /// What such a column counts for at least, as a share of γ² (including the episode margin). Default: 1, so that a
    /// constant that keeps moving is an alarm by itself. One that moves once is not, since smoothing halves it.
    pub constant_share: f64,
    /// Maximum number of moving constants that count in one row. Default: 3.
    pub constants_counted: u32,
    /// Whether a constant's return to its value of training counts as a move. Default: false, since one burst of page
    /// faults would be two moves, and an alarm. The reference of `tests/oracle` counts it.
    pub constants_return: bool,
    /// Span n of the exponential smoothing, with weight 2 / (n + 1) for a new row, in \[1, 1000\]; 1: none. Default: 3.
    pub smoothing_span: f64,
    /// The scores that γ is computed from. Default: [`Threshold::Crosswise`].
    pub threshold: Threshold,
    /// Every n-th training row is held out once, to measure how much higher unseen rows score; at least 2, or 0 for
    /// never. Default: 5. With few rows per metric unseen rows score up to half as much again. Crosswise γ does not
    /// show it, since its halves have even fewer rows. The reference of `tests/oracle` does not do this.
    pub held_out_every: usize,
    /// Percentile q of the training scores for γ, in (0, 100\]. Default: 99.
    pub percentile: f64,
    /// Every n-th row is learnt, at least 1. Default: 5.
    pub stride: u32,
    /// Learning rate η: probability that a row above γ is learnt all the same, in \[0, 1\]. Default: 0.01.
    pub learning_rate: f64,
    /// Whether V and T are computed anew with every basis, so that a basis is never used with the variances of the one
    /// before. Default: true. The reference of `tests/oracle` keeps them, as do the paper's forms, which do not use
    /// them.
    pub renew_variances: bool,
    /// Maximum growth of any variance between two decompositions (l + 1 rows learnt), as a factor of at least 1. Rows
    /// that would exceed it are learnt with a smaller weight. Applies after the last scheduled fit, once averages have
    /// grown to [`growth_rows`](Self::growth_rows). Default: 1.05, so that an attacker can teach the detector by at
    /// most 5 % of a variance per l + 1 rows, see `guard.rs`. `f64::MAX`: no limit. No effect unless V and T are
    /// renewed.
    pub variance_growth: f64,
    /// Means and variances keep averaging over learnt rows until this many are in them; 0: never. Default: 2,000.
    pub growth_rows: usize,
    /// γ is at most this many times the median score of rows that were not learnt, at least 1. Without it, one burst
    /// while learning (a vacuum, a checkpoint) puts γ where only a catastrophe reaches it. Default: `f64::MAX`, no cap;
    /// the NIC agent sets 5. Rows like that burst are over γ then, but a single row is no episode.
    pub gamma_cap: f64,
    /// How many times the threshold of its own deviations, found as γ is, a group of columns
    /// ([`Column::group`](crate::Column::group)) reaches before its row counts as much as a row at γ. `None`: groups
    /// are not judged, nor is a single group, nor any in the paper's forms. Default: `None`; the NIC agent sets 3.
    pub group_margin: Option<f64>,
    /// So many rows are averaged into a longer one, at least 2, whose groups of columns are judged like those of a row
    /// (see `long_rows.rs`); with [`group_margin`](Self::group_margin) only. `None`: none. Default: `None`; where
    /// groups are judged [`lasting`](Self::lasting) sets what makes a second, at most 10.
    pub long_rows: Option<usize>,
    /// The first rows of a service are not learnt: it allocates memory and fills caches, and a few such rows would
    /// determine the deviation of those columns. Default: 0; the NIC agent, which sees services start, sets 20.
    pub settle_rows: u64,
    /// Rows before a first fit, without levels, whose verdicts are provisional. `None`: no such fit. Default: 60.
    pub provisional_rows: Option<usize>,
    /// Rows before the detector is armed, and minimum of every other fit. At least 8. Default: 120.
    pub warm_up_rows: usize,
    /// Numbers of rows at which the detector fits again, ascending. Default: 600 and 2,000.
    pub fit_again_rows: Vec<usize>,
    /// A later fit leaves out rows whose score was at least this many times γ, at least 1. Default: 2. Leaving out all
    /// rows above γ would lower γ at every fit, and raised false alarms on all data sets.
    pub left_out_above: f64,
    /// A later fit leaves out the rows from before the detector was armed, which may contain a fault, once they are at
    /// most this share of the others, in \[0, 1\]. Default: 0.1. Not earlier, since they often contain a start-up that
    /// will happen again.
    pub unjudged_share: f64,
    /// Raw rows kept once learning is over: 0, the default, or at least [`warm_up_rows`](Self::warm_up_rows). With kept
    /// rows, [`Detector::fit_again`](crate::Detector::fit_again) fits at once; without, it collects rows first.
    pub rows_kept: usize,
    /// Rows buffered while a job is in flight. Default: 6, which at the default stride is 30 rows; a decomposition
    /// takes less than a millisecond.
    pub spare_rows: usize,
    /// When a gauge is a level. `None`: never, unless the user sets it. Default: [`LevelRule::default`].
    pub levels: Option<LevelRule>,
    /// A gauge that rests at another value for this many rows, at least 1, gets that value as a second centre (see
    /// `latch.rs`). `None`, the default: never. Set it only where gauges are known to be states: where rates are given
    /// as gauges (as in the Server Machine Dataset), long faults become normal (AUC-PR there .66 to .48; no loss where
    /// kinds are known). The NIC agent, which knows kinds, sets 60.
    pub latch_rows: Option<usize>,
    /// For so many rows the growth of a pool ([`Column::pool`](crate::Column::pool)) says nothing, at least 1 (see
    /// `pools.rs`). `None`: growth counts at once. No effect in the paper's forms. Default: `None`; where gauges latch
    /// [`lasting`](Self::lasting) sets what makes two seconds, from 3 to 200.
    pub pool_rows: Option<usize>,
    /// For at most so many rows an episode waits that would begin while load ([`Column::load`](crate::Column::load))
    /// is up, at least 2: an overload that passes is no alarm (see `load.rs`). `None`: none waits. No effect in the
    /// paper's forms. Default: `None`; for rows of at most half a second, where gauges latch,
    /// [`lasting`](Self::lasting) sets what makes two seconds, at most 200.
    pub load_rows: Option<usize>,
    /// Cap on a single row's score for episodes, as a multiple of γ, at least 1. Default: 2, so that a single row,
    /// however extreme, is no episode, and two are. With an [`episode_margin`](Self::episode_margin) above 1, at least
    /// 4/3 of that counts.
    pub episode_cap: f64,
    /// Factor on γ for episodes, at least 1. Short intervals need more, since operators tolerate false alarms per hour,
    /// not per row. Default: 1; the NIC agent sets it by the interval, see [`every`](Self::every).
    pub episode_margin: f64,
    /// When rows over γ become an episode.
    pub episode: EpisodeRule,
    /// Whether another episode begins within one that is on, by a row that says something which the episode has not
    /// said yet (see `novelty.rs`). Otherwise what lasts hides what comes next. No effect in the paper's forms.
    /// Default: false, since labelled data have one event at a time; the NIC agent sets it.
    pub novelty: bool,
    /// Adjusts γ towards a rate of alarms. Default: `None`.
    pub budget: Option<AlarmBudget>,
    /// An episode of this many rows, at least 1, counts as drift, not as a fault. Default: 600.
    pub drift_rows: usize,
    /// An episode of this many rows makes the detector fit again by itself; needs [`rows_kept`](Self::rows_kept).
    /// Default: `None`, since a long fault would become the new normal.
    pub automatic_fit_rows: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            score: ScoreForm::Scaled,
            sketch: SketchForm::Buffered,
            rank: None,
            sketch_rows: None,
            variance_share: 0.95,
            clip: 50.0,
            deviation_floor: 0.05,
            constant_below: 0.0005,
            residual_floor: 0.05,
            constant_weight: 5.0,
            constant_share: 1.0,
            constants_counted: 3,
            constants_return: false,
            smoothing_span: 3.0,
            threshold: Threshold::Crosswise,
            held_out_every: 5,
            percentile: 99.0,
            stride: STRIDE,
            learning_rate: 0.01,
            renew_variances: true,
            variance_growth: 1.05,
            growth_rows: 2_000,
            gamma_cap: f64::MAX,
            group_margin: None,
            long_rows: None,
            settle_rows: 0,
            provisional_rows: Some(60),
            warm_up_rows: 120,
            fit_again_rows: vec![600, 2_000],
            left_out_above: 2.0,
            unjudged_share: 0.1,
            rows_kept: 0,
            spare_rows: 6,
            levels: Some(LevelRule::default()),
            latch_rows: None,
            pool_rows: None,
            load_rows: None,
            episode_cap: 2.0,
            episode_margin: 1.0,
            episode: EpisodeRule::default(),
            novelty: false,
            budget: None,
            drift_rows: 600,
            automatic_fit_rows: None,
        }
    }
}

impl Settings {
    /// The pipeline of μView, Sec. 4.4, with an absolute or relative score: practically no clip, no floor, no levels,
    /// no smoothing, 90 % of the variance, γ in sample, every row below γ is learnt and none above.
    #[must_use]
    pub fn paper(score: ScoreForm) -> Self {
        Self {
            score,
            variance_share: 0.9,
            clip: 1e12,
            deviation_floor: 0.0,
            constant_below: 0.0,
            smoothing_span: 1.0,
            threshold: Threshold::InSample,
            stride: 1,
            learning_rate: 0.0,
            renew_variances: false,
            growth_rows: 0,
            levels: None,
            constant_share: 0.0,
            latch_rows: None,
            ..Self::default()
        }
    }

    /// For a live service that is watched from its start, with known metric kinds and a row every `interval` seconds:
    /// gauges latch after 60 rows, the first 20 rows are not learnt, γ is at most 5 times the usual score, groups are
    /// judged at 3 times their own threshold, what is new begins another episode within one, and episodes have the
    /// margin of [`every`](Self::every). Without [`lasting`](Self::lasting).
    #[must_use]
    pub fn live(interval: f64) -> Self {
        let latch_rows = Some(60);
        let (gamma_cap, group_margin) = (5.0, Some(3.0));
        Self { latch_rows, settle_rows: 20, gamma_cap, group_margin, novelty: true, ..Self::default() }.every(interval)
    }

    /// Raises the episode margin for a row every `interval` seconds: by 0.15 γ for every halving of the interval below
    /// 1 s. Otherwise ten times the rows would be ten times the false alarms per hour. Faults score several times γ.
    ///
    /// Raises the stride for rows below 100 ms, so that as many rows are learnt in a second as at 100 ms: what is
    /// normal changes with time, and not with the number of rows. In the default form only: the paper's learn every
    /// row. Longer rows, and a longer stride, are as they were.
    #[must_use]
    pub fn every(self, interval: f64) -> Self {
        let margin = 1.0 + 0.15 * (-interval.log2()).max(0.0);
        let learns_by_time = interval < LEARNT_BY_TIME && self.score == ScoreForm::Scaled;
        let rows = (LEARNT_BY_TIME / interval * f64::from(STRIDE)).round().min(MAX_STRIDE);
        let stride = if learns_by_time { self.stride.max(rows as u32) } else { self.stride };
        Self { episode_margin: self.episode_margin.max(margin), stride, ..self }
    }

    /// What lasts counts (D79), with a row every `interval` seconds: longer rows of a second, at most 10 of up to half
    /// a second, and patience of two seconds with pools, for such rows also with load (D91). The NIC agent sets it
    /// after [`every`](Self::every).
    #[must_use]
    pub fn lasting(self, interval: f64) -> Self {
        let in_a_second = (1.0 / interval + 1e-9).floor().min(MAX_LONG_ROWS);
        let is_short = in_a_second >= 2.0;
        let is_averaged = self.group_margin.is_some() && is_short;
        let long_rows = self.long_rows.max(is_averaged.then_some(in_a_second as usize));
        let patience = (PATIENCE_SECONDS / interval).round().clamp(3.0, 200.0) as usize;
        let patience = self.latch_rows.map(|_| patience);
        let (pool_rows, load_rows) = (self.pool_rows.max(patience), self.load_rows.max(patience.filter(|_| is_short)));
        Self { long_rows, pool_rows, load_rows, ..self }
    }

    /// The cap on a single row's score for episodes in force, as a multiple of γ. A margin near the cap would be out of
    /// reach, however long a fault lasts: then the cap is as far above the margin as it is with rows of 100 ms.
    pub(crate) fn cap(&self) -> f64 {
        let above_margin = if self.episode_margin > 1.0 { CAP_OVER_MARGIN * self.episode_margin } else { 0.0 };
        self.episode_cap.max(above_margin)
    }

    /// Validates the settings: every field must be in its range.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] names the first field that is not.
    pub fn checked(self) -> Result<Self, SettingsError> {
        self.check_pipeline()?;
        self.check_learning()?;
        self.check_alarms()?;
        Ok(self)
    }

    /// The number of rows at the last scheduled fit.
    pub(crate) fn last_fit_rows(&self) -> usize {
        self.fit_again_rows.last().copied().unwrap_or(self.warm_up_rows)
    }

    fn check_pipeline(&self) -> Result<(), SettingsError> {
        in_range("variance_share", self.variance_share, f64::MIN_POSITIVE, 1.0)?;
        in_range("clip", self.clip, 1.0, 1e12)?;
        in_range("deviation_floor", self.deviation_floor, 0.0, 1.0)?;
        in_range("constant_below", self.constant_below, 0.0, 1.0)?;
        in_range("residual_floor", self.residual_floor, 1e-6, 1e6)?;
        in_range("constant_weight", self.constant_weight, 0.0, 1e6)?;
        in_range("constant_share", self.constant_share, 0.0, 1e3)?;
        in_range("smoothing_span", self.smoothing_span, 1.0, 1e3)?;
        if self.held_out_every != 0 {
            in_range("held_out_every", self.held_out_every as f64, 2.0, 1e5)?;
        }
        in_range("percentile", self.percentile, f64::MIN_POSITIVE, 100.0)?;
        if let (Some(rank), Some(rows)) = (self.rank, self.sketch_rows)
            && rank >= rows
        {
            return Err(SettingsError::Rank { rank, rows });
        }
        if let Some(rank) = self.rank {
            in_range("rank", rank as f64, 1.0, 4096.0)?;
        }
        if let Some(rows) = self.sketch_rows {
            in_range("sketch_rows", rows as f64, 2.0, MAX_SKETCH_ROWS as f64)?;
        }
        let Some(rule) = self.levels else { return Ok(()) };
        in_range("levels.roughness", rule.roughness, 0.0, 4.0)?;
        in_range("levels.one_way", rule.one_way, 0.0, 1.0)?;
        in_range("levels.latched", rule.latched, 0.0, 1.0)
    }

    fn check_learning(&self) -> Result<(), SettingsError> {
        in_range("stride", f64::from(self.stride), 1.0, MAX_STRIDE)?;
        in_range("learning_rate", self.learning_rate, 0.0, 1.0)?;
        in_range("variance_growth", self.variance_growth, 1.0, f64::MAX)?;
        in_range("warm_up_rows", self.warm_up_rows as f64, 8.0, 1e5)?;
        in_range("left_out_above", self.left_out_above, 1.0, 1e12)?;
        in_range("unjudged_share", self.unjudged_share, 0.0, 1.0)?;
        in_range("spare_rows", self.spare_rows as f64, 0.0, 1e4)?;
        if let Some(rows) = self.provisional_rows {
            in_range("provisional_rows", rows as f64, 8.0, self.warm_up_rows as f64 - 1.0)?;
        }
        let mut before = self.warm_up_rows;
        for &rows in &self.fit_again_rows {
            in_range("fit_again_rows", rows as f64, before as f64 + 1.0, 1e5)?;
            before = rows;
        }
        in_range("gamma_cap", self.gamma_cap, 1.0, f64::MAX)?;
        if let Some(margin) = self.group_margin {
            in_range("group_margin", margin, 1.0, 1e6)?;
        }
        if let Some(rows) = self.long_rows {
            in_range("long_rows", rows as f64, 2.0, crate::long_rows::MAX_ROWS as f64)?;
        }
        if let Some(rows) = self.latch_rows {
            in_range("latch_rows", rows as f64, 1.0, 1e9)?;
        }
        if let Some(rows) = self.pool_rows {
            in_range("pool_rows", rows as f64, 1.0, 1e4)?;
        }
        if let Some(rows) = self.load_rows {
            in_range("load_rows", rows as f64, 2.0, 1e4)?;
        }
        if self.rows_kept > 0 {
            in_range("rows_kept", self.rows_kept as f64, self.warm_up_rows as f64, 1e5)?;
        }
        Ok(())
    }

    fn check_alarms(&self) -> Result<(), SettingsError> {
        in_range("episode.of", f64::from(self.episode.of), 1.0, 64.0)?;
        in_range("episode.need", f64::from(self.episode.need), 1.0, f64::from(self.episode.of))?;
        in_range("episode.quiet", f64::from(self.episode.quiet), 1.0, 1e9)?;
        in_range("episode_margin", self.episode_margin, 1.0, 1e3)?;
        in_range("episode_cap", self.episode_cap, 1.0, f64::MAX)?;
        in_range("drift_rows", self.drift_rows as f64, 1.0, 1e12)?;
        if let Some(rows) = self.automatic_fit_rows {
            in_range("automatic_fit_rows", rows as f64, 1.0, 1e12)?;
            in_range("rows_kept", self.rows_kept as f64, self.warm_up_rows as f64, 1e5)?;
        }
        let Some(budget) = self.budget else { return Ok(()) };
        in_range("budget.rows_per_alarm", budget.rows_per_alarm, 1.0, 1e12)?;
        in_range("budget.step", budget.step, 1e-6, 10.0)?;
        in_range("budget.lowest", budget.lowest, 1e-3, 1.0)?;
        in_range("budget.highest", budget.highest, 1.0, 1e3)
    }
}

/// A setting outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The named field is not between the two bounds, or not a number.
    #[error("{field} is {found}, it must be {}", bounds(*.least, *.most))]
    Range {
        /// The field of [`Settings`].
        field: &'static str,
        /// The value found.
        found: f64,
        /// The minimum; the least positive number if the value must be above 0.
        least: f64,
        /// The maximum; the greatest number if there is none.
        most: f64,
    },
    /// A sketch of l rows holds a basis of at most l − 1 directions.
    #[error("rank {rank} does not fit into a sketch of {rows} rows, it must be below")]
    Rank {
        /// The rank k requested.
        rank: usize,
        /// The rows l of the sketch.
        rows: usize,
    },
}

/// The range in words: the least and the greatest `f64` have hundreds of digits.
fn bounds(least: f64, most: f64) -> String {
    match (least == f64::MIN_POSITIVE, most == f64::MAX) {
        (true, true) => "above 0".to_owned(),
        (true, false) => format!("above 0 and at most {most}"),
        (false, true) => format!("{least} or more"),
        (false, false) => format!("from {least} to {most}"),
    }
}

fn in_range(field: &'static str, found: f64, least: f64, most: f64) -> Result<(), SettingsError> {
    if !(least <= found && found <= most) {
        return Err(SettingsError::Range { field, found, least, most });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
