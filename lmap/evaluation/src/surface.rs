//! The volume under the surface of range-based precision and recall (VUS-PR). Pure.
//!
//! # Source
//! J. Paparrizos, P. Boniol, T. Palpanas, R. S. Tsay, A. Elmore, M. J. Franklin: *Volume Under the Surface: A New
//! Accuracy Evaluation Measure for Time-Series Anomaly Detection*, PVLDB 15(11), 2022; fast form in P. Boniol et al.,
//! *VUS: Effective and Efficient Accuracy Measures for Time-Series Anomaly Detection*, VLDB Journal 34, 2025.
//!
//! # What it measures
//! Labels are never exact to the row. So every event gets a buffer of ℓ rows, half on each side, in which the label
//! falls from 1 as sqrt(1 − d/ℓ) with the distance d from the event; precision and recall are taken with these labels,
//! recall times the share of events with at least one row found, and the area under them is averaged over ℓ from 0 to
//! L.
//!
//! # Parameters
//! L, the longest buffer, is the mean length of the events, from 1 to [`LONGEST_BUFFER`]: of the two choices that the
//! authors offer (the length of anomalies or the period of the series) the one that is known here. 250 thresholds, as
//! in their code.

/// No buffer is longer, in rows.
pub const LONGEST_BUFFER: usize = 100;
/// Thresholds, evenly spread over the ranks of the scores.
const THRESHOLDS: usize = 250;

/// VUS-PR of `scores` with anomalous rows in `events` (first row, row after the last; ascending, apart from each other
/// or adjacent), over rows that all count. In \[0, 1\]; 0 without events. O(n log n + L · rows near events).
#[must_use]
pub fn vus_pr(scores: &[f64], events: &[(usize, usize)]) -> f64 {
    let rows: usize = events.iter().map(|(first, end)| end - first).sum();
    if rows == 0 {
        return 0.0;
    }
    let longest = ((rows as f64 / events.len() as f64).round() as usize).clamp(1, LONGEST_BUFFER);
    let ranks = Ranks::new(scores);
    let areas = (0..=longest).map(|buffer| ranks.area(events, buffer));
    areas.sum::<f64>() / (longest + 1) as f64
}

/// The highest threshold that each row reaches, and the number of rows that reach each threshold.
struct Ranks {
    /// Per row, an index into `taken`.
    first: Vec<usize>,
    /// Rows taken, per threshold, highest threshold first.
    taken: Vec<usize>,
}

impl Ranks {
    fn new(scores: &[f64]) -> Self {
        let mut sorted = scores.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let last = (sorted.len() - 1) as f64;
        let place = |step: usize| sorted[(last * step as f64 / (THRESHOLDS - 1) as f64) as usize];
        let limits: Vec<f64> = (0..THRESHOLDS).map(place).collect();
        let taken = limits.iter().map(|limit| sorted.partition_point(|score| score >= limit)).collect();
        let first = scores.iter().map(|score| limits.partition_point(|limit| limit > score)).collect();
        Self { first, taken }
    }

    /// The area under range-based precision and recall with a buffer of `buffer` rows.
    fn area(&self, events: &[(usize, usize)], buffer: usize) -> f64 {
        let labels = labels(self.first.len(), events, buffer);
        let ranges = ranges(&labels, events, buffer / 2);
        let inside: usize = events.iter().map(|(first, end)| end - first).sum();
        // What each threshold adds: labels of rows taken, labels of buffer rows taken, ranges seen first.
        let mut added = vec![(0.0, 0.0, 0_usize); THRESHOLDS];
        for range in &ranges {
            for (row, label, in_event) in *range {
                let at = &mut added[self.first[*row]];
                at.0 += label;
                at.1 += if *in_event { 0.0 } else { *label };
            }
            if let Some(seen) = range.iter().map(|(row, ..)| self.first[*row]).min() {
                added[seen].2 += 1;
            }
        }
        let (mut hits, mut buffered, mut seen, mut before, mut area) = (0.0, 0.0, 0, 0.0, 0.0);
        for (added, &taken) in added.iter().zip(&self.taken) {
            hits += added.0;
            buffered += added.1;
            seen += added.2;
            // Half of what the buffers add counts as what there was to find.
            let positive = inside as f64 + buffered / 2.0;
            let recall = (hits / positive).min(1.0) * seen as f64 / ranges.len() as f64;
            area += (recall - before) * hits / taken as f64;
            before = recall;
        }
        area
    }
}

