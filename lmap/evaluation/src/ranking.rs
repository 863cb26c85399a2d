//! Figures of a ranking: how well scores order anomalous rows above normal ones, for any threshold. Pure.
//!
//! Rows count individually, without point adjustment, which counts a whole event as found with one of its rows and
//! makes a random score look good (Kim et al., *Towards a Rigorous Evaluation of Time-Series Anomaly Detection*, AAAI
//! 2022).

/// A row that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The row's score.
    pub score: f64,
    /// The event it belongs to, `None` for a normal row.
    pub event: Option<usize>,
}

/// Points in descending order of their scores.
#[derive(Clone, Debug)]
pub struct Ranking {
    points: Vec<Point>,
    anomalous: usize,
    events: usize,
}

/// One threshold's point on the curves. All shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Anomalous rows at or above the threshold, of all anomalous rows.
    pub recall: f64,
    /// Anomalous rows, of all rows at or above the threshold.
    pub precision: f64,
    /// Normal rows at or above the threshold, of all normal rows.
    pub false_positives: f64,
}

/// Counts of rows and events at or above a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ThresholdCounts {
    hits: usize,
    false_alarms: usize,
    events: usize,
}

impl Ranking {
    /// Ranks `points`. O(n log n).
    #[must_use]
    pub fn new(mut points: Vec<Point>) -> Self {
        points.sort_by(|a, b| b.score.total_cmp(&a.score));
        let anomalous = points.iter().filter(|point| point.event.is_some()).count();
        let events = points.iter().filter_map(|point| point.event).max().map_or(0, |last| last + 1);
        Self { points, anomalous, events }
    }

    /// Number of anomalous rows.
    #[must_use]
    pub fn anomalous(&self) -> usize {
        self.anomalous
    }

    /// Number of normal rows.
    #[must_use]
    pub fn normal(&self) -> usize {
        self.points.len() - self.anomalous
    }

    /// Counts at each threshold that separates two scores, highest first. Rows with equal scores are counted together,
    /// since their order is arbitrary.
    fn thresholds(&self) -> Vec<ThresholdCounts> {
        let mut found = vec![false; self.events];
        let mut taken = ThresholdCounts::default();
        let mut out = Vec::new();
        for rows in self.points.chunk_by(|a, b| a.score == b.score) {
            for point in rows {
                match point.event {
                    None => taken.false_alarms += 1,
                    Some(event) => {
                        taken.hits += 1;
                        taken.events += usize::from(!std::mem::replace(&mut found[event], true));
                    }
                }
            }
            out.push(taken);
        }
        out
    }

    /// The highest F1 of any threshold, in hindsight; 0 without anomalous rows.
    #[must_use]
    pub fn best_f1(&self) -> f64 {
        let f1 = |taken: &ThresholdCounts| f1(taken.hits, taken.false_alarms, self.anomalous);
        self.thresholds().iter().map(f1).fold(0.0, f64::max)
    }

    /// The highest composite F1 of any threshold: precision by rows, recall by events with at least one row found (Garg
    /// et al., *An Evaluation of Anomaly Detection and Diagnosis in Multivariate Time Series*, TNNLS 2021).
    #[must_use]
    pub fn best_composite_f1(&self) -> f64 {
        let composite = |taken: &ThresholdCounts| {
            let precision = share(taken.hits, taken.hits + taken.false_alarms);
            let recall = share(taken.events, self.events);
            if precision + recall > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 }
        };
        self.thresholds().iter().map(composite).fold(0.0, f64::max)
    }

    /// Average precision: Σ (recallᵢ − recallᵢ₋₁) · precisionᵢ over thresholds. A random score has the share of
    /// anomalous rows.
    #[must_use]
    pub fn auc_pr(&self) -> f64 {
        let mut before = 0;
        let mut area = 0.0;
        for taken in self.thresholds() {
            area += share(taken.hits - before, self.anomalous) * share(taken.hits, taken.hits + taken.false_alarms);
            before = taken.hits;
        }
        area
    }

    /// The probability that an anomalous row scores above a normal one, ties counted half. A random score has 0.5.
    #[must_use]
    pub fn auc_roc(&self) -> f64 {
        let mut before = ThresholdCounts::default();
        let mut area = 0.0;
        for taken in self.thresholds() {
            let height = share(taken.hits + before.hits, 2 * self.anomalous);
            area += height * share(taken.false_alarms - before.false_alarms, self.normal());
            before = taken;
        }
        area
    }

    /// F1 and false-positive rate when rows from `gamma` on are alarms.
    #[must_use]
    pub fn at(&self, gamma: f64) -> (f64, f64) {
        let alarms = &self.points[..self.points.partition_point(|point| point.score >= gamma)];
        let hits = alarms.iter().filter(|point| point.event.is_some()).count();
        let false_alarms = alarms.len() - hits;
        (f1(hits, false_alarms, self.anomalous), share(false_alarms, self.normal()))
    }

    /// The curve over all thresholds, highest first, beginning above all scores: about `most` points at most.
    #[must_use]
    pub fn curve(&self, most: usize) -> Vec<CurvePoint> {
        let thresholds = self.thresholds();
        let step = thresholds.len().div_ceil(most.max(1)).max(1);
        let point = |taken: &ThresholdCounts| CurvePoint {
            recall: share(taken.hits, self.anomalous),
            precision: share(taken.hits, taken.hits + taken.false_alarms),
            false_positives: share(taken.false_alarms, self.normal()),
        };
        let last = thresholds.len().saturating_sub(1);
        let kept = thresholds.iter().enumerate().filter(|(place, _)| place % step == 0 || *place == last);
        let start = CurvePoint { recall: 0.0, precision: 1.0, false_positives: 0.0 };
        [start].into_iter().chain(kept.map(|(_, taken)| point(taken))).collect()
    }

    /// The score that `rate` of the normal rows lie above, linear between neighbours; infinite without normal rows.
    #[must_use]
    pub fn normal_above(&self, rate: f64) -> f64 {
        let normal: Vec<f64> =
            self.points.iter().rev().filter(|point| point.event.is_none()).map(|point| point.score).collect();
        if normal.is_empty() { f64::INFINITY } else { quantile(&normal, 1.0 - rate) }
    }

    /// Share of events with at least one row above the score that `rate` of the normal rows lie above.
    #[must_use]
    pub fn events_found(&self, rate: f64) -> f64 {
        let limit = self.normal_above(rate);
        let mut found = vec![false; self.events];
        for event in self.points.iter().filter(|point| point.score > limit).filter_map(|point| point.event) {
            found[event] = true;
        }
        share(found.iter().filter(|found| **found).count(), self.events)
    }
}

