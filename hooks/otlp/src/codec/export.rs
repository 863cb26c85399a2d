//! Builds an `ExportTraceServiceRequest` from encoded spans, resources and scopes.

/// Writes a variable-length number (varint).
pub(super) fn number(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Writes a length-delimited field. `field` is below 16, so that its tag is one byte.
pub(super) fn bytes(field: u8, bytes: &[u8], into: &mut Vec<u8>) {
    head(field, bytes.len(), into);
    into.extend_from_slice(bytes);
}

fn head(field: u8, length: usize, into: &mut Vec<u8>) {
    into.push(field << 3 | 2);
    number(length as u64, into);
}

/// Encoded length of a length-delimited field with this many bytes of content.
const fn field_length(bytes: usize) -> usize {
    let bits = usize::BITS - (bytes | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + bytes
}

/// Builder of an `ExportTraceServiceRequest`.
#[derive(Clone, Debug, Default)]
pub struct Export {
    request: Vec<u8>,
    spans: usize,
}

impl Export {
    /// A request without spans.
    #[must_use]
    pub const fn new() -> Self {
        Self { request: Vec::new(), spans: 0 }
    }

    /// Adds `spans` of one origin. `resource` and `scope` are as [`Envelope::copy`](crate::codec::Envelope::copy)
    /// returned them.
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

    /// Number of spans in the request.
    #[must_use]
    pub const fn spans(&self) -> usize {
        self.spans
    }

    /// The encoded request.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.request
    }

    /// Removes all spans and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.request.clear();
        self.spans = 0;
    }
}
