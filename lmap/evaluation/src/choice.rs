//! Chooses a detector's settings by labels, in stages that begin at the paper's pipeline. With [folds](crate::folds),
//! what is chosen for a fold has seen none of its labels. Pure: the caller runs the detectors.
//!
//! | stage | settings | by | of |
//! | --- | --- | --- | --- |
//! | input | form of the score, what a constant that moves counts for | AUC-PR | the LMAP |
//! | | levels, what is a constant | AUC-PR | all |
//! | noise | soft clip, smoothing | AUC-PR | all |
//! | basis | explained variance, floor of residuals | AUC-PR | the LMAP |
//! | | floor of deviations | AUC-PR | all |
//! | input, noise, basis | once more, since each depends on the others | AUC-PR | all |
//! | γ | where its training scores come from, stride of learning | F1 at γ | the LMAP |
//! | episodes | rows over γ, cap on single rows | F1 of episodes | the LMAP |
//!
//! A stage takes the combination with the highest mean over sets, each the mean over its units. Of equals it takes the
//! first. Everything else is as it is by default. *All*: also the detectors over prepared rows, each by its own scores.

use lmap::{EpisodeRule, LevelRule, ScoreForm, Settings, Threshold};

use crate::candidate::{Candidate, Kind, TrainError};
use crate::episodes::Episodes;
use crate::folds::{Folds, UnitIndex, without};
use crate::protocol::{self, DetectorRun};
use crate::unit::Unit;

/// What a stage maximises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    AucPr,
    F1AtGamma,
    EpisodeF1,
}

/// Settings that are chosen together.
#[derive(Clone, Copy, Debug)]
struct Stage {
    goal: Goal,
    /// All combinations, on top of what was chosen before.
    options: fn(&Settings) -> Vec<Settings>,
}

const INPUTS: Stage = Stage { goal: Goal::AucPr, options: inputs };
const NOISE: Stage = Stage { goal: Goal::AucPr, options: noise };
const BASES: Stage = Stage { goal: Goal::AucPr, options: bases };
const THRESHOLDS: Stage = Stage { goal: Goal::F1AtGamma, options: thresholds };
const EPISODES: Stage = Stage { goal: Goal::EpisodeF1, options: episodes };
const LMAP: [Stage; 8] = [INPUTS, NOISE, BASES, INPUTS, NOISE, BASES, THRESHOLDS, EPISODES];

const ROWS: Stage = Stage { goal: Goal::AucPr, options: rows };
const FLOORS: Stage = Stage { goal: Goal::AucPr, options: floors };
const PREPARED: [Stage; 6] = [ROWS, NOISE, FLOORS, ROWS, NOISE, FLOORS];

/// Where the search begins: the paper's pipeline, which was chosen on none of this data.
fn start() -> Settings {
    Settings { episode: EpisodeRule { need: 1, of: 1, ..EpisodeRule::default() }, episode_cap: f64::MAX, ..paper() }
}

fn paper() -> Settings {
    Settings::paper(ScoreForm::PaperAbsolute)
}

/// The paper's form of the score; ours, with what belongs to it: variances that are renewed, and averages that grow.
fn forms(base: &Settings) -> [Settings; 2] {
    let Settings { learning_rate, renew_variances, growth_rows, .. } = Settings::default();
    let ours = Settings { score: ScoreForm::Scaled, learning_rate, renew_variances, growth_rows, ..base.clone() };
    [Settings { score: ScoreForm::PaperAbsolute, ..base.clone() }, ours]
}

fn inputs(base: &Settings) -> Vec<Settings> {
    let moves = |base: Settings| {
        let counts = [(0.0, 0.0), (5.0, 0.0), (5.0, 1.0)];
        counts.map(|(constant_weight, constant_share)| Settings { constant_weight, constant_share, ..base.clone() })
    };
    forms(base).iter().flat_map(rows).flat_map(moves).collect()
}

fn rows(base: &Settings) -> Vec<Settings> {
    let levels = [None, Some(LevelRule::default())].map(|levels| Settings { levels, ..base.clone() });
    let constants =
        |base: Settings| [0.0, 0.0005, 0.001].map(|constant_below| Settings { constant_below, ..base.clone() });
    levels.into_iter().flat_map(constants).collect()
}

fn noise(base: &Settings) -> Vec<Settings> {
    let clips = [1e12, 50.0, 20.0, 5.0].map(|clip| Settings { clip, ..base.clone() });
    let spans = |base: Settings| [1.0, 3.0, 7.0].map(|smoothing_span| Settings { smoothing_span, ..base.clone() });
    clips.into_iter().flat_map(spans).collect()
}

