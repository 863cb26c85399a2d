//! The points of one exporter of OTLP metrics (opentelemetry-proto 1, `ResourceMetrics`). Read in place: nothing is
//! allocated for points of series that are known.
//!
//! | point | watched as |
//! | --- | --- |
//! | monotonic sum, of either temporality | a counter; a later start or a smaller value is a reset |
//! | other sum, gauge | a gauge |
//! | histogram, exponential histogram | a histogram |
//! | summary | its count and its sum: counters |

use core::ops::ControlFlow;

use wire::time::UnixNanos;

use crate::discards::Discard;
use crate::distribution::{HistogramPoint, MAX_READ, PointBuckets, Relation};
use crate::format::{Description, FamilyKind, Role};
use crate::intake::{Intake, NoLine};
use crate::lines::{Line, Lines};
use crate::otlp_point::{Data, Metric, Point, PointValue, each_point};
use crate::point_times::{Order, PointTimes};

/// Points that are looked at to tell whether an export is the next one.
const PROBED: usize = 16;

impl From<NoLine> for Discard {
    fn from(why: NoLine) -> Self {
        match why {
            NoLine::Room(_) => Self::NoRoom,
            NoLine::Description => Self::Name,
            NoLine::Type => Self::Type,
        }
    }
}

/// What was read of a part of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartCounts {
    /// Points that were looked at.
    pub points: usize,
    /// Those of them that count.
    pub taken: usize,
    /// The latest time of those, by the sender's clock, which may be wrong; 1970 if none is stated.
    pub latest: UnixNanos,
}

/// Reads the points of `resource`, at most `most`, into `intake`.
pub(crate) fn read(resource: &[u8], most: usize, intake: &mut Intake<'_>) -> PartCounts {
    let (mut counts, mut point) = (PartCounts::default(), Point::default());
    let whole = each_point(resource, |metric, message| {
        if counts.points == most {
            intake.discards.add(Discard::OverLimit);
            return ControlFlow::Continue(());
        }
        counts.points += 1;
        match point.read(metric, message).and_then(|()| take(metric, &point, intake)) {
            Ok(()) => {
                counts.taken += 1;
                counts.latest = counts.latest.max(point.time);
            }
            Err(why) => intake.discards.add(why),
        }
        ControlFlow::Continue(())
    });
    if whole.is_err() {
        intake.discards.add(Discard::Malformed);
    }
    counts
}

/// As [`Target::is_next`](crate::Target::is_next).
pub(crate) fn is_next(resource: &[u8], lines: &Lines, times: &PointTimes) -> bool {
    let (mut point, mut probed, mut is_next, mut key) = (Point::default(), 0, false, Vec::new());
    // What is malformed is counted when it is read.
    let _ = each_point(resource, |metric, message| {
        probed += 1;
        if probed > PROBED {
            return ControlFlow::Break(());
        }
        if point.read(metric, message).is_err() {
            return ControlFlow::Continue(());
        }
        point.key(metric, metric.data.first_role(), &mut key);
        match lines.find(&key) {
            None => ControlFlow::Continue(()),
            Some(line) => {
                is_next = lines.is_here(line) && times.is_later(line, point.time);
                ControlFlow::Break(())
            }
        }
    });
    is_next
}

/// Takes one point.
fn take(metric: &Metric<'_>, point: &Point<'_>, intake: &mut Intake<'_>) -> Result<(), Discard> {
    if point.is_stale() {
        return stale(metric, point, intake);
    }
    match (metric.data, point.value) {
        (Data::Unspecified, _) => Err(Discard::Temporality),
        (Data::Gauge | Data::Sum { is_monotonic: false, is_delta: false }, PointValue::Number(value)) => {
            let value = finite(value)?;
            let (line, _) = ordered(metric, point, Role::Gauge, intake)?;
            intake.lines.set(line, value);
            Ok(())
        }
        (Data::Sum { is_monotonic: false, .. }, PointValue::Number(value)) => {
            let value = finite(value)?;
            let (line, _) = ordered(metric, point, Role::Gauge, intake)?;
            intake.lines.grow(line, value);
            Ok(())
        }
        (Data::Sum { .. }, PointValue::Number(value)) => {
            let value = finite(value).ok().filter(|value| *value >= 0.0).ok_or(Discard::Value)?;
            let (line, relation) = ordered(metric, point, Role::Counter, intake)?;
            intake.lines.count(line, value, relation);
            Ok(())
        }
        (Data::Summary, PointValue::Summary { count, sum }) => {
            let (line, relation) = ordered(metric, point, Role::Count, intake)?;
            intake.lines.count(line, count as f64, relation);
            if sum.is_finite() && sum >= 0.0 {
                let line = line_of(metric, point, Role::Sum, intake)?;
                intake.lines.count(line, sum, relation);
            }
            Ok(())
        }
        (Data::Histogram { .. }, PointValue::Histogram { count, sum }) => {
            let buckets = PointBuckets::Explicit { bounds: point.bounds(), counts: point.counts() };
            distribute(metric, point, &HistogramPoint { count, sum, buckets }, intake)
        }
        (Data::Exponential { .. }, PointValue::Exponential { count, sum, scale, at_zero, offset, below }) => {
            let (counts, below) = (point.counts(), (below, point.below()));
            let buckets = PointBuckets::Exponential { scale, at_zero, offset, counts, below };
            distribute(metric, point, &HistogramPoint { count, sum, buckets }, intake)
        }
        _ => Err(Discard::Value),
    }
}

