//! Samples put together: each counter, gauge and histogram of a target, with the lines that have its values.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::name::{Labels, MetricName};

use crate::candidate::Form;
use crate::distribution::Distribution;
use crate::exclusion::Exclusion;
use crate::format::{Description, FamilyKind, Role};
use crate::lines::{Line, Lines};

/// The number of a series among those of its target.
pub type SeriesNumber = u32;

/// A unit that is longer is kept of no family, since no column may have it.
const MAX_UNIT: usize = 63;
/// What an [`Arc`] has beside its text.
const ARC: usize = 16;
/// A label, without its text.
const LABEL: usize = size_of::<(Box<str>, Box<str>)>();
/// What a label has more where it is written: `=`, quotes, a comma.
const PUNCTUATION: usize = 4;
/// The buckets of a histogram, of which there are four at first.
const BUCKETS: usize = size_of::<Buckets>() + 4 * size_of::<(f64, Line)>();

/// What tells a series from the others of its target: its name, and its labels as they came, sorted.
type Identity = (Arc<str>, Box<[(Box<str>, Box<str>)]>);

/// Why a sample that was never seen is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its series is known with another type.
    OtherType,
    /// Its texts are longer than there is room for.
    NoRoom,
}

/// A metric family.
#[derive(Debug)]
pub struct Family {
    pub name: Arc<str>,
    pub kind: FamilyKind,
    pub unit: Option<Box<str>>,
    /// Samples of which no column can be made.
    pub ignored: u32,
    /// Whether a counter of it had a value with a fraction.
    pub has_fractions: bool,
}

impl Family {
    /// Bytes of its texts.
    fn text(&self) -> usize {
        ARC + self.name.len() + self.unit.as_deref().map_or(0, str::len)
    }
}

/// The family of a sample: the number of a known one, or a new one, which has the known one's name.
struct SampleFamily {
    known: Option<usize>,
    new: Family,
}

impl SampleFamily {
    /// Bytes of texts that are new.
    fn text(&self) -> usize {
        if self.known.is_some() { 0 } else { self.new.text() }
    }
}

/// `labels`, sorted, in as little memory as they need.
fn pairs(mut labels: Vec<(String, String)>) -> Box<[(Box<str>, Box<str>)]> {
    labels.sort();
    labels.into_iter().map(|(key, value)| (key.into_boxed_str(), value.into_boxed_str())).collect()
}

/// Bytes of labels: as they `came`, and as those of a `column`, in text once more while series are chosen.
fn label_bytes(came: &[(Box<str>, Box<str>)], column: Option<&Labels>) -> usize {
    let came: usize = came.iter().map(|(key, value)| LABEL + key.len() + value.len()).sum();
    let count = column.map_or(0, |labels| labels.iter().count());
    let text: usize = column.into_iter().flat_map(Labels::iter).map(|(key, value)| key.len() + value.len()).sum();
    let places = if count == 0 { 0 } else { count.next_power_of_two().max(4) };
    came + LABEL * places + 2 * text + PUNCTUATION * count
}

/// The buckets of a histogram, by bound.
#[derive(Debug, Default)]
pub struct Buckets {
    pub bounds: Vec<(f64, Line)>,
    pub sum: Option<Line>,
    pub count: Option<Line>,
}

impl Buckets {
    /// The line with the number of all values.
    pub fn total(&self) -> Option<Line> {
        self.count.or_else(|| self.bounds.last().map(|(_, line)| *line))
    }

    /// Whether there are values below 0: it has bounds there.
    pub fn are_two_sided(&self) -> bool {
        self.bounds.first().is_some_and(|(bound, _)| *bound < 0.0)
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        self.bounds.iter().map(|(_, line)| *line).chain(self.sum).chain(self.count)
    }
}

/// The lines with the values of a series.
#[derive(Debug)]
pub enum Values {
    Counter(Line),
    Gauge(Line),
    Histogram(Box<Buckets>),
    /// A histogram in one line, which is its count.
    Distribution(Line),
}

