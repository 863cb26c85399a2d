//! Explains an alarm by the metrics that made most of the squared score in its first second, and by the callee that
//! they are about.

use std::collections::BTreeMap;

use wire::metric::Series;

/// Number of metrics that explain an alarm (μView shows three).
pub const TOP: usize = 3;

/// The label whose value names the callee.
const PEER: &str = "peer";
/// Start of that label as the first one of a title.
const FIRST: &str = "peer=\"";
/// The same, as a later label.
const LATER: &str = ",peer=\"";

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
    /// A column of `series` with its title: the callee is the value of the label `peer`.
    #[must_use]
    pub fn of(column: &'a str, series: &'a Series, share: f64) -> Self {
        Self { column, peer: series.labels.get(PEER).filter(|name| !name.is_empty()), share }
    }

    /// A column of which only the title is known, as for a client of the operators' API.
    #[must_use]
    pub fn titled(column: &'a str, share: f64) -> Self {
        Self { column, peer: peer_of(column), share }
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
    use core::num::NonZeroU64;

    use proptest::prelude::*;
    use wire::metric::{Group, Kind};
    use wire::name::{Labels, MetricName};

    use super::*;

    fn explanation(shares: &[(&str, f64)]) -> Explanation {
        let mut explanation = Explanation::default();
        explanation.add(2.0, shares.iter().map(|&(column, share)| Cause::titled(column, share)));
        explanation
    }

    #[test]
    fn parts_add_up_over_verdicts_in_units_of_gamma() {
        let mut explanation = Explanation::default();
        explanation.add(2.0, [("a", 0.9), ("b", 0.1)].map(|(column, share)| Cause::titled(column, share)));
        explanation.add(4.0, [("b", 0.5), ("c", 0.3)].map(|(column, share)| Cause::titled(column, share)));

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
    fn a_series_names_its_peer_by_a_label_and_not_by_its_title() {
        let series = |labels: Labels| Series {
            name: MetricName::new("calls").unwrap(),
            labels,
            kind: Kind::Counter,
            unit: None,
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        };
        let peer = |labels: &[(&str, &str)]| {
            let series = series(Labels::new(labels.iter().copied()).unwrap());
            Cause::of("calls", &series, 1.0).peer.map(str::to_owned)
        };

        assert_eq!(peer(&[("outcome", "ok"), ("peer", "store")]).as_deref(), Some("store"));
        assert_eq!(peer(&[("route", r#"{peer="store"}"#)]), None, "what another label says is no callee");
        assert_eq!((peer(&[("peer", "")]), peer(&[])), (None, None));
    }

    #[test]
    fn columns_without_end_are_bounded() {
        let mut explanation = Explanation::default();
        for column in 0..2 * MAX_COLUMNS {
            explanation.add(1.0, [Cause::titled(&column.to_string(), 1.0)]);
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