const fn finite(value: f64) -> Result<f64, Discard> {
    if value.is_finite() { Ok(value) } else { Err(Discard::Value) }
}

/// A series has no value at this time.
fn stale(metric: &Metric<'_>, point: &Point<'_>, intake: &mut Intake<'_>) -> Result<(), Discard> {
    point.key(metric, metric.data.first_role(), intake.key);
    let Some(line) = intake.lines.find(intake.key) else { return Ok(()) };
    order(metric, point, line, intake)?;
    intake.lines.set(line, f64::NAN);
    Ok(())
}

fn distribute(
    metric: &Metric<'_>,
    point: &Point<'_>,
    histogram: &HistogramPoint<'_>,
    intake: &mut Intake<'_>,
) -> Result<(), Discard> {
    if [point.counts().len(), point.below().len(), point.bounds().len()].into_iter().any(|of| of > MAX_READ) {
        return Err(Discard::Malformed);
    }
    let (line, relation) = ordered(metric, point, Role::Distribution, intake)?;
    let limit = intake.limit;
    let taken = intake.lines.distribute(line, histogram, relation, limit);
    if taken == Err(Discard::NoRoom) {
        intake.refused.too_many += 1;
    }
    taken
}

fn line_of(metric: &Metric<'_>, point: &Point<'_>, role: Role, intake: &mut Intake<'_>) -> Result<Line, Discard> {
    let mut key = core::mem::take(intake.key);
    point.key(metric, role, &mut key);
    let line = intake.line(&key, || describe(metric, point, role));
    *intake.key = key;
    Ok(line?)
}

/// The line of `point`, which follows the one before.
fn ordered(
    metric: &Metric<'_>,
    point: &Point<'_>,
    role: Role,
    intake: &mut Intake<'_>,
) -> Result<(Line, Relation), Discard> {
    let line = line_of(metric, point, role, intake)?;
    Ok((line, order(metric, point, line, intake)?))
}

fn order(metric: &Metric<'_>, point: &Point<'_>, line: Line, intake: &mut Intake<'_>) -> Result<Relation, Discard> {
    let start = if metric.data.counts_from_start() { point.start } else { UnixNanos::default() };
    let relation = match intake.times.take(line, start, point.time) {
        Order::Older => return Err(Discard::Older),
        Order::Duplicate => return Err(Discard::Duplicate),
        Order::Later => Relation::Total,
        Order::Restarted => Relation::Restart,
        Order::SetBack => Relation::Baseline,
    };
    Ok(if metric.data.is_delta() { Relation::Growth } else { relation })
}

fn describe(metric: &Metric<'_>, point: &Point<'_>, role: Role) -> Option<Description> {
    let text = |bytes: &[u8]| core::str::from_utf8(bytes).ok().filter(|text| !text.is_empty()).map(str::to_owned);
    let kind = match metric.data {
        Data::Gauge | Data::Unspecified | Data::Sum { is_monotonic: false, .. } => FamilyKind::Gauge,
        Data::Sum { .. } => FamilyKind::Counter,
        Data::Histogram { .. } | Data::Exponential { .. } => FamilyKind::Histogram,
        Data::Summary => FamilyKind::Summary,
    };
    let (family, unit) = (text(metric.name)?, text(metric.unit));
    Some(Description { family, kind, role, labels: point.labels()?, bound: f64::INFINITY, unit })
}
