//! The fit schedule: when to fit, and the rows kept for it.

use crate::rows::{KeptRows, Mark};
use crate::settings::Settings;

/// The rows of one learning phase, and the progress through its fits.
#[derive(Clone, Debug)]
pub(crate) struct Learning {
    /// `None` while a fit is in flight, and when learning is over and no rows are kept.
    rows: Option<KeptRows>,
    /// Rows seen in this phase.
    seen: usize,
    /// The number of rows seen at which the schedule has its next fit: the first one after those of the last fit.
    /// Every row asks for it several times.
    next_fit: Option<usize>,
    /// An operator asked for a fit ("this is normal now").
    wanted: bool,
}

/// A fit that is due.
#[derive(Debug)]
pub(crate) struct FitRequest {
    pub(crate) rows: KeptRows,
    pub(crate) least: usize,
    pub(crate) capacity: usize,
    /// The result does not arm the detector yet.
    pub(crate) provisional: bool,
}

impl Learning {
    /// Starts with no rows.
    pub(crate) fn new(columns: usize, settings: &Settings) -> Self {
        let rows = KeptRows::new(columns, settings.last_fit_rows());
        Self { rows: Some(rows), seen: 0, next_fit: fit_after(0, settings), wanted: false }
    }

    /// Nothing to learn: the detector starts from a model.
    pub(crate) fn over(columns: usize, settings: &Settings) -> Self {
        let rows = (settings.rows_kept > 0).then(|| KeptRows::new(columns, settings.rows_kept));
        Self { rows, seen: settings.last_fit_rows(), next_fit: None, wanted: false }
    }

    /// Armed by a merged model: only the fits after the warm-up follow.
    pub(crate) fn resumed(columns: usize, settings: &Settings) -> Self {
        let armed = settings.warm_up_rows;
        if settings.last_fit_rows() == armed {
            return Self::over(columns, settings);
        }
        Self { seen: armed, next_fit: fit_after(armed, settings), ..Self::new(columns, settings) }
    }

    /// Keeps a row; `false` if no rows are kept, or they are in a job.
    pub(crate) fn keep(&mut self, row: &[f64], mark: Mark) -> bool {
        self.seen = self.seen.saturating_add(1);
        match &mut self.rows {
            Some(rows) => rows.push(row, mark),
            None => return false,
        }
        true
    }

    /// Keeps a row that came while a fit was in flight.
    pub(crate) fn keep_again(&mut self, row: &[f64], mark: Mark) {
        if let Some(rows) = &mut self.rows {
            rows.push(row, mark);
        }
    }

    /// Whether rows have to be kept.
    pub(crate) fn active(&self, settings: &Settings) -> bool {
        self.wanted || settings.rows_kept > 0 || self.next_fit.is_some()
    }

    /// Rows seen, and the number at which the next fit is due.
    pub(crate) fn progress(&self, settings: &Settings) -> Option<(usize, usize)> {
        if self.wanted {
            return Some((self.rows.as_ref().map_or(0, KeptRows::len), settings.warm_up_rows));
        }
        self.next_fit.map(|needed| (self.seen, needed))
    }

    /// Requests a fit on the newest rows ([`Settings::rows_kept`]), or, without those, on rows to come, whatever their
    /// score. Rows of the schedule are all since the start, most of them of what was normal before: they go. Allocates
    /// unless the newest are kept.
    pub(crate) fn want(&mut self, columns: usize, settings: &Settings, fit_is_out: bool) {
        let keeps_newest = self.rows.is_some() && self.next_fit.is_none();
        if !keeps_newest && !fit_is_out {
            *self = Self::new(columns, settings);
        }
        self.wanted = true;
    }

    /// Requests a fit on the rows kept, all taken as normal. Never allocates; without kept rows it does nothing.
    pub(crate) fn want_from_ring(&mut self) {
        self.wanted = self.wanted || self.rows.is_some();
    }

    /// The rows to fit on, if a fit is due. Never allocates.
    pub(crate) fn due(&mut self, settings: &Settings) -> Option<FitRequest> {
        let kept = self.rows.as_ref()?.len();
        let by_schedule = self.next_fit.is_some_and(|rows| self.seen >= rows);
        let by_wish = self.wanted && kept >= settings.warm_up_rows;
        if !(by_wish || by_schedule && !self.wanted) {
            return None;
        }
        let mut rows = self.rows.take()?;
        if by_wish {
            rows.accept_all();
            if self.next_fit.is_none() {
                self.seen = kept; // the schedule starts again with the rows kept from an earlier phase
            }
        }
        self.wanted = false;
        self.next_fit = fit_after(self.seen, settings);
        let least = settings.warm_up_rows.min(kept);
        let provisional = self.seen < settings.warm_up_rows;
        let over = self.next_fit.is_none();
        let capacity = if over { settings.rows_kept } else { settings.last_fit_rows() };
        Some(FitRequest { rows, least, capacity, provisional })
    }

    /// Takes back the rows of a fit.
    pub(crate) fn give_back(&mut self, rows: KeptRows, columns: usize, settings: &Settings) {
        self.rows = (rows.capacity() > 0).then_some(rows);
        if self.wanted {
            self.want(columns, settings, false); // requested while the fit was in flight
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.rows.as_ref().map_or(0, KeptRows::bytes)
    }

    /// Bytes of [`bytes`](Self::bytes) that rows have arrived in.
    pub(crate) fn filled_bytes(&self) -> usize {
        self.rows.as_ref().map_or(0, KeptRows::filled_bytes)
    }
}

/// The first fit of the schedule after so many rows.
fn fit_after(rows: usize, settings: &Settings) -> Option<usize> {
    let scheduled = settings.provisional_rows.into_iter().chain([settings.warm_up_rows]);
    scheduled.chain(settings.fit_again_rows.iter().copied()).find(|&scheduled| scheduled > rows)
}
