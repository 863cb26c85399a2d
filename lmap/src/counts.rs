//! Event counters of a detector. It logs nothing.

/// Events since the detector was created. Whatever is discarded is counted here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows scored, including those while learning.
    pub rows: u64,
    /// Missing values (NaN), replaced by the value before.
    pub missing: u64,
    /// Infinite values, treated as missing.
    pub infinite: u64,
    /// Rows without any value. They are scored, but never learnt or kept.
    pub empty_rows: u64,
    /// Rows added to the sketch after the fit.
    pub learnt: u64,
    /// Of [`learnt`](Self::learnt), rows above γ, admitted by the learning rate η.
    pub learnt_above: u64,
    /// Rows to learn that were lost because a job was in flight for too long: sketch and spare rows were full.
    pub lost: u64,
    /// Decompositions of the sketch that were installed.
    pub shrinks: u64,
    /// Fits that were installed.
    pub fits: u64,
    /// Fits without a result: too few rows (see [`Settings::warm_up_rows`](crate::Settings::warm_up_rows)), or no
    /// convergence.
    pub fits_refused: u64,
    /// Decompositions that did not converge: the rows since the last one are lost.
    pub shrinks_failed: u64,
    /// Job results that were dropped because of a reset or a newer fit.
    pub stale: u64,
    /// Episodes (alarms) begun.
    pub episodes: u64,
}
