//! What host agents say of their LMAPs, and what that is for pods, workloads and `Lmap`s. Pure.
//!
//! What is not known is absent, never 0: a node that cannot be read, an LMAP that learns. Of several LMAPs the worst
//! one counts. If one of the nodes cannot be read, the worst of the others is only a lower bound; it is given if it
//! says by itself that something is unusual.

use std::collections::BTreeMap;
use std::sync::Arc;

use exposition::{Description, Format, FormatError, Role, Sink};
use k8s_openapi::jiff::Timestamp;

use crate::memory_budget::{MemoryBudget, Reservation};

/// Most LMAPs of one node.
const MAX_LMAPS: usize = 4096;
/// Bytes of one value beside its name.
const ENTRY_BYTES: usize = 96;
/// From here on, a score says by itself that something is unusual; so does an alarm.
const UNUSUAL: f64 = 1.0;

/// A metric of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// The last score over γ.
    ScoreRatio,
    /// 1 in alarm, else 0.
    Alarm,
}

impl Metric {
    /// Both of them.
    pub(crate) const ALL: [Self; 2] = [Self::ScoreRatio, Self::Alarm];

    /// Its name in the API.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ScoreRatio => "uview_score_ratio",
            Self::Alarm => "uview_alarm",
        }
    }

    /// The metric called `name`.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// The family of the host agents' page.
    const fn family(self) -> &'static str {
        match self {
            Self::ScoreRatio => "uview_lmap_score_ratio",
            Self::Alarm => "uview_lmap_alarm",
        }
    }
}

/// What one host agent said, and when.
#[derive(Debug)]
pub(crate) struct Page {
    /// When it was read.
    pub(crate) at: Timestamp,
    /// Values by metric and name of the LMAP.
    values: BTreeMap<(Metric, String), f64>,
    /// The bytes that it takes, of those that all pages may.
    reservation: Option<Reservation>,
}

/// What each node said, or why it cannot be read.
pub(crate) type Pages = BTreeMap<String, Result<Arc<Page>, String>>;

impl Page {
    /// Reads `body`, OpenMetrics text that came at `at`.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: a line that is no sample, or a page that was cut.
    pub(crate) fn read(body: &[u8], at: Timestamp) -> Result<Self, FormatError> {
        let mut page = Self { at, values: BTreeMap::new(), reservation: None };
        exposition::read(body, Format::OpenMetrics, &mut page)?;
        Ok(page)
    }

    /// The page, if it fits into the `budget` of all.
    ///
    /// # Errors
    ///
    /// There is none, as a sentence.
    pub(crate) fn within(mut self, budget: &MemoryBudget) -> Result<Self, String> {
        let one = |(_, name): &(Metric, String)| ENTRY_BYTES + name.len();
        let bytes = ENTRY_BYTES + self.values.keys().map(one).sum::<usize>();
        let none =
            || format!("{bytes} bytes do not fit: pages of other agents take what there is, {} bytes", budget.limit());
        self.reservation = Some(budget.reserve(bytes).ok_or_else(none)?);
        Ok(self)
    }
}

impl Sink for Page {
    fn sample(&mut self, _: &[u8], value: f64, describe: impl FnOnce() -> Option<Description>) {
        let Some(Description { family, role: Role::Gauge, labels, .. }) = describe() else { return };
        let metric = Metric::ALL.into_iter().find(|metric| metric.family() == family);
        let lmap = labels.into_iter().find(|(key, _)| key == "lmap");
        if let (Some(metric), Some((_, lmap))) = (metric, lmap)
            && value.is_finite()
            && value >= 0.0
            && self.values.len() < Metric::ALL.len() * MAX_LMAPS
        {
            self.values.insert((metric, lmap), value);
        }
    }
}

/// A value of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    /// The value itself.
    pub(crate) value: f64,
    /// When the oldest part of it was read.
    pub(crate) at: Timestamp,
}

