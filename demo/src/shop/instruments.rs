//! The cost of the metric writes of one request, measured on real handles: a share of a percent does not show in a
//! process's CPU time.

use std::time::Duration;

use super::meters::{Class, Incoming, Outcome, Outgoing, Queue};
use crate::clock::Clock;
use crate::graph::{Errand, Service};

const ROUNDS: u32 = 20_000;
const BATCHES: usize = 7;

/// Time of payment's metric writes for one request, in nanoseconds: those of any service, and a call to a dependency.
///
/// The fastest of several batches, since other processes can only make a batch slower. Takes about 10 ms.
pub(crate) fn writes_per_request_ns() -> f64 {
    let service = client::Service::new("instruments").socket("/nonexistent/services.sock");
    let uview = client::connect(service);
    let incoming = Incoming::new(&uview, Service::Payment);
    let outgoing = Outgoing::new(&uview, Service::Store);
    let queue = Queue::new(&uview);
    let business = ["one", "two", "three", "four"].map(|name| uview.counter(name).register());
    let request = |number: u32| {
        let took = Duration::from_micros(u64::from(number % 4096));
        incoming.began();
        queue.depth.add(1);
        queue.depth.add(-1);
        queue.wait.observe(u64::from(number % 64));
        queue.busy.add(u64::from(number));
        for counter in &business {
            counter.add(1);
        }
        outgoing.began();
        outgoing.ended(Outcome::Fine, took, 100);
        queue.work.observe(u64::from(number % 4096));
        incoming.ended(Errand::Buy, Class::Fine, took, 100);
    };
    let batch = |_| {
        let clock = Clock::start();
        (0..ROUNDS).for_each(request);
        clock.now().0 as f64 / f64::from(ROUNDS)
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writes_of_a_request_take_some_time_and_less_than_a_request() {
        let ns = writes_per_request_ns();

        assert!(ns > 1.0 && ns < 1_000_000.0, "{ns} ns");
    }
}
