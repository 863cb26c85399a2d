//! Compares episodes with labels: which labelled events were found, and which episodes are outside of all events. Pure.

use super::timeline::{Alarm, Timeline};
use evaluation::table::{Label, Table};

/// Consecutive rows that are labelled with the same fault. Rows are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of fault; empty if the file has no column `fault`.
    pub fault: String,
    /// The first row of the event.
    pub first: usize,
    /// The last row of the event.
    pub last: usize,
    /// Whether the event was found.
    pub outcome: Outcome,
}

/// Whether an event was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An episode overlaps the event.
    Found {
        /// Rows from the first row of the event to the episode.
        rows: usize,
    },
    /// No episode overlaps the event.
    Missed,
    /// The event ended before the detector was armed.
    NotJudged,
}

/// The comparison of a timeline with the labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The labelled events in order.
    pub events: Vec<Event>,
    /// Indices of episodes that have normal rows only.
    pub outside: Vec<usize>,
    /// Normal rows that were judged by an armed detector.
    pub quiet_rows: usize,
}

impl Judgement {
    /// Compares the timeline with the labels; `None` if the table has none.
    #[must_use]
    pub fn of(table: &Table, timeline: &Timeline) -> Option<Self> {
        let labels = table.labels.as_deref()?;
        let armed = timeline.armed.unwrap_or(labels.len());
        let mut events = events(labels, table.faults.as_deref());
        for event in &mut events {
            event.outcome = outcome(event, &timeline.alarms, armed);
        }
        let normal = |alarm: &Alarm| labels[alarm.first..=alarm.last].iter().all(|label| *label == Label::Normal);
        let outside = timeline.alarms.iter().enumerate().filter(|(_, alarm)| normal(alarm)).map(|(number, _)| number);
        let quiet_rows = labels[armed.min(labels.len())..].iter().filter(|label| **label == Label::Normal).count();
        Some(Self { outside: outside.collect(), quiet_rows, events })
    }

    /// The number of events that were found, and the number that were judged.
    #[must_use]
    pub fn found(&self) -> (usize, usize) {
        let judged = self.events.iter().filter(|event| event.outcome != Outcome::NotJudged);
        let found = self.events.iter().filter(|event| matches!(event.outcome, Outcome::Found { .. }));
        (found.count(), judged.count())
    }
}

fn events(labels: &[Label], faults: Option<&[String]>) -> Vec<Event> {
    let fault = |row: usize| faults.map_or("", |faults| faults[row].as_str());
    let mut events: Vec<Event> = Vec::new();
    for (row, _) in labels.iter().enumerate().filter(|(_, label)| **label == Label::Anomalous) {
        match events.last_mut() {
            Some(event) if event.last + 1 == row && event.fault == fault(row) => event.last = row,
            _ => events.push(Event { fault: fault(row).to_owned(), first: row, last: row, outcome: Outcome::Missed }),
        }
    }
    events
}

fn outcome(event: &Event, alarms: &[Alarm], armed: usize) -> Outcome {
    if event.last < armed {
        return Outcome::NotJudged;
    }
    let touching = alarms.iter().find(|alarm| alarm.first <= event.last && event.first <= alarm.last);
    touching.map_or(Outcome::Missed, |alarm| Outcome::Found { rows: alarm.first.saturating_sub(event.first) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(first: usize, last: usize) -> Alarm {
        let (open, within, reasons, groups) = (false, false, vec![], vec![]);
        Alarm { first, last, open, within, peak: first, score: 2.0, gamma: 1.0, reasons, groups }
    }

    fn judge(labels: &str, armed: usize, alarms: Vec<Alarm>) -> Judgement {
        let lines: Vec<String> = labels.chars().map(|label| format!("1,{label}")).collect();
        let text = format!("m,label\n{}", lines.join("\n"));
        let table = evaluation::table::read(text.as_bytes()).unwrap();
        Judgement::of(&table, &Timeline { armed: Some(armed), alarms, ..Timeline::default() }).unwrap()
    }

    #[test]
    fn an_event_is_found_by_an_episode_that_overlaps_it() {
        let judgement = judge("0011100111000", 0, vec![alarm(4, 6)]);

        let outcomes: Vec<Outcome> = judgement.events.iter().map(|event| event.outcome).collect();
        assert_eq!(outcomes, [Outcome::Found { rows: 2 }, Outcome::Missed]);
        assert_eq!(judgement.found(), (1, 2));
        assert_eq!(judgement.outside, Vec::<usize>::new());
        assert_eq!(judgement.quiet_rows, 7);
    }

    #[test]
    fn an_episode_in_ignored_rows_is_not_outside() {
        let judgement = judge("0022000000", 0, vec![alarm(3, 3), alarm(6, 7)]);

        assert_eq!(judgement.outside, [1]);
    }

    #[test]
    fn an_event_before_arming_is_not_judged() {
        let judgement = judge("0110000110", 5, vec![]);

        assert_eq!(judgement.events[0].outcome, Outcome::NotJudged);
        assert_eq!(judgement.found(), (0, 1));
        assert_eq!(judgement.quiet_rows, 3);
    }

    #[test]
    fn two_faults_in_a_row_are_two_events() {
        let table = evaluation::table::read("m,label,fault\n1,1,cpu\n1,1,cpu\n1,1,leak\n".as_bytes()).unwrap();

        let judgement = Judgement::of(&table, &Timeline::default()).unwrap();

        let faults: Vec<&str> = judgement.events.iter().map(|event| event.fault.as_str()).collect();
        assert_eq!(faults, ["cpu", "leak"]);
    }
}
