//! Ids of this crate. An id has equality, order (for maps) and hashing, and its doc says who gives it out.

/// Id of a service, wherever its replicas run. Given out by [`Names`](crate::paths::Names), never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u32);

/// Id of an operation: one span name of one service. Given out by [`Names`](crate::paths::Names), never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

/// Id of the encoded resource and scope with which a span is exported. Given out by the decoder of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u32);
