//! Episodes against labels: which labelled events were found, and which episodes belong to none. Pure.

use super::course::{Alarm, Course};
use evaluation::table::{Label, Table};

/// Rows in sequence that are labelled anomalous and of one fault. Rows are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of fault, empty if the file does not say.
    pub fault: String,
    /// Its first row.
    pub first: usize,
    /// Its last row.
    pub last: usize,
    /// How it fared.
    pub outcome: Outcome,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An episode was on during it, first so many rows after its first row.
    Found {
        /// 0: with its first row.
        rows: usize,
    },
    /// No episode was on during it.
    Missed,
    /// The detector still learnt when it was over.
    NotJudged,
}

/// What the labels say about a course.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// All events in order.
    pub events: Vec<Event>,
    /// Indices of episodes that touch no row but normal ones.
    pub outside: Vec<usize>,
    /// Rows labelled normal that an armed detector judged.
    pub quiet_rows: usize,
}

impl Judgement {
    /// Compares; `None` if the table has no labels.
    #[must_use]
    pub fn of(table: &Table, course: &Course) -> Option<Self> {
        let labels = table.labels.as_deref()?;
        let armed = course.armed.unwrap_or(labels.len());
        let mut events = events(labels, table.faults.as_deref());
        for event in &mut events {
            event.outcome = outcome(event, &course.alarms, armed);
        }
        let normal = |alarm: &Alarm| labels[alarm.first..=alarm.last].iter().all(|label| *label == Label::Normal);
        let outside = course.alarms.iter().enumerate().filter(|(_, alarm)| normal(alarm)).map(|(number, _)| number);
        let quiet_rows = labels[armed.min(labels.len())..].iter().filter(|label| **label == Label::Normal).count();
        Some(Self { outside: outside.collect(), quiet_rows, events })
    }

    /// How many events were found, of those that were judged.
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
        Alarm { first, last, open: false, peak: first, score: 2.0, gamma: 1.0, reasons: vec![], groups: vec![] }
    }

    fn judge(labels: &str, armed: usize, alarms: Vec<Alarm>) -> Judgement {
        let lines: Vec<String> = labels.chars().map(|label| format!("1,{label}")).collect();
        let text = format!("m,label\n{}", lines.join("\n"));
        let table = evaluation::table::read(text.as_bytes()).unwrap();
        Judgement::of(&table, &Course { armed: Some(armed), alarms, ..Course::default() }).unwrap()
    }

    #[test]
    fn an_event_is_found_by_an_episode_that_touches_it() {
        let judgement = judge("0011100111000", 0, vec![alarm(4, 6)]);

        let outcomes: Vec<Outcome> = judgement.events.iter().map(|event| event.outcome).collect();
        assert_eq!(outcomes, [Outcome::Found { rows: 2 }, Outcome::Missed]);
        assert_eq!(judgement.found(), (1, 2));
        assert_eq!(judgement.outside, Vec::<usize>::new());
        assert_eq!(judgement.quiet_rows, 7);
    }

    #[test]
    fn an_episode_in_rows_that_do_not_count_is_not_held_against_it() {
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

        let judgement = Judgement::of(&table, &Course::default()).unwrap();

        let faults: Vec<&str> = judgement.events.iter().map(|event| event.fault.as_str()).collect();
        assert_eq!(faults, ["cpu", "leak"]);
    }
}
