//! The steps of the pipeline before the projection, by themselves: levels, constants, standardisation, soft clip.
//!
//! A [`Detector`](crate::Detector) does them itself. Detectors of other kinds get the same rows by this, so that a
//! comparison is one of scores.

use crate::aligned::Aligned;
use crate::column::Column;
use crate::counts::Counts;
use crate::fit::Training;
use crate::intake::{Intake, RowError};
use crate::lanes::padded;
use crate::rows::{Mark, RowVerdict};
use crate::settings::Settings;
use crate::standard::{Standard, standardise};

/// Prepares rows for a score as a [`Detector`](crate::Detector) does, with the statistics of training.
#[derive(Clone, Debug)]
pub struct Preparation {
    levels: Vec<u32>,
    standard: Standard,
    intake: Intake,
    z: Aligned,
}

impl Preparation {
    /// Fits to `rows`, each with whether there is a gap before it, by the levels, floor of deviations, constants and
    /// clip of `settings`. Means and deviations stay as they are then.
    ///
    /// # Errors
    ///
    /// [`RowError::Length`] unless each row has one value per column.
    pub fn fit<'a>(
        columns: &[Column],
        settings: &Settings,
        rows: impl IntoIterator<Item = (&'a [f64], bool)>,
    ) -> Result<Self, RowError> {
        let (mut intake, mut counts) = (Intake::new(columns.len()), Counts::default());
        let (mut values, mut marks) = (Vec::new(), Vec::new());
        for (row, gap) in rows {
            if gap {
                intake.gap();
            }
            intake.take(row, None, &mut counts)?;
            values.extend_from_slice(intake.row());
            marks.push(Mark { verdict: RowVerdict::Unjudged, restarted: intake.restarted() });
        }
        let (levels, standard) = Training::new(columns, settings, values, marks).prepare();
        let m = columns.len();
        Ok(Self { levels, standard, intake: Intake::new(m), z: Aligned::zeros(padded(m)) })
    }

    /// z of the next row, one value per column; 0 for a column that was constant or had no values in training. The
    /// first row follows none: give it the training rows again if those to come follow them. O(m).
    ///
    /// # Errors
    ///
    /// [`RowError::Length`] unless the row has one value per column; nothing is changed then.
    pub fn row(&mut self, row: &[f64], gap: bool) -> Result<&[f64], RowError> {
        if gap {
            self.intake.gap();
        }
        self.intake.take(row, None, &mut Counts::default())?;
        standardise(&self.standard, &self.levels, &self.intake, &mut self.z);
        Ok(&self.z[..row.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::ColumnKind;

    /// A wave, a value that only grows, and a constant.
    fn row(t: u32) -> [f64; 3] {
        [(f64::from(t) * 0.3).sin(), f64::from(t * 7 + t % 3), 5.0]
    }

    #[test]
    fn levels_enter_as_increments_and_constants_not_at_all() {
        let columns = [Column::new(ColumnKind::Gauge, 0); 3];
        let rows: Vec<[f64; 3]> = (0..200).map(row).collect();
        let training = || rows.iter().enumerate().map(|(at, row)| (row.as_slice(), at == 0));

        let mut preparation = Preparation::fit(&columns, &Settings::default(), training()).unwrap();
        let z: Vec<Vec<f64>> = training().map(|(row, gap)| preparation.row(row, gap).unwrap().to_vec()).collect();

        assert!(z.iter().all(|z| z[2] == 0.0), "a constant has no z");
        assert!(z[1..].iter().all(|z| z[1].abs() < 10.0), "what grows is judged by its growth");
        assert_eq!(preparation.row(&[0.0, f64::from(200 * 7 + 2), 99.0], false).unwrap()[2], 0.0);
        let jump = preparation.row(&[0.0, 1e9, 5.0], false).unwrap()[1];
        assert!(jump > 50.0 && jump < 2_000.0, "a jump of the level is seen, and clipped softly: {jump}");
        assert!(preparation.row(&[0.0; 2], false).is_err());
    }
}
