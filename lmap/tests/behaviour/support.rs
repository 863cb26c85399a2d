//! A service to watch, and a caller that runs jobs at once.

use lmap::{Column, ColumnKind, Detector, InstallOutcome, Settings, Verdict};

/// Uniform numbers in \[0, 1) from a seed (xorshift64*).
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About standard normal: the sum of twelve uniform numbers.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Metrics that follow a common load, each with noise of its own.
pub struct Service {
    noise: Noise,
    columns: usize,
    tick: f64,
}

impl Service {
    pub fn new(columns: usize, seed: u64) -> Self {
        Self { noise: Noise::new(seed), columns, tick: 0.0 }
    }

    pub fn row(&mut self) -> Vec<f64> {
        self.tick += 1.0;
        let load = 10.0 + 3.0 * (self.tick / 9.0).sin() + self.noise.normal();
        let other = (self.tick / 23.0).cos() + self.noise.normal();
        (0..self.columns)
            .map(|column| {
                let (a, b) = ((column % 3) as f64, (column % 5) as f64);
                100.0 + a * load + b * other + self.noise.normal()
            })
            .collect()
    }
}

/// Creates `columns` gauge columns.
pub fn gauges(columns: usize) -> Vec<Column> {
    (0..columns as u64).map(|fingerprint| Column::new(ColumnKind::Gauge, fingerprint)).collect()
}

/// A detector of `columns` gauges with seed 1.
pub fn detector(columns: usize, settings: Settings) -> Detector {
    Detector::new(gauges(columns), settings, 1).expect("the tests' settings are valid")
}

/// Scores and learns `row`; a job is run and installed at once.
pub fn run(detector: &mut Detector, row: &[f64]) -> Verdict {
    let verdict = detector.score(row).expect("the row has the detector's length");
    if let Some(job) = detector.learn() {
        assert_ne!(detector.install(job.run()), InstallOutcome::Stale);
    }
    verdict
}
