//! Converts a recording to a table and its columns. Pure.

use lmap::{Column, ColumnKind, Saturation};
use recording::{ColumnKind as RecordedKind, Mark, Recording};

use crate::columns::Columns;
use crate::table::{Label, Table};

/// A recording as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordingTable {
    /// The name of the service.
    pub service: String,
    /// The rows. Times are seconds since 1970; counters are increments already.
    pub table: Table,
    /// Kinds and groups of the columns.
    pub columns: Columns,
    /// Seconds between two rows.
    pub interval: f64,
}

/// The group of columns that describe the measurement itself: neither agents nor replays judge them.
const MEASUREMENT_GROUP: &str = "measurement";
/// The group of columns each move of which is a fault by itself.
const HEALTH_GROUP: &str = "health";

/// What an agent makes of a column's name.
#[derive(Clone, Copy, Debug)]
pub struct Conventions {
    /// Identifies the column of a title in a model.
    pub fingerprint: fn(&str) -> u64,
    /// The rule for the column of a metric, by its name, its unit, and the interval in ns.
    pub saturation: fn(&str, &str, u64) -> Option<Saturation>,
    /// Whether a column is of a pool, by its title, and whether it is a gauge.
    pub pool: fn(&str, bool) -> bool,
    /// Whether it is an estimate of how many distinct things there are, by its title, and whether it is a gauge.
    pub estimated: fn(&str, bool) -> bool,
    /// Whether it counts requests that were answered, by its title, and whether it is an increment.
    pub load: fn(&str, bool) -> bool,
}

/// Converts `recording`; `None` if it has no rows. Rows have labels if the recording has any labelled span.
#[must_use]
pub fn recording_table(recording: Recording, conventions: Conventions) -> Option<RecordingTable> {
    let mut groups: Vec<String> = Vec::new();
    let mut column = |column: &recording::Column| {
        let group = groups.iter().position(|known| *known == column.group).unwrap_or_else(|| {
            groups.push(column.group.clone());
            groups.len() - 1
        });
        // As in the NIC agent: a statistic of an interval is not a state that could drift.
        let (kind, level) = match column.kind {
            RecordedKind::Increment => (ColumnKind::Increment, None),
            RecordedKind::Gauge => (ColumnKind::Gauge, None),
            RecordedKind::Statistic => (ColumnKind::Gauge, Some(false)),
        };
        let (watched, indicator) = (column.group != MEASUREMENT_GROUP, column.group == HEALTH_GROUP);
        let (group, fingerprint) = (group as u16, (conventions.fingerprint)(&column.title));
        let metric = column.title.split('{').next().unwrap_or_default();
        let is_gauge = column.kind == RecordedKind::Gauge;
        let pool = (conventions.pool)(&column.title, is_gauge);
        let estimated = (conventions.estimated)(&column.title, is_gauge);
        let load = (conventions.load)(&column.title, column.kind == RecordedKind::Increment);
        let saturation = (conventions.saturation)(metric, &column.unit, recording.interval.0);
        let base = Column::new(kind, fingerprint);
        Column { level, group, watched, indicator, pool, estimated, load, saturation, ..base }
    };
    let columns = recording.columns.iter().map(&mut column).collect();
    let labels = (!recording.spans.is_empty()).then(|| labels(&recording));
    let times = recording.times.iter().map(|time| time.0 as f64 / 1e9).collect();
    let metrics = recording.columns.iter().map(|column| column.title.clone()).collect();
    let (service, interval) = (recording.service.clone(), recording.interval.as_secs_f64());
    let mut table = Table::of_values(metrics, times, recording.into_values())?;
    if let Some((labels, faults)) = labels {
        (table.labels, table.faults) = (Some(labels), Some(faults));
    }
    Some(RecordingTable { service, table, columns: Columns { columns, counters: Vec::new(), groups }, interval })
}

