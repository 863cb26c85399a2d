//! Figures of episodes (alarms): events found, false alarms, delay. Pure.

use lmap::Episode;

use crate::protocol::{Count, DetectorRun};
use crate::table::Label;
use crate::unit::Unit;

/// An episode may begin this many rows after an event and still belong to it, since a smoothed score lags.
const LATE: usize = 3;
/// An episode that begins this many rows before a labelled row is not false, since labels are not exact.
const EARLY: usize = 2;

/// The episodes of one unit, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Episodes {
    /// Events with an episode.
    pub found: Count,
    /// Episodes that touch only normal rows.
    pub false_alarms: usize,
    /// Rows labelled normal.
    pub quiet_rows: usize,
    /// For each event found, the rows from its first to the episode's first; 0 if the episode began earlier.
    pub delays: Vec<usize>,
}

impl Episodes {
    /// The episodes of `course`. Each ends with `quiet` quiet rows, which do not belong to it.
    #[must_use]
    pub fn of(unit: &Unit, course: &DetectorRun, quiet: usize) -> Self {
        let episodes = ranges(course, quiet);
        let events = unit.events();
        let first = |(start, end): &(usize, usize)| {
            episodes.iter().find(|(begin, over)| *begin < end + LATE && over > start).map(|(begin, _)| *begin)
        };
        let starts: Vec<Option<usize>> = events.iter().map(first).collect();
        let normal = |(begin, over): &&(usize, usize)| {
            unit.labels[begin.saturating_sub(EARLY)..*over].iter().all(|label| *label == Label::Normal)
        };
        let delays =
            starts.iter().zip(&events).filter_map(|(begin, event)| Some(begin.as_ref()?.saturating_sub(event.0)));
        Self {
            found: Count { yes: starts.iter().flatten().count(), all: events.len() },
            false_alarms: episodes.iter().filter(normal).count(),
            quiet_rows: unit.labels.iter().filter(|label| **label == Label::Normal).count(),
            delays: delays.collect(),
        }
    }

    /// Adds the episodes of another unit.
    pub fn add(&mut self, other: &Self) {
        self.found.add(other.found);
        self.false_alarms += other.false_alarms;
        self.quiet_rows += other.quiet_rows;
        self.delays.extend(&other.delays);
    }

    /// False episodes per 1,000 normal rows.
    #[must_use]
    pub fn false_per_thousand(&self) -> f64 {
        1000.0 * self.false_alarms as f64 / self.quiet_rows.max(1) as f64
    }

    /// F1 of episodes: an event counts as found once, an episode as false once; `None` without events.
    #[must_use]
    pub fn f1(&self) -> Option<f64> {
        let Count { yes, all } = self.found;
        (all > 0).then(|| 2.0 * yes as f64 / (all + yes + self.false_alarms) as f64)
    }

    /// The median delay in rows, the earlier of two; `None` if no event was found.
    #[must_use]
    pub fn median_delay(&self) -> Option<usize> {
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        delays.get(delays.len().saturating_sub(1) / 2).copied()
    }
}

/// First row and row after the last of each episode.
fn ranges(course: &DetectorRun, quiet: usize) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut begun = None;
    for (row, judged) in course.judged.iter().enumerate() {
        match judged.episode {
            // Another one may be on: it ends where this one begins.
            Some(Episode::Began) => out.extend(begun.replace(row).map(|begin| (begin, row))),
            Some(Episode::Ended) => out.extend(begun.take().map(|begin| (begin, (row + 1).saturating_sub(quiet)))),
            _ => {}
        }
    }
    out.extend(begun.map(|begin| (begin, course.judged.len())));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::RowScore;
    use crate::columns::Columns;
    use crate::table::read;

    /// `b` begins an episode, `o` is inside, `e` is the last of two quiet rows that end it.
    fn episodes(labels: &str, course: &str) -> Episodes {
        let lines: Vec<String> = labels.chars().map(|label| format!("1,{label}")).collect();
        let test = read(format!("a,label\n{}", lines.join("\n")).as_bytes()).unwrap();
        let columns = Columns::gauges(&test.metrics, |_| 0);
        let unit = Unit::new("u".to_owned(), (&test, &test), &columns, &[]).unwrap();
        let episode = |sign| match sign {
            'b' => Episode::Began,
            'o' => Episode::On,
            'e' => Episode::Ended,
            _ => Episode::Quiet,
        };
        let judged =
            course.chars().map(|sign| RowScore { score: 0.0, own: 0.0, episode: Some(episode(sign)) }).collect();
        Episodes::of(&unit, &DetectorRun { judged, gamma: 1.0, named: Vec::new() }, 2)
    }

    #[test]
    fn an_event_is_found_by_an_episode_that_touches_it_or_begins_just_after() {
        assert_eq!(episodes("00111000", "...bo.oe").delays, [1]);
        assert_eq!(episodes("00111000", "bo.oe...").found, Count { yes: 1, all: 1 });
        assert_eq!(episodes("001110000", "........b").found.yes, 0, "four rows after its last");
        assert_eq!(episodes("00111000", "......bo").delays, [4]);
        assert_eq!(episodes("00111000", "boe.....").found.yes, 0, "the quiet rows are no part of it");
    }

    #[test]
    fn an_episode_is_false_if_it_touches_only_normal_rows() {
        let episodes = episodes("0000000012220001000", "b.oe...b.oe..b.oe..");

        assert_eq!((episodes.false_alarms, episodes.quiet_rows), (1, 14));
        assert!((episodes.false_per_thousand() - 1000.0 / 14.0).abs() < 1e-9);
    }

    #[test]
    fn an_episode_within_another_ends_it_and_is_judged_by_itself() {
        let within = episodes("0011100000110000", "..boooobooboo.oe");

        assert_eq!((within.found, within.delays), (Count { yes: 2, all: 2 }, vec![0, 0]));
        assert_eq!(within.false_alarms, 1, "the one between the events");
    }

    #[test]
    fn the_median_delay_is_the_earlier_of_two() {
        let delays = |delays: &[usize]| Episodes { delays: delays.to_vec(), ..Episodes::default() };

        assert_eq!(delays(&[]).median_delay(), None);
        assert_eq!(delays(&[5, 1]).median_delay(), Some(1));
        assert_eq!(delays(&[5, 1, 2]).median_delay(), Some(2));
    }
}
