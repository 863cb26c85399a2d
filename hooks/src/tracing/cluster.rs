//! What a node that decides together with others keeps for that.

use std::collections::BTreeMap;

use wire::time::{Nanos, UnixNanos};

use crate::tracing::budget::Payer;
use crate::tracing::keeper::Piece;
use crate::tracing::span::TraceId;

/// Pieces of paths that may wait for their announcement.
const MAX_PIECES: usize = 4_096;
/// Largest difference between clocks of two nodes.
const SPREAD: Nanos = Nanos::from_secs(1);

/// What the deciding node knows of the start of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStart {
    /// The start, by the clock of the service that recorded the first span.
    At(UnixNanos),
    /// This node's predecessor has exported its spans: the start does not matter.
    CarriedOut,
}

/// State for decisions together with other nodes; a single node has none.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Spans of traces that began earlier may have been lost with the predecessor.
    pub(super) since: Option<UnixNanos>,
    /// Until when that may hold for a trace of unknown beginning.
    pub(super) feared_until: Nanos,
    /// Decided here and not released yet: another node has to have the decision first. With who pays for it.
    pub(super) pending: BTreeMap<TraceId, Payer>,
    pub(super) pieces: Vec<Piece>,
}

impl Cluster {
    /// Whether spans of a trace with this start may have been lost with this node's predecessor.
    pub(super) fn doubts(&self, began: Option<TraceStart>, now: Nanos) -> bool {
        let Some(since) = self.since else { return false };
        match began {
            Some(TraceStart::CarriedOut) => false,
            Some(TraceStart::At(began)) => began < since.plus(SPREAD),
            None => now < self.feared_until,
        }
    }

    pub(super) fn saw(&mut self, piece: Piece) {
        if self.pieces.len() < MAX_PIECES {
            self.pieces.push(piece);
        }
    }
}