/// The value of an object that consists of LMAPs on nodes.
///
/// # Errors
///
/// Why there is none, as a sentence.
pub(crate) fn value(metric: Metric, parts: &[(String, Vec<String>)], pages: &Pages) -> Result<Value, String> {
    let mut worst: Option<Value> = None;
    let mut unread = None;
    for (node, lmaps) in parts {
        let page = match pages.get(node) {
            Some(Ok(page)) => page,
            Some(Err(why)) => {
                unread = unread.or_else(|| Some(format!("the host agent of {node} cannot be read: {why}")));
                continue;
            }
            None => {
                unread = unread.or_else(|| Some(format!("no host agent runs on {node}")));
                continue;
            }
        };
        for value in lmaps.iter().filter_map(|lmap| page.values.get(&(metric, lmap.clone()))) {
            let before = worst.unwrap_or(Value { value: 0.0, at: page.at });
            worst = Some(Value { value: before.value.max(*value), at: before.at.min(page.at) });
        }
    }
    match (worst, unread) {
        (Some(worst), None) => Ok(worst),
        (Some(worst), Some(_)) if worst.value >= UNUSUAL => Ok(worst),
        (_, Some(unread)) => Err(unread),
        (None, None) if parts.is_empty() => Err("no pod of it runs".to_owned()),
        (None, None) => Err("no LMAP of it judges yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seconds: i64, lines: &[(&str, f64)]) -> Arc<Page> {
        let line = |(lmap, value): &(&str, f64)| format!("uview_lmap_score_ratio{{lmap=\"{lmap}\"}} {value:?}\n");
        let lines: String = lines.iter().map(line).collect();
        let text = format!("# TYPE uview_lmap_score_ratio gauge\n{lines}# EOF\n");
        Arc::new(Page::read(text.as_bytes(), Timestamp::from_second(seconds).unwrap()).unwrap())
    }

    fn pages(of: [Result<Arc<Page>, String>; 2]) -> Pages {
        ["node-1", "node-2"].map(str::to_owned).into_iter().zip(of).collect()
    }

    fn parts(nodes: &[&str]) -> Vec<(String, Vec<String>)> {
        let lmaps = ["shop/cart", "shop/cart/proxy"].map(str::to_owned).to_vec();
        nodes.iter().map(|node| ((*node).to_owned(), lmaps.clone())).collect()
    }

    fn ratio(nodes: &[&str], pages: &Pages) -> Result<f64, String> {
        value(Metric::ScoreRatio, &parts(nodes), pages).map(|value| value.value)
    }

    #[test]
    fn a_page_of_a_host_agent_is_read_and_one_that_was_cut_is_not() {
        // What a host agent writes, by its own tests.
        let text = include_str!("../../../host-agent/src/metrics_endpoint/lmaps.txt");
        let at = Timestamp::from_second(5).unwrap();
        let page = Page::read(text.as_bytes(), at).unwrap();

        let value = |metric, lmap: &str| page.values.get(&(metric, lmap.to_owned())).copied();
        assert_eq!(
            [value(Metric::ScoreRatio, "shop/\"cart\""), value(Metric::Alarm, "shop/\"cart\"")],
            [Some(0.25), Some(0.0)]
        );
        assert_eq!([value(Metric::ScoreRatio, "shop/silent"), value(Metric::Alarm, "shop/silent")], [None, Some(1.0)]);
        assert_eq!(page.values.len(), 3);
        assert!(Page::read(&text.as_bytes()[..text.len() - 6], at).is_err());
    }

    #[test]
    fn the_worst_lmap_counts_and_the_oldest_page() {
        let pages = pages([
            Ok(page(20, &[("shop/cart", 0.25), ("shop/cart/proxy", 0.75), ("shop/other", 9.0)])),
            Ok(page(10, &[("shop/cart", 0.5)])),
        ]);
        let all = value(Metric::ScoreRatio, &parts(&["node-1", "node-2"]), &pages).unwrap();

        assert_eq!((all.value, all.at.as_second()), (0.75, 10));
        assert_eq!(ratio(&["node-2"], &pages), Ok(0.5));
    }

    #[test]
    fn what_is_not_known_is_absent_and_says_why() {
        let away = || Err("no response within 2s".to_owned());
        let quiet = pages([Ok(page(20, &[("shop/cart", 0.25)])), away()]);
        let unusual = pages([Ok(page(20, &[("shop/cart", 1.5)])), away()]);
        let both = &["node-1", "node-2"];

        let why = Err("the host agent of node-2 cannot be read: no response within 2s".to_owned());
        assert_eq!(ratio(both, &quiet), why, "a lower bound that says nothing");
        assert_eq!(ratio(both, &unusual), Ok(1.5), "a lower bound that says enough");
        assert_eq!(ratio(&["node-3"], &quiet), Err("no host agent runs on node-3".to_owned()));
        let learning = pages([Ok(page(20, &[])), Ok(page(20, &[("shop/cart", 0.5)]))]);
        assert_eq!(ratio(&["node-1"], &learning), Err("no LMAP of it judges yet".to_owned()));
        assert_eq!(ratio(both, &learning), Ok(0.5), "those that learn do not hide the others");
        assert_eq!(ratio(&[], &learning), Err("no pod of it runs".to_owned()));
    }
}
