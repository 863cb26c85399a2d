//! Who visits the frontend, as the stream of its packets says: who sends most, and how many clients there are, now and
//! usually.
//!
//! Values are those of the rows of the stream's LMAP. A row has no names: whom the largest share is about stands in the
//! list of the LMAP's metrics.

#[cfg(test)]
pub(crate) mod example;

use std::collections::BTreeMap;

use serde::Serialize;
use wire::printable;
use wire::proto::operators::{ListReply, RowEvent};

use crate::figures::percent;
use crate::graph::Target;

/// The share of who sends most.
const SHARE: &str = "network.top_talker.share";
/// Metrics of the stream: that share, distinct source addresses, distinct flows.
const METRICS: [&str; 3] = [SHARE, "network.sources.distinct", "network.flows.distinct"];
/// In place of a figure that is missing.
const MISSING: &str = "–";

/// What the stream has said so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Talkers {
    /// Where each of [`METRICS`] stands in a row; `None` if it does not.
    columns: [Option<usize>; 3],
    /// The values of each, in the order of the rows; NaN is missing.
    values: [Vec<f64>; 3],
    /// Whom the share was about, whenever the list of metrics came; empty: nobody.
    subjects: Vec<String>,
}

/// A figure of the last interval, and the usual one; `None` without a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NowAndUsual<T> {
    /// Of the last interval.
    pub now: Option<T>,
    /// Of a number, the median of all intervals; of a name, the most frequent one.
    pub usual: Option<T>,
}

/// Who visits the frontend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TalkersSummary {
    /// Who sends most: now with its weight, in the stream's words.
    pub top_talker: NowAndUsual<String>,
    /// Share of who sends most, 0 to 1.
    pub share: NowAndUsual<f64>,
    /// Distinct addresses that send.
    pub clients: NowAndUsual<f64>,
    /// Distinct connections of them all.
    pub connections: NowAndUsual<f64>,
}

impl Talkers {
    /// Takes a row of the stream's LMAP. One without values only says what became of the LMAP.
    pub(crate) fn add_row(&mut self, row: &RowEvent) {
        if !row.columns.is_empty() {
            self.columns = METRICS.map(|metric| row.columns.iter().position(|title| title == metric));
        }
        if row.values.is_empty() {
            return;
        }
        for (values, column) in self.values.iter_mut().zip(self.columns) {
            let value = column.and_then(|column| row.values.get(column));
            values.push(value.copied().unwrap_or(f64::NAN));
        }
    }

    /// Takes from a list of all LMAPs whom the largest share is about.
    pub(crate) fn add_subject(&mut self, list: &ListReply) {
        let stream = list.lmaps.iter().find(|lmap| lmap.service == Target::VISITORS_SERVICE);
        let share = stream.and_then(|lmap| lmap.metrics.iter().find(|metric| metric.name == SHARE));
        self.subjects.extend(share.map(|metric| printable::line(&metric.about).into_owned()));
    }

    /// The figures so far; `None` if the stream has said none.
    #[must_use]
    pub fn summary(&self) -> Option<TalkersSummary> {
        let [share, clients, connections] = self.values.each_ref().map(|values| figure(values));
        let is_known = [&share, &clients, &connections].iter().any(|figure| figure.usual.is_some());
        is_known.then(|| TalkersSummary { top_talker: self.top_talker(), share, clients, connections })
    }

    fn top_talker(&self) -> NowAndUsual<String> {
        let mut times = BTreeMap::new();
        for subject in self.subjects.iter().filter(|subject| !subject.is_empty()) {
            *times.entry(party(subject)).or_insert(0) += 1;
        }
        let usual = times.into_iter().max_by_key(|(_, times)| *times);
        NowAndUsual {
            now: self.subjects.last().filter(|subject| !subject.is_empty()).cloned(),
            usual: usual.map(|(party, _)| party.to_owned()),
        }
    }
}

