//! A map for names and ids that are looked up several times for each span.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A hash map by foldhash, a few nanoseconds for a name of usual length where SipHash takes some twenty.
///
/// Keys that come from outside: its seed is drawn for each process (addresses, time of the start) and for each map. No
/// hash leaves the process, and neither does an order that follows from one: what is listed is sorted first. Foldhash
/// promises no more than that; whoever measured a process for long might learn the seed, and choose names that fall
/// into one place. So it is for tables that are bounded anyway ([`NameLimits`](crate::paths::NameLimits)): there a
/// lookup compares 1,000 services or 200 operations of one service at most, each of 128 bytes. Ids are given out here,
/// one after the other. Tables with more keys of others (resources and scopes, in the crate `otlp`) have the standard
/// library's.
pub(crate) type SeededMap<K, V> = HashMap<K, V, RandomState>;
