//! Decodes metrics and points of OTLP in place.

use core::ops::ControlFlow;

use wire::time::UnixNanos;

use crate::discards::Discard;
use crate::distribution::MAX_READ;
use crate::format::Role;
use crate::lines::MAX_KEY;
use crate::protobuf_fields::{Value, fields, varint};

/// Bit of the flags: the series has no value at this time.
const NO_RECORDED_VALUE: u64 = 1;
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;
/// Ends a walk before the end. It is no error.
const ENOUGH: &str = "enough";

/// What the points of a metric are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// A sum or a histogram of no temporality, or nothing.
    #[default]
    Unspecified,
    Gauge,
    Sum {
        is_monotonic: bool,
        is_delta: bool,
    },
    Histogram {
        is_delta: bool,
    },
    Exponential {
        is_delta: bool,
    },
    Summary,
}

impl Data {
    /// The role of a point's first sample.
    pub const fn first_role(self) -> Role {
        match self {
            Self::Unspecified => Role::Ignored,
            Self::Gauge | Self::Sum { is_monotonic: false, .. } => Role::Gauge,
            Self::Sum { .. } => Role::Counter,
            Self::Histogram { .. } | Self::Exponential { .. } => Role::Distribution,
            Self::Summary => Role::Count,
        }
    }

    pub const fn is_delta(self) -> bool {
        matches!(
            self,
            Self::Sum { is_delta: true, .. }
                | Self::Histogram { is_delta: true }
                | Self::Exponential { is_delta: true }
        )
    }

    /// Whether a later start is a reset.
    pub const fn counts_from_start(self) -> bool {
        !self.is_delta() && !matches!(self, Self::Gauge | Self::Unspecified)
    }
}

/// A metric of an export.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metric<'b> {
    pub name: &'b [u8],
    pub unit: &'b [u8],
    pub data: Data,
}

/// The value of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PointValue {
    /// None, or one that does not fit its metric.
    #[default]
    None,
    Number(f64),
    Summary {
        count: u64,
        sum: f64,
    },
    Histogram {
        count: u64,
        sum: Option<f64>,
    },
    Exponential {
        count: u64,
        sum: Option<f64>,
        scale: i32,
        at_zero: u64,
        offset: i32,
        /// The offset of what is below 0.
        below: i32,
    },
}

/// One point. Made once, and read into again and again.
#[derive(Debug, Default)]
pub struct Point<'b> {
    pub start: UnixNanos,
    pub time: UnixNanos,
    pub value: PointValue,
    flags: u64,
    /// Encoded, and sorted by their bytes.
    attributes: Vec<&'b [u8]>,
    counts: Vec<u64>,
    /// Of values below 0.
    below: Vec<u64>,
    bounds: Vec<f64>,
}

/// Calls `visit` with each point of `resource` until it breaks.
///
/// # Errors
///
/// What is malformed above the points.
pub fn each_point<'b>(
    resource: &'b [u8],
    mut visit: impl FnMut(&Metric<'b>, &'b [u8]) -> ControlFlow<()>,
) -> Result<(), &'static str> {
    let walked = fields(resource, |number, value| {
        let (2, Value::Bytes(scope)) = (number, value) else { return Ok(()) };
        fields(scope, |number, value| {
            let (2, Value::Bytes(message)) = (number, value) else { return Ok(()) };
            metric(message, &mut visit)
        })
    });
    walked.or_else(|why| if why == ENOUGH { Ok(()) } else { Err(why) })
}

fn metric<'b>(
    message: &'b [u8],
    visit: &mut impl FnMut(&Metric<'b>, &'b [u8]) -> ControlFlow<()>,
) -> Result<(), &'static str> {
    let mut metric = Metric::default();
    fields(message, |number, value| {
        match (number, value) {
            (1, Value::Bytes(name)) => metric.name = name,
            (3, Value::Bytes(unit)) => metric.unit = unit,
            _ => {}
        }
        Ok(())
    })?;
    fields(message, |number, value| {
        let (5 | 7 | 9 | 10 | 11, Value::Bytes(points)) = (number, value) else { return Ok(()) };
        metric.data = data(number, points)?;
        fields(points, |number, value| match (number, value) {
            (1, Value::Bytes(point)) if visit(&metric, point).is_break() => Err(ENOUGH),
            _ => Ok(()),
        })
    })
}