/// The labelled rows of each event with its buffer; events whose buffers overlap are one.
fn ranges<'a>(labels: &'a [LabelledRow], events: &[(usize, usize)], half: usize) -> Vec<&'a [LabelledRow]> {
    let apart = |pair: &[(usize, usize)]| pair[0].1 + half <= pair[1].0.saturating_sub(half);
    let borders = events.windows(2).filter(|pair| apart(pair)).map(|pair| pair[1].0.saturating_sub(half));
    let mut rest = labels;
    let mut out = Vec::new();
    for border in borders {
        let (range, after) = rest.split_at(rest.partition_point(|row| row.0 < border));
        out.push(range);
        rest = after;
    }
    out.push(rest);
    out
}

/// A row, its label, and whether it is in an event itself.
type LabelledRow = (usize, f64, bool);

/// Every row with a label above 0: its place, its label, and whether it is in an event itself. Ascending.
fn labels(rows: usize, events: &[(usize, usize)], buffer: usize) -> Vec<LabelledRow> {
    let mut label = std::collections::BTreeMap::new();
    let half = buffer / 2;
    for &(first, end) in events {
        let fall = |distance: usize| (1.0 - distance as f64 / buffer as f64).sqrt();
        for distance in 1..=half {
            let below = first.checked_sub(distance);
            let above = Some(end - 1 + distance).filter(|row| *row < rows);
            for row in below.into_iter().chain(above) {
                *label.entry(row).or_insert(0.0) += fall(distance);
            }
        }
    }
    for row in events.iter().flat_map(|&(first, end)| first..end) {
        label.insert(row, f64::INFINITY);
    }
    label.into_iter().map(|(row, label): (usize, f64)| (row, label.min(1.0), label.is_infinite())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
    }

    #[test]
    fn labels_fall_off_on_both_sides_and_never_exceed_one() {
        let found = labels(8, &[(2, 3), (5, 6)], 4);

        let near = 0.75_f64.sqrt();
        let far = 0.5_f64.sqrt();
        let expected = [(0, far), (1, near), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0), (6, near), (7, far)];
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.0, expected.0);
            close(found.1, expected.1); // rows 3 and 4 have near + far, cut to 1
        }
        assert_eq!(found.iter().filter(|row| row.2).map(|row| row.0).collect::<Vec<_>>(), [2, 5]);
    }

    #[test]
    fn without_a_buffer_it_is_average_precision_times_the_share_of_events_seen() {
        // One event of one row on rank 2 of 4: precision 1/2 there.
        let ranks = Ranks::new(&[0.0, 3.0, 4.0, 1.0]);

        close(ranks.area(&[(1, 2)], 0), 0.5);
        // Two events, the second on rank 4: recall 1/2 · 1/2 at precision 1/2, then up to 1 at precision 2/4.
        close(ranks.area(&[(1, 2), (0, 1)], 0), 0.25 * 0.5 + 0.75 * 0.5);
    }

    #[test]
    fn a_buffer_of_two_rows_worked_out_by_hand() {
        // Event at row 2; labels of rows 1 and 3 are sqrt(1/2). Scores order the rows 1, 2, 0, 3.
        let ranks = Ranks::new(&[2.0, 4.0, 3.0, 1.0]);
        let edge = 0.5_f64.sqrt();

        // One row: hits edge of (1 + edge / 2); two: 1 + edge of (1 + edge / 2), cut to recall 1; nothing is added
        // after that.
        let first = edge / (1.0 + edge / 2.0);
        close(ranks.area(&[(2, 3)], 2), first * edge + (1.0 - first) * (1.0 + edge) / 2.0);
    }

    /// Expected: what the authors' algorithm, written down again in numpy, says of the same series.
    #[test]
    fn it_is_what_the_authors_algorithm_says() {
        let events = [(40, 60), (120, 126), (130, 131)];
        let inside = |row: usize| events.iter().any(|(first, end)| (*first..*end).contains(&row));
        let score = |row: usize| (row * 37 % 101) as f64 / 101.0 + if inside(row) { 0.4 } else { 0.0 };
        let scores: Vec<f64> = (0..400).map(score).collect();

        close(vus_pr(&scores, &events), 0.603_810_987_739_094_6);
    }

    #[test]
    fn a_perfect_score_is_near_one_and_the_reverse_near_nothing() {
        let event = |row: usize| (40..60).contains(&row);
        let good: Vec<f64> = (0..1000).map(|row| if event(row) { 1.0 } else { 0.0 }).collect();
        let bad: Vec<f64> = good.iter().map(|score| -score).collect();

        assert!(vus_pr(&good, &[(40, 60)]) > 0.9);
        assert!(vus_pr(&bad, &[(40, 60)]) < 0.05);
        assert_eq!(vus_pr(&good, &[]), 0.0);
    }
}
