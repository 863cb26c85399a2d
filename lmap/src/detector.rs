//! One LMAP (local metrics analysis pipeline): scores rows, learns them, fits itself.
//!
//! # Source
//! μView, Sec. 4.4: the sketch-based classifier FD-Sketch.
//!
//! # Guarantee
//! A score is finite and at least 0, for any input. [`score`](Detector::score), [`learn`](Detector::learn) and
//! [`gap`](Detector::gap) do not allocate. A row is scored before it is learnt, and every basis has its own variances.
//!
//! # States
//!
//! | state | from | what it means |
//! | --- | --- | --- |
//! | learning | the first row | no scores |
//! | provisional | [`Settings::provisional_rows`] (60) | scores and γ; no episode begins |
//! | armed | [`Settings::warm_up_rows`] (120) | episodes begin and end |
//! | drifted | an episode of [`Settings::drift_rows`] (600) | [`fit_again`](Detector::fit_again) if this is normal |
//!
//! The fits at [`Settings::fit_again_rows`] (600 and 2,000) leave out rows far above γ. A job result that was computed
//! before a reset is dropped and counted.
//!
//! # Memory
//! (2l + k + 10 + spare rows) m' values with m' = m padded to eight, plus O(m + k). While learning, and after
//! [`fit_again`](Detector::fit_again), the last of [`Settings::fit_again_rows`] · m values more, touched as rows come;
//! [`Settings::rows_kept`] · m permanently. k and l follow from the rows: [`Footprint`](crate::Footprint) has the most.
//!
//! # Differences from the paper
//! Of the default. [`Settings::paper`] switches off all but the last four.
//!
//! | step | the paper | here |
//! | --- | --- | --- |
//! | gauges that drift or latch | their values | their increments |
//! | a column that was constant in training | divided by 1 | left out; its moves add to the score |
//! | z | (x − mean) / σ | σ is at least 5 % of the range; soft clip at 50 |
//! | score | ‖r‖ | residuals and coordinates, each in units of its own deviation |
//! | smoothing | none | over 3 rows |
//! | γ | a percentile of the scores in sample | between in sample and crosswise, raised for unseen rows |
//! | rows learnt | all below γ, none above | every 5th below γ, one in a hundred above |
//! | variances V and T | not used | computed anew with each basis; learning raises none by more than 5 % at a time |
//! | averages | those of training | go on until 2,000 rows are in them |
//! | k | by trials | the least for 95 % of the training variance (in [`Settings::paper`] 90 %) |
//! | explanation | the largest residuals | zⱼ (A z)ⱼ, which add up to the square of the score |
//! | decomposition | at every row | after l + 1 rows ([`SketchForm`](crate::SketchForm) has both) |
//! | alarm | a row at or above γ | an episode: 2 of 3 rows, none counted for more than 2γ |
//! | waiting | a column like others | too much of it is over γ by itself ([`Saturation`](crate::Saturation)) |
//! | load | a column like others | an alarm that begins with more of it may wait ([`Settings::load_rows`]) |
//!
//! With [`Settings::novelty`], another episode begins within one that is on: [`Episode::Began`] comes once more.
//! `docs/detection.md` has the formulas, and what each part contributes.

mod ahead;
mod arrival;
mod look;
mod report;

pub use look::{BetweenRow, InterimBuffer, InterimScore};

use crate::basis::Basis;
use crate::budget::Budget;
use crate::column::Column;
use crate::counts::Counts;
use crate::episode::{Episode, Episodes};
use crate::expectation::Expectation;
use crate::guard::Limit;
use crate::history::{History, Variances};
use crate::intake::{Intake, RowError};
use crate::job::{FitJob, Job, JobOutcome, JobResult, ShrinkJob};
use crate::learning::Learning;
use crate::load::Load;
use crate::model::{Model, ModelError};
use crate::novelty::{EpisodeRow, Novelty};
use crate::pipeline::{Pipeline, RowScore};
use crate::random::Random;
use crate::rows::{Mark, RowVerdict};
use crate::saturation::Saturations;
use crate::settings::{ScoreForm, Settings};
use crate::spare_rows::SpareRows;
use crate::verdict::{DetectorError, InstallOutcome, MAX_COLUMNS, Verdict};
use std::sync::Arc;

/// The job in flight, with its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobInFlight {
    None,
    Shrink(u64),
    Fit(u64),
}

