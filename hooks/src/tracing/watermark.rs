//! Highest rank that was evicted lately. Traces below it are refused at once: a trace that arrives a moment later must
//! not survive where its like were evicted, and a node that is short of memory keeps the same part of the ranks as its
//! neighbours.

use wire::time::Nanos;

use crate::tracing::order::Rank;

/// The highest recent rank. It falls when nothing has raised it for between one and two `age`s.
#[derive(Debug)]
pub(super) struct Watermark {
    age: Nanos,
    since: Nanos,
    now: Option<Rank>,
    before: Option<Rank>,
}

impl Watermark {
    pub(super) const fn new(age: Nanos, now: Nanos) -> Self {
        Self { age, since: now, now: None, before: None }
    }

    pub(super) fn raise(&mut self, rank: Rank, now: Nanos) {
        self.turn(now);
        self.now = self.now.max(Some(rank));
    }

    /// Whether `rank` is at or below it.
    pub(super) fn covers(&self, rank: Rank, now: Nanos) -> bool {
        self.level(now) >= Some(rank)
    }

    /// The highest rank that was evicted lately.
    pub(super) fn level(&self, now: Nanos) -> Option<Rank> {
        match now.since(self.since) {
            Some(age) if age.0 >= self.age.0.saturating_mul(2) => None,
            Some(age) if age >= self.age => self.now,
            _ => self.now.max(self.before),
        }
    }

    fn turn(&mut self, now: Nanos) {
        match now.since(self.since) {
            Some(age) if age.0 >= self.age.0.saturating_mul(2) => (self.now, self.before) = (None, None),
            Some(age) if age >= self.age => self.before = self.now.take(),
            _ => return,
        }
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_at_once_and_falls_after_a_while() {
        let mut watermark = Watermark::new(Nanos(100), Nanos(0));
        assert!(!watermark.covers(Rank(0), Nanos(0)));

        watermark.raise(Rank(u64::MAX / 2), Nanos(10));
        watermark.raise(Rank(5), Nanos(20));

        assert!(watermark.covers(Rank(u64::MAX / 2), Nanos(99)));
        assert!(!watermark.covers(Rank(u64::MAX / 2 + 1), Nanos(99)));
        assert!((watermark.level(Nanos(99)).unwrap().share_above() - 0.5).abs() < 1e-9);
        assert!(watermark.covers(Rank(7), Nanos(150)));
        assert!(!watermark.covers(Rank(7), Nanos(250)));
    }

    #[test]
    fn after_a_long_silence_nothing_is_left_of_it() {
        let mut watermark = Watermark::new(Nanos(100), Nanos(0));
        watermark.raise(Rank(9), Nanos(10));

        assert!(!watermark.covers(Rank(0), Nanos(500)));
        assert_eq!(watermark.level(Nanos(500)), None);
    }
}
