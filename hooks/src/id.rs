//! Ids of this crate. An id has equality, order (for maps) and hashing, and its doc says who gives it out.

/// Id of a service, wherever its replicas run. Given out by [`Names`](crate::paths::Names), never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u32);

/// Id of an operation: one span name of one service. Given out by [`Names`](crate::paths::Names), never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

/// Number of a sender of spans, for its share of the buffer. Given out by whoever receives them; several may have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderId(pub u8);

/// Id of the encoded resource and scope with which a span is exported. Given out by the decoder of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u32);
