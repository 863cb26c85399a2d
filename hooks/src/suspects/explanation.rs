//! Explains an alarm by the metrics that made most of the squared score in its first second, and by the callee that
//! they are about.

use std::collections::BTreeMap;

/// Number of metrics that explain an alarm (μView shows three).
pub const TOP: usize = 3;

/// Start of the label that names the callee, as the first label of a title.
const FIRST: &str = "peer=\"";
/// The same, as a later label.
const LATER: &str = ",peer=\"";

/// Largest number of columns; a service with more of them stands out everywhere.
const MAX_COLUMNS: usize = 1024;

/// Parts of the squared score by column, in units of γ², summed over verdicts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// In order of first appearance.
    parts: Vec<(String, f64)>,
    whole: f64,
}

impl Explanation {
    /// Adds a verdict: its score as a multiple of γ, and the titles of its columns with their shares of the squared
    /// score.
    pub fn add<'a>(&mut self, ratio: f64, shares: impl IntoIterator<Item = (&'a str, f64)>) {
        self.whole += ratio.powi(2);
        for (column, share) in shares {
            let part = share * ratio.powi(2);
            if let Some((_, sum)) = self.parts.iter_mut().find(|(known, _)| known == column) {
                *sum += part;
            } else if self.parts.len() < MAX_COLUMNS {
                self.parts.push((column.to_owned(), part));
            }
        }
    }

    /// The [`TOP`] columns with the largest parts and their shares of the whole, 0 to 1, the largest first.
    #[must_use]
    pub fn top(&self) -> Vec<(&str, f64)> {
        let share = |part: f64| if self.whole > 0.0 { part / self.whole } else { 0.0 };
        let mut top: Vec<_> = self.parts.iter().map(|(column, part)| (column.as_str(), share(*part))).collect();
        top.sort_by(|one, other| other.1.total_cmp(&one.1));
        top.truncate(TOP);
        top
    }

    /// The callee whose calls make a quarter or more of what the top columns explain; of several, the first by name.
    /// One of three metrics is about a third: an error of a callee shows in a caller's own counts as well.
    #[must_use]
    pub fn peer(&self) -> Option<&str> {
        let top = self.top();
        let whole: f64 = top.iter().map(|(_, share)| share).sum();
        let mut about: BTreeMap<&str, f64> = BTreeMap::new();
        for (column, share) in top {
            if let Some(peer) = peer_of(column) {
                *about.entry(peer).or_default() += share;
            }
        }
        about.into_iter().find(|(_, share)| *share > 0.0 && 4.0 * share >= whole).map(|(peer, _)| peer)
    }
}

/// The callee that a column with this title is about: the value of its label `peer`.
fn peer_of(title: &str) -> Option<&str> {
    let labels = title.split_once('{')?.1;
    let value = labels.strip_prefix(FIRST).or_else(|| labels.split_once(LATER).map(|(_, rest)| rest))?;
    let (name, _) = value.split_once('"')?;
    // A quotation mark inside a value has a backslash before it; no service's name has one.
    Some(name).filter(|name| !name.is_empty() && !name.contains('\\'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn explanation(shares: &[(&str, f64)]) -> Explanation {
        let mut explanation = Explanation::default();
        explanation.add(2.0, shares.iter().copied());
        explanation
    }

    #[test]
    fn parts_add_up_over_verdicts_in_units_of_gamma() {
        let mut explanation = Explanation::default();
        explanation.add(2.0, [("a", 0.9), ("b", 0.1)]);
        explanation.add(4.0, [("b", 0.5), ("c", 0.3)]);

        let top = explanation.top();

        assert_eq!(top.iter().map(|(column, _)| *column).collect::<Vec<_>>(), ["b", "c", "a"]);
        assert!((top[0].1 - (0.4 + 8.0) / 20.0).abs() < 1e-12);
    }

    #[test]
    fn an_explanation_is_about_the_peer_that_makes_a_quarter_of_it() {
        let peer = |shares: &[(&str, f64)]| explanation(shares).peer().map(str::to_owned);

        assert_eq!(peer(&[("calls{peer=\"store\"}", 0.1), ("work", 0.3)]).as_deref(), Some("store"));
        assert_eq!(peer(&[("calls{peer=\"store\"}", 0.1), ("work", 0.31)]), None);
        let two = [("a{peer=\"store\"}", 0.15), ("b{outcome=\"ok\",peer=\"store\"}", 0.1), ("work", 0.75)];
        assert_eq!(peer(&two).as_deref(), Some("store"), "what is about one callee adds up");
        assert_eq!(peer(&[("a{peer=\"store\"}", 0.5), ("b{peer=\"cart\"}", 0.5)]).as_deref(), Some("cart"));
        assert_eq!(peer(&[]), None);
        assert_eq!(peer(&[("a{peer=\"store\"}", 0.0)]), None, "nothing is about nobody");
    }

    #[test]
    fn a_fourth_metric_does_not_explain() {
        let shares = [("a", 0.3), ("b", 0.29), ("c", 0.28), ("d{peer=\"store\"}", 0.13)];

        assert_eq!(explanation(&shares).top().len(), TOP);
        assert_eq!(explanation(&shares).peer(), None);
    }

    #[test]
    fn only_the_label_peer_names_a_peer() {
        for (title, peer) in [
            ("calls{peer=\"store\"}", Some("store")),
            ("calls.p99{outcome=\"ok\",peer=\"store\",zone=\"a\"}", Some("store")),
            ("calls", None),
            ("calls{}", None),
            ("calls{mypeer=\"store\"}", None),
            ("calls{peers=\"store\"}", None),
            ("calls{peer=\"\"}", None),
            ("calls{peer=\"a\\\"b\"}", None),
            ("calls{peer=", None),
        ] {
            assert_eq!(peer_of(title), peer, "{title}");
        }
    }

    #[test]
    fn columns_without_end_are_bounded() {
        let mut explanation = Explanation::default();
        for column in 0..2 * MAX_COLUMNS {
            explanation.add(1.0, [(column.to_string().as_str(), 1.0)]);
        }

        assert_eq!(explanation.parts.len(), MAX_COLUMNS);
    }

    proptest! {
        #[test]
        fn no_title_breaks_it(title in ".*") {
            let _ = peer_of(&title);
            let _ = explanation(&[(&title, 1.0)]).peer();
        }
    }
}
