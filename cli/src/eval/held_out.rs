//! The settings by which rows are judged: the default, or for each fold what was chosen on the others.

use std::fmt::Write as _;

use evaluation::candidate::Kind;
use evaluation::choice::{Choices, RowSettings, Search};
use evaluation::data_set::DataSet;
use evaluation::folds::{Folds, UnitIndex};
use evaluation::unit::Unit;
use lmap::{ScoreForm, Settings, Threshold};

use super::work::{self, WorkError};

/// By which settings rows are judged: by the default, or by what was chosen without the labels of a row's fold.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// One per detector for which settings were chosen.
    choices: Vec<Choices>,
}

impl Basis {
    /// Chooses settings for each of `kinds` on `folds` of `sets`; without folds takes the default.
    ///
    /// # Errors
    ///
    /// [`WorkError`] of the first unit that cannot be read or trained on.
    pub fn new(sets: &[DataSet], kinds: &[Kind], folds: Option<usize>) -> Result<Self, WorkError> {
        let Some(count) = folds else { return Ok(Self::default()) };
        let folds = Folds::new(sets, count);
        let choices = kinds.iter().map(|kind| choose(sets, Search::new(*kind, folds.clone()), kind.name()));
        Ok(Self { choices: choices.collect::<Result<_, _>>()? })
    }

    /// The settings for each row of a unit.
    #[must_use]
    pub fn of(&self, kind: Kind, place: UnitIndex, unit: &Unit) -> RowSettings {
        let chosen = self.chosen(kind).map(|choices| choices.of(place, unit));
        chosen.unwrap_or_else(|| RowSettings::all(Settings::default()))
    }

    /// What was chosen for `kind`, if anything was. A forest takes too long for a search of its own: its rows are
    /// prepared as the LMAP's.
    #[must_use]
    pub fn chosen(&self, kind: Kind) -> Option<&Choices> {
        let whose = if kind.takes_settings() && kind.is_slow() { Kind::Lmap } else { kind };
        self.choices.iter().find(|choices| choices.kind == whose)
    }

    /// Each setting of the LMAP that judges some row.
    #[must_use]
    pub fn settings(&self) -> Vec<Settings> {
        self.chosen(Kind::Lmap).map_or_else(|| vec![Settings::default()], |choices| choices.per_fold.clone())
    }

    /// What was chosen, one Markdown table per detector.
    #[must_use]
    pub fn tables(&self) -> String {
        self.choices.iter().map(table).collect()
    }
}

fn choose(sets: &[DataSet], mut search: Search, name: &'static str) -> Result<Choices, WorkError> {
    loop {
        let options = search.options();
        if options.is_empty() {
            return Ok(search.finish());
        }
        let trials = work::on_all_units(sets, options.len() as u64, |place, unit, step| {
            let trials = search.run(place, unit, &options, || step(name));
            trials.map_err(|error| work::untrained(name, unit, &error))
        })?;
        search.choose(&options, &trials);
    }
}

/// A setting's name, and its value in words.
type Row = (&'static str, fn(&Settings) -> String);

/// How many of [`ROWS`] matter to a detector over prepared rows: the first.
const PREPARED_ROWS: usize = 5;

const ROWS: [Row; 13] = [
    ("levels", |s| if s.levels.is_some() { "yes" } else { "no" }.to_owned()),
    ("constant below, share of the mean", |s| s.constant_below.to_string()),
    ("soft clip", |s| if s.clip < 1e12 { s.clip.to_string() } else { "none".to_owned() }),
    ("smoothing, rows", |s| s.smoothing_span.to_string()),
    ("floor of deviations", |s| s.deviation_floor.to_string()),
    ("form of the score", |s| form(s.score).to_owned()),
    ("a constant that moves counts for", |s| {
        if s.constant_share > 0.0 { "γ".to_owned() } else { format!("{} deviations", s.constant_weight) }
    }),
    ("variance explained", |s| s.variance_share.to_string()),
    ("floor of residuals", |s| if s.residual_floor > 1e-6 { s.residual_floor.to_string() } else { "none".to_owned() }),
    ("γ", |s| threshold(s.threshold).to_owned()),
    ("every n-th row is learnt", |s| s.stride.to_string()),
    ("rows over γ for an episode", |s| format!("{} of {}", s.episode.need, s.episode.of)),
    ("cap on a row, in γ", |s| if s.episode_cap < f64::MAX { s.episode_cap.to_string() } else { "none".to_owned() }),
];

const fn form(form: ScoreForm) -> &'static str {
    match form {
        ScoreForm::Scaled => "scaled",
        ScoreForm::PaperAbsolute => "paper, absolute",
        ScoreForm::PaperRelative => "paper, relative",
    }
}

const fn threshold(threshold: Threshold) -> &'static str {
    match threshold {
        Threshold::Crosswise => "crosswise",
        Threshold::InSample => "in sample",
        Threshold::HeldOutTail => "held-out tail",
    }
}

/// What was chosen for each fold, beside the default.
fn table(choices: &Choices) -> String {
    let mut out = format!("| {} | default |", choices.kind.name());
    for fold in 1..=choices.per_fold.len() {
        let _ = write!(out, " fold {fold} |");
    }
    let _ = writeln!(out, " in hindsight |\n| --- |{}", " --- |".repeat(choices.per_fold.len() + 2));
    let default = Settings::default();
    let rows = if choices.kind == Kind::Lmap { &ROWS[..] } else { &ROWS[..PREPARED_ROWS] };
    for (name, value) in rows {
        let _ = write!(out, "| {name} |");
        for settings in [&default].into_iter().chain(&choices.per_fold).chain([&choices.on_all]) {
            let _ = write!(out, " {} |", value(settings));
        }
        out.push('\n');
    }
    out.push('\n');
    out
}