/// The value that a share of `sorted` (ascending) lies below, linear between neighbours; 0 for an empty slice.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = last as f64 * share.clamp(0.0, 1.0);
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn f1(hits: usize, false_alarms: usize, anomalous: usize) -> f64 {
    share(2 * hits, hits + false_alarms + anomalous)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `.` is a normal row, a digit a row of that event; scores fall from the first to the last, a pair in brackets
    /// ties.
    fn ranking(rows: &str) -> Ranking {
        let mut score = 100.0;
        let mut tied = false;
        let mut points = Vec::new();
        for sign in rows.chars() {
            match sign {
                '(' => tied = true,
                ')' => tied = false,
                _ => points.push(Point { score, event: sign.to_digit(10).map(|event| event as usize) }),
            }
            if !tied {
                score -= 1.0;
            }
        }
        points.reverse(); // the order of rows must not matter
        Ranking::new(points)
    }

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
    }

    #[test]
    fn a_perfect_ranking_has_all_figures_at_one() {
        let ranking = ranking("0011....");

        for figure in [ranking.best_f1(), ranking.best_composite_f1(), ranking.auc_pr(), ranking.auc_roc()] {
            close(figure, 1.0);
        }
        close(ranking.events_found(0.01), 1.0);
    }

    #[test]
    fn figures_of_a_ranking_worked_out_by_hand() {
        // Rows in order: hit, false, hit, false, false, hit. Events 0 and 1.
        let ranking = ranking("0.0..1");

        // Precision 1, 2/3, 1/2 where recall grows by a third.
        close(ranking.auc_pr(), (1.0 + 2.0 / 3.0 + 0.5) / 3.0);
        // Normal rows lie below 1, 2 and 2 of 3 anomalous ones.
        close(ranking.auc_roc(), (1.0 + 2.0 + 2.0) / 9.0);
        // Taking three rows: 2 hits, 1 false, 1 missed; taking six: 3 hits, 3 false.
        close(ranking.best_f1(), 4.0 / 6.0);
        // Taking one: precision 1, one of two events; taking six: precision 1/2, both.
        close(ranking.best_composite_f1(), 2.0 / 3.0);
    }

    #[test]
    fn the_curve_goes_from_nothing_to_everything() {
        let curve = ranking("0.0..1").curve(1000);
        let thinned = ranking(&"0.".repeat(200)).curve(10);

        assert_eq!((curve[0].recall, curve[0].false_positives), (0.0, 0.0));
        close(curve[3].recall, 2.0 / 3.0);
        close(curve[3].precision, 2.0 / 3.0);
        close(curve[3].false_positives, 1.0 / 3.0);
        assert_eq!((curve[6].recall, curve[6].false_positives), (1.0, 1.0));
        assert!(thinned.len() <= 12 && thinned.last().is_some_and(|point| point.recall == 1.0));
    }

    #[test]
    fn rows_of_one_score_are_taken_together() {
        let ranking = ranking("(0.)");

        close(ranking.auc_pr(), 0.5);
        close(ranking.auc_roc(), 0.5);
        close(ranking.best_f1(), 2.0 / 3.0);
    }

    #[test]
    fn a_threshold_takes_the_rows_from_it_on() {
        let ranking = ranking("0.0..1"); // 100, 99, 98, …

        assert_eq!(ranking.at(98.0), (4.0 / 6.0, 1.0 / 3.0));
        assert_eq!(ranking.at(100.5), (0.0, 0.0));
        assert_eq!(ranking.at(0.0), (6.0 / 9.0, 1.0));
    }

    #[test]
    fn events_are_found_above_what_one_percent_of_normal_rows_reach() {
        let mut points: Vec<Point> = (0..101).map(|row| Point { score: f64::from(row), event: None }).collect();
        points.extend(
            [(98.9, 0), (99.1, 1), (50.0, 2), (99.0, 2)].map(|(score, event)| Point { score, event: Some(event) }),
        );
        let ranking = Ranking::new(points);

        close(ranking.normal_above(0.01), 99.0);
        close(ranking.events_found(0.01), 1.0 / 3.0);
    }

    #[test]
    fn without_anomalous_or_without_normal_rows_nothing_is_divided_by_zero() {
        for rows in ["", "....", "0000"] {
            let ranking = ranking(rows);
            let figures = [ranking.best_f1(), ranking.auc_pr(), ranking.auc_roc(), ranking.events_found(0.01)];
            assert!(figures.iter().all(|figure| (0.0..=1.0).contains(figure)), "{rows}: {figures:?}");
        }
    }
}
