//! One LMAP: scores rows, learns them, arms itself.
//!
//! # Source
//! uView, Sec. 4.4, for the sketch-based classifier; what a default detector needs beyond it (levels, constants, scaled
//! residuals, a threshold from both halves of training) was chosen on public data sets.
//!
//! # Guarantee
//! A score is finite and at least 0, for any input. [`score`](Detector::score), [`learn`](Detector::learn) and
//! [`gap`](Detector::gap) do not allocate. A row is judged by a basis that it is not in, and a
//! basis by variances of its own.
//!
//! # States
//! *learning* until [`Settings::warm_up_rows`] rows have been seen (*provisional* from
//! [`Settings::provisional_rows`]: scores and γ, but no episode begins), then *armed*; *drifted* while an episode lasts
//! [`Settings::drift_rows`] or more: not a fault that passes, somebody should look, and say "this is normal now" with
//! [`fit_again`](Detector::fit_again). The next fits, at [`Settings::fit_again_rows`], leave out rows far above γ. A result that
//! was computed for a detector reset meanwhile is refused and counted.
//!
//! # Memory
//! With m' = m padded to eight: (2l + k + 10 + spare rows) m' values, O(m + k) beside them. While learning, and after
//! [`fit_again`](Detector::fit_again), the last of [`Settings::fit_again_rows`] · m values more, touched as rows come;
//! [`Settings::rows_kept`] · m for good.
//!
//! # Differences from the paper
//! A row above γ is learnt with probability η (the paper: never), else nothing is learnt any more after a change.

mod report;

use crate::basis::Basis;
use crate::budget::Budget;
use crate::column::Column;
use crate::counts::Counts;
use crate::episode::{Episode, Episodes};
use crate::guard::Limit;
use crate::intake::{Intake, RowError};
use crate::job::{Done, FitJob, Job, Result as Found, ShrinkJob};
use crate::learning::Learning;
use crate::model::{Model, ModelError};
use crate::past::{Past, Variances};
use crate::pipeline::{Pipeline, Raw};
use crate::random::Random;
use crate::rows::{Judged, Mark};
use crate::settings::Settings;
use crate::spare::Spare;
use crate::verdict::{DetectorError, Installed, MOST_COLUMNS, Verdict};
use std::sync::Arc;

/// Which job is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Nothing,
    Shrink(u64),
    Fit(u64),
}

/// One LMAP: judges the rows of one service.
#[derive(Debug)]
pub struct Detector {
    columns: Arc<[Column]>,
    settings: Arc<Settings>,
    random: Random,
    intake: Intake,
    pipeline: Option<Pipeline>,
    provisional: bool,
    /// It began with what others had learnt.
    warm: bool,
    learning: Learning,
    spare: Spare,
    out: Out,
    tickets: u64,
    /// Where it stands among detectors that take turns.
    place: usize,
    /// Rows judged since the pipeline was installed; the stride counts them.
    judged: u64,
    /// The row judged last has not been learnt: its score without constants.
    pending: Option<f64>,
    smoothed: Option<f64>,
    /// The same with single rows capped: what episodes are made of.
    steady: Option<f64>,
    episodes: Episodes,
    budget: Budget,
    counts: Counts,
}

impl Detector {
    /// A detector that learns from its first rows. `seed` decides which rows above γ are learnt.
    ///
    /// # Errors
    ///
    /// [`DetectorError`]: no columns or too many, or a setting out of range.
    pub fn new(columns: Vec<Column>, settings: Settings, seed: u64) -> Result<Self, DetectorError> {
        if !(1..=MOST_COLUMNS).contains(&columns.len()) {
            return Err(DetectorError::Columns(columns.len()));
        }
        let settings = settings.checked()?;
        let learning = Learning::new(columns.len(), &settings);
        Ok(Self::with(columns, settings, seed, learning))
    }