fn bases(base: &Settings) -> Vec<Settings> {
    let shares = [0.9, 0.95].map(|variance_share| Settings { variance_share, ..base.clone() });
    let left = |base: Settings| [1e-6, 0.05, 0.2].map(|residual_floor| Settings { residual_floor, ..base.clone() });
    shares.iter().flat_map(floors).flat_map(left).collect()
}

fn floors(base: &Settings) -> Vec<Settings> {
    [0.0, 0.05].map(|deviation_floor| Settings { deviation_floor, ..base.clone() }).to_vec()
}

fn thresholds(base: &Settings) -> Vec<Settings> {
    let rules = [Threshold::InSample, Threshold::Crosswise, Threshold::HeldOutTail];
    let rules = rules.map(|threshold| Settings { threshold, ..base.clone() });
    let strides = |base: Settings| [1, 5, 50].map(|stride| Settings { stride, ..base.clone() });
    rules.into_iter().flat_map(strides).collect()
}

fn episodes(base: &Settings) -> Vec<Settings> {
    let rules = [(1, 1), (2, 3), (3, 5)].map(|(need, of)| EpisodeRule { need, of, ..EpisodeRule::default() });
    let rules = rules.map(|episode| Settings { episode, ..base.clone() });
    let caps = |base: Settings| [f64::MAX, 3.0, 2.0, 1.5].map(|episode_cap| Settings { episode_cap, ..base.clone() });
    rules.into_iter().flat_map(caps).collect()
}

/// What settings reached on a unit's rows.
#[derive(Clone, Debug, PartialEq)]
struct Reached {
    auc_pr: Option<f64>,
    f1_at_gamma: Option<f64>,
    episodes: Episodes,
}

impl Reached {
    fn of(unit: &Unit, course: &DetectorRun, quiet: usize) -> Self {
        let ranking = protocol::ranking(unit, course);
        let counts = ranking.anomalous() > 0;
        Self {
            auc_pr: counts.then(|| ranking.auc_pr()),
            f1_at_gamma: counts.then(|| ranking.at(course.gamma).0),
            episodes: Episodes::of(unit, course, quiet),
        }
    }
}

/// What settings reached on a unit: on all of its rows, and without those of each of its folds.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    all: Reached,
    without: Vec<(usize, Option<Reached>)>,
}

impl Trial {
    /// On the rows that are not in `fold`; `None`: on all.
    fn outside(&self, fold: Option<usize>) -> Option<&Reached> {
        let own = self.without.iter().find(|(of, _)| Some(*of) == fold);
        own.map_or(Some(&self.all), |(_, reached)| reached.as_ref())
    }
}

/// A search for a detector's settings, one per fold and one by all rows.
#[derive(Clone, Debug)]
pub struct Search {
    kind: Kind,
    folds: Folds,
    stage: usize,
    /// One per fold, the one by all rows last.
    chosen: Vec<Settings>,
}

impl Search {
    /// Begins at the paper's pipeline.
    #[must_use]
    pub fn new(kind: Kind, folds: Folds) -> Self {
        Self { kind, chosen: vec![start(); folds.count() + 1], folds, stage: 0 }
    }

