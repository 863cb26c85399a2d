//! Every constant of the pipeline as a field, with its default.
//!
//! The defaults are those that did best on three public data sets when nobody tunes anything; [`Settings::paper`] is
//! the pipeline as uView (Sec. 4.4) describes it.

use thiserror::Error;

/// How a row's score is formed from its coordinates p = Uᵀz and its residual r = z − U p.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScoreForm {
    /// sqrt(Σ rⱼ²/Vⱼ + Σ pᵢ²/Tᵢ + constants): residuals and coordinates in units of their own variance.
    Scaled,
    /// ‖r‖ (uView, Eq. 4.1). A column that was constant in training counts in its own unit.
    PaperAbsolute,
    /// ‖r‖ of the row scaled to unit length, in \[0, 1\]; 0 for a zero row.
    PaperRelative,
}

/// How often Frequent Directions decomposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SketchForm {
    /// 2l rows, decomposed when full: O(m l) amortised per row.
    Buffered,
    /// l rows, decomposed at every row, as in the paper: O(m l²) per row.
    RowWise,
}

/// Which scores of training rows γ is the percentile of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threshold {
    /// sqrt(P(in sample) · P(crosswise)): the first is too low, the second, each half judged by the other, too high. At least P(in sample)
    /// times what a row scores more that the fit has not seen (see [`Settings::held_out_every`]).
    Crosswise,
    /// Of the rows that the basis was trained on: optimistic.
    InSample,
    /// Of the last fifth, judged by a basis from the first four fifths.
    HeldOutTail,
}

/// When a gauge is a *level*: it drifts or latches (resident memory, peaks), and is judged by its increments.
///
/// With d the differences of the column x over training: `mean(d²) < roughness · var(x)` **and** one of: more than
/// `one_way` of the moves (d ≠ 0) have one sign; the means of the two halves are further apart than the root of the
/// mean of their variances; more than `latched` of the d are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelRule {
    /// Training rows below which no level is looked for. 120.
    pub rows: usize,
    /// Bound on mean(d²) / var(x). 0.6.
    pub roughness: f64,
    /// Share of moves of one sign, in \[0, 1\]. 0.8.
    pub one_way: f64,
    /// Share of rows without a move, in \[0, 1\]. 0.9.
    pub latched: f64,
}

impl Default for LevelRule {
    fn default() -> Self {
        Self { rows: 120, roughness: 0.6, one_way: 0.8, latched: 0.9 }
    }
}

/// When rows in alarm become an episode, the thing that an operator hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeRule {
    /// Rows in alarm, of the last `of`, that begin one. 2.
    pub need: u32,
    /// Rows looked back at, at most 64. 3.
    pub of: u32,
    /// Quiet rows in sequence that end it. 5.
    pub quiet: u32,
}

impl Default for EpisodeRule {
    fn default() -> Self {
        Self { need: 2, of: 3, quiet: 5 }
    }
}

/// Steers γ slowly towards a number of alarms. It keeps the long-run rate, and cannot tell true alarms from false.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlarmBudget {
    /// Rows per alarm that are wanted, for instance 2,000.
    pub rows_per_alarm: f64,
    /// What ln γ rises by when an episode begins; it falls by step / rows_per_alarm per row outside. 0.1.
    pub step: f64,
    /// γ never falls below this times its first value. 0.5.
    pub lowest: f64,
    /// γ never rises above this times its first value. 2.
    pub highest: f64,
}

impl AlarmBudget {
    /// One alarm in `rows` rows, with the default step and bounds.
    #[must_use]
    pub const fn one_in(rows: f64) -> Self {
        Self { rows_per_alarm: rows, step: 0.1, lowest: 0.5, highest: 2.0 }
    }

    /// So many alarms a day where a row comes every `interval` seconds; at most one with every row.
    #[must_use]
    pub fn per_day(alarms: f64, interval: f64) -> Self {
        Self::one_in((DAY / (alarms * interval)).clamp(1.0, 1e12))
    }
}