/// The last of `values`, and the median of those that are there.
fn figure(values: &[f64]) -> NowAndUsual<f64> {
    let mut sorted: Vec<_> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    NowAndUsual {
        now: values.last().copied().filter(|value| value.is_finite()),
        usual: sorted.get(sorted.len() / 2).copied(),
    }
}

/// Who a subject names: what stands in brackets behind it differs from interval to interval.
fn party(subject: &str) -> &str {
    subject.split_once(" (").map_or(subject, |(party, _)| party)
}

impl TalkersSummary {
    /// Each figure as texts: its name, now, and usually.
    #[must_use]
    pub fn rows(&self) -> [[String; 3]; 4] {
        let who = |name: Option<&str>| name.unwrap_or(MISSING).to_owned();
        let row = |name: &str, figure: &NowAndUsual<f64>, show: fn(f64) -> String| {
            let cell = |value: Option<f64>| value.map_or_else(|| MISSING.to_owned(), show);
            [name.to_owned(), cell(figure.now), cell(figure.usual)]
        };
        let NowAndUsual { now, usual } = &self.top_talker;
        [
            ["top talker".to_owned(), who(now.as_deref()), who(usual.as_deref())],
            row("its share", &self.share, percent),
            row("distinct clients", &self.clients, whole),
            row("distinct connections", &self.connections, whole),
        ]
    }
}

fn whole(count: f64) -> String {
    format!("{count:.0}")
}

#[cfg(test)]
mod tests {
    use super::example::{list, row, talkers};
    use super::*;

    #[test]
    fn now_is_the_last_interval_and_usual_the_median_and_the_most_frequent_name() {
        let rows = talkers().summary().unwrap().rows();

        assert_eq!(rows[0], ["top talker", "127.0.0.12 (38 of 99 bytes)", "127.0.0.11"]);
        assert_eq!(rows[1], ["its share", "38.7 %", "39.9 %"]);
        assert_eq!(rows[2], ["distinct clients", "7", "6"]);
        assert_eq!(rows[3], ["distinct connections", "10", "9"]);
    }

    #[test]
    fn a_figure_that_is_missing_in_the_last_interval_is_usual_as_before_and_columns_may_move() {
        let mut talkers = talkers();
        talkers.add_row(&row(&[SHARE, "network.sources.distinct"], &[f64::NAN, 6.0]));
        talkers.add_subject(&list(Target::VISITORS_SERVICE, ""));

        let summary = talkers.summary().unwrap();

        assert_eq!((summary.share.now, summary.share.usual), (None, Some(0.399)));
        assert_eq!((summary.clients.now, summary.connections.now), (Some(6.0), None));
        assert_eq!((summary.top_talker.now, summary.top_talker.usual.as_deref()), (None, Some("127.0.0.11")));
    }

    #[test]
    fn who_is_in_another_stream_is_not_named_and_an_end_of_the_lmap_is_no_interval() {
        let mut talkers = Talkers::default();
        talkers.add_subject(&list("network.payment-store", "10.0.0.7 (1 of 2 bytes)"));
        talkers.add_row(&RowEvent::default());
        assert_eq!(talkers.summary(), None, "nothing was said");

        talkers.add_row(&row(&["network.sources.distinct"], &[6.0]));

        let rows = talkers.summary().unwrap().rows();
        assert_eq!(rows[0], ["top talker", "–", "–"]);
        assert_eq!(rows[1], ["its share", "–", "–"]);
        assert_eq!(rows[2], ["distinct clients", "6", "6"]);
    }

    #[test]
    fn a_name_from_outside_stays_in_its_line() {
        let mut talkers = talkers();
        talkers.add_subject(&list(Target::VISITORS_SERVICE, "10.0.0.7\n✓ no bar was missed"));

        let now = talkers.summary().unwrap().top_talker.now.unwrap();

        assert_eq!(now, "10.0.0.7\\u{a}✓ no bar was missed");
    }
}
