//! Which series of a target are watched. The same windows give the same choice.
//!
//! 1. What the configuration leaves out goes, and what tells nothing: constants, times of day, and what an exporter
//!    says of its own process and requests, since the service is another one. Of errors and requests a first move is
//!    news, and of other things it is not: checkpoints. So counters of these that stand still are constants, too.
//! 2. The rest is ordered: errors and requests before health and other things, histograms before counters before
//!    gauges, the busiest series of a name first. Names take turns, three series each, so that one with many label sets
//!    leaves room for others. Among equals, what moved in more of the scrapes comes first, then what moved further
//!    beside its mean: names decide only what nothing else does.
//! 3. In that order series are taken while there is room, unless one that was taken says the same (correlation).
//! 4. What has no room of its own is summed up per name: the *rest*. So is what counts something and did not move while
//!    the target was learnt, or is not there any more: an error counter at 0 is watched, and a label set that came once
//!    gets no column.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

pub use crate::candidate::{Candidate, Form};
use crate::naming::{Subject, is_exporter, is_of_process, is_time_of_day, subject};
use crate::scraping::{is_of_scraping, of_scraping};

/// Series with at least this correlation say the same.
const SAME: f64 = 0.99;
/// Fewest scrapes in which a series has to change before its correlation means anything.
const CHANGES: usize = 10;
/// Series of one name that are taken before it is the next name's turn.
const TURN: usize = 3;

/// Bounds of the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceSettings {
    /// Names that may be watched, with `*` for any letters. Empty: all.
    pub allow: Vec<String>,
    /// Names that are not watched.
    pub deny: Vec<String>,
    /// Columns for all series.
    pub columns: usize,
    /// Series of one name that are watched by themselves.
    pub label_sets: usize,
}

/// Why a series is not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// It is not in `allow`.
    NotAllowed,
    /// It is in `deny`.
    Denied,
    /// It never changed.
    Constant,
    /// It tells when something was, and always rises.
    TimeOfDay,
    /// It is about the process of an exporter, or its requests, not about the service.
    Exporter,
    /// Another series that is watched says the same: its number among the candidates.
    Redundant(usize),
    /// There was no room.
    NoRoom,
}

/// What becomes of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has columns of its own.
    Watched,
    /// It is summed up with others of its name.
    Rest,
    /// It is not watched.
    Left(LeftOut),
}

/// What becomes of all series, and which names have a rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// In the order of the candidates.
    pub fates: Vec<Fate>,
    /// Names with a rest.
    pub rests: BTreeSet<String>,
}

/// Whether `pattern` names `name`; `*` stands for any letters.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            let Some(rest) = name.strip_prefix(head) else { return false };
            (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| matches(tail, rest)))
        }
    }
}

/// How a series moved in its window.
#[derive(Clone, Copy, Debug, Default)]
struct Movement {
    /// Scrapes in which it changed; of a counter, in which it grew.
    changes: usize,
    /// Growth of a counter, variance of a gauge.
    weight: f64,
    last: f64,
    /// How much it moves, without a unit: to be compared between names.
    pace: Pace,
}

/// How much a series moves, whatever its unit: in how many of the scrapes, in quarters, and how far beside its mean. In
/// steps, so that those that move alike are ordered by their names, and not by the last digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Pace {
    quarters: usize,
    /// Standard deviation σ beside the mean μ, as σ ∕ (σ + |μ|): 0 to 20 twentieths.
    spread: u32,
}

impl Pace {
    /// The pace of `count` values, which changed `changes` times, with this mean and these squared deviations in sum.
    fn of((changes, count): (usize, f64), mean: f64, squares: f64) -> Self {
        let deviation = (squares / count.max(1.0)).sqrt();
        let whole = deviation + mean.abs();
        let spread = if whole > 0.0 { (deviation / whole * 20.0).round() as u32 } else { 0 };
        let quarters = if count > 0.0 { changes * 4 / count as usize } else { 0 };
        Self { quarters, spread }
    }
}

