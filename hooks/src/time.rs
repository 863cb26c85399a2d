//! Wall-clock time, as decisions get it. The type is [`wire`]'s.

pub use wire::time::UnixNanos;
