//! The result of a comparison as text and as JSON. Pure.

use core::fmt;
use std::collections::HashMap;
use std::path::Path;

use lmap::{Canary, Difference, DifferenceKind};
use serde::Serialize;

use crate::figures::score;

/// A comparison of two versions, and what is needed to print it.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The old version's file.
    pub old: &'a Path,
    /// The new version's file.
    pub new: &'a Path,
    /// The result of the comparison.
    pub canary: &'a Canary,
    /// Names of metrics by their fingerprints.
    pub names: &'a HashMap<u64, String>,
    /// Number of metrics to list.
    pub top: usize,
}

/// The comparison as JSON. Field names are part of the command's interface.
#[derive(Debug, Serialize)]
pub struct View {
    unlike: bool,
    score: f64,
    own_score: f64,
    gamma: f64,
    old_rows: f64,
    new_rows: f64,
    compared: usize,
    only_old: usize,
    only_new: usize,
    incomparable: usize,
    differences: Vec<DifferenceView>,
}

#[derive(Debug, Serialize)]
struct DifferenceView {
    metric: String,
    unlike: &'static str,
    share: f64,
    expected: f64,
    seen: f64,
    shift: f64,
    spread: f64,
    per_row: bool,
}

impl Report<'_> {
    /// The comparison as JSON.
    #[must_use]
    pub fn view(&self) -> View {
        let canary = self.canary;
        let one = |difference: &Difference| DifferenceView {
            metric: self.name(difference),
            unlike: match difference.kind {
                DifferenceKind::Moved => "moved",
                DifferenceKind::Restless => "restless",
                DifferenceKind::NoLongerConstant => "no longer constant",
            },
            share: difference.share,
            expected: difference.expected,
            seen: difference.seen,
            shift: difference.shift,
            spread: difference.spread,
            per_row: difference.level,
        };
        View {
            unlike: canary.differs(),
            score: canary.score,
            own_score: canary.own_score,
            gamma: canary.gamma,
            old_rows: canary.rows.0.round(),
            new_rows: canary.rows.1.round(),
            compared: canary.compared,
            only_old: canary.left_out.0,
            only_new: canary.left_out.1,
            incomparable: canary.left_out.2,
            differences: canary.differences.iter().map(one).collect(),
        }
    }

    fn name(&self, difference: &Difference) -> String {
        let unnamed = || format!("metric {:016x}", difference.fingerprint);
        self.names.get(&difference.fingerprint).cloned().unwrap_or_else(unnamed)
    }

    fn line(&self, difference: &Difference) -> String {
        let Difference { kind, share, expected, seen, shift, spread, level, .. } = *difference;
        let per_row = if level { " per row" } else { "" };
        let (seen, expected) = (number(seen), number(expected));
        let how = match kind {
            DifferenceKind::Moved => format!("{seen}{per_row}, expected {expected} ({shift:+.1} deviations)"),
            DifferenceKind::Restless => {
                format!("{seen}{per_row}, as expected, but varies {spread:.1} times as much (or had a rare event)")
            }
            DifferenceKind::NoLongerConstant => format!("{seen}{per_row}, was always {expected}"),
        };
        format!("  {} {how}, {:.0} % of the difference", self.name(difference), 100.0 * share)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Canary { compared, rows, left_out: (only_old, only_new, other), differences, .. } = self.canary;
        let verdict = if self.canary.differs() { "DIFFERS FROM" } else { "behaves like" };
        writeln!(f, "{} {verdict} {}", self.new.display(), self.old.display())?;
        writeln!(
            f,
            "  {:.0} rows against {:.0}; {compared} metrics compared; typical score {}, of the old version {} (γ {})",
            rows.1,
            rows.0,
            score(self.canary.score),
            score(self.canary.own_score),
            score(self.canary.gamma)
        )?;
        if only_old + only_new + other > 0 {
            writeln!(
                f,
                "  not compared: {only_old} only in the old, {only_new} only in the new, {other} of another kind"
            )?;
        }
        for difference in differences.iter().take(self.top) {
            writeln!(f, "{}", self.line(difference))?;
        }
        match differences.len().saturating_sub(self.top) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

/// `value` with four significant digits.
fn number(value: f64) -> String {
    if value == 0.0 || (0.001..1e6).contains(&value.abs()) {
        let digits = (3 - value.abs().max(1e-3).log10().floor() as i32).clamp(0, 6) as usize;
        let text = format!("{value:.digits$}");
        return if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    }
    format!("{value:.3e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(fingerprint: u64, kind: DifferenceKind) -> Difference {
        let (share, expected, seen) = (0.8, 20.0, 31.25);
        Difference { fingerprint, kind, share, expected, seen, shift: 6.5, spread: 3.0, level: false }
    }

    fn canary(differences: Vec<Difference>) -> Canary {
        let (score, own_score, gamma, rows) = (9.0, 3.0, 6.0, (600.0, 300.0));
        Canary { score, own_score, gamma, rows, compared: 12, left_out: (1, 0, 0), differences }
    }

    fn text(canary: &Canary, top: usize) -> String {
        let names = HashMap::from([(7, "queue.wait.p99".to_owned())]);
        let (old, new) = (Path::new("v1.csv"), Path::new("v2.csv"));
        Report { old, new, canary, names: &names, top }.to_string()
    }

    #[test]
    fn metrics_that_differ_are_listed_with_the_expected_value() {
        let found = canary(vec![
            difference(7, DifferenceKind::Moved),
            difference(8, DifferenceKind::Restless),
            difference(9, DifferenceKind::NoLongerConstant),
        ]);

        let text = text(&found, 2);

        assert!(text.starts_with("v2.csv DIFFERS FROM v1.csv\n  300 rows against 600; 12 metrics compared"), "{text}");
        assert!(text.contains("not compared: 1 only in the old"), "{text}");
        assert!(
            text.contains("  queue.wait.p99 31.25, expected 20 (+6.5 deviations), 80 % of the difference\n"),
            "{text}"
        );
        assert!(
            text.contains("metric 0000000000000008 31.25, as expected, but varies 3.0 times as much (or had"),
            "{text}"
        );
        assert!(text.ends_with("  and 1 more\n"), "{text}");
    }

    #[test]
    fn versions_that_behave_alike_are_reported_so() {
        assert!(text(&canary(Vec::new()), 5).starts_with("v2.csv behaves like v1.csv\n"));
    }

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!([0.0, 20.0, 31.25, 0.012_346, 123_456.7].map(number), ["0", "20", "31.25", "0.01235", "123457"]);
        assert_eq!(number(3.2e9), "3.200e9");
    }
}
