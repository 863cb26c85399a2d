//! Takes the samples of one scrape or export: each has a line, which may be new.

use crate::discards::Discards;
use crate::distribution::{HistogramPoint, Relation};
use crate::format::{Description, Sink};
use crate::lines::{Line, Lines, NoRoom};
use crate::point_times::PointTimes;
use crate::refused_samples::RefusedSamples;
use crate::series::{AllSeries, Refusal, SeriesNumber};

/// Takes the samples of one scrape.
pub(crate) struct Intake<'t> {
    pub(crate) lines: &'t mut Lines,
    pub(crate) all: &'t mut AllSeries,
    pub(crate) new: &'t mut Vec<SeriesNumber>,
    pub(crate) key: &'t mut Vec<u8>,
    pub(crate) limit: usize,
    pub(crate) samples: &'t mut usize,
    pub(crate) refused: &'t mut RefusedSamples,
    pub(crate) times: &'t mut PointTimes,
    pub(crate) discards: &'t mut Discards,
}

/// Why a sample has no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLine {
    /// There are too many samples, or its names are too long.
    Room(NoRoom),
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
        match line {
            Ok(_) => {}
            Err(NoLine::Room(NoRoom::Keys)) => self.refused.too_many += 1,
            Err(NoLine::Room(NoRoom::Bytes) | NoLine::Description) => self.refused.too_long += 1,
            Err(NoLine::Type) => self.refused.other_type += 1,
        }
        line
    }

    fn add(&mut self, key: &[u8], describe: impl FnOnce() -> Option<Description>) -> Result<Line, NoLine> {
        let room = self.lines.room(key, self.limit).map_err(NoLine::Room)?;
        let description = describe().ok_or(NoLine::Description)?;
        let (line, new) = self.all.add(description, self.lines, room).map_err(|why| match why {
            Refusal::OtherType => NoLine::Type,
            Refusal::NoRoom => NoLine::Room(NoRoom::Bytes),
        })?;
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
        let Ok(line) = self.line(key, describe) else { return };
        if self.lines.is_here(line) {
            self.refused.duplicate += 1;
        } else {
            self.lines.set(line, value);
        }
    }

    fn distribution(&mut self, key: &[u8], point: &HistogramPoint<'_>, describe: impl FnOnce() -> Option<Description>) {
        let Ok(line) = self.line(key, describe) else { return };
        if self.lines.is_here(line) {
            self.refused.duplicate += 1;
        } else if self.lines.distribute(line, point, Relation::Total, self.limit).is_err() {
            // Its buckets were checked where they were read.
            self.refused.too_many += 1;
        }
    }
}