impl Movement {
    fn of(candidate: &Candidate<'_>) -> Self {
        let values = || candidate.window.iter().map(|value| f64::from(*value)).filter(|value| value.is_finite());
        let (count, sum) = values().fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
        let last = values().next_back().unwrap_or(0.0);
        let mean = if count > 0.0 { sum / count } else { 0.0 };
        let squares = values().map(|value| (value - mean).powi(2)).sum::<f64>();
        let (changes, weight) = if candidate.form.counts() {
            (values().filter(|growth| *growth > 0.0).count(), sum)
        } else {
            (values().zip(values().skip(1)).filter(|(one, next)| one != next).count(), squares)
        };
        Self { changes, weight, last, pace: Pace::of((changes, count), mean, squares) }
    }
}

/// The correlation of two windows, over the scrapes in which both are there; 0 if one of them is constant.
fn correlation(one: &[f32], other: &[f32]) -> f64 {
    let pairs = || {
        let pairs = one.iter().zip(other).map(|(one, other)| (f64::from(*one), f64::from(*other)));
        pairs.filter(|(one, other)| one.is_finite() && other.is_finite())
    };
    let count = pairs().count().max(1) as f64;
    let (x, y) = pairs().fold((0.0, 0.0), |(x, y), (one, other)| (x + one / count, y + other / count));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (one, other) in pairs() {
        xx += (one - x).powi(2);
        yy += (other - y).powi(2);
        xy += (one - x) * (other - y);
    }
    let product = (xx * yy).sqrt();
    if product > 0.0 { xy / product } else { 0.0 }
}

/// Chooses among `candidates`.
#[must_use]
pub fn choose(candidates: &[Candidate<'_>], settings: &ChoiceSettings) -> Choice {
    let moved: Vec<Movement> = candidates.iter().map(Movement::of).collect();
    let mut chooser = Chooser {
        candidates,
        moved: &moved,
        settings,
        fates: vec![None; candidates.len()],
        rests: BTreeSet::new(),
        taken: Vec::new(),
        left: settings.columns,
    };
    chooser.leave_out();
    chooser.take_what_moves();
    chooser.take_what_counts();
    let fates = chooser.fates.iter().map(|fate| fate.unwrap_or(Fate::Left(LeftOut::NoRoom))).collect();
    Choice { fates, rests: chooser.rests }
}

/// Whether the first move of something is news: that an error happens, a kind of request comes, or health changes.
fn is_worth_at_rest(subject: Subject, form: Form) -> bool {
    subject == Subject::Health || (form.counts() && subject != Subject::Other)
}

struct Chooser<'c> {
    candidates: &'c [Candidate<'c>],
    moved: &'c [Movement],
    settings: &'c ChoiceSettings,
    fates: Vec<Option<Fate>>,
    rests: BTreeSet<String>,
    taken: Vec<usize>,
    /// Columns that are left.
    left: usize,
}

impl<'c> Chooser<'c> {
    /// What the configuration or its nature leaves out.
    fn leave_out(&mut self) {
        let named = |list: &[String], name: &str| list.iter().any(|pattern| matches(pattern, name));
        let is_exporter = self.candidates.iter().any(|candidate| is_exporter(candidate.name));
        let scraping = if is_exporter { of_scraping(self.candidates) } else { BTreeSet::new() };
        for ((fate, candidate), moved) in self.fates.iter_mut().zip(self.candidates).zip(self.moved) {
            let Candidate { name, form, .. } = *candidate;
            let why = if named(&self.settings.deny, name) {
                LeftOut::Denied
            } else if !self.settings.allow.is_empty() && !named(&self.settings.allow, name) {
                LeftOut::NotAllowed
            } else if is_exporter && (is_of_process(name) || is_of_scraping(candidate, &scraping)) {
                LeftOut::Exporter
            } else if form == Form::Gauge && is_time_of_day(name, moved.last) {
                LeftOut::TimeOfDay
            } else if moved.changes == 0 && !is_worth_at_rest(subject(name), form) {
                LeftOut::Constant
            } else {
                continue;
            };
            *fate = Some(Fate::Left(why));
        }
    }

