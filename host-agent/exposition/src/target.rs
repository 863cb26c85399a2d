//! One endpoint: its series are learnt, chosen, and written into a region from then on.

use std::collections::{BTreeMap, BTreeSet};

use wire::layout::Slot;
use wire::name::Labels;
use wire::registration::PlacedSeries;

use crate::choice::{Candidate, ChoiceSettings, Fate, choose};
use crate::format::{Description, Format, FormatError, Sink, read};
use crate::lines::{Line, Lines, NoRoom};
use crate::output::{NoOutput, Output, REST};
use crate::report::{self, TargetReport};
use crate::series::{AllSeries, Destination, SeriesNumber, Values};

/// Scrapes after which a series that is absent may be forgotten.
const FORGET_AFTER: u32 = 10;
/// Why a series has no column although it would be watched.
const UNNAMEABLE: &str = "labels that no column may have";

/// Settings of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSettings {
    /// What is chosen.
    pub choice: ChoiceSettings,
    /// Labels that are added to all series.
    pub labels: Vec<(String, String)>,
    /// Scrapes that are learnt before series are chosen.
    pub window: u32,
    /// Samples that are looked at. More are refused.
    pub samples: usize,
}

/// All that is known of an endpoint.
#[derive(Debug)]
pub struct Target {
    settings: TargetSettings,
    lines: Lines,
    all: AllSeries,
    outputs: Vec<Output>,
    /// Outputs that are the rest of a name.
    rests: BTreeMap<String, u32>,
    /// Series whose windows are being filled.
    learning: Vec<SeriesNumber>,
    /// Scrapes of the present window.
    learned: u32,
    is_chosen: bool,
    /// Of the last scrape.
    samples: usize,
    refused: RefusedSamples,
    swept: u32,
}

/// Samples of a scrape that were not looked at, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedSamples {
    /// There are as many as are looked at.
    pub too_many: usize,
    /// Their names and labels are longer than is kept.
    pub too_long: usize,
    /// The scrape has another sample of the same name and labels, which counts.
    pub duplicate: usize,
}

impl RefusedSamples {
    /// Names of the reasons, in the order of [`Self::counts`].
    pub const REASONS: [&'static str; 3] = ["too_many", "too_long", "duplicate"];

    /// The number of each reason.
    #[must_use]
    pub const fn counts(self) -> [usize; 3] {
        [self.too_many, self.too_long, self.duplicate]
    }
}

/// Takes the samples of one scrape.
struct Intake<'t> {
    lines: &'t mut Lines,
    all: &'t mut AllSeries,
    new: &'t mut Vec<SeriesNumber>,
    limit: usize,
    samples: usize,
    refused: RefusedSamples,
}

impl Sink for Intake<'_> {
    fn sample(&mut self, key: &[u8], value: f64, describe: impl FnOnce() -> Option<Description>) {
        self.samples += 1;
        if let Some(line) = self.lines.find(key) {
            return self.set(line, value);
        }
        if let Err(room) = self.lines.room(key, self.limit) {
            match room {
                NoRoom::Keys => self.refused.too_many += 1,
                NoRoom::Bytes => self.refused.too_long += 1,
            }
            return;
        }
        let Some(description) = describe() else {
            self.refused.too_long += 1;
            return;
        };
        let (line, new) = self.all.add(description, self.lines);
        self.new.extend(new);
        self.lines.name(key, line);
        self.set(line, value);
    }
}

impl Intake<'_> {
    /// Sets the value of `line`, unless this scrape has one already.
    fn set(&mut self, line: Line, value: f64) {
        if self.lines.is_here(line) {
            self.refused.duplicate += 1;
        } else {
            self.lines.set(line, value);
        }
    }
}

impl Target {
    /// An endpoint of which nothing is known.
    #[must_use]
    pub fn new(settings: TargetSettings) -> Self {
        let all = AllSeries::new(settings.labels.clone());
        Self {
            settings,
            lines: Lines::default(),
            all,
            outputs: Vec::new(),
            rests: BTreeMap::new(),
            learning: Vec::new(),
            learned: 0,
            is_chosen: false,
            samples: 0,
            refused: RefusedSamples::default(),
            swept: 0,
        }
    }

    /// Takes a scrape. Returns true if there is something to choose: call [`Self::choose`]. Otherwise call
    /// [`Self::store`]. Allocates nothing if all samples are known and nothing is learnt.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: then nothing of it counts.
    pub fn take(&mut self, body: &[u8], format: Format) -> Result<bool, FormatError> {
        self.lines.begin();
        let mut new = Vec::new();
        let limit = self.settings.samples;
        let Self { lines, all, .. } = self;
        let refused = RefusedSamples::default();
        let mut intake = Intake { lines, all, new: &mut new, limit, samples: 0, refused };
        let outcome = read(body, format, &mut intake);
        (self.samples, self.refused) = (intake.samples, intake.refused);
        self.add_new(new);
        outcome?;
        self.learn();
        self.fill(|_| true);
        self.lines.end();
        self.sweep();
        Ok(!self.learning.is_empty() && self.learned >= self.settings.window)
    }