    /// A detector that is armed at once. What the model holds wins over `settings`.
    ///
    /// Columns are matched by their fingerprint: a column that only the model has is taken as always missing, one that
    /// only the caller has is not watched (see [`unwatched`](Self::unwatched)) until the next fit.
    ///
    /// # Errors
    ///
    /// [`ModelError::Columns`] if no column is in the model, [`ModelError::Detector`] if the columns or settings are not
    /// usable.
    pub fn from_model(model: &Model, columns: Vec<Column>, settings: Settings, seed: u64) -> Result<Self, ModelError> {
        if !(1..=MOST_COLUMNS).contains(&columns.len()) {
            return Err(DetectorError::Columns(columns.len()).into());
        }
        let settings = model.applied_to(settings).checked().map_err(DetectorError::from)?;
        let pipeline = model.pipeline(&columns, settings.latch_rows)?;
        let learning = Learning::over(columns.len(), &settings);
        let mut detector = Self::with(columns, settings, seed, learning);
        detector.pipeline = Some(pipeline);
        Ok(detector)
    }

    /// A detector for a new replica, node or version of a service that others have learnt: armed by what they know ([`Model::merge`] puts
    /// several together), until it has seen enough rows of its own.
    ///
    /// Carried are levels, constants, means, deviations, the sketch with basis and variances, and γ; what the model holds wins over `settings`.
    /// Not carried are rows, smoothing, episodes, second centres of gauges, and what an alarm budget did to γ. No episode begins in the first
    /// [`Settings::settle_rows`] rows, which are not learnt. The fits at [`Settings::fit_again_rows`] come as if the warm-up were over, and are
    /// on rows of its own alone: then nothing is left of what was carried.
    ///
    /// # Errors
    ///
    /// Those of [`from_model`](Self::from_model).
    pub fn warm(model: &Model, columns: Vec<Column>, settings: Settings, seed: u64) -> Result<Self, ModelError> {
        let mut detector = Self::from_model(model, columns, settings, seed)?;
        detector.learning = Learning::resumed(detector.columns.len(), &detector.settings);
        detector.warm = true;
        Ok(detector)
    }

    /// Takes turns with others: detectors that are fitted together, as those of a node that starts, would learn and decompose with
    /// the same row for ever. One in another `place` learns another row of the stride, and its first decomposition after each fit
    /// comes after another number of learnt rows, up to l + 1. 0 is the place of a detector that takes no turns.
    #[must_use]
    pub fn taking_turns(mut self, place: usize) -> Self {
        self.place = place;
        self.take_place();
        self
    }

    fn take_place(&mut self) {
        let Some(pipeline) = &mut self.pipeline else { return };
        if let Some(past) = pipeline.past.as_mut().filter(|_| self.place > 0) {
            past.decompose_after(1 + self.place % (pipeline.sketch_rows + 1));
        }
    }

    fn with(columns: Vec<Column>, settings: Settings, seed: u64, learning: Learning) -> Self {
        Self {
            random: Random::new(seed),
            intake: Intake::new(columns.len()),
            pipeline: None,
            provisional: false,
            warm: false,
            learning,
            spare: Spare::new(columns.len(), settings.spare_rows),
            out: Out::Nothing,
            tickets: 0,
            place: 0,
            judged: 0,
            pending: None,
            smoothed: None,
            steady: None,
            episodes: Episodes::new(settings.episode),
            budget: Budget::default(),
            counts: Counts::default(),
            columns: columns.into(),
            settings: Arc::new(settings),
        }
    }

    /// Scores one row of one value per column. NaN is a missing value, which repeats the one before; an infinite value is
    /// taken as missing. O(m k). Never allocates.
    ///
    /// # Errors
    ///
    /// [`RowError::Length`] unless the row has one value per column; nothing is changed then.
    pub fn score(&mut self, row: &[f64]) -> Result<Verdict, RowError> {
        self.intake.take(row, &mut self.counts)?;
        if self.intake.restarted() {
            (self.smoothed, self.steady) = (None, None);
        }
        let Some(pipeline) = &mut self.pipeline else {
            self.pending = Some(0.0);
            return Ok(self.verdict(0.0, 0.0, false, Episode::Quiet));
        };
        let Raw { score: raw, gate } = pipeline.judge(&self.intake);
        self.pending = Some(gate);
        self.judged += 1;
        let weight = 2.0 / (self.settings.smoothing_span + 1.0);
        let score = self.smoothed.map_or(raw, |before| before + weight * (raw - before));
        self.smoothed = Some(score);
        let over = self.gamma().is_some_and(|gamma| score >= gamma);
        let lasting = self.lasts(raw, weight);
        let episode = self.episodes.step(lasting && !self.provisional && !self.settles());
        self.counts.episodes += u64::from(episode == Episode::Began);
        let verdict = self.verdict(score, raw, over, episode);
        if self.settles() {
            (self.smoothed, self.steady) = (None, None); // a start's last row has no part in what comes after
        }
        self.keep_to_budget(episode);
        if Some(self.episodes.rows()) == self.settings.automatic_fit_rows.map(|rows| rows as u64) {
            self.learning.want_from_ring();
        }
        Ok(verdict)
    }