    /// The stage to come.
    fn stage(&self) -> Option<&'static Stage> {
        if self.kind == Kind::Lmap { LMAP.get(self.stage) } else { PREPARED.get(self.stage) }
    }

    /// The settings to try next on every unit, empty when all is chosen.
    #[must_use]
    pub fn options(&self) -> Vec<Settings> {
        let mut out: Vec<Settings> = Vec::new();
        let Some(stage) = self.stage() else { return out };
        for option in self.chosen.iter().flat_map(stage.options) {
            if !out.contains(&option) {
                out.push(option);
            }
        }
        out
    }

    /// Tries `options` on the unit at `place`. `step` is called before each.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if the unit cannot be trained on.
    pub fn run(
        &self,
        place: UnitIndex,
        unit: &Unit,
        options: &[Settings],
        step: impl Fn(),
    ) -> Result<Vec<Trial>, TrainError> {
        let rows = self.folds.of(place, unit);
        let mut own = rows.clone();
        own.sort_unstable();
        own.dedup();
        let views: Vec<(usize, Option<Unit>)> = own.iter().map(|fold| (*fold, without(unit, &rows, *fold))).collect();
        let trial = |settings: &Settings| {
            step();
            let course = protocol::run(self.kind.train(unit, settings)?.as_mut(), unit);
            let quiet = settings.episode.quiet as usize;
            let reached = |unit: &Unit| Reached::of(unit, &course, quiet);
            let without = views.iter().map(|(fold, view)| (*fold, view.as_ref().map(reached))).collect();
            Ok(Trial { all: reached(unit), without })
        };
        options.iter().map(trial).collect()
    }

    /// Chooses among `options` by what each reached, per set and unit, and goes on to the next stage.
    pub fn choose(&mut self, options: &[Settings], trials: &[Vec<Vec<Trial>>]) {
        let Some(stage) = self.stage() else { return };
        let count = self.folds.count();
        for (place, chosen) in self.chosen.iter_mut().enumerate() {
            let fold = (place < count).then_some(place);
            let own = (stage.options)(chosen);
            let figure = |settings: &Settings| {
                let option = options.iter().position(|option| option == settings)?;
                mean_over_sets(stage.goal, trials.iter().map(|units| outside(units, option, fold)))
            };
            let best = own.into_iter().map(|option| (figure(&option), option));
            let best = best.reduce(|best, next| if next.0 > best.0 { next } else { best });
            if let Some((Some(_), option)) = best {
                *chosen = option;
            }
        }
        self.stage += 1;
    }

    /// What was chosen.
    #[must_use]
    pub fn finish(mut self) -> Choices {
        let on_all = self.chosen.pop().unwrap_or_else(start);
        Choices { kind: self.kind, folds: self.folds, per_fold: self.chosen, on_all }
    }
}

/// What `option` reached on the rows of each unit outside of `fold`.
fn outside(units: &[Vec<Trial>], option: usize, fold: Option<usize>) -> Vec<&Reached> {
    units.iter().filter_map(|trials| trials[option].outside(fold)).collect()
}

/// The mean over the sets that have the figure; `None` if none has.
fn mean_over_sets<'a>(goal: Goal, sets: impl Iterator<Item = Vec<&'a Reached>>) -> Option<f64> {
    mean(sets.filter_map(|units| match goal {
        Goal::AucPr => mean(units.iter().filter_map(|reached| reached.auc_pr)),
        Goal::F1AtGamma => mean(units.iter().filter_map(|reached| reached.f1_at_gamma)),
        Goal::EpisodeF1 => {
            let mut episodes = Episodes::default();
            for reached in units {
                episodes.add(&reached.episodes);
            }
            episodes.f1()
        }
    }))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// The settings that were chosen for one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Whose settings they are.
    pub kind: Kind,
    folds: Folds,
    /// Per fold, chosen on the rows of all others.
    pub per_fold: Vec<Settings>,
    /// Chosen on all rows, so in hindsight for each.
    pub on_all: Settings,
}

impl Choices {
    /// The settings for each test row of the unit at `place`: chosen without the labels of its fold.
    #[must_use]
    pub fn of(&self, place: UnitIndex, unit: &Unit) -> RowSettings {
        RowSettings { settings: self.per_fold.clone(), rows: self.folds.of(place, unit) }
    }
}

/// The settings by which each test row of a unit is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSettings {
    settings: Vec<Settings>,
    /// Per row, the index of its settings; empty: the first for all.
    rows: Vec<usize>,
}

impl RowSettings {
    /// The same settings for every row.
    #[must_use]
    pub fn all(settings: Settings) -> Self {
        Self { settings: vec![settings], rows: Vec::new() }
    }

    /// The same rows with changed settings.
    #[must_use]
    pub fn changed(&self, change: impl Fn(&mut Settings)) -> Self {
        let mut out = self.clone();
        out.settings.iter_mut().for_each(change);
        out
    }

    /// The settings of a unit's first row.
    #[must_use]
    pub fn first(&self) -> &Settings {
        &self.settings[self.rows.first().copied().unwrap_or(0)]
    }