/// Seconds.
const DAY: f64 = 86_400.0;

/// The settings of one detector. Checked once, by [`Detector::new`](crate::Detector::new).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How the score is formed. [`ScoreForm::Scaled`].
    pub score: ScoreForm,
    /// How often the sketch decomposes. [`SketchForm::Buffered`].
    pub sketch: SketchForm,
    /// Rank k of the basis. `None`: the least that explains [`variance_share`](Self::variance_share), at most a quarter
    /// of the training rows. Always cut to m − 1 and l − 1, at least 1.
    pub rank: Option<usize>,
    /// Rows l of the sketch. `None`: max(25, 2k).
    pub sketch_rows: Option<usize>,
    /// Share of the training variance that the basis explains, in (0, 1\]. 0.95.
    pub variance_share: f64,
    /// Standardised values grow like a logarithm beyond this, in \[1, 1e12\]. 50.
    pub clip: f64,
    /// A deviation is at least this share of the range seen in training, in \[0, 1\]. 0.05.
    pub deviation_floor: f64,
    /// A column whose deviation is no more than this share of its mean, in \[0, 1\], is taken for a constant; of one that adds up what happens, its increments.
    /// 0.0005: the memory of a process that rests moves by less than that, and would else alarm at the next hundred kilobytes.
    pub constant_below: f64,
    /// A residual's deviation is at least this, in \[1e-6, 1e6\] standardised units. 0.05.
    pub residual_floor: f64,
    /// What one column counts for, in deviations, when it was constant in training and moves; at least 0. 5.
    pub constant_weight: f64,
    /// What one such column counts for at least, as a share of γ² (with the margin of episodes): with 1, a constant that goes on moving
    /// is an alarm by itself, and one that moves once is none, since smoothing halves it. 1.
    pub constant_share: f64,
    /// At most so many moving constants count in one row. 3.
    pub constants_counted: u32,
    /// Whether a constant that returns to where it was in training counts as one that moves. false: one burst of page faults would be two moves, and
    /// an alarm. The reference of `tests/oracle` counts it.
    pub constants_return: bool,
    /// Span n of the exponential smoothing, new weight 2 / (n + 1), in \[1, 1000\]; 1 is none. 3.
    pub smoothing_span: f64,
    /// Which scores γ comes from. [`Threshold::Crosswise`].
    pub threshold: Threshold,
    /// Every so manieth training row is left out once, at least 2 or 0 for never, to see how much more a row scores that the fit has not seen;
    /// 5. With few rows per metric that is half as much again, and crosswise γ, whose halves have even fewer, does not show it. The
    /// reference of `tests/oracle` has it not.
    pub held_out_every: usize,
    /// Percentile q of γ, in (0, 100\]. 99.
    pub percentile: f64,
    /// Every so manieth row is learnt, at least 1. 5.
    pub stride: u32,
    /// Learning rate η: probability that a row above γ is learnt in spite of it, in \[0, 1\]. 0.01.
    pub learning_rate: f64,
    /// V and T come from the rows learnt whenever the basis does, so that a basis is never judged by the variances of the one before. true;
    /// the reference of `tests/oracle` leaves them as they are, as do the paper's forms, which do not use them.
    pub renew_variances: bool,
    /// Rows learnt since the last decomposition that would make any variance more than so many times what it was, at least 1, count for less;
    /// from the last scheduled fit on, once averages have grown to [`growth_rows`](Self::growth_rows). 1.05: so nothing wrong is taught to the detector faster than by a twentieth (of its square) per l + 1 rows
    /// learnt, see `guard.rs`. No limit with `f64::MAX`; without effect where V and T are not renewed, as in the paper's forms.
    pub variance_growth: f64,
    /// Means and variances go on averaging over learnt rows until so many are in them; 0 is never. 2,000.
    pub growth_rows: usize,
    /// The very first rows, which are not learnt: memory is taken, caches fill, and a few rows of it would make the deviation of their
    /// columns. 0; the NIC agent, which sees services start, sets 20.
    pub settle_rows: u64,
    /// A first fit, without levels, whose verdicts are provisional. `None`: none. Some(60).
    pub provisional_rows: Option<usize>,
    /// The detector arms when it has seen so many rows; no fit takes fewer. At least 8. 120.
    pub warm_up_rows: usize,
    /// It fits again when it has seen so many rows, in ascending order. 600 and 2,000.
    pub fit_again_rows: Vec<usize>,
    /// A later fit leaves out rows whose score was so many times γ when they came, at least 1. 2: leaving out all above γ
    /// makes γ tighter at every fit, and raised false alarms on all sets.
    pub left_out_above: f64,
    /// A later fit leaves out rows that came before the detector was armed, and may hold a fault, once they would be no
    /// more than this share, in \[0, 1\]. 0.1: they often hold a start that will come again, so not earlier.
    pub unjudged_share: f64,
    /// Raw rows kept once learning is over, at least [`warm_up_rows`](Self::warm_up_rows) or none: with them,
    /// [`Detector::fit_again`](crate::Detector::fit_again) fits at once; without, it collects first. 0.
    pub rows_kept: usize,
    /// Rows that find room while a job is out. 6: at the default stride 30 rows, while a decomposition takes less than a millisecond.
    pub spare_rows: usize,
    /// When a gauge is a level. `None`: never, unless the user says so.
    pub levels: Option<LevelRule>,
    /// A gauge that stands still elsewhere for so many rows is at home there too, at least 1. `None`: never. Only for columns that are
    /// known to be states: where rates come as gauges (as in the Server Machine Dataset), long faults are swallowed (AUC-PR there .66 to
    /// .48; no loss where kinds are known). `None`; the NIC agent, which knows kinds, sets 60.
    pub latch_rows: Option<usize>,
    /// For episodes one row counts at most for so many γ, at least 1: a single row, however wild, is no episode; two are. 2.
    pub episode_cap: f64,
    /// What γ is multiplied by where episodes are concerned, at least 1. Rows that come often need more: a person bears so many false
    /// alarms an hour, not a row. 1; the NIC agent sets it by the interval.
    pub episode_margin: f64,
    /// When rows in alarm become an episode.
    pub episode: EpisodeRule,
    /// Steers γ towards a number of alarms. `None`.
    pub budget: Option<AlarmBudget>,
    /// An episode of so many rows is drift, not a fault, at least 1. 600.
    pub drift_rows: usize,
    /// An episode of so many rows makes the detector fit again on its own; needs [`rows_kept`](Self::rows_kept). `None`,
    /// because a long fault would become the new normal.
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
            stride: 5,
            learning_rate: 0.01,
            renew_variances: true,
            variance_growth: 1.05,
            growth_rows: 2_000,
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
            episode_cap: 2.0,
            episode_margin: 1.0,
            episode: EpisodeRule::default(),
            budget: None,
            drift_rows: 600,
            automatic_fit_rows: None,
        }
    }
}

