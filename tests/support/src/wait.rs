//! Waiting for a condition, with a limit. A test looks again and again; it never sleeps for as long as something may
//! take.

use core::convert::Infallible;
use core::fmt::Debug;
use core::panic::Location;
use std::time::Duration;

use crate::clock::Stopwatch;

/// What one look gives: what was waited for, or what was seen instead.
pub trait Outcome {
    /// What was waited for.
    type Value;
    /// What was seen instead. The last one is printed when the limit is over.
    type Observation: Debug;

    /// The value, if it has come.
    ///
    /// # Errors
    ///
    /// What was seen instead.
    fn result(self) -> Result<Self::Value, Self::Observation>;
}

impl Outcome for bool {
    type Value = ();
    type Observation = Self;

    fn result(self) -> Result<(), Self> {
        if self { Ok(()) } else { Err(self) }
    }
}

impl<T> Outcome for Option<T> {
    type Value = T;
    type Observation = Option<Infallible>;

    fn result(self) -> Result<T, Self::Observation> {
        self.ok_or(None)
    }
}

impl<T, S: Debug> Outcome for Result<T, S> {
    type Value = T;
    type Observation = S;

    fn result(self) -> Self {
        self
    }
}

/// How a member's tests wait: up to a limit, with a pause between two looks.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    limit: Duration,
    pause: Duration,
}

impl Wait {
    /// Waits up to `limit`, which should be generous for busy machines, with pauses of 5 ms.
    #[must_use]
    pub const fn up_to(limit: Duration) -> Self {
        Self { limit, pause: Duration::from_millis(5) }
    }

    /// The same with another pause, for looks that cost much.
    #[must_use]
    pub const fn pausing(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Looks until there is a value, and returns it. Panics when the limit is over, with `what` and what was seen last.
    #[track_caller]
    pub fn until<O: Outcome>(self, what: &str, mut look: impl FnMut() -> O) -> O::Value {
        let clock = Stopwatch::start();
        loop {
            match look().result() {
                Ok(value) => return value,
                Err(seen) if clock.elapsed() >= self.limit => self.over(what, &seen, Location::caller()),
                Err(_) => std::thread::sleep(self.pause),
            }
        }
    }

    /// The same in a runtime, by the runtime's clock. A look that does not end is given up, too.
    #[cfg(feature = "async")]
    #[track_caller]
    pub fn until_async<O: Outcome>(
        self,
        what: &str,
        mut look: impl AsyncFnMut() -> O,
    ) -> impl Future<Output = O::Value> {
        let caller = Location::caller();
        async move {
            let mut seen = None;
            let looking = async {
                loop {
                    match look().await.result() {
                        Ok(value) => return value,
                        Err(other) => seen = Some(other),
                    }
                    tokio::time::sleep(self.pause).await;
                }
            };
            let value = tokio::time::timeout(self.limit, looking).await;
            match (value, &seen) {
                (Ok(value), _) => value,
                (Err(_), Some(seen)) => self.over(what, seen, caller),
                (Err(_), None) => self.over(what, &"nothing, the first look did not end", caller),
            }
        }
    }

    #[expect(clippy::panic, reason = "what a test waits for has to come")]
    fn over(self, what: &str, seen: &dyn Debug, caller: &Location<'_>) -> ! {
        panic!("{caller}: not within {:?}: {what}; seen last: {seen:#?}", self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Wait = Wait::up_to(Duration::from_millis(20)).pausing(Duration::from_millis(1));

    #[test]
    fn the_value_of_the_first_look_that_has_one_is_returned() {
        let mut looks = 0;

        let found = SHORT.until("the third look", || {
            looks += 1;
            if looks < 3 { Err(looks) } else { Ok(looks) }
        });

        assert_eq!((found, looks), (3, 3));
    }

    #[test]
    #[should_panic(expected = "not within 20ms: a second one; seen last: \"only one\"")]
    fn the_limit_ends_it_with_what_was_seen_last() {
        SHORT.until("a second one", || Err::<(), _>("only one"));
    }

    #[test]
    fn the_last_look_is_after_the_limit() {
        // As on a machine that was busy with something else for the whole time.
        let mut looks = 0;

        Wait::up_to(Duration::ZERO).until("the first look", || {
            looks += 1;
            true
        });

        assert_eq!(looks, 1);
    }
}
