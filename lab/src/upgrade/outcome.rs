//! What came of a step, and whether that is as it should be. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::action::Action;

/// The longest time between two rows around a restart: two intervals, or this.
const RESTART: Duration = Duration::from_secs(1);

/// What was seen during a step and some seconds after it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub action: Action,
    /// Until everything was again as before.
    pub took: Duration,
    /// The longest time between two judged rows of a service, with the service.
    pub longest: Option<(Duration, String)>,
    /// Rows that were not judged.
    pub unjudged: usize,
    /// Services whose detectors learn anew.
    pub anew: BTreeSet<String>,
    /// What the host agent has refused, by counter.
    pub refused: Vec<String>,
    /// What is missing even after a long time.
    pub missing: Option<String>,
    /// Why the step was not taken: the older release does not know it.
    pub unknown: Option<String>,
}

/// The longest time between two rows that is as it should be. A planned move may cost one row, a restart two intervals
/// or a second. Rows are late by a part of an interval on any machine.
pub fn most(action: Action, interval: Duration) -> Duration {
    if action.is_restart() { RESTART.max(2 * interval) } else { interval * 5 / 2 }
}

impl Outcome {
    /// What is not as it should be, in words.
    pub fn failures(&self, interval: Duration) -> Vec<String> {
        let limit = most(self.action, interval);
        let gap = match &self.longest {
            None => Some("no rows".to_owned()),
            Some((time, service)) if *time > limit => Some(format!("{service} had no judged row for too long")),
            Some(_) => None,
        };
        let anew = self.anew.iter().map(|service| format!("{service} learns anew"));
        let refused = self.refused.iter().map(|what| format!("refused: {what}"));
        anew.chain(gap).chain(refused).chain(self.missing.clone()).collect()
    }

    /// The result of the step, in words.
    pub fn result(&self, interval: Duration) -> String {
        let failures = self.failures(interval);
        match &self.unknown {
            _ if !failures.is_empty() => format!("FAILED: {}", failures.join("; ")),
            Some(why) => format!("not taken: {why}"),
            None => "good".to_owned(),
        }
    }
}

/// All steps as a table.
pub fn table(outcomes: &[Outcome], interval: Duration) -> String {
    let mut text = "| step | s | longest time between judged rows, ms | at most | rows not judged | result |\n\
                    | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for outcome in outcomes {
        let longest = outcome.longest.as_ref();
        let longest = longest.map_or_else(|| "-".to_owned(), |(time, of)| format!("{} ({of})", time.as_millis()));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {:.1} | {longest} | {} | {} | {} |",
            outcome.action.title(),
            outcome.took.as_secs_f64(),
            most(outcome.action, interval).as_millis(),
            outcome.unjudged,
            outcome.result(interval)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::action::Release;
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn outcome(action: Action, longest_ms: u64) -> Outcome {
        Outcome {
            action,
            took: Duration::from_millis(800),
            longest: Some((Duration::from_millis(longest_ms), "cart".to_owned())),
            unjudged: 0,
            anew: BTreeSet::new(),
            refused: Vec::new(),
            missing: None,
            unknown: None,
        }
    }

    #[test]
    fn a_restart_may_cost_a_second_and_a_planned_move_one_row() {
        let restart = Action::HostAgent(Release::New);
        for (action, longest_ms, is_good) in [
            (restart, 1_000, true),
            (restart, 1_001, false),
            (Action::Drain(0), 200, true),
            (Action::Drain(0), 300, false),
            (Action::Wait, 300, false),
        ] {
            let failures = outcome(action, longest_ms).failures(INTERVAL);
            assert_eq!(failures.is_empty(), is_good, "{action:?} {longest_ms}: {failures:?}");
        }
        assert_eq!(most(restart, Duration::from_secs(2)), Duration::from_secs(4));
    }

    #[test]
    fn what_is_learnt_anew_refused_or_missing_fails_and_so_do_no_rows() {
        let good = outcome(Action::Leave, 100);
        let bad = [
            Outcome { anew: BTreeSet::from(["cart".to_owned()]), ..good.clone() },
            Outcome { refused: vec!["refused_workers".to_owned()], ..good.clone() },
            Outcome { missing: Some("worker 0 is not connected".to_owned()), ..good.clone() },
            Outcome { longest: None, ..good.clone() },
        ];

        assert_eq!(good.result(INTERVAL), "good");
        for outcome in bad {
            assert!(outcome.result(INTERVAL).starts_with("FAILED: "), "{outcome:?}");
        }
    }

    #[test]
    fn a_step_that_the_older_release_does_not_know_is_said_and_does_not_fail() {
        let unknown = Outcome { unknown: Some("no such call".to_owned()), ..outcome(Action::Drain(0), 100) };

        let text = table(&[unknown, outcome(Action::Leave, 120)], INTERVAL);

        assert!(
            text.contains("| worker 0 is drained | 0.8 | 100 (cart) | 250 | 0 | not taken: no such call |"),
            "{text}"
        );
        assert!(text.ends_with("| 120 (cart) | 250 | 0 | good |\n"), "{text}");
    }
}
