//! One endpoint: its series are learnt, chosen, and written into a region from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::layout::Slot;
use wire::name::Labels;
use wire::registration::PlacedSeries;

use crate::body::read;
use crate::candidate::{Candidate, Form};
use crate::choice::{ChoiceSettings, Fate, choose};
use crate::discards::Discards;
use crate::exclusion::{ExcludedSeries, Exclusion};
use crate::format::{Format, FormatError};
use crate::intake::Intake;
use crate::lines::Lines;
use crate::model::Model;
use crate::otlp::{self, PartCounts};
use crate::output::{Output, REST, has_room_below_zero};
use crate::point_times::PointTimes;
use crate::program::ProgramState;
use crate::refused_samples::RefusedSamples;
use crate::report::{self, TargetReport};
use crate::series::{AllSeries, Destination, SeriesNumber, Values};

/// Scrapes after which a series that is absent may be forgotten.
const FORGET_AFTER: u32 = 10;

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
    /// Scrapes for which an absent gauge has its last value.
    pub hold: u32,
}

/// All that is known of an endpoint.
#[derive(Debug)]
pub struct Target {
    settings: TargetSettings,
    lines: Lines,
    all: AllSeries,
    outputs: Vec<Output>,
    /// Names of histograms with values below 0, as of the last choice.
    two_sided: BTreeSet<Arc<str>>,
    /// Outputs that are the rest of a name.
    rests: BTreeMap<Arc<str>, u32>,
    /// Series whose windows are being filled.
    learning: Vec<SeriesNumber>,
    /// Scrapes of the present window.
    learned: u32,
    is_chosen: bool,
    /// Series that are new in this scrape.
    new: Vec<SeriesNumber>,
    /// Samples that are looked at now.
    limit: usize,
    /// A key of OTLP, which is reused.
    key: Vec<u8>,
    /// What another replica of the service has chosen.
    model: Model,
    times: PointTimes,
    discards: Discards,
    /// Of the last scrape.
    samples: usize,
    refused: RefusedSamples,
    swept: u32,
    /// As of the last scrape.
    program: ProgramState,
}

impl Target {
    /// An endpoint of which nothing is known.
    #[must_use]
    pub fn new(settings: TargetSettings) -> Self {
        let all = AllSeries::new(settings.labels.clone());
        let (lines, limit) = (Lines::holding(settings.hold), settings.samples);
        Self {
            settings,
            lines,
            all,
            outputs: Vec::new(),
            two_sided: BTreeSet::new(),
            rests: BTreeMap::new(),
            learning: Vec::new(),
            learned: 0,
            is_chosen: false,
            new: Vec::new(),
            limit,
            key: Vec::new(),
            model: Model::default(),
            times: PointTimes::default(),
            discards: Discards::default(),
            samples: 0,
            refused: RefusedSamples::default(),
            swept: 0,
            program: ProgramState::default(),
        }
    }

    /// Takes a scrape. Returns true if there is something to choose: call [`Self::choose`]. Otherwise call
    /// [`Self::store`]. Allocates nothing if all samples are known and nothing is learnt.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: then nothing of it counts.
    pub fn take(&mut self, body: &[u8], format: Format) -> Result<bool, FormatError> {
        self.begin();
        let outcome = read(body, format, &mut self.intake());
        if let Err(error) = outcome {
            self.add_new();
            return Err(error);
        }
        Ok(self.end())
    }

    /// Begins a scrape that comes in parts: see [`Self::take_part`].
    pub fn begin(&mut self) {
        self.lines.begin();
        (self.samples, self.refused) = (0, RefusedSamples::default());
    }

    /// Takes a part of an export: an encoded `ResourceMetrics` of OTLP, of which at most `points` points are looked at.
    /// What cannot be used is left out, and counted: see [`Self::take_discards`].
    pub fn take_part(&mut self, resource: &[u8], points: usize) -> PartCounts {
        otlp::read(resource, points, &mut self.intake())
    }

    /// Whether `resource` is of the next export: its first point is of a known series, which has a value in this one.
    #[must_use]
    pub fn is_next(&self, resource: &[u8]) -> bool {
        otlp::is_next(resource, &self.lines, &self.times)
    }

    /// Points that were left out since the last call, by reason.
    pub const fn take_discards(&mut self) -> Discards {
        core::mem::replace(&mut self.discards, Discards::new())
    }

