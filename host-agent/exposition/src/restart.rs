//! Whether the program behind an endpoint has started anew, by its series alone. An exporter goes on while the program
//! that it asks restarts, so neither a connection nor the exporter's own start tells.

use crate::lines::Lines;
use crate::series::{AllSeries, Series, Values};

/// Ends the names of gauges with the time at which something started, in seconds.
const START_TIME: &str = "start_time_seconds";
/// Such a time that is computed from an uptime in whole seconds jitters by this much.
const JITTER_S: f64 = 2.0;
/// At least so many counters fall at a restart,
const MIN_FALLS: usize = 2;
/// and at least one in so many of those that were above 0. Most of an exporter's are its own, and do not fall.
const FALLS_IN: usize = 8;

/// Whether a start time has moved, or so many counters fell that it is no reset of single ones. O(series), allocates
/// nothing.
pub fn has_restarted(all: &AllSeries, lines: &Lines) -> bool {
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
        assert!(!target.has_restarted(), "the first scrape");
        target.take(second.as_bytes(), Format::Text).unwrap();
        target.has_restarted()
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
    fn a_later_start_time_is_a_restart_and_one_that_jitters_is_none() {
        let at = |seconds: u64| format!("# TYPE redis_start_time_seconds gauge\nredis_start_time_seconds {seconds}\n");

        assert!(restarted(&at(1_790_000_000), &at(1_790_000_100)));
        assert!(!restarted(&at(1_790_000_000), &at(1_790_000_001)));
    }
}