impl Settings {
    /// The pipeline of uView, Sec. 4.4, with an absolute or relative score: no clip to speak of, no floor, no levels,
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

    /// For a service that is watched from its start, with a row every `interval` seconds, by somebody who knows which metrics are states:
    /// gauges latch after 60 rows, the first 20 rows are not learnt, and episodes have the margin of [`every`](Self::every).
    #[must_use]
    pub fn live(interval: f64) -> Self {
        Self { latch_rows: Some(60), settle_rows: 20, ..Self::default() }.every(interval)
    }

    /// With the margin of episodes for a row every `interval` seconds, if that is more: 0.15 γ for every halving of the interval below a
    /// second. Ten times the rows would else be ten times the false alarms an hour; faults score several times γ.
    #[must_use]
    pub fn every(self, interval: f64) -> Self {
        let margin = 1.0 + 0.15 * (-interval.log2()).max(0.0);
        Self { episode_margin: self.episode_margin.max(margin), ..self }
    }

    /// The settings, if every field is in its range.
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

    /// The number of rows after which nothing more is kept for fits.
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
            in_range("sketch_rows", rows as f64, 2.0, 8192.0)?;
        }
        let Some(rule) = self.levels else { return Ok(()) };
        in_range("levels.roughness", rule.roughness, 0.0, 4.0)?;
        in_range("levels.one_way", rule.one_way, 0.0, 1.0)?;
        in_range("levels.latched", rule.latched, 0.0, 1.0)
    }

    fn check_learning(&self) -> Result<(), SettingsError> {
        in_range("stride", f64::from(self.stride), 1.0, 1e9)?;
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
        if let Some(rows) = self.latch_rows {
            in_range("latch_rows", rows as f64, 1.0, 1e9)?;
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

/// A setting that is outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The named field is not between the two bounds, or not a number.
    #[error("{field} is {found}, it must be {}", bounds(*.least, *.most))]
    Range {
        /// The field of [`Settings`].
        field: &'static str,
        /// What it was.
        found: f64,
        /// The least value that works; the least positive number if it must be above 0.
        least: f64,
        /// The greatest value that works; the greatest number if any does.
        most: f64,
    },
    /// A sketch of l rows holds a basis of at most l − 1 directions.
    #[error("rank {rank} does not fit into a sketch of {rows} rows, it must be below")]
    Rank {
        /// k.
        rank: usize,
        /// l.
        rows: usize,
    },
}

/// The range as a person says it: the least and the greatest number would fill lines with digits.
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
mod tests {
    use super::*;

    #[test]
    fn the_defaults_and_the_papers_settings_are_valid() {
        assert!(Settings::default().checked().is_ok());
        assert!(Settings::paper(ScoreForm::PaperAbsolute).checked().is_ok());
        assert!(Settings::paper(ScoreForm::PaperRelative).checked().is_ok());
    }

    #[test]
    fn a_live_service_has_a_margin_that_grows_below_a_second() {
        let margin = |interval| Settings::live(interval).episode_margin;

        assert_eq!([margin(60.0), margin(1.0), margin(0.5), margin(0.125)], [1.0, 1.0, 1.15, 1.45]);
        assert!(Settings::live(0.001).checked().is_ok());
    }

    #[test]
    fn a_budget_of_alarms_a_day_is_one_of_rows() {
        assert_eq!(AlarmBudget::per_day(3.0, 0.125), AlarmBudget::one_in(230_400.0));
        assert_eq!(AlarmBudget::per_day(1e9, 60.0).rows_per_alarm, 1.0);
        let settings = Settings { budget: Some(AlarmBudget::per_day(1e-12, 0.001)), ..Settings::default() };
        assert!(settings.checked().is_ok());
    }

    #[test]
    fn an_error_names_the_field_and_its_range() {
        let error = Settings { clip: f64::NAN, ..Settings::default() }.checked().unwrap_err();

        assert_eq!(error.to_string(), "clip is NaN, it must be from 1 to 1000000000000");
    }

    #[test]
    fn a_range_is_said_in_few_words() {
        let error = |settings: Settings| settings.checked().unwrap_err().to_string();

        let percentile = error(Settings { percentile: 0.0, ..Settings::default() });
        let cap = error(Settings { episode_cap: 0.5, ..Settings::default() });

        assert_eq!(percentile, "percentile is 0, it must be above 0 and at most 100");
        assert_eq!(cap, "episode_cap is 0.5, it must be 1 or more");
    }

    #[test]
    fn a_fit_that_comes_before_the_one_before_is_refused() {
        let settings = Settings { fit_again_rows: vec![600, 300], ..Settings::default() };

        assert!(matches!(settings.checked(), Err(SettingsError::Range { field: "fit_again_rows", .. })));
    }

    #[test]
    fn an_automatic_fit_needs_rows_to_fit_on() {
        let settings = Settings { automatic_fit_rows: Some(600), ..Settings::default() };

        assert!(matches!(settings.checked(), Err(SettingsError::Range { field: "rows_kept", .. })));
    }
}
