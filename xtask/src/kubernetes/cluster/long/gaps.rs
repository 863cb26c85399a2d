//! The longest time between two rows of each LMAP, from looks at what its worker reports once a second. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

/// When looks found that LMAPs had new rows.
#[derive(Debug, Default)]
pub struct Gaps(BTreeMap<String, Gap>);

#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Time of the report, in nanoseconds since 1970.
    last: u64,
    /// Rows that its worker had counted.
    rows: u64,
    longest: Duration,
}

impl Gaps {
    /// A look finds that the worker of `service` had counted so many rows at the time `at`, in nanoseconds since 1970.
    /// A worker that has started again counts from the beginning.
    ///
    /// Rows between two reports are not seen, so that a gap is found too long by the time between two reports.
    pub fn look(&mut self, service: &str, at: u64, rows: u64) {
        let gap = self.0.entry(service.to_owned()).or_insert(Gap { last: at, rows, longest: Duration::ZERO });
        if rows == gap.rows || rows == 0 {
            return;
        }
        gap.longest = gap.longest.max(Duration::from_nanos(at.saturating_sub(gap.last)));
        (gap.last, gap.rows) = (gap.last.max(at), rows);
    }

    /// The longest gap of each service, by name.
    pub fn longest(&self) -> BTreeMap<&str, Duration> {
        self.0.iter().map(|(service, gap)| (service.as_str(), gap.longest)).collect()
    }

    /// Forgets all gaps, and goes on with the last rows.
    pub fn cut(&mut self) {
        for gap in self.0.values_mut() {
            gap.longest = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(s: u64) -> u64 {
        s * 1_000_000_000
    }

    #[test]
    fn a_gap_is_from_rows_to_rows_and_outlasts_reports_without_any() {
        let mut gaps = Gaps::default();

        for (at, rows) in [(10, 100), (11, 110), (12, 110), (13, 110), (14, 115), (15, 125)] {
            gaps.look("shop/cart", second(at), rows);
        }
        gaps.look("shop/store", second(3), 7);

        let of = |seconds| Duration::from_secs(seconds);
        assert_eq!(gaps.longest(), BTreeMap::from([("shop/cart", of(3)), ("shop/store", of(0))]));
        gaps.cut();
        gaps.look("shop/cart", second(17), 130);
        assert_eq!(gaps.longest()["shop/cart"], of(2), "from the last rows before the cut");
    }

    #[test]
    fn a_worker_that_starts_again_ends_a_gap_with_its_first_row() {
        let mut gaps = Gaps::default();

        for (at, rows) in [(10, 500), (13, 0), (14, 8), (15, 18)] {
            gaps.look("shop/cart", second(at), rows);
        }

        assert_eq!(gaps.longest()["shop/cart"], Duration::from_secs(4));
    }
}
