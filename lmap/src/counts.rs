//! What a detector counts instead of logging it.

/// Events since the detector was made. Nothing is discarded without one of these growing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows scored, while learning too.
    pub rows: u64,
    /// Values that were missing (NaN) and repeated the one before.
    pub missing: u64,
    /// Values that were infinite and were treated as missing.
    pub infinite: u64,
    /// Rows in which every value was missing. They are scored, and never learnt or kept.
    pub empty_rows: u64,
    /// Rows appended to the sketch at run time.
    pub learnt: u64,
    /// Of [`learnt`](Self::learnt), rows above γ that the learning rate η let in.
    pub learnt_above: u64,
    /// Rows to learn that found neither the sketch nor the spare room free, because a job was out for too long.
    pub lost: u64,
    /// Decompositions installed.
    pub shrinks: u64,
    /// Fits installed.
    pub fits: u64,
    /// Fits that came back without a result, see [`Settings::warm_up_rows`](crate::Settings::warm_up_rows).
    pub fits_refused: u64,
    /// Decompositions that did not converge: the rows since the one before are not in the sketch.
    pub shrinks_failed: u64,
    /// Results of jobs that a reset, or a newer fit, had made worthless.
    pub stale: u64,
    /// Episodes begun.
    pub episodes: u64,
}