    /// Series by name, without those that are decided.
    fn by_name(&self, keep: impl Fn(usize) -> bool) -> BTreeMap<&'c str, Vec<usize>> {
        let mut names: BTreeMap<&'c str, Vec<usize>> = BTreeMap::new();
        for (at, candidate) in self.candidates.iter().enumerate() {
            if self.fates[at].is_none() && keep(at) {
                names.entry(candidate.name).or_default().push(at);
            }
        }
        names
    }

    fn take_what_moves(&mut self) {
        let is_moving = |at: usize| !self.candidates[at].form.counts() || !self.is_quiet(at);
        let mut order = Vec::with_capacity(self.candidates.len());
        for (name, mut members) in self.by_name(is_moving) {
            let weight = |at: &usize| self.moved[*at].weight;
            let labels = |at: &usize| self.candidates[*at].labels;
            members.sort_by(|one, other| {
                weight(other).total_cmp(&weight(one)).then_with(|| labels(one).cmp(labels(other)))
            });
            let tier = match subject(name) {
                Subject::Errors | Subject::Requests => 0,
                Subject::Health => 1,
                Subject::Other => 2,
            };
            let capped = members.into_iter().take(self.settings.label_sets).enumerate();
            order.extend(capped.map(|(rank, at)| {
                let pace = Reverse(self.moved[at].pace);
                (tier + rank / TURN, self.candidates[at].form, rank, pace, name, at)
            }));
        }
        order.sort_unstable();
        for (.., at) in order {
            self.take(at);
        }
        // What has no column of its own is in the rest, where there is one.
        for at in 0..self.candidates.len() {
            if self.fates[at].is_none() && self.rests.contains(self.candidates[at].name) {
                self.fates[at] = Some(Fate::Rest);
            }
        }
    }

    /// Takes a series, with a rest for its name, unless there is no room or another one says the same.
    fn take(&mut self, at: usize) {
        let Candidate { name, form, .. } = self.candidates[at];
        if let Some(same) = self.same_as(at) {
            self.fates[at] = Some(Fate::Left(LeftOut::Redundant(same)));
            return;
        }
        let needs_rest = !self.rests.contains(name) && self.has_rest(at);
        let columns = form.columns() * if needs_rest { 2 } else { 1 };
        if columns > self.left {
            return;
        }
        self.left -= columns;
        self.taken.push(at);
        self.fates[at] = Some(Fate::Watched);
        if needs_rest {
            self.rests.insert(name.to_owned());
        }
    }

    /// Whether the name of a series has a rest: a counter with labels, since new label sets may come; what is more than
    /// the limit of label sets; what does not move yet.
    fn has_rest(&self, at: usize) -> bool {
        let Candidate { name, form, labels, .. } = self.candidates[at];
        let of_name = || self.candidates.iter().enumerate().filter(|(_, other)| other.name == name);
        match form {
            Form::Quantile => false,
            Form::Counter => !labels.is_empty(),
            Form::Histogram | Form::TwoSided | Form::Gauge => {
                let quiet = |(at, _): (usize, &Candidate<'_>)| form.counts() && self.is_quiet(at);
                of_name().count() > self.settings.label_sets || of_name().any(quiet)
            }
        }
    }

    /// A series that was taken and says the same as this one.
    fn same_as(&self, at: usize) -> Option<usize> {
        let Candidate { name, form, window, .. } = self.candidates[at];
        // A histogram has a tail, and an error is an error.
        if form.is_distribution() || self.moved[at].changes < CHANGES || subject(name) == Subject::Errors {
            return None;
        }
        let says_the_same = |other: &usize| {
            self.moved[*other].changes >= CHANGES && correlation(window, self.candidates[*other].window).abs() >= SAME
        };
        self.taken.iter().copied().find(says_the_same)
    }

    /// Whether something that counts did not move, or is not there any more.
    fn is_quiet(&self, at: usize) -> bool {
        self.moved[at].changes == 0 || !self.candidates[at].is_present
    }

    /// Counters and histograms that did not move: their sum, or the series itself if it is the only one.
    fn take_what_counts(&mut self) {
        let names = self.by_name(|at| self.candidates[at].form.counts() && self.is_quiet(at));
        let mut names: Vec<_> = names.into_iter().map(|(name, members)| (subject(name), name, members)).collect();
        names.sort_unstable();
        for (_, name, members) in names {
            let columns = members.first().map_or(0, |at| self.candidates[*at].form.columns());
            if columns > self.left {
                // Undecided: there is no room.
                continue;
            }
            self.left -= columns;
            let single = members.len() == 1 && members.iter().all(|at| self.candidates[*at].labels.is_empty());
            if !single {
                self.rests.insert(name.to_owned());
            }
            let fate = if single { Fate::Watched } else { Fate::Rest };
            for at in members {
                self.fates[at] = Some(fate);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fate::{Left, Rest, Watched};
    use super::*;

    const LENGTH: usize = 60;

    /// What a series is called and did.
    struct TestSeries {
        name: String,
        labels: String,
        form: Form,
        window: Vec<f32>,
    }

    fn made(name: &str, labels: &str, form: Form, value: impl Fn(usize) -> f32) -> TestSeries {
        TestSeries { name: name.to_owned(), labels: labels.to_owned(), form, window: (0..LENGTH).map(value).collect() }
    }

    /// Noise that repeats, different for each seed.
    fn noise(seed: usize) -> impl Fn(usize) -> f32 {
        move |at| {
            let mut mixed = (seed as u64 * 1_000 + at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((mixed ^ (mixed >> 27)) % 97) as f32 + 1.0
        }
    }

    fn settings() -> ChoiceSettings {
        ChoiceSettings { allow: vec![], deny: vec![], columns: 100, label_sets: 4 }
    }

    fn choose_all(all: &[TestSeries], settings: &ChoiceSettings) -> Choice {
        let candidate = |made: &'_ TestSeries| -> (String, String, Form, Vec<f32>) {
            (made.name.clone(), made.labels.clone(), made.form, made.window.clone())
        };
        let owned: Vec<_> = all.iter().map(candidate).collect();
        let candidates: Vec<_> = owned
            .iter()
            .map(|(name, labels, form, window)| {
                let is_present = window.last().is_some_and(|last| last.is_finite());
                Candidate { name, labels, form: *form, window, is_present }
            })
            .collect();
        choose(&candidates, settings)
    }

    #[test]
    fn constants_and_times_of_day_tell_nothing_and_what_counts_is_watched_at_zero() {
        let all = [
            made("go_max_procs", "", Form::Gauge, |_| 4.0),
            made("last_seen_timestamp_seconds", "", Form::Gauge, |at| 1.7e9 + at as f32 * 1_000.0),
            made("queue_depth", "", Form::Gauge, noise(1)),
            made("redis_up", "", Form::Gauge, |_| 1.0),
            made("errors_total", "", Form::Counter, |_| 0.0),
            made("failures_total", r#"{kind="a"}"#, Form::Counter, |_| 0.0),
            made("failures_total", r#"{kind="b"}"#, Form::Counter, |_| 0.0),
            made("checkpoints_total", "", Form::Counter, |_| 0.0),
        ];

        let choice = choose_all(&all, &settings());

        let constant = Left(LeftOut::Constant);
        let expected = [constant, Left(LeftOut::TimeOfDay), Watched, Watched, Watched, Rest, Rest, constant];
        assert_eq!(choice.fates, expected);
        assert_eq!(choice.rests, ["failures_total".to_owned()].into());
    }

    #[test]
    fn what_an_exporter_says_of_its_own_process_is_not_about_the_service() {
        let mut all = vec![
            made("go_goroutines", "", Form::Gauge, noise(1)),
            made("process_cpu_seconds_total", "", Form::Counter, noise(2)),
            made("redis_connected_clients", "", Form::Gauge, noise(3)),
        ];
        assert_eq!(choose_all(&all, &settings()).fates, [Watched; 3], "an instrumented service says it of itself");

        all.push(made("redis_exporter_build_info", "", Form::Gauge, |_| 1.0));

        let (own, constant) = (Left(LeftOut::Exporter), Left(LeftOut::Constant));
        assert_eq!(choose_all(&all, &settings()).fates, [own, own, Watched, constant]);
    }

    #[test]
    fn lists_decide_first_and_names_may_have_stars() {
        let all = [
            made("http_requests_total", "", Form::Counter, noise(1)),
            made("http_debug_total", "", Form::Counter, noise(2)),
            made("go_goroutines", "", Form::Gauge, noise(3)),
        ];
        let settings = ChoiceSettings { allow: vec!["http_*".into()], deny: vec!["*debug*".into()], ..settings() };

        let choice = choose_all(&all, &settings);

        assert_eq!(choice.fates, [Watched, Left(LeftOut::Denied), Left(LeftOut::NotAllowed)]);
        assert!(matches("a*c*", "abcd") && !matches("a*c", "abcd") && matches("*", ""));
    }

    #[test]
    fn of_series_that_say_the_same_one_is_taken_and_the_histogram_is_the_one() {
        let all = [
            made("http_requests_total", "", Form::Counter, noise(1)),
            made("http_request_duration_seconds", "", Form::Histogram, noise(1)),
            made("bytes_total", "", Form::Counter, |at| noise(1)(at) * 1_500.0),
            made("http_errors_total", "", Form::Counter, noise(1)),
            made("other_total", "", Form::Counter, noise(2)),
        ];

        let fates = choose_all(&all, &settings()).fates;

        let same = Left(LeftOut::Redundant(1));
        assert_eq!(fates, [same, Watched, same, Watched, Watched]);
    }

    #[test]
    fn a_name_with_many_label_sets_leaves_room_for_others_and_its_rest_is_summed_up() {
        let busy = |at: usize| made("http_requests_total", &format!("{{path=\"{at:03}\"}}"), Form::Counter, noise(at));
        let mut all: Vec<TestSeries> = (0..300).map(busy).collect();
        all.push(made("queue_depth", "", Form::Gauge, noise(301)));
        all.push(made("http_requests_total", "{path=\"quiet\"}", Form::Counter, |_| 0.0));

        let choice = choose_all(&all, &settings());

        let watched = choice.fates.iter().filter(|fate| **fate == Fate::Watched).count();
        assert_eq!(watched, 5, "four label sets and the queue");
        assert_eq!(choice.fates.iter().filter(|fate| **fate == Fate::Rest).count(), 297);
        assert_eq!(choice.fates[300], Fate::Watched);
    }

    #[test]
    fn no_more_columns_are_taken_than_there_are_and_errors_come_first() {
        let mut all: Vec<TestSeries> =
            (0..50).map(|at| made(&format!("thing_{at:02}"), "", Form::Gauge, noise(at))).collect();
        all.push(made("z_errors_total", "", Form::Counter, noise(51)));
        all.push(made("z_request_duration_seconds", "", Form::Histogram, noise(52)));
        let settings = ChoiceSettings { columns: 10, ..settings() };

        let fates = choose_all(&all, &settings).fates;

        assert_eq!(fates[50..], [Fate::Watched, Fate::Watched]);
        let watched = fates[..50].iter().filter(|fate| **fate == Fate::Watched).count();
        assert_eq!(watched, 10 - 3 - 1);
        assert_eq!(choose_all(&all, &settings).fates, fates, "the same windows give the same choice");
    }

    #[test]
    fn among_equals_what_moves_more_is_taken_whatever_its_unit_and_its_name() {
        let few = ChoiceSettings { columns: 2, ..settings() };
        let of = |all: &[TestSeries]| {
            let fates = choose_all(all, &few).fates;
            all.iter()
                .zip(fates)
                .filter(|(_, fate)| *fate == Watched)
                .map(|(one, _)| one.name.clone())
                .collect::<Vec<_>>()
        };
        let seldom = |at: usize| if at.is_multiple_of(20) { at as f32 * 1e9 } else { 7.0 };

        // A gigabyte more or less is little of a thousand, and a move now and then is none to learn from.
        let mut all = vec![
            made("a_bytes", "", Form::Gauge, |at| 1e12 + noise(1)(at) * 1e7),
            made("b_seldom", "", Form::Gauge, seldom),
            made("y_ratio", "", Form::Gauge, |at| noise(2)(at) / 1e6),
            made("z_length", "", Form::Gauge, noise(3)),
        ];
        assert_eq!(of(&all), ["y_ratio", "z_length"]);

        all.reverse();
        assert_eq!(of(&all), ["z_length", "y_ratio"], "in any order");
    }

    #[test]
    fn names_decide_among_series_that_move_alike() {
        let few = ChoiceSettings { columns: 1, ..settings() };
        let all = [
            made("b_total", "", Form::Counter, |at| noise(1)(at) * 3.3),
            made("a_total", "", Form::Counter, |at| noise(1)(at + 1) * 1e6),
            made("c_total", "", Form::Counter, noise(1)),
        ];

        let fates = choose_all(&all, &few).fates;

        assert_eq!((fates[0], fates[1], fates[2]), (Left(LeftOut::NoRoom), Watched, Left(LeftOut::NoRoom)));
    }
}