    /// Runs a detector of each setting over all test rows of `unit`, and takes from each run the rows that are its own.
    /// If there are several, scores are in units of their γ.
    ///
    /// # Errors
    ///
    /// [`TrainError`] of any of them.
    pub fn run(
        &self,
        unit: &Unit,
        train: impl Fn(&Settings) -> Result<Box<dyn Candidate>, TrainError>,
    ) -> Result<DetectorRun, TrainError> {
        let run = |settings: &Settings| Ok::<_, TrainError>(protocol::run(train(settings)?.as_mut(), unit));
        if self.rows.iter().all(|index| self.settings[*index] == *self.first()) {
            return run(self.first());
        }
        let mut runs: Vec<Option<DetectorRun>> = vec![None; self.settings.len()];
        for index in &self.rows {
            if runs[*index].is_none() {
                runs[*index] = Some(run(&self.settings[*index])?);
            }
        }
        let runs: Vec<Option<DetectorRun>> = runs.into_iter().map(|run| run.map(DetectorRun::in_gammas)).collect();
        let of = |row: usize| runs[self.rows[row]].as_ref().expect("every index of a row has a run");
        Ok(DetectorRun {
            judged: (0..self.rows.len()).map(|row| of(row).judged[row]).collect(),
            gamma: 1.0,
            named: unit.segments.iter().enumerate().map(|(at, s)| of(s.rows.start).named[at].clone()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Columns;
    use crate::data_set::{self, DataSet};
    use crate::table::read;

    /// A wave and a noise; in the last tenth of the test rows the noise is `times` as wide.
    fn unit(name: &str, times: u32) -> Unit {
        let value = |row: u32| f64::from(row * 7919 % 101) - 50.0;
        let line =
            |row: u32, factor: u32| format!("{:.3},{}", (f64::from(row) * 0.2).sin(), value(row) * f64::from(factor));
        let train: String = (0..200).map(|row| line(row, 1) + "\n").collect();
        let test = |row: u32| line(row, if row >= 180 { times } else { 1 }) + &format!(",{}\n", u32::from(row >= 180));
        let test: String = (0..200).map(test).collect();
        let (train, test) = (format!("a,b\n{train}"), format!("a,b,label\n{test}"));
        let (train, test) = (read(train.as_bytes()).unwrap(), read(test.as_bytes()).unwrap());
        Unit::new(name.to_owned(), (&train, &test), &Columns::gauges(&train.metrics, |_| 0), &[]).unwrap()
    }

    fn sets(names: &[&str]) -> Vec<DataSet> {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            for half in ["train", "test"] {
                std::fs::write(folder.path().join(format!("{name}.{half}.csv")), "a,label\n1,0\n").unwrap();
            }
        }
        data_set::open(folder.path()).unwrap()
    }

    fn search(units: &[Unit], count: usize) -> Choices {
        let names: Vec<&str> = units.iter().map(|unit| unit.name.as_str()).collect();
        let mut search = Search::new(Kind::Lmap, Folds::new(&sets(&names), count));
        loop {
            let options = search.options();
            if options.is_empty() {
                return search.finish();
            }
            let trials = units
                .iter()
                .enumerate()
                .map(|(index, unit)| search.run(UnitIndex { set: 0, unit: index }, unit, &options, || {}).unwrap());
            let trials = vec![trials.collect()];
            search.choose(&options, &trials);
        }
    }

    #[test]
    fn what_is_chosen_for_a_fold_has_not_seen_its_labels() {
        let (a, b) = (unit("a", 3), unit("b", 9));
        let turned = Unit { labels: b.labels.iter().rev().copied().collect(), ..b.clone() };

        let (with, without) = (search(&[a.clone(), b], 2), search(&[a, turned], 2));

        assert_eq!(with.per_fold[1], without.per_fold[1], "b is judged in the second fold");
        assert_ne!(with.per_fold[0], without.per_fold[0], "and decides on a's settings");
        assert!(with.per_fold.iter().all(|settings| settings.clone().checked().is_ok()));
    }

    #[test]
    fn blocks_of_one_unit_are_each_from_the_run_with_their_own_settings() {
        let unit = unit("a", 5);
        let other = Settings { smoothing_span: 1.0, ..Settings::default() };
        let rows = (0..200).map(|row| usize::from(row >= 100)).collect();
        let both = RowSettings { settings: vec![Settings::default(), other.clone()], rows };
        let train = |settings: &Settings| Kind::Lmap.train(&unit, settings);

        let course = both.run(&unit, train).unwrap();

        for (settings, rows) in [(Settings::default(), 0..100), (other, 100..200)] {
            let alone = RowSettings::all(settings).run(&unit, train).unwrap();
            for row in rows {
                assert!((course.judged[row].score - alone.judged[row].score / alone.gamma).abs() < 1e-12);
            }
        }
        let same = RowSettings { settings: vec![Settings::default(); 2], ..both };
        assert_eq!(same.run(&unit, train).unwrap(), RowSettings::all(Settings::default()).run(&unit, train).unwrap());
    }
}
