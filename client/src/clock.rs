//! The only place of this crate that reads a clock.

use std::time::Instant;

use wire::time::Nanos;

/// Time since it was made; never goes back.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the clock is read here and nowhere else")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}
