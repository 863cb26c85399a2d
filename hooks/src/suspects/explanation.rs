//! Explains an alarm by the metrics that made most of the squared score in its first second, and by the callee that
//! they are about.

use std::collections::BTreeMap;

/// Number of metrics that explain an alarm (μView shows three).
pub const TOP: usize = 3;

/// The label whose value names the callee.
const PEER: &str = "peer";

/// Largest number of columns; a service with more of them stands out everywhere.
const MAX_COLUMNS: usize = 1024;

/// A column of a verdict's explanation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cause<'a> {
    /// Title of the column: metric, statistic and labels.
    pub column: &'a str,
    /// The callee that it is about.
    pub peer: Option<&'a str>,
    /// Share of the squared score, 0 to 1.
    pub share: f64,
}

impl<'a> Cause<'a> {
    /// A column by its title, with the labels of its series: the callee is the value of the label `peer`.
    #[must_use]
    pub fn of(column: &'a str, labels: impl IntoIterator<Item = (&'a str, &'a str)>, share: f64) -> Self {
        let peer = labels.into_iter().find(|(key, value)| *key == PEER && !value.is_empty());
        Self { column, peer: peer.map(|(_, name)| name), share }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ColumnPart {
    column: String,
    peer: Option<String>,
    sum: f64,
}

/// Parts of the squared score by column, in units of γ², summed over verdicts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// In order of first appearance.
    parts: Vec<ColumnPart>,
    whole: f64,
}

impl Explanation {
    /// Adds a verdict: its score as a multiple of γ, and its columns.
    pub fn add<'a>(&mut self, ratio: f64, causes: impl IntoIterator<Item = Cause<'a>>) {
        self.whole += ratio.powi(2);
        for Cause { column, peer, share } in causes {
            let part = share * ratio.powi(2);
            if let Some(known) = self.parts.iter_mut().find(|known| known.column == column) {
                known.sum += part;
            } else if self.parts.len() < MAX_COLUMNS {
                let (column, peer) = (column.to_owned(), peer.map(str::to_owned));
                self.parts.push(ColumnPart { column, peer, sum: part });
            }
        }
    }

    /// The [`TOP`] columns with the largest parts and their shares of the whole, 0 to 1, the largest first.
    #[must_use]
    pub fn top(&self) -> Vec<(&str, f64)> {
        self.top_parts().into_iter().map(|part| (part.column.as_str(), self.share(part))).collect()
    }

    fn share(&self, part: &ColumnPart) -> f64 {
        if self.whole > 0.0 { part.sum / self.whole } else { 0.0 }
    }

    fn top_parts(&self) -> Vec<&ColumnPart> {
        let mut top: Vec<_> = self.parts.iter().collect();
        top.sort_by(|one, other| self.share(other).total_cmp(&self.share(one)));
        top.truncate(TOP);
        top
    }

    /// The callee whose calls make a quarter or more of what the top columns explain; of several, the first by name.
    /// One of three metrics is about a third: an error of a callee shows in a caller's own counts as well.
    #[must_use]
    pub fn peer(&self) -> Option<&str> {
        let top = self.top_parts();
        let whole: f64 = top.iter().map(|part| self.share(part)).sum();
        let mut about: BTreeMap<&str, f64> = BTreeMap::new();
        for part in top {
            if let Some(peer) = &part.peer {
                *about.entry(peer).or_default() += self.share(part);
            }
        }
        about.into_iter().find(|(_, share)| *share > 0.0 && 4.0 * share >= whole).map(|(peer, _)| peer)
    }
}

#[cfg(test)]
mod tests {
    use wire::name::Labels;

    use super::*;

    /// A column, and the callee that it is about; empty: none.
    type CausePart<'a> = (&'a str, &'a str, f64);

    fn causes<'a>(parts: &'a [CausePart<'a>]) -> impl Iterator<Item = Cause<'a>> {
        parts.iter().map(|&(column, peer, share)| Cause::of(column, [(PEER, peer)], share))
    }

    fn explanation(parts: &[CausePart<'_>]) -> Explanation {
        let mut explanation = Explanation::default();
        explanation.add(2.0, causes(parts));
        explanation
    }

    #[test]
    fn parts_add_up_over_verdicts_in_units_of_gamma() {
        let mut explanation = Explanation::default();
        explanation.add(2.0, causes(&[("a", "", 0.9), ("b", "", 0.1)]));
        explanation.add(4.0, causes(&[("b", "", 0.5), ("c", "", 0.3)]));

        let top = explanation.top();

        assert_eq!(top.iter().map(|(column, _)| *column).collect::<Vec<_>>(), ["b", "c", "a"]);
        assert!((top[0].1 - (0.4 + 8.0) / 20.0).abs() < 1e-12);
    }

    #[test]
    fn an_explanation_is_about_the_peer_that_makes_a_quarter_of_it() {
        let peer = |parts: &[CausePart<'_>]| explanation(parts).peer().map(str::to_owned);

        assert_eq!(peer(&[("calls", "store", 0.1), ("work", "", 0.3)]).as_deref(), Some("store"));
        assert_eq!(peer(&[("calls", "store", 0.1), ("work", "", 0.31)]), None);
        let two = [("a", "store", 0.15), ("b", "store", 0.1), ("work", "", 0.75)];
        assert_eq!(peer(&two).as_deref(), Some("store"), "what is about one callee adds up");
        assert_eq!(peer(&[("a", "store", 0.5), ("b", "cart", 0.5)]).as_deref(), Some("cart"));
        assert_eq!(peer(&[]), None);
        assert_eq!(peer(&[("a", "store", 0.0)]), None, "nothing is about nobody");
    }

    #[test]
    fn a_fourth_metric_does_not_explain() {
        let shares = [("a", "", 0.3), ("b", "", 0.29), ("c", "", 0.28), ("d", "store", 0.13)];

        assert_eq!(explanation(&shares).top().len(), TOP);
        assert_eq!(explanation(&shares).peer(), None);
    }

    #[test]
    fn a_label_names_the_peer_and_the_title_does_not() {
        let peer = |labels: &[(&str, &str)]| {
            let labels = Labels::new(labels.iter().copied()).unwrap();
            Cause::of(r#"calls{peer="cart"}"#, labels.iter(), 1.0).peer.map(str::to_owned)
        };

        assert_eq!(peer(&[("outcome", "ok"), ("peer", "store")]).as_deref(), Some("store"));
        assert_eq!(peer(&[("route", r#"{peer="store"}"#)]), None, "what another label says is no callee");
        assert_eq!((peer(&[("peers", "store")]), peer(&[("mypeer", "store")])), (None, None));
        assert_eq!((peer(&[("peer", "")]), peer(&[])), (None, None));
    }

    #[test]
    fn columns_without_end_are_bounded() {
        let mut explanation = Explanation::default();
        for column in 0..2 * MAX_COLUMNS {
            explanation.add(1.0, [Cause::of(&column.to_string(), [], 1.0)]);
        }

        assert_eq!(explanation.parts.len(), MAX_COLUMNS);
    }
}
