//! Memory of trained detectors (Sec. 4.4.3), of the detectors of a whole node.

use lmap::{Column, ColumnKind, Detector, DetectorError, Settings};

/// Memory of detectors, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The directions of the bases, in every precision in which they are held.
    pub bases: usize,
    /// Whole armed detectors, with sketch, variances and row buffers.
    pub detectors: usize,
}

/// The detectors to measure.
#[derive(Clone, Debug)]
pub struct DetectorSet {
    /// Their settings; the rank and the fit schedule are replaced.
    pub settings: Settings,
    /// Number of services, with one detector each.
    pub services: usize,
    /// Columns of each.
    pub metrics: usize,
    /// k: rank of each basis.
    pub rank: usize,
    /// Rows on which each is trained.
    pub rows: usize,
}

impl DetectorSet {
    /// Trains all detectors, and again with twice the rank and the same sketch: the difference is what the directions
    /// take.
    ///
    /// # Errors
    ///
    /// [`DetectorError`] if there is no such detector.
    pub fn memory(&self) -> Result<Memory, DetectorError> {
        let [(bytes, ranks), (more_bytes, more_ranks)] = [self.trained(self.rank)?, self.trained(2 * self.rank)?];
        let per_direction = (more_bytes - bytes) as f64 / more_ranks.saturating_sub(ranks).max(1) as f64;
        Ok(Memory { bases: (per_direction * ranks as f64).round() as usize, detectors: bytes })
    }

    /// Bytes and directions of all detectors, at this rank.
    fn trained(&self, rank: usize) -> Result<(usize, usize), DetectorError> {
        let (mut bytes, mut ranks) = (0, 0);
        for service in 0..self.services {
            let detector = self.detector(rank, service)?;
            bytes += detector.memory_bytes();
            ranks += detector.shape().map_or(0, |(rank, _)| rank);
        }
        Ok((bytes, ranks))
    }

    fn detector(&self, rank: usize, service: usize) -> Result<Detector, DetectorError> {
        let columns = (0..self.metrics as u64).map(|name| Column::new(ColumnKind::Increment, name)).collect();
        let settings = Settings {
            rank: Some(rank),
            provisional_rows: None,
            warm_up_rows: self.rows,
            fit_again_rows: Vec::new(),
            held_out_every: 0,
            ..self.settings.clone()
        };
        let mut detector = Detector::new(columns, settings, service as u64)?;
        for tick in 0..self.rows {
            let load = ((tick + service) as f64 / 9.0).sin();
            let value = |column: usize| load * (column % 7) as f64 + ((tick * (column + 3)) % 11) as f64;
            let row: Vec<f64> = (0..self.metrics).map(value).collect();
            let _ = detector.score(&row); // a row has one value per column
            if let Some(job) = detector.learn() {
                let _ = detector.install(job.run()); // run in place: never stale
            }
        }
        Ok(detector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmap::ScoreForm;

    fn of(settings: Settings) -> Memory {
        DetectorSet { settings, services: 10, metrics: 1_000, rank: 10, rows: 40 }.memory().unwrap()
    }

    #[test]
    fn a_direction_takes_four_bytes_a_column_and_with_the_papers_score_eight_more() {
        let one = 10.0 * 1_000.0 * 10.0;

        let default = of(Settings { sketch_rows: Some(25), ..Settings::default() });
        let papers = of(Settings { sketch_rows: Some(25), ..Settings::paper(ScoreForm::PaperRelative) });

        assert!((default.bases as f64 / (4.0 * one) - 1.0).abs() < 0.05, "{default:?}");
        assert!((papers.bases as f64 / (12.0 * one) - 1.0).abs() < 0.05, "{papers:?}");
        assert!(default.bases < default.detectors && papers.bases < papers.detectors);
    }

    #[test]
    fn a_detector_is_mostly_its_sketch() {
        let found = of(Settings { sketch_rows: Some(25), ..Settings::default() });

        // l = 25: 2l rows of sketch, k of basis, 10 of one per column, 8 spare ones.
        let expected = 10.0 * (50.0 + 10.0 + 10.0 + 8.0) * 8_000.0;
        assert!((found.detectors as f64 / expected - 1.0).abs() < 0.1, "{} of {expected}", found.detectors);
    }
}
