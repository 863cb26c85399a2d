//! Delimited messages `io.prometheus.client.MetricFamily`. Read in place: nothing is allocated for samples that are
//! known, but for one key and the buckets of one native histogram, which are reused.
//!
//! A histogram that is both native and classic is read as a native one, as Prometheus does.

use crate::format::{Description, FamilyKind, FormatError, Role, Sink};
use crate::native::Native;
use crate::protobuf_fields::{Value, fields, varint};

/// Reads `body` into `sink`.
pub fn read(body: &[u8], sink: &mut impl Sink) -> Result<(), FormatError> {
    let (mut rest, mut message) = (body, 0);
    let mut scratch = Scratch { key: Vec::with_capacity(256), native: Native::default() };
    while !rest.is_empty() {
        message += 1;
        let refused = |why| FormatError::Message { message, why };
        let length = varint(&mut rest).map_err(refused)?;
        let length = usize::try_from(length).map_err(|_| refused("it is longer than the body"))?;
        let (family, after) = rest.split_at_checked(length).ok_or_else(|| refused("it is longer than the body"))?;
        rest = after;
        read_family(family, &mut scratch, sink).map_err(refused)?;
    }
    Ok(())
}

/// Memory that is reused.
struct Scratch {
    key: Vec<u8>,
    native: Native,
}

/// What is known of a family before its metrics are read.
#[derive(Clone, Copy, Default)]
struct Family<'b> {
    name: &'b [u8],
    kind: FamilyKind,
    unit: &'b [u8],
}

fn read_family(message: &[u8], scratch: &mut Scratch, sink: &mut impl Sink) -> Result<(), &'static str> {
    // Without a type it is a counter: the first of the enumeration.
    let mut family = Family { kind: FamilyKind::Counter, ..Family::default() };
    fields(message, |number, value| {
        match (number, value) {
            (1, Value::Bytes(name)) => family.name = name,
            (3, Value::Number(kind)) => {
                family.kind = match kind {
                    0 => FamilyKind::Counter,
                    1 => FamilyKind::Gauge,
                    2 => FamilyKind::Summary,
                    4 => FamilyKind::Histogram,
                    5 => FamilyKind::GaugeHistogram,
                    _ => FamilyKind::Unknown,
                }
            }
            (5, Value::Bytes(unit)) => family.unit = unit,
            _ => {}
        }
        Ok(())
    })?;
    if family.name.is_empty() {
        return Err("it has no name");
    }
    fields(message, |number, value| match (number, value) {
        (4, Value::Bytes(metric)) => read_metric(metric, &family, scratch, sink),
        _ => Ok(()),
    })
}

/// One metric of a family while it is read.
struct Metric<'b, 'k> {
    family: Family<'b>,
    /// The whole message, whose labels are read only if one of its samples is new.
    message: &'b [u8],
    key: &'k mut Vec<u8>,
    /// Length of the key without what tells the samples of a metric apart.
    stem: usize,
}

fn read_metric<'b>(
    message: &'b [u8],
    family: &Family<'b>,
    scratch: &mut Scratch,
    sink: &mut impl Sink,
) -> Result<(), &'static str> {
    let Scratch { key, native } = scratch;
    key.clear();
    key.extend_from_slice(family.name);
    key.push(b'{');
    fields(message, |number, value| {
        if let (1, Value::Bytes(label)) = (number, value) {
            key.extend_from_slice(&(label.len() as u32).to_le_bytes());
            key.extend_from_slice(label);
        }
        Ok(())
    })?;
    let stem = key.len();
    let mut metric = Metric { family: *family, message, key, stem };
    let is_counted = family.kind == FamilyKind::Histogram;
    fields(message, |number, value| {
        let Value::Bytes(value) = value else { return Ok(()) };
        match number {
            2 | 3 | 5 => metric.scalar(value, sink),
            4 => metric.summary(value, sink),
            7 if is_counted && metric.native(value, native, sink)? => Ok(()),
            7 => metric.histogram(value, sink),
            _ => Ok(()),
        }
    })
}