/// Memory of a detector that is in a job: rows to learn from, or the sketch.
#[derive(Clone, Copy, Debug, Default)]
struct GivenOut {
    reserved: usize,
    /// Without the place for rows that had not come.
    filled: usize,
}

/// One LMAP (local metrics analysis pipeline): scores the rows of one service.
#[derive(Debug)]
pub struct Detector {
    columns: Arc<[Column]>,
    settings: Arc<Settings>,
    random: Random,
    intake: Intake,
    /// For columns whose source is gone, once one was.
    expectation: Option<Box<Expectation>>,
    pipeline: Option<Pipeline>,
    provisional: bool,
    /// The detector started from a model of other replicas.
    warm: bool,
    learning: Learning,
    spare: SpareRows,
    in_flight: JobInFlight,
    /// Bytes of what the job in flight took along.
    given_out: GivenOut,
    tickets: u64,
    /// Offset among detectors that are staggered; 0 if they are not.
    stagger: usize,
    /// Rows scored since the pipeline was installed, for the stride.
    scored: u64,
    /// The score (without constants) of the last row, until it is learnt.
    pending: Option<f64>,
    smoothed: Option<f64>,
    /// The smoothed score with single rows capped, from which episodes are formed.
    steady: Option<f64>,
    episodes: Episodes,
    /// What is known of the episode that is on; with a pipeline only.
    novelty: Option<Box<Novelty>>,
    budget: Budget,
    /// What an episode may wait for.
    load: Load,
    /// Columns that are judged by themselves.
    saturations: Saturations,
    /// An episode was begun between two rows, which the budget has not counted yet.
    begun_between: bool,
    counts: Counts,
}

impl Detector {
    /// Creates a detector that learns from its first rows. `seed` decides which rows above γ are learnt. Detectors that
    /// are given the same `Arc` of settings share it: each row reads some of them, and one copy stays in the cache.
    ///
    /// # Errors
    ///
    /// [`DetectorError`]: no columns or too many, or a setting out of range.
    pub fn new(columns: Vec<Column>, settings: impl Into<Arc<Settings>>, seed: u64) -> Result<Self, DetectorError> {
        if !(1..=MAX_COLUMNS).contains(&columns.len()) {
            return Err(DetectorError::Columns(columns.len()));
        }
        let settings: Arc<Settings> = settings.into();
        Settings::clone(&settings).checked()?;
        let learning = Learning::new(columns.len(), &settings);
        Ok(Self::with(columns, settings, seed, learning))
    }

    /// Creates a detector that is armed at once. Settings stored in the model override `settings`. Longer rows are
    /// judged as the model judged them, until a fit: then as `settings` say.
    ///
    /// Columns are matched by fingerprint. A column that only the model has counts as always missing. A column that
    /// only the caller has is not scored until the next fit (see [`unwatched`](Self::unwatched)).
    ///
    /// # Errors
    ///
    /// [`ModelError::Columns`] if no column is in the model, [`ModelError::Detector`] if the columns or settings are
    /// not usable.
    pub fn from_model(
        model: &Model,
        columns: Vec<Column>,
        settings: impl Into<Arc<Settings>>,
        seed: u64,
    ) -> Result<Self, ModelError> {
        if !(1..=MAX_COLUMNS).contains(&columns.len()) {
            return Err(DetectorError::Columns(columns.len()).into());
        }
        let given: Arc<Settings> = settings.into();
        let applied = model.applied_to(Settings::clone(&given)).checked().map_err(DetectorError::from)?;
        let settings = if applied == *given { given } else { Arc::new(applied) };
        let pipeline = model.pipeline(&columns, &settings)?;
        let learning = Learning::over(columns.len(), &settings);
        let mut detector = Self::with(columns, settings, seed, learning);
        detector.judge_by(pipeline);
        Ok(detector)
    }

