//! Forms episodes (alarms) of rows over γ.

use crate::settings::EpisodeRule;

/// The position of a row relative to episodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Episode {
    /// Outside of an episode.
    Quiet,
    /// An episode begins with this row. While one is on, this is another one; it ends with the one that is on.
    Began,
    /// Inside an episode.
    On,
    /// The last of the quiet rows that end an episode.
    Ended,
}

/// Tracks rows, and detects where an episode begins and ends.
#[derive(Clone, Debug)]
pub(crate) struct Episodes {
    rule: EpisodeRule,
    /// The last rows outside of an episode, over γ or not, newest in the lowest bit.
    recent: u64,
    quiet: u32,
    /// Rows since the beginning, 0 outside.
    rows: u64,
}

impl Episodes {
    pub(crate) const fn new(rule: EpisodeRule) -> Self {
        Self { rule, recent: 0, quiet: 0, rows: 0 }
    }

    /// Processes the next row, over γ or not.
    pub(crate) fn step(&mut self, over: bool) -> Episode {
        if self.rows > 0 {
            self.rows += 1;
            self.quiet = if over { 0 } else { self.quiet + 1 };
            if self.quiet < self.rule.quiet {
                return Episode::On;
            }
            *self = Self::new(self.rule);
            return Episode::Ended;
        }
        self.recent = ((self.recent << 1) | u64::from(over)) & self.window();
        // Enough rows may have been over before, where none was allowed to begin: it begins with one that is.
        if !over || self.recent.count_ones() < self.rule.need {
            return Episode::Quiet;
        }
        self.rows = 1;
        self.quiet = 0;
        Episode::Began
    }

    /// Processes a row over γ with which none begins yet: it waits.
    pub(crate) fn hold(&mut self) -> Episode {
        self.recent = ((self.recent << 1) | 1) & self.window();
        Episode::Quiet
    }

    /// Whether an episode would begin with another row over γ.
    pub(crate) fn would_begin(&self) -> bool {
        self.rows == 0 && (((self.recent << 1) | 1) & self.window()).count_ones() >= self.rule.need
    }

    /// The bits of the rows that count.
    fn window(&self) -> u64 {
        u64::MAX >> (64 - self.rule.of.clamp(1, 64))
    }

    /// Begins an episode before its row is complete.
    pub(crate) fn begin(&mut self) {
        *self = Self { rows: 1, ..Self::new(self.rule) };
    }

    /// Ends the episode.
    pub(crate) fn end(&mut self) {
        *self = Self::new(self.rule);
    }

    /// A gap: earlier rows no longer count towards a beginning. An episode goes on.
    pub(crate) fn gap(&mut self) {
        self.recent = 0;
    }

    /// Rows since the episode began, 0 outside.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Episode::{Began, Ended, On, Quiet};

    fn run(episodes: &mut Episodes, rows: &[u8]) -> Vec<Episode> {
        rows.iter().map(|&over| episodes.step(over == 1)).collect()
    }

    #[test]
    fn two_rows_of_three_begin_an_episode() {
        let mut episodes = Episodes::new(EpisodeRule::default());

        assert_eq!(run(&mut episodes, &[1, 0, 0, 1, 0, 1]), [Quiet, Quiet, Quiet, Quiet, Quiet, Began]);
        assert_eq!(episodes.rows(), 1);
    }

    #[test]
    fn five_quiet_rows_end_it_and_four_do_not() {
        let mut episodes = Episodes::new(EpisodeRule::default());

        assert_eq!(run(&mut episodes, &[1, 1, 0, 0, 0, 0, 1]), [Quiet, Began, On, On, On, On, On]);
        assert_eq!(run(&mut episodes, &[0, 0, 0, 0, 0, 1]), [On, On, On, On, Ended, Quiet]);
        assert_eq!(episodes.rows(), 0);
    }

    #[test]
    fn rows_that_wait_count_towards_an_episode_and_a_quiet_one_begins_none() {
        let mut episodes = Episodes::new(EpisodeRule::default());

        assert_eq!(run(&mut episodes, &[1]), [Quiet]);
        assert!((0..5).all(|_| episodes.would_begin() && episodes.hold() == Quiet));
        assert_eq!(run(&mut episodes, &[0, 1]), [Quiet, Began]);
    }

    #[test]
    fn a_gap_separates_rows_in_alarm() {
        let mut episodes = Episodes::new(EpisodeRule::default());

        assert_eq!(episodes.step(true), Quiet);
        episodes.gap();

        assert_eq!(episodes.step(true), Quiet);
        assert_eq!(episodes.step(true), Began);
    }
}