impl Metric<'_, '_> {
    fn scalar(&mut self, message: &[u8], sink: &mut impl Sink) -> Result<(), &'static str> {
        let role = match self.family.kind {
            FamilyKind::Counter => Role::Counter,
            FamilyKind::Unknown if self.family.name.ends_with(b"_total") => Role::Counter,
            _ => Role::Gauge,
        };
        // A value of 0 may be left out.
        let mut found = 0.0;
        fields(message, |number, value| {
            if let (1, Value::Double(value)) = (number, value) {
                found = value;
            }
            Ok(())
        })?;
        self.sample(role, 0.0, found, sink);
        Ok(())
    }

    fn summary(&mut self, message: &[u8], sink: &mut impl Sink) -> Result<(), &'static str> {
        let (mut count, mut sum) = (0.0, 0.0);
        fields(message, |number, value| {
            match (number, value) {
                (1, Value::Number(value)) => count = value as f64,
                (2, Value::Double(value)) => sum = value,
                (3, Value::Bytes(quantile)) => {
                    let (mut of, mut at) = (0.0, f64::NAN);
                    fields(quantile, |number, value| {
                        match (number, value) {
                            (1, Value::Double(value)) => of = value,
                            (2, Value::Double(value)) => at = value,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    self.sample(Role::Gauge, of, at, sink);
                }
                _ => {}
            }
            Ok(())
        })?;
        self.sample(Role::Count, 0.0, count, sink);
        self.sample(Role::Sum, 0.0, sum, sink);
        Ok(())
    }

    /// Reads a native histogram; false if it is none.
    fn native(&mut self, message: &[u8], native: &mut Native, sink: &mut impl Sink) -> Result<bool, &'static str> {
        let (mut count, mut sum) = (0.0, 0.0);
        native.begin();
        fields(message, |number, value| {
            match (number, &value) {
                (1, Value::Number(value)) => count = *value as f64,
                (4, Value::Double(value)) if *value > 0.0 => count = *value,
                (2, Value::Double(value)) => sum = *value,
                _ => return native.take(number, value),
            }
            Ok(())
        })?;
        let Some(point) = native.point(count, sum)? else { return Ok(false) };
        self.key.truncate(self.stem);
        self.key.push(Role::Distribution as u8);
        let (family, message) = (self.family, self.message);
        sink.distribution(self.key, &point, || describe(&family, message, Role::Distribution, 0.0));
        Ok(true)
    }

    fn histogram(&mut self, message: &[u8], sink: &mut impl Sink) -> Result<(), &'static str> {
        let (mut count, mut sum, mut has_end) = (0.0, 0.0, false);
        fields(message, |number, value| {
            match (number, value) {
                (1, Value::Number(value)) => count = value as f64,
                (4, Value::Double(value)) if value > 0.0 => count = value,
                (2, Value::Double(value)) => sum = value,
                (3, Value::Bytes(bucket)) => {
                    let (mut below, mut bound) = (0.0, 0.0);
                    fields(bucket, |number, value| {
                        match (number, value) {
                            (1, Value::Number(value)) => below = value as f64,
                            (4, Value::Double(value)) if value > 0.0 => below = value,
                            (2, Value::Double(value)) => bound = value,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    has_end |= bound == f64::INFINITY;
                    self.sample(Role::Bucket, bound, below, sink);
                }
                _ => {}
            }
            Ok(())
        })?;
        if !has_end {
            // The last bucket may be left out: it is the count.
            self.sample(Role::Bucket, f64::INFINITY, count, sink);
        }
        self.sample(Role::Count, 0.0, count, sink);
        self.sample(Role::Sum, 0.0, sum, sink);
        Ok(())
    }

    /// `part` is the bound of a bucket, or the quantile of a summary.
    fn sample(&mut self, role: Role, part: f64, value: f64, sink: &mut impl Sink) {
        self.key.truncate(self.stem);
        self.key.push(role as u8);
        self.key.extend_from_slice(&part.to_bits().to_le_bytes());
        let (family, message) = (self.family, self.message);
        sink.sample(self.key, value, || describe(&family, message, role, part));
    }
}

/// What a sample that was never seen before is of. `None` if its labels cannot be read.
fn describe(family: &Family<'_>, metric: &[u8], role: Role, part: f64) -> Option<Description> {
    let text = |bytes: &[u8]| core::str::from_utf8(bytes).ok().map(str::to_owned);
    let mut labels = Vec::new();
    let read = fields(metric, |number, value| {
        if let (1, Value::Bytes(label)) = (number, value) {
            let (mut key, mut of) = (&[][..], &[][..]);
            fields(label, |number, value| {
                match (number, value) {
                    (1, Value::Bytes(value)) => key = value,
                    (2, Value::Bytes(value)) => of = value,
                    _ => {}
                }
                Ok(())
            })?;
            labels.push((text(key).ok_or("a label is no text")?, text(of).ok_or("a label is no text")?));
        }
        Ok(())
    });
    read.ok()?;
    if family.kind == FamilyKind::Summary && role == Role::Gauge {
        labels.push(("quantile".to_owned(), part.to_string()));
    }
    let role = if family.kind == FamilyKind::GaugeHistogram { Role::Ignored } else { role };
    let bound = if role == Role::Bucket { part } else { f64::INFINITY };
    let unit = text(family.unit).filter(|unit| !unit.is_empty());
    Some(Description { family: text(family.name)?, kind: family.kind, role, labels, bound, unit })
}
