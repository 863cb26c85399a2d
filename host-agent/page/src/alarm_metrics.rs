//! Which metrics made an alarm: of each column the sum of its parts of the squared scores, in units of γ².
//!
//! A reason's share is of the squared score, so that share × (score / γ)² is its part. Of a row, no more counts than of
//! one with twice γ. Episodes of the service's view and services of incidents name their metrics by it.
//!
//! *Source*: Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and top-k elements in data
//! streams"), with parts for counts.
//!
//! *Guarantee*: a column that made more than one part in 32 of all is among those that are followed,
//! however many others come and go. Long texts, or few bytes, that take the room of others weaken it.
//!
//! *Memory*: the bytes that whoever adds a row says, or one column, if that has more.

use wire::printable::line;
use wire::proto::operators::{Label, Reason};

use crate::shown::shortened;

/// Columns of one alarm that are followed.
const MAX_FOLLOWED: usize = 32;
/// Characters of a text.
const MAX_TEXT: usize = 300;
/// The multiple of γ up to which the score of a row counts. The detector caps rows of 100 ms and more so to find out
/// whether an alarm lasts (`lmap::Settings::episode_cap`): what makes it last is also what names it. However high a row
/// is, it weighs as much as four at γ, which is enough to outweigh those with which an alarm ebbs away.
const CAP: f64 = 2.0;

/// A column that may be named.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    /// The column, as it was in the row in which its part was largest.
    reason: Reason,
    /// That part, of the whole score.
    largest: f64,
    /// Sum of its parts since it is followed.
    sum: f64,
    /// What it can have made before, at most.
    before: f64,
}

impl Candidate {
    fn weight(&self) -> f64 {
        self.before + self.sum
    }

    fn bytes(&self) -> usize {
        let Reason { column, group, unit, about, metric, statistic, labels, replica, .. } = &self.reason;
        let texts = [column, group, unit, about, metric, statistic, replica].map(String::len);
        let label = |Label { key, value }: &Label| size_of::<Label>() + key.len() + value.len();
        size_of::<Self>() + texts.iter().sum::<usize>() + labels.iter().map(label).sum::<usize>()
    }
}

/// Columns of a service in alarm, by what they made of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlarmMetrics {
    /// In order of appearance.
    followed: Vec<Candidate>,
    /// Sum of the squared scores, of which the sums are shares.
    whole: f64,
    /// The largest weight of one that made room.
    dropped: f64,
    has_changed: bool,
}

impl AlarmMetrics {
    /// Takes a row of an alarm: its score as a multiple of γ, and the columns that explain it. Those that made least
    /// make room while what is followed takes more than `most` bytes. A score that is no number counts nothing.
    pub fn add(&mut self, ratio: f64, metrics: &[Reason], most: usize) {
        if !ratio.is_finite() || metrics.is_empty() {
            return;
        }
        let capped = ratio.clamp(0.0, CAP);
        self.whole += capped * capped;
        for metric in metrics {
            let share = if metric.share.is_finite() { metric.share.clamp(0.0, 1.0) } else { 0.0 };
            self.follow(metric, share * capped * capped, share * ratio * ratio);
            while self.followed.len() > MAX_FOLLOWED || (self.followed.len() > 1 && self.bytes() > most) {
                self.drop_least();
            }
        }
        self.has_changed = true;
    }

    /// Adds `counts` to the sum of a column, whose part in this row is `part`.
    fn follow(&mut self, metric: &Reason, counts: f64, part: f64) {
        let column = shortened(&metric.column, MAX_TEXT);
        if let Some(known) = self.followed.iter_mut().find(|known| known.reason.column == column) {
            known.sum += counts;
            if part > known.largest {
                (known.reason, known.largest) = (bounded(metric), part);
            }
        } else {
            let (reason, before) = (bounded(metric), self.dropped);
            self.followed.push(Candidate { reason, largest: part, sum: counts, before });
        }
    }

    fn drop_least(&mut self) {
        let weights = self.followed.iter().map(Candidate::weight).enumerate();
        if let Some((least, weight)) = weights.min_by(|(_, one), (_, other)| one.total_cmp(other)) {
            self.dropped = self.dropped.max(weight);
            self.followed.remove(least);
        }
    }