impl Values {
    /// Whether samples with this role of a family of this kind are such values.
    const fn fits(&self, kind: FamilyKind, role: Role) -> bool {
        match self {
            Self::Distribution(_) => matches!(role, Role::Distribution),
            Self::Histogram(_) => is_classic(kind, role),
            Self::Gauge(_) => matches!(role, Role::Gauge),
            Self::Counter(_) => {
                !is_classic(kind, role) && matches!(role, Role::Counter | Role::Sum | Role::Count | Role::Bucket)
            }
        }
    }
}

/// Whether a sample is a part of a histogram whose buckets are samples.
const fn is_classic(kind: FamilyKind, role: Role) -> bool {
    matches!(role, Role::Bucket) || matches!(kind, FamilyKind::Histogram) && !matches!(role, Role::Distribution)
}

/// What becomes of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Destination {
    /// Its window is filled, or was never begun.
    #[default]
    Undecided,
    /// It goes into this output.
    Output(u32),
    /// Nothing is written of it, for this reason.
    Nowhere(Exclusion),
}

/// A series of a target.
#[derive(Debug)]
pub struct Series {
    pub family: usize,
    /// The family's name, of a summary's sum and count with their suffix.
    pub name: Arc<str>,
    /// `None` if its name or its labels cannot be those of a column.
    pub labels: Option<Labels>,
    pub values: Values,
    pub is_quantile: bool,
    /// Whether it has been above 0, for a gauge that says whether a program is up.
    pub was_positive: bool,
    /// Bytes of its texts, without the family's.
    text: u32,
    pub place: Destination,
    /// What it did in each scrape of the window; empty once it is decided.
    pub window: Vec<f32>,
}

impl Series {
    pub fn form(&self) -> Form {
        match self.values {
            Values::Counter(_) => Form::Counter,
            Values::Gauge(_) if self.is_quantile => Form::Quantile,
            Values::Gauge(_) => Form::Gauge,
            Values::Histogram(_) | Values::Distribution(_) => Form::Histogram,
        }
    }

    /// Whether it is a histogram with values below 0, as far as was seen.
    pub fn is_two_sided(&self, lines: &Lines) -> bool {
        match &self.values {
            Values::Histogram(buckets) => buckets.are_two_sided(),
            Values::Distribution(line) => lines.distribution(*line).is_some_and(Distribution::is_two_sided),
            Values::Counter(_) | Values::Gauge(_) => false,
        }
    }

    /// What it did in this scrape, for the window.
    pub fn activity(&self, lines: &Lines) -> f64 {
        match &self.values {
            Values::Counter(line) | Values::Distribution(line) => lines.growth(*line),
            Values::Gauge(line) => lines.value(*line),
            Values::Histogram(buckets) => buckets.total().map_or(0.0, |line| lines.growth(line)),
        }
    }

    /// Scrapes since any of its samples was seen.
    pub fn age(&self, lines: &Lines) -> u32 {
        match &self.values {
            Values::Counter(line) | Values::Gauge(line) | Values::Distribution(line) => lines.age(*line),
            Values::Histogram(buckets) => buckets.lines().map(|line| lines.age(line)).min().unwrap_or(u32::MAX),
        }
    }

    fn lines(&self) -> Vec<Line> {
        match &self.values {
            Values::Counter(line) | Values::Gauge(line) | Values::Distribution(line) => vec![*line],
            Values::Histogram(buckets) => buckets.lines().collect(),
        }
    }
}

/// All series of a target, with their families.
#[derive(Debug, Default)]
pub struct AllSeries {
    pub families: Vec<Family>,
    family_numbers: BTreeMap<Arc<str>, usize>,
    /// `None`: forgotten, and its number is free.
    series: Vec<Option<Series>>,
    identities: BTreeMap<Identity, SeriesNumber>,
    free: Vec<SeriesNumber>,
    /// Samples of which no column can be made, and their families.
    ignored: Vec<(Line, usize)>,
    /// Labels that the configuration adds.
    added: Vec<(String, String)>,
}