    /// Lets the alarm budget move γ.
    fn keep_to_budget(&mut self, episode: Episode) {
        if let (Some(budget), Some(pipeline)) = (self.settings.budget, &mut self.pipeline) {
            pipeline.factor = self.budget.step(budget, episode);
        }
    }

    /// Whether the service that is watched is still starting.
    fn settles(&self) -> bool {
        let settle_rows = self.settings.settle_rows;
        (self.pipeline.is_none() || self.warm) && settle_rows > 0 && self.counts.rows <= settle_rows
    }

    /// Whether the row is in alarm as far as episodes are concerned: smoothed like the score, but no single row counts for more than
    /// [`Settings::episode_cap`] times γ, and γ has a margin.
    fn lasts(&mut self, raw: f64, weight: f64) -> bool {
        let Some(gamma) = self.gamma() else { return false };
        let capped = raw.min(self.settings.episode_cap * gamma);
        let before = self.steady.unwrap_or_else(|| raw.min(gamma / 2.0));
        let steady = before + weight * (capped - before);
        self.steady = Some(steady);
        steady >= gamma * self.settings.episode_margin
    }

    fn verdict(&self, score: f64, raw: f64, over: bool, episode: Episode) -> Verdict {
        Verdict { score, raw, gamma: self.gamma(), over, episode, state: self.state() }
    }

    /// Learns the row that was scored last, if stride, gate and η say so, and may hand out a job. Until its result is
    /// installed, rows to learn wait in the spare room. A second call for the same row does nothing. O(m). Never
    /// allocates.
    pub fn learn(&mut self) -> Option<Job> {
        let gate = self.pending.take()?;
        if self.intake.is_empty() {
            return None;
        }
        let gamma = self.pipeline.as_ref().map_or(0.0, |pipeline| pipeline.gamma);
        let normal = gate < gamma;
        self.keep_row(gate < gamma * self.settings.left_out_above);
        let turn = self.judged.wrapping_sub(1).wrapping_add(self.place as u64);
        if turn.is_multiple_of(u64::from(self.settings.stride)) {
            self.learn_row(normal);
        }
        self.due()
    }

    /// Keeps the raw row for the next fit.
    fn keep_row(&mut self, tame: bool) {
        if self.settles() || !self.learning.active(&self.settings) {
            return;
        }
        let judged = match (self.pipeline.is_some() && !self.provisional, tame) {
            (false, _) => Judged::Not,
            (true, true) => Judged::Normal,
            (true, false) => Judged::Above,
        };
        let mark = Mark { judged, restarted: self.intake.restarted() };
        let row = self.intake.row();
        if !self.learning.keep(row, mark) && matches!(self.out, Out::Fit(_)) {
            self.counts.lost += u64::from(!self.spare.push(row, mark));
        }
    }

    /// Appends the standardised row to the sketch, unless a fit is out, which makes a new one.
    fn learn_row(&mut self, normal: bool) {
        let settles = self.settles();
        let Some(pipeline) = &mut self.pipeline else { return };
        if settles || matches!(self.out, Out::Fit(_)) || !(normal || self.random.unit() < self.settings.learning_rate) {
            return;
        }
        pipeline.grow(self.settings.growth_rows);
        let mark = Mark { judged: Judged::Normal, restarted: false };
        let taken = match &mut pipeline.past {
            Some(past) => past.push(&pipeline.split.z),
            None => self.spare.push(&pipeline.split.z, mark),
        };
        self.counts.lost += u64::from(!taken);
        self.counts.learnt += u64::from(taken);
        self.counts.learnt_above += u64::from(taken && !normal);
    }

    /// How fast rows may change what is normal: as they like while fits are still to come and averages still grow.
    fn limit(&self) -> Option<Limit> {
        let Settings { variance_growth, residual_floor, renew_variances, growth_rows, .. } = *self.settings;
        let grown = self.pipeline.as_ref().is_some_and(|pipeline| pipeline.averaged >= growth_rows);
        let learnt = grown && self.learning.progress(&self.settings).is_none();
        let limited = learnt && renew_variances && variance_growth < f64::MAX;
        limited.then_some(Limit { growth: variance_growth, floor: residual_floor * residual_floor })
    }

