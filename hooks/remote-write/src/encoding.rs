//! Encodes samples as the body of a remote write request: Protocol Buffers in one block of Snappy. ([`Version::Otlp`]
//! is encoded in `otlp`.)
//!
//! Writes field by field into memory that is reused for each request; the labels of 1.0 are encoded once per series.
//! [`crate::message`] has the same as messages.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use prost::encoding::{encode_varint, encoded_len_varint};

use crate::naming::MetricType;
use crate::otlp;
use crate::series::{Exemplar, Point, Series, Text};

/// Message type of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Remote write 1.0: `prometheus.WriteRequest`.
    V1,
    /// Remote write 2.0: `io.prometheus.write.v2.Request`.
    V2,
    /// `ExportMetricsServiceRequest`, of OTLP.
    Otlp,
}

impl Version {
    /// Value of `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::V1 | Self::Otlp => "application/x-protobuf",
            Self::V2 => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        }
    }

    /// Value of `X-Prometheus-Remote-Write-Version`; empty for OTLP.
    #[must_use]
    pub const fn header(self) -> &'static str {
        match self {
            Self::Otlp => "",
            Self::V1 => "0.1.0",
            Self::V2 => "2.0.0",
        }
    }
}

/// The request exceeds a block of Snappy (4 GiB), which no batch does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the samples cannot be compressed: {0}")]
pub struct EncodeError(#[from] snap::Error);

/// Encodes samples. Reuses its memory: about three times the largest body.
pub struct Encoder {
    message: Vec<u8>,
    one: Vec<u8>,
    refs: Vec<u8>,
    compressed: Vec<u8>,
    snappy: snap::raw::Encoder,
}

impl core::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encoder").field("message", &self.message.len()).finish_non_exhaustive()
    }
}

/// A hasher for values that carry their hash.
#[derive(Default)]
struct PrecomputedHasher(u64);

impl Hasher for PrecomputedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not used: a text writes its hash as a number.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The symbol table of one request: strings and their positions.
struct Symbols<'a> {
    places: HashMap<&'a Text, u32, BuildHasherDefault<PrecomputedHasher>>,
    texts: Vec<&'a str>,
}

impl<'a> Symbols<'a> {
    fn new() -> Self {
        Self { places: HashMap::default(), texts: vec![""] }
    }

    fn place(&mut self, text: &'a Text) -> u64 {
        if text.as_str().is_empty() {
            return 0;
        }
        let next = self.texts.len() as u32;
        let place = *self.places.entry(text).or_insert(next);
        if place == next {
            self.texts.push(text.as_str());
        }
        u64::from(place)
    }
}

/// Writes the header of a length-delimited field.
fn head(field: u8, length: usize, into: &mut Vec<u8>) {
    into.push((field << 3) | 2);
    encode_varint(length as u64, into);
}

/// Writes one sample as field 2 of its series. Zero values are omitted, as in Protocol Buffers; −0 is not zero.
fn sample(point: &Point, start_ms: i64, into: &mut Vec<u8>) {
    let number = |value: i64| if value == 0 { 0 } else { 1 + encoded_len_varint(value.cast_unsigned()) };
    let value = if point.bits == 0 { 0 } else { 9 };
    head(2, value + number(point.at_ms) + number(start_ms), into);
    if value > 0 {
        into.push(0x09);
        into.extend_from_slice(&point.bits.to_le_bytes());
    }
    for (tag, value) in [(0x10, point.at_ms), (0x18, start_ms)] {
        if value != 0 {
            into.push(tag);
            encode_varint(value.cast_unsigned(), into);
        }
    }
}

/// Bytes of the length of `text`.
fn varint(text: &str) -> usize {
    encoded_len_varint(text.len() as u64)
}

/// Writes one exemplar as `field` of its series; `labels` are its encoded labels, with the heads of their fields.
fn exemplar(field: u8, exemplar: &Exemplar, labels: &[u8], into: &mut Vec<u8>) {
    let (at, value) = (exemplar.at_ms.cast_unsigned(), exemplar.value.to_bits());
    let value_bytes = if value == 0 { 0 } else { 9 };
    let at_bytes = if at == 0 { 0 } else { 1 + encoded_len_varint(at) };
    head(field, labels.len() + value_bytes + at_bytes, into);
    into.extend_from_slice(labels);
    if value != 0 {
        into.push(0x11);
        into.extend_from_slice(&value.to_le_bytes());
    }
    if at != 0 {
        into.push(0x18);
        encode_varint(at, into);
    }
}

