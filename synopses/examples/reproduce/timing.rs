//! How long something takes on this machine.

use std::time::Instant;

/// The least of some times, in milliseconds: what other programs took is not counted.
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is measured")]
pub fn least_ms(times: usize, mut work: impl FnMut()) -> f64 {
    let time = |work: &mut dyn FnMut()| {
        let began = Instant::now();
        work();
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..times).map(|_| time(&mut work)).fold(f64::MAX, f64::min)
}