    /// A job, if one is due and none is out.
    fn due(&mut self) -> Option<Job> {
        if self.out != Out::Nothing {
            return None;
        }
        let ticket = self.tickets + 1;
        let job = if let Some(due) = self.learning.due(&self.settings) {
            self.out = Out::Fit(ticket);
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
            let limit = self.limit();
            let pipeline = self.pipeline.as_mut()?;
            let past = pipeline.past.take_if(|past| past.due())?;
            self.out = Out::Shrink(ticket);
            Job::Shrink(ShrinkJob { ticket, past, rank: pipeline.scorer.basis.rank(), limit })
        };
        self.tickets = ticket;
        Some(job)
    }

    /// Takes back what a job computed, and learns the rows that waited for it. May allocate.
    pub fn install(&mut self, done: Done) -> Installed {
        let expected = match &done.result {
            Found::Shrunk { .. } => Out::Shrink(done.ticket),
            Found::Fitted { .. } => Out::Fit(done.ticket),
        };
        if expected != self.out {
            self.counts.stale += 1;
            return Installed::Stale;
        }
        self.out = Out::Nothing;
        let installed = match done.result {
            Found::Shrunk { past, found } => self.install_past(past, found.ok()),
            Found::Fitted { rows, fitted, provisional } => {
                self.learning.give_back(rows, self.columns.len(), &self.settings);
                self.install_fit(fitted.ok().map(|pipeline| *pipeline), provisional)
            }
        };
        self.spare.clear();
        installed
    }

    /// V and T come with the basis: those of the one before belong to other directions.
    fn install_past(&mut self, mut past: Past, found: Option<(Basis, Variances)>) -> Installed {
        let Some(pipeline) = &mut self.pipeline else { return Installed::Stale };
        for (z, _) in self.spare.rows() {
            if !past.push(z) {
                self.counts.lost += 1;
                self.counts.learnt -= 1;
            }
        }
        pipeline.past = Some(past);
        let Some((basis, variances)) = found else {
            self.counts.shrinks_failed += 1;
            return Installed::Failed;
        };
        pipeline.scorer.set_basis(&basis);
        if self.settings.renew_variances {
            pipeline.scorer.set_variances(&variances.residual, variances.inside);
        }
        self.counts.shrinks += 1;
        Installed::Taken
    }

    fn install_fit(&mut self, fitted: Option<Pipeline>, provisional: bool) -> Installed {
        let columns = self.columns.len();
        for (row, mark) in self.spare.rows() {
            self.learning.keep_again(&row[..columns], mark);
        }
        let Some(pipeline) = fitted else {
            self.counts.fits_refused += 1;
            return Installed::Failed;
        };
        self.pipeline = Some(pipeline);
        self.take_place();
        self.provisional = provisional;
        self.judged = 0;
        self.pending = None;
        (self.smoothed, self.steady) = (None, None);
        self.budget = Budget::default();
        self.counts.fits += 1;
        Installed::Taken
    }

    /// A gap in time before the next row: differences of levels and constants, and smoothing, start again.
    pub fn gap(&mut self) {
        self.intake.gap();
        self.episodes.gap();
    }

    /// "This is normal now": fits again on all rows kept, whatever their score, and hands the job out if there are
    /// [`Settings::warm_up_rows`] of them. Else it begins to keep rows, and [`learn`](Self::learn) hands the job out as soon
    /// as there are. The detector goes on judging meanwhile. May allocate.
    pub fn fit_again(&mut self) -> Option<Job> {
        self.learning.want(self.columns.len(), &self.settings, matches!(self.out, Out::Fit(_)));
        self.due()
    }

    /// Forgets everything and learns anew. The result of a job that is out will be refused. Allocates.
    pub fn reset(&mut self) {
        let counts = self.counts;
        let (columns, settings) = (self.columns.to_vec(), Settings::clone(&self.settings));
        let learning = Learning::new(columns.len(), &settings);
        let (random, tickets, place) = (self.random.clone(), self.tickets, self.place);
        *self = Self { random, tickets, place, counts, ..Self::with(columns, settings, 0, learning) };
    }
}