    /// From now on it looks at `free` samples more than it [counts for](Self::weight) now, and never at more than its
    /// settings say.
    pub fn leave_room(&mut self, free: usize) {
        self.limit = self.settings.samples.min(self.weight().saturating_add(free));
    }

    fn intake(&mut self) -> Intake<'_> {
        let Self { lines, all, new, key, times, discards, samples, refused, limit, .. } = self;
        Intake { lines, all, new, key, limit: *limit, samples, refused, times, discards }
    }

    /// Ends a scrape: as [`Self::take`].
    pub fn end(&mut self) -> bool {
        self.add_new();
        self.learn();
        self.fill(|_| true);
        self.program = ProgramState::of(&mut self.all, &self.lines);
        self.lines.end();
        self.sweep();
        !self.learning.is_empty() && self.learned >= self.settings.window
    }

    /// What the last scrape says about the program behind the endpoint.
    #[must_use]
    pub const fn program(&self) -> ProgramState {
        self.program
    }

    /// A target for another replica of the same service: it watches the same series from its first scrape on.
    #[must_use]
    pub fn twin(&self) -> Self {
        let mut twin = Self::new(self.settings.clone());
        if self.is_chosen {
            twin.is_chosen = true;
            twin.learned = self.learned;
            twin.outputs = self.outputs.iter().map(Output::twin).collect();
            twin.rests.clone_from(&self.rests);
            let series = self.all.iter().map(|(_, series)| series);
            twin.model = self.model.with(series, |output| !self.is_rest(output), self.settings.samples);
            twin.lines.charge(twin.model.bytes());
        }
        twin
    }

    fn is_rest(&self, output: u32) -> bool {
        self.rests.values().any(|rest| *rest == output)
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
    fn add_new(&mut self) {
        let new = core::mem::take(&mut self.new);
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
            let modelled = self.model.output(series);
            let rest = self.rests.get(&series.name).copied();
            if let Some(output) = modelled.or(rest) {
                series.place = Destination::Output(output);
            } else if let Some(why) = self.model.exclusion(&series.name) {
                series.place = Destination::Nowhere(why);
            } else if known.contains(&series.family) {
                series.place = Destination::Nowhere(Exclusion::CameLater);
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
            let Self { all, lines, rests, .. } = self;
            all.forget(lines, FORGET_AFTER, |output| rests.values().any(|rest| *rest == output));
        }
    }

    /// Chooses among the series whose windows are full. Series that are watched stay, unless their target has not
    /// exposed them for a whole window.
    pub fn choose(&mut self) {
        let learning = core::mem::take(&mut self.learning);
        let mut named: Vec<(SeriesNumber, Box<str>)> = Vec::with_capacity(learning.len());
        named.extend(learning.into_iter().filter_map(|number| {
            let labels = self.all.get(number)?.labels.as_ref()?;
            Some((number, labels.to_string().into()))
        }));
        self.drop_dead();
        let settings = ChoiceSettings {
            columns: self.settings.choice.columns.saturating_sub(self.columns()),
            ..self.settings.choice.clone()
        };
        // All series of a name are alike, since they may have one rest.
        let of_named = named.iter().filter_map(|(number, _)| self.all.get(*number));
        let two_sided = of_named.filter(|series| series.is_two_sided(&self.lines));
        self.two_sided = two_sided.map(|series| Arc::clone(&series.name)).collect();
        let mut candidates: Vec<Candidate<'_>> = Vec::with_capacity(named.len());
        candidates.extend(named.iter().filter_map(|(number, labels)| {
            let series = self.all.get(*number)?;
            let is_present = series.age(&self.lines) <= self.settings.hold;
            let has_both = self.two_sided.contains(&series.name) && has_room_below_zero(&series.name);
            let form = match series.form() {
                Form::Histogram if has_both => Form::TwoSided,
                form => form,
            };
            Some(Candidate { name: &series.name, labels, form, window: &series.window, is_present })
        }));
        let choice = choose(&candidates, &settings);
        let reasons: Vec<_> = choice.fates.iter().map(|fate| self.exclusion(*fate, &named)).collect();
        for (((number, _), fate), why) in named.iter().zip(&choice.fates).zip(reasons) {
            self.put(*number, *fate, why);
        }
        // A counter with labels has a rest even if nothing is in it yet.
        for (number, _) in &named {
            if self.all.get(*number).is_some_and(|series| choice.rests.contains(&*series.name)) {
                self.rest_of(*number);
            }
        }
        for series in self.all.iter_mut() {
            series.window = Vec::new();
            if series.place == Destination::Undecided {
                // Its labels are none of a column. The rest of its name has others, as for those that come later.
                series.place = match self.rests.get(&series.name) {
                    Some(rest) => Destination::Output(*rest),
                    None => Destination::Nowhere(Exclusion::Labels),
                };
            }
        }
        // What is counted begins with the next scrape.
        self.fill(|values| matches!(values, Values::Gauge(_)));
        self.is_chosen = true;
        self.learned = self.settings.window;
    }

    /// Why a series has this fate; `None` if it is watched.
    fn exclusion(&self, fate: Fate, named: &[(SeriesNumber, Box<str>)]) -> Option<Exclusion> {
        let Fate::Left(left) = fate else { return None };
        let same = match left {
            crate::choice::LeftOut::Redundant(at) => named.get(at).and_then(|(number, _)| self.all.get(*number)),
            _ => None,
        };
        Some(report::exclusion(left, same))
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
        self.model.move_outputs(to);
        for series in self.all.iter_mut() {
            if let Destination::Output(output) = series.place {
                series.place = to(output).map_or_else(|| Destination::Nowhere(Exclusion::Gone), Destination::Output);
            }
        }
        let mut first = Slot(0);
        for output in &mut self.outputs {
            output.move_to(first);
            first = output.end();
        }
    }

    /// Gives a series its place.
    fn put(&mut self, number: SeriesNumber, fate: Fate, why: Option<Exclusion>) {
        let place = match fate {
            Fate::Left(_) => Destination::Nowhere(why.unwrap_or(Exclusion::NoRoom)),
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
        let Some(series) = self.all.get(number) else { return Destination::Undecided };
        let name = Arc::clone(&series.name);
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
            let is_two_sided = self.two_sided.contains(&series.name);
            Output::new((series, family), labels, is_two_sided, first, &self.lines)
        });
        match made {
            Some(Ok(output)) => {
                self.outputs.push(output);
                Destination::Output(self.outputs.len() as u32 - 1)
            }
            Some(Err(_)) | None => Destination::Nowhere(Exclusion::Labels),
        }
    }

    /// Whether series were chosen: there is a region to write.
    #[must_use]
    pub const fn is_chosen(&self) -> bool {
        self.is_chosen
    }

    /// Whether there are series of which it is not decided yet whether they are watched.
    #[must_use]
    pub const fn is_learning(&self) -> bool {
        !self.learning.is_empty()
    }

    /// The series of the region, with their slots.
    #[must_use]
    pub fn placed(&self) -> Vec<PlacedSeries> {
        self.outputs.iter().flat_map(Output::placed).collect()
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

    /// Series with columns of their own.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.outputs.len() - self.rests.len()
    }

    /// How many series are known.
    #[must_use]
    pub fn exposed(&self) -> usize {
        self.all.len()
    }

    /// Columns of all series.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.outputs.iter().map(Output::columns).sum()
    }

    /// For how many samples it counts in a limit: those that are known, or more if their names and buckets are longer
    /// than those of a sample on average, 900 bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.lines.weight()
    }

    /// How many samples are known.
    #[must_use]
    pub fn known_samples(&self) -> usize {
        self.lines.len()
    }

    /// Samples of the last scrape, and those of them that were refused.
    #[must_use]
    pub const fn last_scrape(&self) -> (usize, RefusedSamples) {
        (self.samples, self.refused)
    }

    /// Series without a column, by reason. Looks at all of them.
    #[must_use]
    pub fn excluded(&self) -> ExcludedSeries {
        report::excluded(&self.all)
    }

    /// What is watched, and why the rest is not.
    #[must_use]
    pub fn report(&self) -> TargetReport {
        let of = |rest: bool| {
            let is_of =
                |place: &Destination| matches!(place, Destination::Output(output) if self.is_rest(*output) == rest);
            self.all.iter().filter(|(_, series)| is_of(&series.place)).count()
        };
        let is_cut = |output: u32| self.outputs.get(output as usize).is_some_and(Output::leaves_out_below_zero);
        let needed = self.settings.window;
        TargetReport {
            samples: self.samples,
            exposed: self.exposed(),
            watched: of(false),
            summed: of(true),
            columns: self.columns(),
            refused: self.refused.too_many + self.refused.too_long,
            learned: (if self.is_chosen { needed } else { self.learned.min(needed) }, needed),
            excluded: self.excluded(),
            families: report::families(&self.all, |output| !self.is_rest(output), is_cut),
        }
    }
}
