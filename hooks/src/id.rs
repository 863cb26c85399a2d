//! Ids of this crate. An id has equality, order (for maps) and hashing, and its doc says who gives it out.

/// Names a service, wherever its replicas run. Given out by [`Names`](crate::paths::Names), never reused during its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u32);

/// Names what a service was asked for: one span name of one service. Given out by [`Names`](crate::paths::Names), never reused during its
/// life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

/// Names where a span came from: the encoded resource and scope that it is sent on with. Given out by whoever decodes spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u32);
