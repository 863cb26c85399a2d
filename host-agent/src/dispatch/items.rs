//! What hooks and watchers get: verdicts, raw rows, and what became of LMAPs.

use std::sync::Arc;

use wire::id::LmapId;
use wire::name::{InstanceName, ServiceName};
use wire::proto::control::Row;

use crate::control_plane::{Event, NamedReason};

/// What a hook gets.
#[derive(Clone, Debug, PartialEq)]
pub enum HookItem {
    /// A verdict of one of its LMAPs.
    Verdict(Arc<Event>),
    /// One of its LMAPs was deleted, or has a successor.
    Change(LmapChange),
}

impl HookItem {
    /// Memory in a queue, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Verdict(event) => event_bytes(event),
            Self::Change(change) => change.bytes(),
        }
    }
}

/// A deleted LMAP, or its successor.
#[derive(Clone, Debug, PartialEq)]
pub struct LmapChange {
    /// The LMAP that was deleted.
    pub deleted: LmapId,
    /// The service that it watched.
    pub service: ServiceName,
    /// Why it was deleted; empty with a successor, since that was said before.
    pub reason: &'static str,
    /// The next LMAP of the service.
    pub successor: Option<LmapId>,
    /// Whether nothing follows.
    pub last: bool,
}

impl LmapChange {
    /// Memory in a queue, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<(u64, HookItem)>() + self.service.as_str().len()
    }
}

/// One raw row of an LMAP.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedRow {
    /// The LMAP that it is of.
    pub lmap: LmapId,
    /// Column titles; the same allocation until they change.
    pub columns: Arc<[String]>,
    /// The row itself.
    pub row: Row,
}

/// What a watcher gets.
#[derive(Clone, Debug, PartialEq)]
pub enum RowItem {
    /// A row of its LMAP.
    Row(WatchedRow),
    /// Its LMAP was deleted, or has a successor.
    Change(LmapChange),
}

/// Memory of a verdict, with its texts and its place in a queue.
pub(super) fn event_bytes(event: &Event) -> usize {
    let Event { verdict, reasons, breakdown, silent, concerned, .. } = event;
    let shares = verdict.row.as_ref().map_or(0, |row| size_of_val(&row.shares[..]));
    let features = verdict.features.as_ref().map_or(0, wire::control::Features::bytes);
    let listed =
        size_of_val(&verdict.reasons[..]) + size_of_val(&verdict.groups[..]) + size_of_val(&verdict.silent[..]);
    let operations = breakdown.iter().flat_map(|parts| parts.operations.keys());
    size_of::<(u64, HookItem)>()
        + size_of::<Event>()
        + event.service.as_str().len()
        + shares
        + features
        + listed
        + reasons.iter().map(NamedReason::bytes).sum::<usize>()
        + operations.map(|name| 48 + name.len()).sum::<usize>()
        + concerned.iter().map(|name| size_of::<ServiceName>() + name.as_str().len()).sum::<usize>()
        + silent.iter().map(|name| size_of::<InstanceName>() + name.as_str().len()).sum::<usize>()
}