    /// Adds what those series that `are_meant` did in this scrape to their outputs.
    fn fill(&mut self, are_meant: impl Fn(&Values) -> bool) {
        for output in &mut self.outputs {
            output.begin();
        }
        for (_, series) in self.all.iter().filter(|(_, series)| are_meant(&series.values)) {
            if let Destination::Output(output) = series.place
                && let Some(output) = self.outputs.get_mut(output as usize)
            {
                output.add(series, &self.lines);
            }
        }
    }

    /// New series of a name with a rest go there; those of names that nobody knew are learnt.
    fn add_new(&mut self, new: Vec<SeriesNumber>) {
        if new.is_empty() {
            return;
        }
        let known: BTreeSet<usize> = if self.is_chosen {
            let is_decided = |place: &Destination| *place != Destination::Undecided;
            self.all.iter().filter(|(_, series)| is_decided(&series.place)).map(|(_, series)| series.family).collect()
        } else {
            BTreeSet::new()
        };
        if self.learning.is_empty() {
            self.learned = 0;
        }
        for number in new {
            let Some(series) = self.all.get_mut(number) else { continue };
            if let Some(rest) = self.rests.get(&series.name) {
                series.place = Destination::Output(*rest);
            } else if known.contains(&series.family) {
                series.place = Destination::Nowhere("came later".to_owned());
            } else {
                series.window = vec![f32::NAN; self.settings.window as usize];
                self.learning.push(number);
            }
        }
    }

    fn learn(&mut self) {
        if self.learning.is_empty() {
            return;
        }
        let at = self.learned as usize;
        for number in &self.learning {
            let Some(series) = self.all.get_mut(*number) else { continue };
            let activity = series.activity(&self.lines);
            if let Some(place) = series.window.get_mut(at) {
                *place = activity as f32;
            }
            let value = if let Values::Counter(line) = series.values { self.lines.value(line) } else { 0.0 };
            let family = series.family;
            if value.is_finite() && value.fract() != 0.0 {
                self.all.families[family].has_fractions = true;
            }
        }
        self.learned = self.learned.saturating_add(1);
    }

    /// Makes room if samples were refused.
    fn sweep(&mut self) {
        let scrape = self.lines.scrape();
        if self.refused.too_many + self.refused.too_long > 0
            && self.learning.is_empty()
            && scrape - self.swept > FORGET_AFTER
        {
            self.swept = scrape;
            self.all.forget(&mut self.lines, FORGET_AFTER);
        }
    }

    /// Chooses among the series whose windows are full. Series that are watched stay, unless their target has not
    /// exposed them for a whole window.
    pub fn choose(&mut self) {
        let learning = core::mem::take(&mut self.learning);
        let named: Vec<(SeriesNumber, String)> = learning
            .into_iter()
            .filter_map(|number| {
                let series = self.all.get(number)?;
                Some((number, series.labels.as_ref().map(ToString::to_string)?))
            })
            .collect();
        self.drop_dead();
        let taken: usize = self.outputs.iter().map(Output::columns).sum();
        let settings = ChoiceSettings {
            columns: self.settings.choice.columns.saturating_sub(taken),
            ..self.settings.choice.clone()
        };
        let candidates: Vec<Candidate<'_>> = named
            .iter()
            .filter_map(|(number, labels)| {
                let series = self.all.get(*number)?;
                Some(Candidate { name: &series.name, labels, form: series.form(), window: &series.window })
            })
            .collect();
        let choice = choose(&candidates, &settings);
        let reasons: Vec<String> = choice.fates.iter().map(|fate| self.reason(*fate, &named)).collect();
        for (((number, _), fate), why) in named.iter().zip(&choice.fates).zip(reasons) {
            self.put(*number, *fate, why);
        }
        // A counter with labels has a rest even if nothing is in it yet.
        for (number, _) in &named {
            if self.all.get(*number).is_some_and(|series| choice.rests.contains(&series.name)) {
                self.rest_of(*number);
            }
        }
        for series in self.all.iter_mut() {
            series.window = Vec::new();
            if series.place == Destination::Undecided {
                series.place = Destination::Nowhere(UNNAMEABLE.to_owned());
            }
        }
        // What is counted begins with the next scrape.
        self.fill(|values| matches!(values, Values::Gauge(_)));
        self.is_chosen = true;
        self.learned = self.settings.window;
    }

    fn reason(&self, fate: Fate, named: &[(SeriesNumber, String)]) -> String {
        let Fate::Left(left) = fate else { return String::new() };
        let same = match left {
            crate::choice::LeftOut::Redundant(at) => named.get(at).and_then(|(number, _)| self.all.get(*number)),
            _ => None,
        };
        report::reason(left, same)
    }

