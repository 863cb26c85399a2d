//! How much is run: the tables that are kept, or what CI can wait for.

#[derive(Clone, Copy)]
pub struct Scale {
    /// Runs whose errors are averaged.
    pub runs: u64,
    /// Runs of what ten leave to chance: loss, where few packets are lost, and laws with long tails.
    pub many: u64,
    /// Every how many-th point of a sweep.
    pub step: usize,
    /// Trials of what is counted.
    pub trials: u64,
    /// Everything, also what takes long.
    pub full: bool,
}

impl Scale {
    /// Ten runs, as published.
    pub const FULL: Self = Self { runs: 10, many: 40, step: 1, trials: 200, full: true };
    /// Seconds instead of minutes.
    pub const REDUCED: Self = Self { runs: 3, many: 6, step: 3, trials: 30, full: false };

    /// The points of a sweep that are looked at: the first and the last ones among them.
    pub fn of<T: Copy>(&self, points: &[T]) -> Vec<T> {
        points.iter().copied().step_by(self.step).collect()
    }
}