impl AllSeries {
    /// No series yet. `added` are labels of all.
    pub fn new(added: Vec<(String, String)>) -> Self {
        Self { added, ..Self::default() }
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (SeriesNumber, &Series)> {
        self.series.iter().zip(0..).filter_map(|(series, number)| Some((number, series.as_ref()?)))
    }

    /// As [`Self::iter`], to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Series> {
        self.series.iter_mut().flatten()
    }

    /// The series of this number.
    pub fn get(&self, number: SeriesNumber) -> Option<&Series> {
        self.series.get(number as usize)?.as_ref()
    }

    /// As [`Self::get`], to be changed.
    pub fn get_mut(&mut self, number: SeriesNumber) -> Option<&mut Series> {
        self.series.get_mut(number as usize)?.as_mut()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.series.len() - self.free.len()
    }

    /// The family of a sample of this name.
    fn family_of(&self, name: &str, kind: FamilyKind, unit: Option<String>) -> SampleFamily {
        let known = self.family_numbers.get(name).copied();
        let shared = known.and_then(|at| self.families.get(at)).map(|family| Arc::clone(&family.name));
        let unit = unit.filter(|unit| unit.len() <= MAX_UNIT).map(String::into_boxed_str);
        let new = Family { name: shared.unwrap_or_else(|| name.into()), kind, unit, ignored: 0, has_fractions: false };
        SampleFamily { known, new }
    }

    /// The number of `family`, which is kept if it is new.
    fn enter(&mut self, family: SampleFamily, lines: &mut Lines) -> usize {
        let SampleFamily { known, new } = family;
        known.unwrap_or_else(|| {
            let number = self.families.len();
            lines.charge(new.text());
            self.family_numbers.insert(Arc::clone(&new.name), number);
            self.families.push(new);
            number
        })
    }

    /// The line of a sample that was never seen under this key, where texts may take `room` bytes. Returns the series,
    /// too, if it is new.
    pub fn add(
        &mut self,
        description: Description,
        lines: &mut Lines,
        room: usize,
    ) -> Result<(Line, Option<SeriesNumber>), Refusal> {
        let Description { family: name, kind, role, labels, bound, unit } = description;
        let family = self.family_of(&name, kind, unit);
        if role == Role::Ignored {
            if family.text() > room {
                return Err(Refusal::NoRoom);
            }
            let family = self.enter(family, lines);
            self.families[family].ignored += 1;
            let line = lines.add();
            self.ignored.push((line, family));
            return Ok((line, None));
        }
        let name: Arc<str> = match role {
            Role::Sum if !is_classic(kind, role) => (name + "_sum").into(),
            Role::Count if !is_classic(kind, role) => (name + "_count").into(),
            _ => Arc::clone(&family.new.name),
        };
        let identity = (name, pairs(labels));
        let known = self.identities.get(&identity).copied();
        let number = match known {
            Some(number) if self.get(number).is_some_and(|known| !known.values.fits(kind, role)) => {
                return Err(Refusal::OtherType);
            }
            Some(number) => number,
            None => self.add_series(identity, family, role, lines, room)?,
        };
        Ok((self.line_of(number, role, bound, lines), known.is_none().then_some(number)))
    }

    /// A new series, of which a sample with this `role` came first.
    fn add_series(
        &mut self,
        identity: Identity,
        family: SampleFamily,
        role: Role,
        lines: &mut Lines,
        room: usize,
    ) -> Result<SeriesNumber, Refusal> {
        let (name, came) = &identity;
        let added = self.added.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let all = came.iter().map(|(key, value)| (&**key, &**value)).chain(added);
        let labels = MetricName::new(name).and_then(|_| Labels::new(all)).ok();
        let (name, kind) = (Arc::clone(name), family.new.kind);
        let is_histogram = is_classic(kind, role);
        let own_name = if Arc::ptr_eq(&name, &family.new.name) { 0 } else { ARC + name.len() };
        let buckets = if is_histogram { BUCKETS } else { 0 };
        let text = own_name + buckets + label_bytes(came, labels.as_ref());
        if family.text() + text > room {
            return Err(Refusal::NoRoom);
        }
        lines.charge(text);
        let values = match role {
            _ if is_histogram => Values::Histogram(Box::default()),
            Role::Gauge => Values::Gauge(lines.add()),
            Role::Distribution => Values::Distribution(lines.add()),
            _ => Values::Counter(lines.add()),
        };
        let family = self.enter(family, lines);
        let number = self.store(Series {
            family,
            name,
            labels,
            values,
            is_quantile: kind == FamilyKind::Summary && role == Role::Gauge,
            was_positive: false,
            text: text as u32,
            place: Destination::Undecided,
            window: Vec::new(),
        });
        self.identities.insert(identity, number);
        Ok(number)
    }

