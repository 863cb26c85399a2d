//! Scores of the last minutes of each service, as multiples of γ: what an incident's time line begins with, and what
//! was normal before it.
//!
//! *Memory*: 8 bytes a second, [`SECONDS`] of them, and [`SERVICE_BYTES`] a service; at most [`MAX_SERVICES`] services.

use std::collections::{BTreeMap, VecDeque};

/// Seconds that are remembered.
pub const SECONDS: u32 = 240;
/// Bytes of a service beside its scores: its entry and its name.
pub const SERVICE_BYTES: usize = 512;
/// Services whose scores are remembered.
pub const MAX_SERVICES: usize = 4_096;

/// The largest score of each second, by service.
#[derive(Clone, Debug, Default)]
pub struct Recent(BTreeMap<Box<str>, VecDeque<(u32, f32)>>);

/// What was normal for a service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsualScores {
    /// The median of the scores, as a multiple of γ.
    pub median: f32,
    /// The largest of them.
    pub maximum: f32,
    /// Seconds that have a score.
    pub seconds: u32,
}

impl Recent {
    /// Adds a score of `service`, a multiple of γ, in `second` since 1970. Of a second the largest counts; one before
    /// the newest (a clock that was set back) counts for the newest.
    pub fn add(&mut self, service: &str, second: u32, ratio: f32) {
        if !ratio.is_finite() {
            return;
        }
        if !self.0.contains_key(service) {
            if self.0.len() >= MAX_SERVICES {
                return;
            }
            self.0.insert(service.into(), VecDeque::new());
        }
        let Some(scores) = self.0.get_mut(service) else { return };
        match scores.back_mut() {
            Some((newest, highest)) if *newest >= second => *highest = highest.max(ratio),
            _ => scores.push_back((second, ratio)),
        }
        while scores.front().is_some_and(|(oldest, _)| oldest.saturating_add(SECONDS) <= second) {
            scores.pop_front();
        }
    }

    /// Dates all scores anew: the clock was set forward by so many seconds, or back.
    pub fn shift(&mut self, seconds: i64) {
        // As at nearly every look.
        if seconds == 0 {
            return;
        }
        for (second, _) in self.0.values_mut().flatten() {
            *second = second.saturating_add_signed(seconds.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32);
        }
    }

    /// Forgets services without a score in the last minutes before `second`.
    pub fn forget(&mut self, second: u32) {
        self.0.retain(|_, scores| {
            scores.back().is_some_and(|(newest, _)| newest.saturating_add(SECONDS) > second || *newest > second)
        });
    }

    /// Scores of `service` from `second` on, oldest first.
    pub fn since(&self, service: &str, second: u32) -> impl Iterator<Item = (u32, f32)> {
        let scores = self.0.get(service).into_iter().flatten();
        scores.copied().filter(move |(at, _)| *at >= second)
    }

    /// What was normal for `service` in the `seconds` before `until`.
    #[must_use]
    pub fn usual(&self, service: &str, until: u32, seconds: u32) -> UsualScores {
        let from = until.saturating_sub(seconds);
        let before = self.since(service, from).filter(|(at, _)| *at < until);
        let mut ratios: Vec<f32> = before.map(|(_, ratio)| ratio).collect();
        ratios.sort_unstable_by(f32::total_cmp);
        let (Some(median), Some(maximum)) = (ratios.get(ratios.len() / 2), ratios.last()) else {
            return UsualScores::default();
        };
        UsualScores { median: *median, maximum: *maximum, seconds: ratios.len() as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_minutes_are_remembered_with_the_peak_of_each_second() {
        let mut recent = Recent::default();
        for second in 0..1_000 {
            recent.add("cart", second, 0.2);
            recent.add("cart", second, if second == 990 { 7.0 } else { 0.1 });
        }
        recent.add("cart", 5, 9.0);
        recent.add("cart", 999, f32::NAN);

        let all: Vec<_> = recent.since("cart", 0).collect();
        assert_eq!((all.len(), all[0], all[230]), (SECONDS as usize, (760, 0.2), (990, 7.0)));
        assert_eq!(all[239], (999, 9.0), "what is late counts for the newest second");
    }

    #[test]
    fn what_was_normal_is_a_median_and_a_maximum_before_the_alarm() {
        let mut recent = Recent::default();
        (0..100).for_each(|second| recent.add("cart", second, second as f32 / 100.0));

        let usual = recent.usual("cart", 90, 40);

        assert_eq!(usual, UsualScores { median: 0.7, maximum: 0.89, seconds: 40 });
        assert_eq!(recent.usual("nobody", 90, 40), UsualScores::default());
    }

    #[test]
    fn a_clock_that_is_set_forward_and_back_costs_nothing_of_what_was_normal() {
        let mut recent = Recent::default();
        (1_000..1_040).for_each(|second| recent.add("cart", second, 0.2));
        recent.shift(86_400);
        (87_440..87_460).for_each(|second| recent.add("cart", second, 0.3));
        recent.shift(-86_400);
        (1_060..1_080).for_each(|second| recent.add("cart", second, 0.4));

        let seconds: Vec<u32> = recent.since("cart", 0).map(|(second, _)| second).collect();
        assert_eq!(seconds, (1_000..1_080).collect::<Vec<_>>());
        assert_eq!(recent.usual("cart", 1_080, 80), UsualScores { median: 0.3, maximum: 0.4, seconds: 80 });
        recent.shift(i64::MIN);
        assert_eq!(recent.since("cart", 0).count(), 80, "1970 at the earliest");
    }

    #[test]
    fn services_that_are_gone_and_those_beyond_the_limit_take_nothing() {
        let mut recent = Recent::default();
        (0..MAX_SERVICES + 5).for_each(|number| recent.add(&format!("service-{number}"), 10, 0.1));
        assert_eq!(recent.0.len(), MAX_SERVICES);

        recent.add("service-0", 10 + SECONDS, 0.1);
        recent.forget(10 + SECONDS);

        assert_eq!(recent.0.keys().map(|name| &**name).collect::<Vec<_>>(), ["service-0"]);
    }
}