    /// Bytes that it takes, texts included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.followed.iter().map(Candidate::bytes).sum()
    }

    /// The `most` metrics with the largest sums and their shares of all rows, the largest first; each as it was in the
    /// row in which its part was largest.
    #[must_use]
    pub fn top(&self, most: usize) -> Vec<Reason> {
        let mut top: Vec<&Candidate> = self.followed.iter().collect();
        top.sort_by(|one, other| other.sum.total_cmp(&one.sum));
        let share = |of: &Candidate| if self.whole > 0.0 { of.sum / self.whole } else { of.reason.share };
        let named = |of: &Candidate| Reason { share: share(of), ..of.reason.clone() };
        top.into_iter().take(most).map(named).collect()
    }

    /// The [`top`](Self::top) ones; `None` if there was no row since the last call.
    pub fn take_top(&mut self, most: usize) -> Option<Vec<Reason>> {
        core::mem::take(&mut self.has_changed).then(|| self.top(most))
    }
}

/// The same metric with bounded texts. One whose title is cut has no parts: with half of its labels it would be another
/// column.
fn bounded(reason: &Reason) -> Reason {
    let short = |text: &str| shortened(text, MAX_TEXT);
    let titled = Reason {
        column: short(&reason.column),
        metric: String::new(),
        statistic: String::new(),
        labels: Vec::new(),
        group: short(&reason.group),
        unit: short(&reason.unit),
        about: short(&reason.about),
        replica: short(&reason.replica),
        ..*reason
    };
    if line(&reason.column).chars().count() > MAX_TEXT {
        return titled;
    }
    let label = |Label { key, value }: &Label| Label { key: short(key), value: short(value) };
    let labels = reason.labels.iter().map(label).collect();
    Reason { metric: short(&reason.metric), statistic: short(&reason.statistic), labels, ..titled }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is followed of an alarm has so many bytes, and what is named of it so many metrics.
    const BYTES: usize = 16 << 10;
    const SHOWN: usize = 8;

    fn reason(column: &str, share: f64, seen: f64) -> Reason {
        Reason { column: column.to_owned(), share, seen, replica: format!("replica-{seen}"), ..Reason::default() }
    }

    fn columns(alarm: &mut AlarmMetrics) -> Vec<String> {
        alarm.take_top(SHOWN).unwrap().into_iter().map(|reason| reason.column).collect()
    }

    #[test]
    fn what_made_most_of_all_rows_is_named_as_it_was_in_its_worst_one() {
        let mut alarm = AlarmMetrics::default();
        alarm.add(40.0, &[reason("transient", 0.9, 37.0), reason("lasting", 0.1, 1.0)], BYTES);
        for (ratio, seen) in [(3.0, 3.0), (6.0, 6.0), (5.0, 5.0), (3.0, 4.0)] {
            alarm.add(ratio, &[reason("lasting", 0.75, seen), reason("beside", 0.25, 1.0)], BYTES);
        }

        let top = alarm.take_top(SHOWN).unwrap();

        let shown: Vec<_> = top.iter().map(|of| (of.column.as_str(), of.share)).collect();
        // Each row counts alike: (4 × 0.75 + 0.1) / 5.
        let wanted = [("lasting", 0.62), ("beside", 0.2), ("transient", 0.18)];
        for ((column, share), (wanted, of)) in shown.iter().zip(wanted) {
            assert!(*column == wanted && (share - of).abs() < 1e-9, "{shown:?}");
        }
        // 0.1 × 40² is more than 0.75 × 6²: its part of that row was the largest.
        assert_eq!((top[0].seen, top[0].replica.as_str()), (1.0, "replica-1"));
        assert!(alarm.take_top(SHOWN).is_none(), "there was no row since");
    }

    #[test]
    fn a_row_that_is_little_above_the_threshold_counts_less_than_one_far_above_it() {
        let mut alarm = AlarmMetrics::default();
        for _ in 0..3 {
            alarm.add(1.1, &[reason("ebbing", 0.9, 1.0)], BYTES);
        }
        alarm.add(9.0, &[reason("fault", 0.95, 1.0)], BYTES);

        assert_eq!(columns(&mut alarm), ["fault", "ebbing"]);
    }

    #[test]
    fn ten_thousand_columns_that_come_once_push_out_none_that_comes_back() {
        let mut alarm = AlarmMetrics::default();
        for number in 0..10_000 {
            alarm.add(5.0, &[reason(&format!("once.{number}"), 0.9, 1.0)], BYTES);
            if number % 20 == 0 {
                alarm.add(5.0, &[reason("comes.back", 0.9, 1.0)], BYTES);
            }
            assert!(alarm.followed.len() <= MAX_FOLLOWED && alarm.bytes() <= BYTES);
        }

        let top = columns(&mut alarm);
        assert_eq!((top[0].as_str(), top.len()), ("comes.back", SHOWN));
    }

    #[test]
    fn long_texts_take_the_room_of_the_least() {
        let mut alarm = AlarmMetrics::default();
        let long = |number: usize| {
            let text = "λ".repeat(290);
            let [group, about] = [(); 2].map(|()| text.clone());
            Reason { group, about, ..reason(&format!("{text}.{number}"), 0.1 + 0.02 * number as f64, 1.0) }
        };
        for number in 0..32 {
            alarm.add(2.0, &[long(number)], BYTES);
        }

        assert!((2..32).contains(&alarm.followed.len()) && alarm.bytes() <= BYTES);
        assert!(columns(&mut alarm)[0].ends_with(".31"));
    }

    #[test]
    fn with_few_bytes_what_made_most_stays_and_at_least_one_column() {
        let mut alarm = AlarmMetrics::default();
        for seen in [1.0, 2.0] {
            alarm.add(2.0, &[reason("lasting", 0.5, seen), reason("beside", 0.2, 1.0), reason("most", 0.6, 1.0)], 1);
        }

        let top = alarm.top(SHOWN);
        assert_eq!((top.len(), top[0].column.as_str()), (1, "most"));
    }

    #[test]
    fn a_metric_keeps_its_parts_unless_its_title_is_cut() {
        let reason = |value: &str| Reason {
            column: format!("calls.p99{{peer={value:?}}}"),
            metric: "calls".to_owned(),
            statistic: "p99".to_owned(),
            labels: vec![Label { key: "peer".to_owned(), value: value.to_owned() }],
            share: 0.5,
            about: "10.0.0.7".to_owned(),
            replica: "payment-7f9c".to_owned(),
            ..Reason::default()
        };

        assert_eq!(bounded(&reason("store")), reason("store"));

        let long = bounded(&reason(&"x".repeat(MAX_TEXT)));
        assert!(long.column.ends_with('…') && long.column.chars().count() == MAX_TEXT + 1, "{}", long.column);
        assert_eq!((long.metric.as_str(), long.statistic.as_str(), long.labels.len()), ("", "", 0));
        assert_eq!((long.share, long.about.as_str(), long.replica.as_str()), (0.5, "10.0.0.7", "payment-7f9c"));
        let about = bounded(&Reason { about: format!("a\n{}", "x".repeat(MAX_TEXT)), ..reason("store") }).about;
        assert!(about.chars().count() == MAX_TEXT + 1 && about.ends_with('…') && !about.contains('\n'), "{about}");
    }

    #[test]
    fn scores_and_shares_that_are_no_numbers_name_nothing() {
        let mut alarm = AlarmMetrics::default();
        for ratio in [f64::NAN, f64::INFINITY] {
            alarm.add(ratio, &[reason("a", 0.5, 1.0)], BYTES);
        }
        assert!(alarm.take_top(SHOWN).is_none());

        alarm.add(2.0, &[reason("odd", f64::NAN, 1.0), reason("even", 0.5, 1.0)], BYTES);
        assert_eq!(columns(&mut alarm), ["even", "odd"]);
    }

    proptest! {
        #[test]
        fn what_made_more_than_its_part_of_all_is_followed(rows in proptest::collection::vec(0..60_u8, 1..600)) {
            let mut alarm = AlarmMetrics::default();
            for column in &rows {
                // Half of all rows are of six columns, the others of thirty.
                let column = if *column < 30 { column % 6 } else { *column };
                alarm.add(2.0, &[reason(&column.to_string(), 1.0, 1.0)], BYTES);
            }

            for column in 0..60_u8 {
                let is_it = |of: &&u8| if **of < 30 { **of % 6 == column } else { **of == column };
                let rows_of_it = rows.iter().filter(is_it).count();
                let is_followed = alarm.followed.iter().any(|of| of.reason.column == column.to_string());
                prop_assert!(is_followed || rows_of_it * MAX_FOLLOWED <= rows.len(), "{rows_of_it} of {column}");
            }
        }
    }
}
