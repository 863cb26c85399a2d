//! Takes the samples of one scrape or export: each has a line, which may be new.

use crate::format::{Description, Sink};
use crate::lines::{Line, Lines};
use crate::otlp::Discards;
use crate::point_times::PointTimes;
use crate::series::{AllSeries, SeriesNumber};

/// Takes the samples of one scrape.
pub(crate) struct Intake<'t> {
    pub(crate) lines: &'t mut Lines,
    pub(crate) all: &'t mut AllSeries,
    pub(crate) new: &'t mut Vec<SeriesNumber>,
    pub(crate) key: &'t mut Vec<u8>,
    pub(crate) limit: usize,
    pub(crate) samples: &'t mut usize,
    pub(crate) refused: &'t mut usize,
    pub(crate) times: &'t mut PointTimes,
    pub(crate) discards: &'t mut Discards,
}

/// Why a sample has no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLine {
    /// There are too many samples, or its key is too long.
    Room,
    /// It cannot be described.
    Description,
    /// Its series is known with another type.
    Type,
}

impl Intake<'_> {
    /// The line of a sample, which may be new.
    pub(crate) fn line(&mut self, key: &[u8], describe: impl FnOnce() -> Option<Description>) -> Result<Line, NoLine> {
        *self.samples += 1;
        if let Some(line) = self.lines.find(key) {
            return Ok(line);
        }
        let line = self.add(key, describe);
        *self.refused += usize::from(line.is_err());
        line
    }

    fn add(&mut self, key: &[u8], describe: impl FnOnce() -> Option<Description>) -> Result<Line, NoLine> {
        if !self.lines.has_room(key, self.limit) {
            return Err(NoLine::Room);
        }
        let description = describe().ok_or(NoLine::Description)?;
        let (line, new) = self.all.add(description, self.lines).ok_or(NoLine::Type)?;
        if new.is_some() {
            self.times.forget(line);
        }
        self.new.extend(new);
        self.lines.name(key, line);
        Ok(line)
    }
}

impl Sink for Intake<'_> {
    fn sample(&mut self, key: &[u8], value: f64, describe: impl FnOnce() -> Option<Description>) {
        if let Ok(line) = self.line(key, describe) {
            self.lines.set(line, value);
        }
    }
}
