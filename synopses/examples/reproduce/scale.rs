//! Number of runs: for the committed tables, or reduced for CI.

#[derive(Clone, Copy)]
pub struct Scale {
    /// Runs whose errors are averaged.
    pub runs: u64,
    /// Runs for quantities with a large variance: loss of few packets, and long-tailed distributions.
    pub many: u64,
    /// Step between the points of a sweep.
    pub step: usize,
    /// Trials for counts.
    pub trials: u64,
    /// Whether to include what takes long.
    pub full: bool,
}

impl Scale {
    /// Ten runs, as published.
    pub const FULL: Self = Self { runs: 10, many: 40, step: 1, trials: 200, full: true };
    /// Seconds instead of minutes.
    pub const REDUCED: Self = Self { runs: 3, many: 6, step: 3, trials: 30, full: false };

    /// The points of a sweep to run.
    pub fn of<T: Copy>(&self, points: &[T]) -> Vec<T> {
        points.iter().copied().step_by(self.step).collect()
    }
}