    fn store(&mut self, series: Series) -> SeriesNumber {
        if let Some(free) = self.free.pop() {
            self.series[free as usize] = Some(series);
            return free;
        }
        self.series.push(Some(series));
        self.series.len() as SeriesNumber - 1
    }

    /// The line of the sample `role` of a series, which may be new.
    fn line_of(&mut self, number: SeriesNumber, role: Role, bound: f64, lines: &mut Lines) -> Line {
        let Some(series) = self.series.get_mut(number as usize).and_then(Option::as_mut) else { return lines.add() };
        match &mut series.values {
            Values::Counter(line) | Values::Gauge(line) | Values::Distribution(line) => *line,
            Values::Histogram(buckets) => match role {
                Role::Sum => *buckets.sum.get_or_insert_with(|| lines.add()),
                Role::Count => *buckets.count.get_or_insert_with(|| lines.add()),
                _ => match buckets.bounds.binary_search_by(|(known, _)| known.total_cmp(&bound)) {
                    Ok(at) => buckets.bounds[at].1,
                    Err(at) => {
                        let line = lines.add();
                        buckets.bounds.insert(at, (bound, line));
                        line
                    }
                },
            },
        }
    }

    /// Forgets what was absent for more than `scrapes` and has no output of its own, with its lines: the sum of a rest
    /// stays. `is_rest` says which outputs are one.
    pub fn forget(&mut self, lines: &mut Lines, scrapes: u32, is_rest: impl Fn(u32) -> bool) {
        let mut dead = std::collections::BTreeSet::new();
        for (number, series) in (0..).zip(&mut self.series) {
            let Some(known) = series else { continue };
            let is_watched = matches!(known.place, Destination::Output(output) if !is_rest(output));
            if known.age(lines) > scrapes && !is_watched {
                dead.extend(known.lines());
                lines.release(known.text as usize);
                self.free.push(number);
                *series = None;
            }
        }
        let families = &mut self.families;
        self.ignored.retain(|(line, family)| {
            let stays = lines.age(*line) <= scrapes;
            if !stays {
                families[*family].ignored -= 1;
                dead.insert(*line);
            }
            stays
        });
        let alive = &self.series;
        self.identities.retain(|_, number| alive.get(*number as usize).is_some_and(Option::is_some));
        lines.forget(|line| dead.contains(&line));
        self.forget_families(lines);
    }

    /// Forgets families without a series and without an ignored sample.
    fn forget_families(&mut self, lines: &mut Lines) {
        let used: std::collections::BTreeSet<usize> =
            self.series.iter().flatten().map(|series| series.family).collect();
        let mut kept = Vec::new();
        let mut moved = BTreeMap::new();
        for (number, family) in core::mem::take(&mut self.families).into_iter().enumerate() {
            if used.contains(&number) || family.ignored > 0 {
                moved.insert(number, kept.len());
                kept.push(family);
            } else {
                lines.release(family.text());
            }
        }
        self.families = kept;
        let to = |number: usize| moved.get(&number).copied().unwrap_or(0);
        self.family_numbers =
            self.families.iter().enumerate().map(|(at, family)| (Arc::clone(&family.name), at)).collect();
        for series in self.series.iter_mut().flatten() {
            series.family = to(series.family);
        }
        for (_, family) in &mut self.ignored {
            *family = to(*family);
        }
    }
}
