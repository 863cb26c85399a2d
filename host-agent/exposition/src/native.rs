//! Native histograms of Prometheus: buckets between powers of 2^(2^−schema), those that are empty left out.
//!
//! Bucket i is (base^(i−1), base^i], so it is bucket i − 1 of an exponential histogram of OTLP. Spans say which buckets
//! there are; their counts are differences from the bucket before, or floats.

use crate::distribution::{HistogramPoint, MAX_READ, PointBuckets};
use crate::protobuf_fields::{Value, fields, varint};

/// The finest scale that is kept: finer buckets are merged as they are read, so that few large ones do not take many.
const FINEST: i32 = 2;
/// Schemas of exponential buckets. Others have bounds of their own.
const SCHEMAS: core::ops::RangeInclusive<i32> = -4..=8;

/// Buckets on one side of 0 while their message is read. Their memory is used again for the next one.
#[derive(Debug, Default)]
struct Side {
    /// Offset from the end of the span before, and length.
    spans: Vec<(i32, u32)>,
    /// Counts of the spans' buckets, as they are written.
    counts: Vec<f64>,
    placed: Vec<u64>,
    offset: i32,
}

/// The buckets of a histogram.
#[derive(Debug, Default)]
pub(crate) struct Native {
    schema: i32,
    /// Whether there is a span, be it an empty one: a histogram without values has that.
    has_spans: bool,
    above: Side,
    /// Of values below 0, without their sign.
    below: Side,
}

impl Native {
    /// Begins another histogram.
    pub(crate) fn begin(&mut self) {
        (self.schema, self.has_spans) = (0, false);
        self.above.begin();
        self.below.begin();
    }

    /// Takes a field of the message `Histogram`, if it is about native buckets.
    pub(crate) fn take(&mut self, number: u32, value: Value<'_>) -> Result<(), &'static str> {
        if matches!((number, &value), (9 | 12, Value::Bytes(_))) {
            self.has_spans = true;
        }
        match (number, value) {
            (5, Value::Number(schema)) => self.schema = i32::try_from(signed(schema)).unwrap_or(i32::MAX),
            (9..=11, value) => self.below.take(number - 9, value)?,
            (12..=14, value) => self.above.take(number - 12, value)?,
            _ => {}
        }
        Ok(())
    }

    /// The histogram, of `count` values with this `sum`. `None` if it is no native one, or has a schema with bounds of
    /// its own, or reaches too far: then its count and its sum are all that can be read.
    pub(crate) fn point(&mut self, count: f64, sum: f64) -> Result<Option<HistogramPoint<'_>>, &'static str> {
        if !self.has_spans || !SCHEMAS.contains(&self.schema) {
            return Ok(None);
        }
        if !(self.above.is_whole() && self.below.is_whole()) {
            return Err("a native histogram has not one count for each bucket of its spans");
        }
        if !(self.above.place(self.schema) && self.below.place(self.schema)) {
            return Ok(None);
        }
        // What is in no bucket.
        let at_zero = (count - self.above.count() - self.below.count()).max(0.0) as u64;
        let Self { above, below, .. } = &*self;
        let (scale, offset, counts) = (self.schema.min(FINEST), above.offset, above.placed.as_slice());
        let below = (below.offset, below.placed.as_slice());
        let buckets = PointBuckets::Exponential { scale, at_zero, offset, counts, below };
        Ok(Some(HistogramPoint { count: count as u64, sum: Some(sum), buckets }))
    }
}

impl Side {
    fn begin(&mut self) {
        self.spans.clear();
        self.counts.clear();
    }

    /// Takes spans (`part` 0), differences of counts (1), or counts (2).
    fn take(&mut self, part: u32, value: Value<'_>) -> Result<(), &'static str> {
        match (part, value) {
            (0, Value::Bytes(span)) => {
                let (mut offset, mut length) = (0, 0);
                fields(span, |number, value| {
                    match (number, value) {
                        (1, Value::Number(of)) => offset = i32::try_from(signed(of)).unwrap_or(i32::MAX),
                        (2, Value::Number(of)) => length = u32::try_from(of).unwrap_or(u32::MAX),
                        _ => {}
                    }
                    Ok(())
                })?;
                self.spans.push((offset, length));
            }
            (1, Value::Number(delta)) => self.add_delta(delta)?,
            (1, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    self.add_delta(varint(&mut packed)?)?;
                }
            }
            (2, Value::Double(count)) => self.add_count(count)?,
            (2, Value::Bytes(packed)) => {
                let (numbers, rest) = packed.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err("a number is cut");
                }
                for bytes in numbers {
                    self.add_count(f64::from_le_bytes(*bytes))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_delta(&mut self, delta: u64) -> Result<(), &'static str> {
        let before = self.counts.last().copied().unwrap_or(0.0);
        self.add_count(before + signed(delta) as f64)
    }

    fn add_count(&mut self, count: f64) -> Result<(), &'static str> {
        if !(count.is_finite() && count >= 0.0) {
            return Err("a native histogram has a bucket with less than nothing");
        }
        if self.counts.len() >= MAX_READ {
            return Err("a native histogram has too many buckets");
        }
        self.counts.push(count);
        Ok(())
    }

    /// Whether there is a count for each bucket of its spans.
    fn is_whole(&self) -> bool {
        self.spans.iter().map(|(_, length)| u64::from(*length)).sum::<u64>() == self.counts.len() as u64
    }

    /// Values in its buckets.
    fn count(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// Puts the counts into buckets that follow each other. False if they would be too many.
    fn place(&mut self, schema: i32) -> bool {
        self.placed.clear();
        self.offset = 0;
        let merged = (schema - FINEST).max(0);
        let (mut next, mut counts) = (0_i64, self.counts.iter());
        for (gap, length) in &self.spans {
            next += i64::from(*gap);
            for count in counts.by_ref().take(*length as usize) {
                let number = (next - 1) >> merged;
                next += 1;
                let Ok(number) = i32::try_from(number) else { return false };
                if self.placed.is_empty() {
                    self.offset = number;
                }
                let Ok(at) = usize::try_from(i64::from(number) - i64::from(self.offset)) else { return false };
                if at >= MAX_READ {
                    return false;
                }
                if at >= self.placed.len() {
                    self.placed.resize(at + 1, 0);
                }
                self.placed[at] = self.placed[at].saturating_add(*count as u64);
            }
        }
        true
    }
}

/// A number in zigzag coding.
const fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