    /// Creates a detector for a new replica, node or version of a service: armed by the model of other replicas
    /// ([`Model::merge`] combines several), until it has seen enough rows of its own.
    ///
    /// The model provides levels, constants, means, deviations, the sketch with basis and variances, γ and the limits
    /// of groups of columns, those of longer rows unless it is merged; settings stored in it override `settings`. It
    /// does not provide rows, smoothing, episodes, averages of longer rows, patience with pools, second centres of
    /// gauges, and the factor of an alarm budget.
    ///
    /// No episode begins in the first [`Settings::settle_rows`] rows, which are not learnt. If there are such rows, a
    /// gauge is judged as soon as it has come to rest, wherever that is: a new process has its memory and connections
    /// elsewhere. The fits at
    /// [`Settings::fit_again_rows`] take place as if the warm-up were over. They use only rows of its own, so nothing
    /// of the model is left afterwards.
    ///
    /// # Errors
    ///
    /// Those of [`from_model`](Self::from_model).
    pub fn warm(
        model: &Model,
        columns: Vec<Column>,
        settings: impl Into<Arc<Settings>>,
        seed: u64,
    ) -> Result<Self, ModelError> {
        let mut detector = Self::from_model(model, columns, settings, seed)?;
        detector.learning = Learning::resumed(detector.columns.len(), &detector.settings);
        detector.warm = true;
        // A replica that has been running since has no start: all its rows are judged.
        if detector.settings.settle_rows > 0
            && let Some(pipeline) = &mut detector.pipeline
        {
            pipeline.latches = core::mem::take(&mut pipeline.latches).of_new_process();
        }
        Ok(detector)
    }

    /// Staggers the work of detectors that start together, as on a node that starts: otherwise all of them would learn
    /// and decompose at the same rows for ever. A detector with another `stagger` learns another row of the stride, and
    /// its first decomposition after each fit comes after another number of learnt rows, up to l + 1. 0: not staggered.
    #[must_use]
    pub fn staggered(mut self, stagger: usize) -> Self {
        self.stagger = stagger;
        self.apply_stagger();
        self
    }

    fn apply_stagger(&mut self) {
        let Some(pipeline) = &mut self.pipeline else { return };
        pipeline.sketch_changed = true;
        if let Some(history) = pipeline.history.as_mut().filter(|_| self.stagger > 0) {
            history.decompose_after(1 + self.stagger % (pipeline.sketch_rows + 1));
        }
    }

    fn with(columns: Vec<Column>, settings: Arc<Settings>, seed: u64, learning: Learning) -> Self {
        Self {
            random: Random::new(seed),
            intake: Intake::new(columns.len()),
            expectation: None,
            pipeline: None,
            provisional: false,
            warm: false,
            learning,
            spare: SpareRows::new(columns.len(), settings.spare_rows),
            in_flight: JobInFlight::None,
            given_out: GivenOut::default(),
            tickets: 0,
            stagger: 0,
            scored: 0,
            pending: None,
            smoothed: None,
            steady: None,
            episodes: Episodes::new(settings.episode),
            novelty: None,
            budget: Budget::default(),
            load: Load::new(&columns, settings.load_rows.filter(|_| settings.score == ScoreForm::Scaled)),
            saturations: Saturations::new(&columns, settings.warm_up_rows),
            begun_between: false,
            counts: Counts::default(),
            columns: columns.into(),
            settings,
        }
    }

    /// Scores a row of one value per column. NaN is a missing value and is replaced by the value before; an infinite
    /// value counts as missing. O(m k). Never allocates.
    ///
    /// # Errors
    ///
    /// [`RowError::Length`] unless the row has one value per column; nothing is changed then.
    pub fn score(&mut self, row: &[f64]) -> Result<Verdict, RowError> {
        // A fit may find other levels, and comes of rows that are kept.
        let may_be_fitted = matches!(self.in_flight, JobInFlight::Fit(_)) || self.learning.active(&self.settings);
        let levels = self.pipeline.as_ref().filter(|_| !may_be_fitted).map(|pipeline| &pipeline.levels[..]);
        self.intake.take(row, levels, &mut self.counts)?;
        if self.intake.restarted() {
            (self.smoothed, self.steady) = (None, None);
        }
        let judged = self.pipeline.is_some() && !self.provisional && !self.is_settling();
        self.saturations.step(row, self.intake.restarted(), judged, self.episodes.rows());
        self.load.take(&self.intake);
        let Some(pipeline) = &mut self.pipeline else {
            self.pending = Some(0.0);
            return Ok(self.verdict(0.0, 0.0, false, Episode::Quiet));
        };
        let RowScore { score: raw, gate, alone } = pipeline.judge(&self.intake, self.expectation.as_deref_mut());
        // Nothing ordinary moves an indicator, and what saturates has lasted: no smoothing, no time to settle.
        let is_indicated = pipeline.is_indicated() || self.saturations.any();
        self.pending = Some(if self.saturations.any() { f64::MAX } else { gate });
        self.scored += 1;
        let weight = 2.0 / (self.settings.smoothing_span + 1.0);
        let score = self.smoothed.map_or(raw, |before| before + weight * (raw - before));
        self.smoothed = Some(score);
        let score = if is_indicated { score.max(self.gamma().unwrap_or(0.0)) } else { score };
        let over = self.gamma().is_some_and(|gamma| score >= gamma);
        let lasting = self.lasts(raw, weight) && !self.provisional && !self.is_settling();
        let begins = lasting && !is_indicated && self.episodes.would_begin();
        let is_held = self.load.holds(begins, alone >= self.alarm_threshold().powi(2));
        let episode = if is_held { self.episodes.hold() } else { self.episodes.step(lasting || is_indicated) };
        let episode = self.renewed(episode, EpisodeRow { lasts: lasting, by_itself: is_indicated });
        // What is not written stays clean in the cache, or is not even there.
        if episode == Episode::Began {
            self.counts.episodes += 1;
        }
        let verdict = self.verdict(score, raw, over, episode);
        self.forget_start();
        self.keep_to_budget(episode);
        if Some(self.episodes.rows()) == self.settings.automatic_fit_rows.map(|rows| rows as u64) {
            self.learning.want_from_ring();
            self.saturations.forget();
        }
        Ok(verdict)
    }

