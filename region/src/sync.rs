//! The atomics of this crate in one place. They are the processor's own, not loom's, since they lie in memory that
//! other processes map.

pub(crate) use core::sync::atomic::AtomicU64;
pub(crate) use core::sync::atomic::Ordering::Relaxed;
