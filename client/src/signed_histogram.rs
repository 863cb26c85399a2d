//! Histograms of values on both sides of 0.
//!
//! No bucket of a region holds a negative value. So those below 0 go, without their sign, into a histogram of their
//! own, which is registered with the first of them. The host agent names those of its sources in the same way.

use std::sync::OnceLock;

use region::SlotRun;
use wire::histogram::BELOW_ZERO;

use crate::client::WeakClient;
use crate::handles::{Binding, Histogram};
use crate::metric_spec::MetricSpec;
use crate::registration::{Registration, Sealed as _};

/// A histogram, and one for its values below 0 as soon as there are some.
#[derive(Debug)]
pub(crate) struct SignedHistogram {
    above: Histogram,
    below: OnceLock<Histogram>,
    /// What `below` is registered as.
    spec: Box<MetricSpec>,
    /// A handle keeps no service connected.
    client: WeakClient,
}

impl Registration<'_, Histogram> {
    /// Registers the histogram for values from 0 on; that for the others is registered when it is first needed, with
    /// the same labels, unit and buckets.
    pub(crate) fn register_signed(self) -> SignedHistogram {
        let (client, spec) = self.client_and_spec();
        let spec = MetricSpec { name: format!("{}{BELOW_ZERO}", spec.name), ..spec.clone() };
        let (client, spec) = (client.downgrade(), Box::new(spec));
        SignedHistogram { above: self.register(), below: OnceLock::new(), spec, client }
    }
}

impl SignedHistogram {
    /// The histogram of values from 0 on.
    pub(crate) const fn above(&self) -> &Histogram {
        &self.above
    }

    /// The histogram of values below 0, without their sign. The first call registers it; detached if that is refused,
    /// as for a name that is too long with the ending, or if the client is gone. It holds the client meanwhile: whoever
    /// drops the last other one just then leaves it to this thread to end the connection, and to wait for that.
    pub(crate) fn below(&self) -> &Histogram {
        if let Some(below) = self.below.get() {
            return below;
        }
        // Before the cell is locked, so that a child that is forked meanwhile does not find it locked for ever. Two
        // threads that come here at once register the same series twice, and share it.
        let registered = self.register_below();
        self.below.get_or_init(|| registered)
    }

    fn register_below(&self) -> Histogram {
        let detached = || Binding { run: SlotRun::detached(self.spec.slots()), series: None };
        let binding = self.client.upgrade().map_or_else(detached, |client| client.bind(&self.spec).0);
        Histogram::from_binding(&binding, &self.spec)
    }
}

#[cfg(test)]
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests {
    use wire::histogram::Scale;

    use crate::client::{Client, connect};
    use crate::problem::Cause;
    use crate::service::Service;

    fn client() -> Client {
        connect(Service::new("payment").socket("/nonexistent/services.sock"))
    }

    #[test]
    fn what_is_below_zero_is_registered_with_the_first_value_and_alike() {
        let client = client();
        let fine = Scale::exponential(3).unwrap();

        let drift = client.histogram("drift").label("node", "a").unit("s").parts_per_unit(1_000);
        let drift = drift.scale(fine).register_signed();
        drift.above().observe(1);
        assert_eq!(client.status().series, 1);
        drift.below().observe(2);
        drift.below().observe(3);

        let there = client.histogram("drift.below_zero").label("node", "a").unit("s").parts_per_unit(1_000);
        let there = there.scale(fine).register();
        assert_eq!((there.count(), there.sum(), drift.above().count()), (2, 5, 1));
        assert_eq!((client.status().series, client.status().problems), (2, vec![]));
    }

    #[test]
    fn of_a_name_too_long_for_both_only_what_is_below_zero_is_refused_and_once() {
        let client = client();

        let long = client.histogram(&"n".repeat(250)).register_signed();
        long.above().observe(1);
        (0..3).for_each(|_| long.below().observe(1));

        assert_eq!((long.above().count(), long.below().count()), (1, 3), "a detached handle counts");
        let status = client.status();
        assert_eq!((status.series, status.detached), (1, 1));
        assert!(matches!(&status.problems[..], [problem] if matches!(problem.cause, Cause::Name { .. })), "{status}");
    }

    #[test]
    fn a_handle_keeps_no_service_connected_and_counts_without_it() {
        let client = client();
        let drift = client.histogram("drift").register_signed();

        drop(client);

        assert!(drift.client.upgrade().is_none());
        drift.below().observe(2);
        assert_eq!((drift.below().count(), drift.below().sum()), (1, 2));
    }
}