    /// Drops outputs of which nothing was seen for a whole window.
    fn drop_dead(&mut self) {
        let window = self.settings.window;
        let mut alive = vec![false; self.outputs.len()];
        for (_, series) in self.all.iter() {
            if let Destination::Output(output) = series.place
                && let Some(alive) = alive.get_mut(output as usize)
            {
                *alive |= series.age(&self.lines) < window;
            }
        }
        if alive.iter().all(|alive| *alive) {
            return;
        }
        let mut moved = Vec::new();
        let mut kept = 0;
        for alive in &alive {
            moved.push(alive.then_some(kept));
            kept += u32::from(*alive);
        }
        let mut alive = alive.into_iter();
        self.outputs.retain(|_| alive.next().unwrap_or(false));
        let to = |output: u32| moved.get(output as usize).copied().flatten();
        self.rests =
            core::mem::take(&mut self.rests).into_iter().filter_map(|(name, at)| Some((name, to(at)?))).collect();
        for series in self.all.iter_mut() {
            if let Destination::Output(output) = series.place {
                series.place = to(output).map_or_else(|| Destination::Nowhere("gone".to_owned()), Destination::Output);
            }
        }
        let mut first = Slot(0);
        for output in &mut self.outputs {
            output.move_to(first);
            first = output.end();
        }
    }

    /// Gives a series its place.
    fn put(&mut self, number: SeriesNumber, fate: Fate, why: String) {
        let place = match fate {
            Fate::Left(_) => Destination::Nowhere(why),
            Fate::Watched => {
                let labels = self.all.get(number).and_then(|series| series.labels.clone());
                self.add_output(number, labels)
            }
            Fate::Rest => self.rest_of(number),
        };
        if let Some(series) = self.all.get_mut(number) {
            series.place = place;
        }
    }

    /// The rest of the name of a series, which may be new.
    fn rest_of(&mut self, number: SeriesNumber) -> Destination {
        let Some(name) = self.all.get(number).map(|series| series.name.clone()) else { return Destination::Undecided };
        if let Some(rest) = self.rests.get(&name) {
            return Destination::Output(*rest);
        }
        let added = self.settings.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let place = self.add_output(number, Labels::new(added.chain([REST])).ok());
        if let Destination::Output(output) = place {
            self.rests.insert(name, output);
        }
        place
    }

    /// An output for a series like this one, with `labels`.
    fn add_output(&mut self, number: SeriesNumber, labels: Option<Labels>) -> Destination {
        let first = self.outputs.last().map_or(Slot(0), Output::end);
        let made = self.all.get(number).zip(labels).map(|(series, labels)| {
            let family = &self.all.families[series.family];
            Output::new(series, family, labels, first)
        });
        match made {
            Some(Ok(output)) => {
                self.outputs.push(output);
                Destination::Output(self.outputs.len() as u32 - 1)
            }
            Some(Err(NoOutput::Bounds)) => Destination::Nowhere("bounds below 0".to_owned()),
            Some(Err(NoOutput::Name)) | None => Destination::Nowhere(UNNAMEABLE.to_owned()),
        }
    }

    /// Whether series were chosen: there is a region to write.
    #[must_use]
    pub const fn is_chosen(&self) -> bool {
        self.is_chosen
    }

    /// The series of the region, with their slots.
    #[must_use]
    pub fn placed(&self) -> Vec<PlacedSeries> {
        self.outputs.iter().map(Output::placed).collect()
    }

    /// The number of slots of the region.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.outputs.last().map_or(0, |output| output.end().0)
    }

    /// Writes all values by `store`.
    pub fn store(&self, mut store: impl FnMut(Slot, u64)) {
        for output in &self.outputs {
            output.store(&mut store);
        }
    }

    /// Samples of the last scrape, and those of them that were refused.
    #[must_use]
    pub const fn last_scrape(&self) -> (usize, RefusedSamples) {
        (self.samples, self.refused)
    }

    /// What is watched, and why the rest is not.
    #[must_use]
    pub fn report(&self) -> TargetReport {
        let is_rest = |output: u32| self.rests.values().any(|rest| *rest == output);
        let of = |rest: bool| {
            let is_of = |place: &Destination| matches!(place, Destination::Output(output) if is_rest(*output) == rest);
            self.all.iter().filter(|(_, series)| is_of(&series.place)).count()
        };
        let needed = self.settings.window;
        TargetReport {
            samples: self.samples,
            exposed: self.all.len(),
            watched: of(false),
            summed: of(true),
            columns: self.outputs.iter().map(Output::columns).sum(),
            refused: self.refused.too_many + self.refused.too_long,
            learned: (if self.is_chosen { needed } else { self.learned.min(needed) }, needed),
            families: report::families(&self.all, |output| !is_rest(output)),
        }
    }
}