const fn kind(series: &Series) -> u8 {
    match series.kind {
        MetricType::Counter => 1,
        MetricType::Gauge => 2,
        MetricType::Histogram => 3,
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Makes an encoder without allocated memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            message: Vec::new(),
            one: Vec::new(),
            refs: Vec::new(),
            compressed: Vec::new(),
            snappy: snap::raw::Encoder::new(),
        }
    }

    /// Encodes a request with `points`, grouped by series, each series in order of time. The result is valid until the
    /// next call.
    ///
    /// # Errors
    ///
    /// [`EncodeError`].
    pub fn body(&mut self, version: Version, points: &[Point]) -> Result<&[u8], EncodeError> {
        match version {
            Version::V1 => self.v1(points),
            Version::V2 => self.v2(points),
            // The exporter compresses it as its upstream is configured.
            Version::Otlp => {
                otlp::encode(points, &mut self.message);
                return Ok(&self.message);
            }
        }
        let most = snap::raw::max_compress_len(self.message.len());
        self.compressed.resize(most.max(1), 0);
        let length = self.snappy.compress(&self.message, &mut self.compressed)?;
        Ok(&self.compressed[..length])
    }

    /// The message of the last call of [`Self::body`], uncompressed.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    fn v1(&mut self, points: &[Point]) {
        self.message.clear();
        for points in points.chunk_by(|one, next| one.series.number == next.series.number) {
            self.one.clear();
            for point in points {
                sample(point, 0, &mut self.one);
            }
            for shown in points.iter().filter_map(Point::exemplar) {
                self.refs.clear();
                for (name, value) in shown.labels() {
                    // Each label is a message of its own, in the exemplar's field 1.
                    let [name, value] = [name, value].map(Text::as_str);
                    head(1, 2 + name.len() + value.len() + varint(name) + varint(value), &mut self.refs);
                    for (field, text) in [(1, name), (2, value)] {
                        head(field, text.len(), &mut self.refs);
                        self.refs.extend_from_slice(text.as_bytes());
                    }
                }
                exemplar(3, shown, &self.refs, &mut self.one);
            }
            let labels = points[0].series.encoded_labels();
            head(1, labels.len() + self.one.len(), &mut self.message);
            self.message.extend_from_slice(labels);
            self.message.extend_from_slice(&self.one);
        }
    }

    fn v2(&mut self, points: &[Point]) {
        let Self { message, one, refs, .. } = self;
        // The symbol table precedes the series that refer to it, but is complete only after them: series are written to
        // a buffer first, and appended.
        let mut symbols = Symbols::new();
        let mut series_bytes = Vec::with_capacity(message.len());
        for points in points.chunk_by(|one, next| one.series.number == next.series.number) {
            let series = &points[0].series;
            one.clear();
            refs.clear();
            for (name, value) in series.texts() {
                encode_varint(symbols.place(name), refs);
                encode_varint(symbols.place(value), refs);
            }
            head(1, refs.len(), one);
            one.extend_from_slice(refs);
            for point in points {
                sample(point, series.start_ms, one);
            }
            for shown in points.iter().filter_map(Point::exemplar) {
                refs.clear();
                for (name, value) in shown.labels() {
                    encode_varint(symbols.place(name), refs);
                    encode_varint(symbols.place(value), refs);
                }
                let mut labels = Vec::with_capacity(refs.len() + 2);
                head(1, refs.len(), &mut labels);
                labels.extend_from_slice(refs);
                exemplar(4, shown, &labels, one);
            }
            refs.clear();
            refs.extend([0x08, kind(series)]);
            for (tag, text) in [(0x18, &series.help), (0x20, &series.unit)] {
                let place = symbols.place(text);
                if place != 0 {
                    refs.push(tag);
                    encode_varint(place, refs);
                }
            }
            head(5, refs.len(), one);
            one.extend_from_slice(refs);
            head(5, one.len(), &mut series_bytes);
            series_bytes.extend_from_slice(one);
        }
        message.clear();
        for text in symbols.texts {
            head(4, text.len(), message);
            message.extend_from_slice(text.as_bytes());
        }
        message.extend_from_slice(&series_bytes);
    }
}
