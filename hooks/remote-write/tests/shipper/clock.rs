//! The agent's clock is ahead, or set back.

use hooks::sampling::{SampleLossReason, Series as Resolution};
use remote_write::shipper::Timestamp;
use wire::time::Nanos;

use super::{Simulation, at, has, http_reply, settings};

/// A receiver's clock is right; the agent's is an hour ahead, and set back.
fn ahead(seconds: f64) -> Timestamp {
    let Timestamp { monotonic, wall } = at(seconds);
    Timestamp { monotonic, wall: wall.plus(Nanos::from_secs(3600)) }
}

#[test]
fn after_a_clock_that_was_ahead_samples_go_on_if_the_receiver_refused_those_of_the_future() {
    let mut simulation = Simulation::new(settings());
    let cart = simulation.watch("cart", at(0.0));
    simulation.row(cart, at(1.0), &[5.0, 2.0], 0.0);
    simulation.drain(at(3.0));
    // Prometheus refuses what is more than ten minutes ahead.
    simulation.instead = Some(http_reply(400, None));
    for second in [31.0, 61.0] {
        simulation.row(cart, ahead(second), &[5.0, 2.0], 0.0);
        simulation.drain(ahead(second + 2.0));
    }
    simulation.instead = None;
    assert_eq!(simulation.shipper.clock_behind(ahead(62.0).wall), None);

    for second in [65.0, 91.0, 121.0] {
        simulation.row(cart, at(second), &[5.0, 2.0], 0.0);
        simulation.drain(at(second + 2.0));
    }

    assert_eq!(simulation.refusals, [] as [String; 0]);
    let totals = simulation.shipper.totals(Resolution::Baseline);
    let lost = |why: SampleLossReason| totals.lost[why as usize];
    assert_eq!((totals.sent, lost(SampleLossReason::Refused), lost(SampleLossReason::OutOfOrder)), (8, 4, 0));
    let behind = simulation.shipper.clock_behind(at(123.0).wall).unwrap();
    assert_eq!((behind.remaining, behind.lost), (Nanos::from_secs(3600 + 61 - 123), 0));
    // The sum goes on, and its start is not after its samples.
    let sums = simulation.stored.series.iter().find(|(labels, _)| has(labels, "__name__", "requests_total")).unwrap();
    let sums: Vec<_> = sums.1.iter().map(|(_, bits)| f64::from_bits(*bits)).collect();
    assert_eq!(sums, [5.0, 20.0, 25.0, 30.0]);
}

#[test]
fn a_receiver_that_took_samples_of_the_future_refuses_until_then_and_that_is_said_at_once() {
    let mut simulation = Simulation::new(settings());
    let cart = simulation.watch("cart", at(0.0));
    simulation.row(cart, ahead(1.0), &[5.0, 2.0], 0.0);
    simulation.drain(ahead(3.0));

    simulation.row(cart, at(5.0), &[5.0, 2.0], 0.0);
    let at_once = simulation.shipper.clock_behind(at(5.0).wall).unwrap();
    simulation.drain(at(7.0));
    let refused = simulation.shipper.clock_behind(at(7.0).wall).unwrap();
    assert!(simulation.shipper.is_reading_due(ahead(1.5).wall));
    let over = simulation.shipper.clock_behind(ahead(1.5).wall);
    simulation.row(cart, ahead(40.0), &[5.0, 2.0], 0.0);
    simulation.drain(ahead(42.0));

    assert_eq!((at_once.remaining, at_once.lost), (Nanos::from_secs(3596), 0));
    assert_eq!((refused.remaining, refused.lost), (Nanos::from_secs(3594), 2));
    assert_eq!(over, None);
    let totals = simulation.shipper.totals(Resolution::Baseline);
    assert_eq!((totals.sent, totals.lost[SampleLossReason::Refused as usize]), (4, 2));
}

#[test]
fn a_small_step_back_loses_rows_until_it_is_over_and_is_said_at_once() {
    let mut simulation = Simulation::new(settings());
    let cart = simulation.watch("cart", at(0.0));
    simulation.row(cart, at(30.0), &[5.0, 2.0], 0.0);
    simulation.row(cart, at(10.0), &[5.0, 2.0], 0.0);

    let behind = simulation.shipper.clock_behind(at(10.0).wall).unwrap();
    assert_eq!((behind.remaining, behind.lost), (Nanos::from_secs(20), 2 * 2));
    simulation.row(cart, at(31.0), &[5.0, 2.0], 0.0);
    assert_eq!(simulation.shipper.clock_behind(at(31.0).wall), None);
}