/// What the points in field `number` of a metric are.
fn data(number: u32, message: &[u8]) -> Result<Data, &'static str> {
    let (mut temporality, mut is_monotonic) = (0, false);
    fields(message, |number, value| {
        match (number, value) {
            (2, Value::Number(value)) => temporality = value,
            (3, Value::Number(value)) => is_monotonic = value != 0,
            _ => {}
        }
        Ok(())
    })?;
    let is_delta = temporality == DELTA;
    Ok(match number {
        5 => Data::Gauge,
        11 => Data::Summary,
        _ if temporality != DELTA && temporality != CUMULATIVE => Data::Unspecified,
        7 => Data::Sum { is_monotonic, is_delta },
        9 => Data::Histogram { is_delta },
        _ => Data::Exponential { is_delta },
    })
}

/// The fields of a point that are read.
#[derive(Default)]
struct PointFields {
    count: u64,
    sum: Option<f64>,
    number: Option<f64>,
    scale: i32,
    at_zero: u64,
    offset: i32,
    below: i32,
}

/// Of zigzag encoding.
fn signed(value: u64) -> i32 {
    let value = value as u32;
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Adds the buckets of an exponential histogram to `counts`, and returns their offset.
fn read_buckets(message: &[u8], counts: &mut Vec<u64>) -> Result<i32, &'static str> {
    let (mut offset, mut left) = (0, MAX_READ + 1);
    fields(message, |number, value| {
        match (number, value) {
            (1, Value::Number(value)) => offset = signed(value),
            (2, Value::Number(count)) if left > 0 => {
                left -= 1;
                counts.push(count);
            }
            (2, Value::Bytes(mut packed)) => {
                while !packed.is_empty() && left > 0 {
                    left -= 1;
                    counts.push(varint(&mut packed)?);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(offset)
}

impl<'b> Point<'b> {
    /// Reads an encoded point of `metric` in place of the last one.
    ///
    /// # Errors
    ///
    /// [`Discard::Malformed`].
    pub fn read(&mut self, metric: &Metric<'b>, message: &'b [u8]) -> Result<(), Discard> {
        self.attributes.clear();
        self.counts.clear();
        self.below.clear();
        self.bounds.clear();
        (self.start, self.time, self.flags) = (UnixNanos::default(), UnixNanos::default(), 0);
        let mut read = PointFields::default();
        let whole = fields(message, |number, value| match metric.data {
            Data::Exponential { .. } => self.exponential(&mut read, number, value),
            Data::Histogram { .. } => self.histogram(&mut read, number, value),
            _ => {
                self.number(&mut read, metric.data == Data::Summary, number, value);
                Ok(())
            }
        });
        whole.map_err(|_| Discard::Malformed)?;
        self.attributes.sort_unstable();
        let PointFields { count, sum, number, scale, at_zero, offset, below } = read;
        self.value = match metric.data {
            Data::Exponential { .. } => PointValue::Exponential { count, sum, scale, at_zero, offset, below },
            Data::Histogram { .. } => PointValue::Histogram { count, sum },
            Data::Summary => PointValue::Summary { count, sum: sum.unwrap_or(0.0) },
            _ => number.map_or(PointValue::None, PointValue::Number),
        };
        Ok(())
    }

    /// A field of a number, or of a summary.
    fn number(&mut self, read: &mut PointFields, is_summary: bool, number: u32, value: Value<'b>) {
        match (number, value) {
            (2, Value::Double(start)) => self.start = UnixNanos(start.to_bits()),
            (3, Value::Double(time)) => self.time = UnixNanos(time.to_bits()),
            (4, Value::Double(count)) if is_summary => read.count = count.to_bits(),
            (5, Value::Double(sum)) if is_summary => read.sum = Some(sum),
            (4, Value::Double(value)) => read.number = Some(value),
            (6, Value::Double(value)) => read.number = Some(value.to_bits().cast_signed() as f64),
            (7, Value::Bytes(attribute)) => self.attributes.push(attribute),
            (8, Value::Number(flags)) => self.flags = flags,
            _ => {}
        }
    }

    fn histogram(&mut self, read: &mut PointFields, number: u32, value: Value<'b>) -> Result<(), &'static str> {
        match (number, value) {
            (2, Value::Double(start)) => self.start = UnixNanos(start.to_bits()),
            (3, Value::Double(time)) => self.time = UnixNanos(time.to_bits()),
            (4, Value::Double(count)) => read.count = count.to_bits(),
            (5, Value::Double(sum)) => read.sum = Some(sum),
            (6, Value::Double(count)) => self.counts.push(count.to_bits()),
            (7, Value::Double(bound)) => self.bounds.push(bound),
            (6 | 7, Value::Bytes(packed)) => {
                let (words, []) = packed.as_chunks::<8>() else { return Err("a number is cut") };
                let words = words.iter().map(|word| u64::from_le_bytes(*word)).take(MAX_READ + 1);
                if number == 6 { self.counts.extend(words) } else { self.bounds.extend(words.map(f64::from_bits)) }
            }
            (9, Value::Bytes(attribute)) => self.attributes.push(attribute),
            (10, Value::Number(flags)) => self.flags = flags,
            _ => {}
        }
        Ok(())
    }

    fn exponential(&mut self, read: &mut PointFields, number: u32, value: Value<'b>) -> Result<(), &'static str> {
        match (number, value) {
            (1, Value::Bytes(attribute)) => self.attributes.push(attribute),
            (2, Value::Double(start)) => self.start = UnixNanos(start.to_bits()),
            (3, Value::Double(time)) => self.time = UnixNanos(time.to_bits()),
            (4, Value::Double(count)) => read.count = count.to_bits(),
            (5, Value::Double(sum)) => read.sum = Some(sum),
            (6, Value::Number(scale)) => read.scale = signed(scale),
            (7, Value::Double(count)) => read.at_zero = count.to_bits(),
            (8, Value::Bytes(buckets)) => read.offset = read_buckets(buckets, &mut self.counts)?,
            (9, Value::Bytes(buckets)) => read.below = read_buckets(buckets, &mut self.below)?,
            (10, Value::Number(flags)) => self.flags = flags,
            _ => {}
        }
        Ok(())
    }

    /// Counts of buckets, empty ones too.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Counts of an exponential histogram's buckets below 0.
    pub fn below(&self) -> &[u64] {
        &self.below
    }

    /// Bounds of buckets.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Whether it says that its series has no value.
    pub const fn is_stale(&self) -> bool {
        self.flags & NO_RECORDED_VALUE != 0
    }

    /// Writes the bytes that name its sample `role` among those of its exporter, in place of what is in `key`. They do
    /// not depend on the order of attributes. What is longer than a key may be is cut, but stays too long.
    pub fn key(&self, metric: &Metric<'_>, role: Role, key: &mut Vec<u8>) {
        key.clear();
        let mut add = |bytes: &[u8]| {
            let left = (MAX_KEY + 1).saturating_sub(key.len());
            key.extend_from_slice(bytes.get(..left).unwrap_or(bytes));
        };
        add(metric.name);
        add(&[0, role as u8]);
        for attribute in &self.attributes {
            add(&(attribute.len() as u32).to_le_bytes());
            add(attribute);
        }
    }

    /// Its attributes as labels; `None` if a key or a value is no text.
    pub fn labels(&self) -> Option<Vec<(String, String)>> {
        self.attributes.iter().map(|attribute| label(attribute)).collect()
    }
}

fn label(attribute: &[u8]) -> Option<(String, String)> {
    let (mut key, mut text) = (String::new(), Some(String::new()));
    let whole = fields(attribute, |number, value| {
        match (number, value) {
            (1, Value::Bytes(bytes)) => key = label_key(core::str::from_utf8(bytes).map_err(|_| "no text")?),
            (2, Value::Bytes(value)) => text = value_text(value),
            _ => {}
        }
        Ok(())
    });
    whole.ok()?;
    Some((key, text?))
}

/// A label's key: what it may not have becomes `_`.
fn label_key(key: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.-/:".contains(letter);
    let mut allowed: String = key.chars().map(|letter| if is_allowed(letter) { letter } else { '_' }).collect();
    if allowed.starts_with(|first: char| !(first.is_ascii_alphabetic() || first == '_')) {
        allowed.insert(0, '_');
    }
    allowed
}

/// A scalar as text. What is made of several values is named by a number that tells it apart.
fn value_text(any: &[u8]) -> Option<String> {
    let mut text = Some(String::new());
    let whole = fields(any, |number, value| {
        text = match (number, value) {
            (1, Value::Bytes(bytes)) => core::str::from_utf8(bytes).ok().map(str::to_owned),
            (2, Value::Number(value)) => Some((value != 0).to_string()),
            (3, Value::Number(value)) => Some(value.cast_signed().to_string()),
            (4, Value::Double(value)) => Some(value.to_string()),
            (5..=7, Value::Bytes(bytes)) => Some(format!("#{:016x}", fingerprint(bytes))),
            _ => return Ok(()),
        };
        Ok(())
    });
    whole.ok()?;
    text
}

/// The 64-bit FNV-1a hash.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
