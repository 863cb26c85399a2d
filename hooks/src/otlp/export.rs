//! Puts spans and what stood around them together again.

/// Writes Protocol Buffers' wire format.
pub(super) fn number(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A field of bytes. `number` is below 16, so that its tag is one byte.
pub(super) fn bytes(field: u8, bytes: &[u8], into: &mut Vec<u8>) {
    head(field, bytes.len(), into);
    into.extend_from_slice(bytes);
}

fn head(field: u8, length: usize, into: &mut Vec<u8>) {
    into.push(field << 3 | 2);
    number(length as u64, into);
}

/// How long a field of so many bytes is.
const fn field_length(bytes: usize) -> usize {
    let bits = usize::BITS - (bytes | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + bytes
}

/// An `ExportTraceServiceRequest` in the making.
#[derive(Clone, Debug, Default)]
pub struct Export {
    request: Vec<u8>,
    spans: usize,
}

impl Export {
    /// One without spans.
    #[must_use]
    pub const fn new() -> Self {
        Self { request: Vec::new(), spans: 0 }
    }

    /// Adds `spans` of one origin: `resource` and `scope` as [`Rest::copy`](crate::otlp::Rest::copy) gave them.
    pub fn add(&mut self, resource: &[u8], scope: &[u8], spans: &[&[u8]]) {
        let scope_length = scope.len() + spans.iter().map(|span| field_length(span.len())).sum::<usize>();
        let resource_length = resource.len() + field_length(scope_length);
        self.request.reserve(field_length(resource_length));
        head(1, resource_length, &mut self.request);
        self.request.extend_from_slice(resource);
        head(2, scope_length, &mut self.request);
        self.request.extend_from_slice(scope);
        for span in spans {
            bytes(2, span, &mut self.request);
        }
        self.spans += spans.len();
    }

    /// How many spans it has.
    #[must_use]
    pub const fn spans(&self) -> usize {
        self.spans
    }

    /// As it goes on the wire.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.request
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.request.clear();
        self.spans = 0;
    }
}
