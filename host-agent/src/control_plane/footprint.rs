//! Bytes that series take in the control plane, as they are asked of the allocator: trees and texts.
//!
//! They are counted where series come and go, so that nothing is walked through to know them.

use wire::metric::Series;
use wire::name::Labels;

/// Entries that a node of a `BTreeMap` has room for.
const ROOM: usize = 11;
/// Bytes of a node besides its entries, with its part of the edges of the nodes above it.
const NODE: usize = 30;
/// Entries of two nodes on average, of names that come in about their order.
const ENTRIES_OF_TWO: usize = 13;
/// Bytes of a label, besides its texts.
const LABEL: usize = 2 * size_of::<Box<str>>();
/// Labels that there is room for once the first one is pushed.
const FIRST_LABELS: usize = 4;

/// Bytes of a `BTreeMap<K, V>` of so many entries, besides what keys and values point at. Nodes are a bit more than
/// half full: 6 of 11 if keys come in their order, 7.5 if in any order.
pub fn of_tree<K, V>(entries: usize) -> usize {
    let node = ROOM * (size_of::<K>() + size_of::<V>()) + NODE;
    2 * entries * node / ENTRIES_OF_TWO
}

/// Bytes of labels that are a copy: as many as there are.
pub fn of_labels(labels: &Labels) -> usize {
    labels.iter().map(|(key, value)| LABEL + key.len() + value.len()).sum()
}

/// Bytes that a series points at, if it is a copy.
pub fn of_copy(series: &Series) -> usize {
    let unit = series.unit.as_ref().map_or(0, |unit| unit.as_str().len());
    series.name.as_str().len() + unit + of_labels(&series.labels)
}

/// Bytes that a series points at as it was registered: its labels came one by one, so that there is room for more.
pub fn of_registered(series: &Series) -> usize {
    let labels = series.labels.iter().count();
    let room = if labels == 0 { 0 } else { labels.next_power_of_two().max(FIRST_LABELS) };
    of_copy(series) + (room - labels) * LABEL
}
