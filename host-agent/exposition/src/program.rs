//! Whether the program behind an endpoint is down, or has started anew, by its series alone. An exporter goes on while
//! the program that it asks restarts, so neither a connection nor the exporter's own start tells.

use crate::lines::Lines;
use crate::series::{AllSeries, Series, Values};

/// Ends the names of gauges with the time at which something started, in seconds.
const START_TIME: &str = "start_time_seconds";
/// Ends the names of gauges that are 1 while the program of an exporter answers.
const UP: &str = "_up";
/// Such a time that is computed from an uptime in whole seconds jitters by this much.
const JITTER_S: f64 = 2.0;
/// At least so many counters fall at a restart,
const MIN_FALLS: usize = 2;
/// and at least one in so many of those that were above 0. Most of an exporter's are its own, and do not fall.
const FALLS_IN: usize = 8;

/// What a scrape says about the program behind an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramState {
    /// It has started anew since the scrape before.
    pub restarted: bool,
    /// Its exporter cannot reach it.
    pub down: bool,
}

impl ProgramState {
    /// By all series with the values of a scrape. O(series), allocates nothing.
    pub(crate) fn of(all: &mut AllSeries, lines: &Lines) -> Self {
        Self { restarted: has_restarted(all, lines), down: is_down(all, lines) }
    }
}

/// Whether a start time has moved, or so many counters fell that it is no reset of single ones.
fn has_restarted(all: &AllSeries, lines: &Lines) -> bool {
    let (mut positive, mut fell) = (0_usize, 0_usize);
    for (_, series) in all.iter() {
        match &series.values {
            Values::Counter(line) | Values::Distribution(line) => {
                if let Some((before, value)) = lines.pair(*line).filter(|(before, _)| *before > 0.0) {
                    positive += 1;
                    fell += usize::from(value < before);
                }
            }
            Values::Gauge(line) if is_start_time(series) => {
                if lines.pair(*line).is_some_and(|(before, value)| value > before + JITTER_S) {
                    return true;
                }
            }
            Values::Gauge(_) | Values::Histogram(_) => {}
        }
    }
    fell >= MIN_FALLS && fell * FALLS_IN >= positive
}

/// Whether the exporter says that its program is down: a gauge like `redis_up` is 0, and was not so always.
fn is_down(all: &mut AllSeries, lines: &Lines) -> bool {
    let mut down = false;
    for series in all.iter_mut().filter(|series| is_up(&series.name)) {
        let Values::Gauge(line) = series.values else { continue };
        let value = lines.value(line);
        down |= series.was_positive && value == 0.0;
        series.was_positive |= value > 0.0;
    }
    down
}

/// `redis_up` and `pg_up` are of the whole program, `node_network_up` is of a part.
fn is_up(name: &str) -> bool {
    name.strip_suffix(UP).is_some_and(|program| !program.is_empty() && !program.contains('_'))
}

fn is_start_time(series: &Series) -> bool {
    series.name.ends_with(START_TIME)
}

#[cfg(test)]
mod tests {
    use crate::choice::ChoiceSettings;
    use crate::{Format, Target, TargetSettings};

    fn target() -> Target {
        let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: 100, label_sets: 10 };
        Target::new(TargetSettings { choice, labels: Vec::new(), window: 5, samples: 1000, hold: 2 })
    }

    /// Whether the second of two scrapes is of a program that has restarted.
    fn restarted(first: &str, second: &str) -> bool {
        let mut target = target();
        target.take(first.as_bytes(), Format::Text).unwrap();
        assert!(!target.program().restarted, "the first scrape");
        target.take(second.as_bytes(), Format::Text).unwrap();
        target.program().restarted
    }

    fn counters(values: &[u64]) -> String {
        let counter = |(at, value): (usize, &u64)| format!("# TYPE c{at}_total counter\nc{at}_total {value}\n");
        values.iter().enumerate().map(counter).collect()
    }

    #[test]
    fn a_program_whose_counters_begin_anew_has_restarted_whatever_its_exporter_counts() {
        let mut before = vec![5_000; 3];
        before.extend(1..=13_u64);
        let mut after = vec![12; 3];
        after.extend(2..=14_u64);

        assert!(restarted(&counters(&before), &counters(&after)));
        assert!(!restarted(&counters(&before), &counters(&before)));
    }

    #[test]
    fn a_reset_of_one_counter_or_of_few_among_many_is_no_restart() {
        assert!(!restarted(&counters(&[9, 1]), &counters(&[2, 2])));
        let mut after = vec![9; 40];
        after[..4].fill(1);
        assert!(!restarted(&counters(&[9; 40]), &counters(&after)));
    }

    #[test]
    fn a_program_whose_gauge_falls_to_0_is_down_and_a_part_of_it_or_one_that_never_was_up_is_not() {
        let mut target = target();
        let mut down = |name: &str, value: u8| {
            target.take(format!("# TYPE {name} gauge\n{name} {value}\n").as_bytes(), Format::Text).unwrap();
            target.program().down
        };

        assert_eq!([0, 1, 0, 0, 1].map(|value| down("redis_up", value)), [false, false, true, true, false]);
        assert_eq!([1, 0].map(|value| down("node_network_up", value)), [false, false]);
    }

    #[test]
    fn a_later_start_time_is_a_restart_and_one_that_jitters_is_none() {
        let at = |seconds: u64| format!("# TYPE redis_start_time_seconds gauge\nredis_start_time_seconds {seconds}\n");

        assert!(restarted(&at(1_790_000_000), &at(1_790_000_100)));
        assert!(!restarted(&at(1_790_000_000), &at(1_790_000_001)));
    }
}
