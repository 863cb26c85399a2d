//! When rows of services were judged, and the longest time between two of them.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::time::UnixNanos;

/// Rows of each service since the latest cut.
#[derive(Debug, Default)]
pub struct RowTimes(BTreeMap<String, ServiceRows>);

#[derive(Debug, Default)]
struct ServiceRows {
    /// Times of rows that were judged, as they arrived.
    judged: Vec<UnixNanos>,
    unjudged: usize,
}

impl RowTimes {
    /// A row of `service` of the time `at`.
    pub fn take(&mut self, service: &str, at: UnixNanos, judged: bool) {
        let rows = self.0.entry(service.to_owned()).or_default();
        if judged {
            rows.judged.push(at);
        } else {
            rows.unjudged += 1;
        }
    }

    /// Forgets all rows but the latest one of each service, with which the next step begins.
    pub fn cut(&mut self) {
        for rows in self.0.values_mut() {
            rows.judged = rows.judged.iter().max().copied().into_iter().collect();
            rows.unjudged = 0;
        }
    }

    /// Time of the latest row of `service` that was judged; `None`: none was.
    pub fn last(&self, service: &str) -> Option<UnixNanos> {
        self.0.get(service).and_then(|rows| rows.judged.iter().max().copied())
    }

    /// The longest time between two judged rows of a service, with the service; `None` if there are no two rows.
    pub fn longest(&self) -> Option<(Duration, String)> {
        let of = |(service, rows): (&String, &ServiceRows)| {
            let mut times = rows.judged.clone();
            times.sort_unstable();
            let between = times.windows(2).map(|pair| pair[1].since(pair[0])).max()?;
            Some((Duration::from(between), service.clone()))
        };
        self.0.iter().filter_map(of).max()
    }

    /// Rows of all services that were not judged.
    pub fn unjudged(&self) -> usize {
        self.0.values().map(|rows| rows.unjudged).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_is_that_between_neighbours_in_whatever_order_they_arrive() {
        let mut rows = RowTimes::default();
        for at in [100, 400, 200] {
            rows.take("cart", UnixNanos(at), true);
        }
        rows.take("store", UnixNanos(150), true);

        assert_eq!(rows.longest(), Some((Duration::from_nanos(200), "cart".to_owned())));
        assert_eq!((rows.last("cart"), rows.last("mail")), (Some(UnixNanos(400)), None));
    }

    #[test]
    fn a_step_begins_with_the_latest_row_before_it() {
        let mut rows = RowTimes::default();
        rows.take("cart", UnixNanos(100), true);
        rows.take("cart", UnixNanos(900), true);
        rows.take("cart", UnixNanos(950), false);
        rows.cut();
        assert_eq!((rows.longest(), rows.unjudged()), (None, 0));

        rows.take("cart", UnixNanos(1_000), true);
        rows.take("cart", UnixNanos(1_050), false);

        assert_eq!(rows.longest(), Some((Duration::from_nanos(100), "cart".to_owned())));
        assert_eq!(rows.unjudged(), 1);
    }
}