    /// Another episode begins within the one that is on, if the row says something that this one has not said.
    fn renewed(&mut self, episode: Episode, row: EpisodeRow) -> Episode {
        let (Some(novelty), Some(pipeline)) = (&mut self.novelty, &self.pipeline) else { return episode };
        let begins = match episode {
            // What was known was forgotten when the episode ended: it is not even looked at.
            Episode::Quiet => false,
            Episode::Ended => {
                novelty.end();
                false
            }
            Episode::Began => {
                novelty.begin(pipeline);
                true
            }
            Episode::On => novelty.step(pipeline, row, &self.settings),
        };
        if begins { Episode::Began } else { episode }
    }

    /// Rows of a start count in no longer row, and not for smoothing unless they are judged, as by a trained model.
    fn forget_start(&mut self) {
        if self.counts.rows > self.settings.settle_rows {
            return;
        }
        if self.is_settling() {
            (self.smoothed, self.steady) = (None, None);
        }
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.long_rows.begin_anew();
        }
    }

    /// Lets the alarm budget adjust γ.
    fn keep_to_budget(&mut self, episode: Episode) {
        let episode = if core::mem::take(&mut self.begun_between) { Episode::Began } else { episode };
        if let (Some(budget), Some(pipeline)) = (self.settings.budget, &mut self.pipeline) {
            pipeline.factor = self.budget.step(budget, episode);
        }
    }

    /// Whether the service is still starting.
    fn is_settling(&self) -> bool {
        let settle_rows = self.settings.settle_rows;
        (self.pipeline.is_none() || self.warm) && settle_rows > 0 && self.counts.rows <= settle_rows
    }

    /// Whether the row counts as over γ for episodes: the smoothed score, with single rows capped at
    /// [`Settings::episode_cap`] · γ, reaches γ · [`Settings::episode_margin`].
    fn lasts(&mut self, raw: f64, weight: f64) -> bool {
        let Some(gamma) = self.gamma() else { return false };
        let capped = raw.min(self.settings.cap() * gamma);
        let before = self.steady.unwrap_or_else(|| raw.min(gamma / 2.0));
        let steady = before + weight * (capped - before);
        self.steady = Some(steady);
        steady >= self.alarm_threshold()
    }

    /// What a score has to reach for an episode: γ times its margin; none does while learning.
    fn alarm_threshold(&self) -> f64 {
        self.gamma().map_or(f64::MAX, |gamma| gamma * self.settings.episode_margin)
    }

    fn verdict(&self, score: f64, raw: f64, over: bool, episode: Episode) -> Verdict {
        Verdict { score, raw, gamma: self.gamma(), over, episode, state: self.state() }
    }

    /// Learns the row that was scored last, if stride, γ and η admit it, and returns a job if one is due. Until the
    /// job's result is installed, rows to learn are buffered as spare rows. A second call for the same row does
    /// nothing. O(m). Never allocates.
    pub fn learn(&mut self) -> Option<Job> {
        let gate = self.pending.take()?;
        if self.intake.is_empty() {
            return None;
        }
        let gamma = self.pipeline.as_ref().map_or(0.0, |pipeline| pipeline.gamma);
        let normal = gate < gamma;
        self.keep_row(gate < gamma * self.settings.left_out_above);
        let turn = self.scored.wrapping_sub(1).wrapping_add(self.stagger as u64);
        if turn.is_multiple_of(u64::from(self.settings.stride)) {
            self.learn_row(normal);
        }
        self.due()
    }

    /// Keeps the raw row for the next fit.
    fn keep_row(&mut self, tame: bool) {
        // A fit could not tell a column that was forgotten from one that never had a value.
        if self.is_settling() || self.intake.has_forgotten() || !self.learning.active(&self.settings) {
            return;
        }
        let verdict = match (self.pipeline.is_some() && !self.provisional, tame) {
            (false, _) => RowVerdict::Unjudged,
            (true, true) => RowVerdict::Normal,
            (true, false) => RowVerdict::Above,
        };
        let mark = Mark { verdict, restarted: self.intake.restarted() };
        let row = self.intake.row();
        if !self.learning.keep(row, mark) && matches!(self.in_flight, JobInFlight::Fit(_)) {
            self.counts.lost += u64::from(!self.spare.push(row, mark));
        }
    }

    /// Adds the standardised row to the sketch, unless a fit is in flight, which will replace the sketch.
    fn learn_row(&mut self, normal: bool) {
        let is_settling = self.is_settling();
        let Some(pipeline) = &mut self.pipeline else { return };
        if is_settling
            || self.intake.has_forgotten()
            || matches!(self.in_flight, JobInFlight::Fit(_))
            || !(normal || self.random.unit() < self.settings.learning_rate)
        {
            return;
        }
        pipeline.grow(self.settings.growth_rows);
        let mark = Mark { verdict: RowVerdict::Normal, restarted: false };
        pipeline.sketch_changed = true;
        let taken = match &mut pipeline.history {
            Some(history) => history.push(&pipeline.projection.z),
            None => self.spare.push(&pipeline.projection.z, mark),
        };
        self.counts.lost += u64::from(!taken);
        self.counts.learnt += u64::from(taken);
        self.counts.learnt_above += u64::from(taken && !normal);
    }

    /// How fast learnt rows may change variances: without limit while fits are scheduled and averages grow.
    fn limit(&self) -> Option<Limit> {
        let Settings { variance_growth, residual_floor, renew_variances, growth_rows, .. } = *self.settings;
        let grown = self.pipeline.as_ref().is_some_and(|pipeline| pipeline.averaged >= growth_rows);
        let learnt = grown && self.learning.progress(&self.settings).is_none();
        let limited = learnt && renew_variances && variance_growth < f64::MAX;
        limited.then_some(Limit { growth: variance_growth, floor: residual_floor * residual_floor })
    }

    /// A job, if one is due and none is in flight.
    fn due(&mut self) -> Option<Job> {
        if self.in_flight != JobInFlight::None {
            return None;
        }
        let ticket = self.tickets + 1;
        let job = if let Some(due) = self.learning.due(&self.settings) {
            self.in_flight = JobInFlight::Fit(ticket);
            self.given_out = GivenOut { reserved: due.rows.bytes(), filled: due.rows.filled_bytes() };
            Job::Fit(FitJob {
                ticket,
                rows: due.rows,
                columns: Arc::clone(&self.columns),
                settings: Arc::clone(&self.settings),
                least: due.least,
                capacity: due.capacity,
                provisional: due.provisional,
            })
        } else {
            // A sketch that was not due is not due until it changes, and four rows of five do not change it.
            let changed = self.pipeline.as_mut().is_some_and(|pipeline| core::mem::take(&mut pipeline.sketch_changed));
            if !changed {
                return None;
            }
            let limit = self.limit();
            let pipeline = self.pipeline.as_mut()?;
            let history = pipeline.history.take_if(|history| history.due())?;
            self.in_flight = JobInFlight::Shrink(ticket);
            self.given_out = GivenOut { reserved: history.bytes(), filled: history.bytes() };
            Job::Shrink(ShrinkJob { ticket, history, rank: pipeline.scorer.basis.rank(), limit })
        };
        self.tickets = ticket;
        Some(job)
    }

    /// Installs the result of a job, and learns the rows that were buffered meanwhile. May allocate.
    pub fn install(&mut self, done: JobResult) -> InstallOutcome {
        let expected = match &done.result {
            JobOutcome::Shrunk { .. } => JobInFlight::Shrink(done.ticket),
            JobOutcome::Fitted { .. } => JobInFlight::Fit(done.ticket),
        };
        if expected != self.in_flight {
            self.counts.stale += 1;
            return InstallOutcome::Stale;
        }
        (self.in_flight, self.given_out) = (JobInFlight::None, GivenOut::default());
        let installed = match done.result {
            JobOutcome::Shrunk { history, found } => self.install_past(history, found.ok()),
            JobOutcome::Fitted { rows, fitted, provisional } => {
                self.learning.give_back(rows, self.columns.len(), &self.settings);
                self.install_fit(fitted.ok().map(|pipeline| *pipeline), provisional)
            }
        };
        self.spare.clear();
        installed
    }

    /// Installs a basis with its own V and T: those of the old basis belong to other directions.
    fn install_past(&mut self, mut history: History, found: Option<(Basis, Variances)>) -> InstallOutcome {
        let Some(pipeline) = &mut self.pipeline else { return InstallOutcome::Stale };
        for (z, _) in self.spare.rows() {
            if !history.push(z) {
                self.counts.lost += 1;
                self.counts.learnt -= 1;
            }
        }
        (pipeline.history, pipeline.sketch_changed) = (Some(history), true);
        let Some((basis, variances)) = found else {
            self.counts.shrinks_failed += 1;
            return InstallOutcome::Failed;
        };
        pipeline.scorer.set_basis(&basis);
        if self.settings.renew_variances {
            pipeline.scorer.set_variances(&variances.residual, variances.inside);
        }
        self.counts.shrinks += 1;
        InstallOutcome::Taken
    }

    fn install_fit(&mut self, fitted: Option<Pipeline>, provisional: bool) -> InstallOutcome {
        let columns = self.columns.len();
        for (row, mark) in self.spare.rows() {
            self.learning.keep_again(&row[..columns], mark);
        }
        let Some(mut pipeline) = fitted else {
            self.counts.fits_refused += 1;
            return InstallOutcome::Failed;
        };
        // By a provisional fit, which knows no levels, what merely goes on growing has no patience left.
        if let Some(before) = self.pipeline.as_ref().filter(|_| !self.provisional) {
            pipeline.go_on_from(before);
        }
        self.judge_by(pipeline);
        self.apply_stagger();
        self.provisional = provisional;
        self.scored = 0;
        self.pending = None;
        (self.smoothed, self.steady) = (None, None);
        self.budget = Budget::default();
        self.counts.fits += 1;
        InstallOutcome::Taken
    }

    /// Judges by `pipeline` from the next row on. What was known of an episode is in other units, and is forgotten.
    fn judge_by(&mut self, pipeline: Pipeline) {
        self.novelty = Novelty::of(&pipeline.scorer, &self.settings).map(Box::new);
        self.pipeline = Some(pipeline);
    }

    /// Announces a gap in time before the next row: increments of levels, moves of constants and smoothing start again.
    pub fn gap(&mut self) {
        self.intake.gap();
        self.episodes.gap();
        if let Some(novelty) = &mut self.novelty {
            novelty.gap();
        }
    }

    /// The source of a column is gone: until it has a value again, it is replaced by what the others let expect, not by
    /// the value before, which does not belong to theirs. Call it before each row in which it is missing. Such rows are
    /// scored and not learnt. Has no effect before the first fit, or for a column that does not exist. Allocates when
    /// it is first called.
    pub fn forget(&mut self, column: usize) {
        if self.pipeline.is_some() {
            self.intake.forget(column);
            let columns = self.columns.len();
            self.expectation.get_or_insert_with(|| Box::new(Expectation::new(columns)));
        }
    }

    /// "This is normal now": fits again on the newest rows, whatever their score. Returns the job if they are kept
    /// ([`Settings::rows_kept`]), the fits of the start are over, and there are [`Settings::warm_up_rows`] of them.
    /// Otherwise the detector starts to keep rows, and [`learn`](Self::learn) returns the job once there are enough.
    /// Scoring goes on meanwhile. May allocate.
    pub fn fit_again(&mut self) -> Option<Job> {
        self.learning.want(self.columns.len(), &self.settings, matches!(self.in_flight, JobInFlight::Fit(_)));
        self.saturations.forget();
        self.due()
    }

    /// Discards everything learnt and starts learning. The result of a job in flight will be dropped. Allocates.
    pub fn reset(&mut self) {
        let counts = self.counts;
        let (columns, settings) = (self.columns.to_vec(), Arc::clone(&self.settings));
        let learning = Learning::new(columns.len(), &settings);
        let (random, tickets, stagger) = (self.random.clone(), self.tickets, self.stagger);
        *self = Self { random, tickets, stagger, counts, ..Self::with(columns, settings, 0, learning) };
    }
}