/// The label of a row in several spans is that of the first anomalous span, otherwise of the first span.
fn labels(recording: &Recording) -> (Vec<Label>, Vec<String>) {
    let label = |time: &_| {
        let mut around = recording.spans.iter().filter(|span| (span.from..=span.to).contains(time));
        let any = around.clone().next();
        match around.find(|span| span.mark == Mark::Anomalous).or(any) {
            None => (Label::Normal, String::new()),
            Some(span) if span.mark == Mark::Anomalous => (Label::Anomalous, span.fault.clone()),
            Some(_) => (Label::Ignored, String::new()),
        }
    };
    recording.times.iter().map(label).unzip()
}

#[cfg(test)]
mod tests {
    use recording::{Encoder, Head, Span};
    use wire::time::{Nanos, UnixNanos};

    use super::*;

    const BY_LENGTH: Conventions = Conventions {
        fingerprint: |title| title.len() as u64,
        saturation: |_, _, _| None,
        pool: |_, _| false,
        estimated: |_, is_gauge| is_gauge,
        load: |_, is_increment| is_increment,
    };

    fn recording(spans: &[Span]) -> Recording {
        let column = |title: &str, group: &str, kind| recording::Column {
            title: title.to_owned(),
            unit: String::new(),
            group: group.to_owned(),
            kind,
        };
        let columns = vec![
            column("requests", "service", RecordedKind::Increment),
            column("rss", "memory", RecordedKind::Gauge),
            column("duration.p99", "service", RecordedKind::Statistic),
        ];
        let head = Head { service: "cart".to_owned(), interval: Nanos::from_millis(500), columns };
        let (mut encoder, mut file) = Encoder::new(head).unwrap();
        for row in 0..6_u64 {
            let value = if row == 2 { f64::INFINITY } else { row as f64 };
            assert!(encoder.push(UnixNanos::from_millis(row * 500), &[value, 1.0, f64::NAN]).unwrap().is_none());
        }
        file.extend(encoder.finish());
        file.extend(recording::label_block(spans).unwrap());
        recording::decode(&file).unwrap()
    }

    fn span(from: u64, to: u64, mark: Mark) -> Span {
        let [from, to] = [from, to].map(|half| UnixNanos::from_millis(half * 500));
        Span { from, to, mark, fault: "leak".to_owned() }
    }

    #[test]
    fn kinds_groups_times_and_interval_are_those_of_the_recording() {
        let recording_table = recording_table(recording(&[]), BY_LENGTH).unwrap();

        assert_eq!((recording_table.service.as_str(), recording_table.interval), ("cart", 0.5));
        assert_eq!(recording_table.columns.groups, ["service", "memory"]);
        let facts: Vec<_> =
            recording_table.columns.columns.iter().map(|c| (c.kind, c.level, c.group, c.fingerprint)).collect();
        let expected = [
            (ColumnKind::Increment, None, 0, 8),
            (ColumnKind::Gauge, None, 1, 3),
            (ColumnKind::Gauge, Some(false), 0, 12),
        ];
        assert_eq!(facts, expected);
        let estimated: Vec<bool> = recording_table.columns.columns.iter().map(|column| column.estimated).collect();
        assert_eq!(estimated, [false, true, false], "gauges only");
        let load: Vec<bool> = recording_table.columns.columns.iter().map(|column| column.load).collect();
        assert_eq!(load, [true, false, false], "increments only");
        assert_eq!(recording_table.table.times.as_deref().map(|times| times[2]), Some(1.0));
        assert_eq!((recording_table.table.missing, recording_table.table.not_finite), (6, 1));
        assert_eq!((recording_table.table.labels, recording_table.columns.counters.len()), (None, 0));
    }

    #[test]
    fn a_fault_wins_over_what_does_not_count() {
        use Label::{Anomalous, Ignored, Normal};

        let spans = [span(1, 4, Mark::Ignored), span(2, 3, Mark::Anomalous)];

        let table = recording_table(recording(&spans), BY_LENGTH).unwrap().table;

        assert_eq!(table.labels.unwrap(), [Normal, Ignored, Anomalous, Anomalous, Ignored, Normal]);
        assert_eq!(table.faults.unwrap(), ["", "", "leak", "leak", "", ""]);
    }
}
