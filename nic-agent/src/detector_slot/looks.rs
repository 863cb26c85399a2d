//! Looks of an LMAP's detectors between its rows.

use lmap::{BetweenRow, InterimBuffer, InterimScore};

use super::Detectors;

impl Detectors {
    /// Judges a row between two others; `None` unless the current detector is armed and watches exactly the LMAP's
    /// columns. See [`lmap::Detector::look`].
    pub(crate) fn look(&self, row: BetweenRow<'_>, buffer: &mut InterimBuffer) -> Option<InterimScore> {
        if self.current.exact { self.current.detector.look(row, buffer) } else { None }
    }

    /// Begins an episode between two rows. Returns false if one is on, or the detector is not armed.
    pub(crate) fn begin_episode(&mut self) -> bool {
        self.current.detector.begin_episode()
    }

    /// Ends the episode between two rows.
    pub(crate) fn end_episode(&mut self) {
        self.current.detector.end_episode();
    }

    /// Drops the detector that learns columns that have changed.
    pub(crate) fn drop_shadow(&mut self) {
        self.shadow = None;
    }

    /// The threshold of episodes for a row that is not smoothed; `None` while learning.
    pub(crate) fn episode_threshold(&self) -> Option<f64> {
        let detector = &self.current.detector;
        detector.gamma().map(|gamma| gamma * detector.settings().episode_margin)
    }
}
