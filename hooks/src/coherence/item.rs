//! What nodes say.

use std::sync::Arc;

use crate::time::UnixNanos;
use crate::tracing::{Parts, Reason, TraceId};

/// One run of a node: its name in the cluster, and when it began. Of two runs of a name the one that began later is the successor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// How the node is called; no two have the same name.
    pub node: Arc<str>,
    /// By its own clock.
    pub began: UnixNanos,
}

/// A trace is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Whose trace it is.
    pub tenant: Arc<str>,
    /// Which one.
    pub trace: TraceId,
    /// Why.
    pub reason: Arc<Reason>,
    /// When it began, if its decider has the span without a parent.
    pub began: Option<UnixNanos>,
}

/// An LMAP found its service out of the ordinary.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The service.
    pub service: Arc<str>,
    /// When what was seen began.
    pub from: UnixNanos,
    /// When.
    pub at: UnixNanos,
    /// Score over γ.
    pub weight: f64,
    /// What its row says by itself; `None` if nobody knows.
    pub parts: Option<Arc<Parts>>,
    /// In words.
    pub reason: Arc<Reason>,
}

/// An operation of a service: both by name.
pub type Asked = (Arc<str>, Arc<str>);

/// Services that a node saw in a trace whose entry span another node has.
#[derive(Clone, Debug, PartialEq)]
pub struct PathPiece {
    /// Whose trace it is.
    pub tenant: Arc<str>,
    /// Which one.
    pub trace: TraceId,
    /// The services.
    pub services: Vec<Arc<str>>,
    /// What they were asked for.
    pub asked: Vec<Asked>,
}

/// Services on the path of an operation, as a node saw them lately: for nodes that have just begun.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPath {
    /// Whose traces.
    pub tenant: Arc<str>,
    /// The service of the operation.
    pub service: Arc<str>,
    /// The operation.
    pub operation: Arc<str>,
    /// The services.
    pub services: Vec<Arc<str>>,
    /// What they are asked for.
    pub asked: Vec<Asked>,
}

/// One thing that a node says to all.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A trace is kept.
    Keep(Decision),
    /// A service is out of the ordinary.
    Output(Output),
    /// A part of a path.
    Piece(PathPiece),
    /// A path.
    Path(KnownPath),
}

/// What was said, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// By the clock of whoever said it.
    pub said: UnixNanos,
    /// The predecessor of whoever is told had dealt with it.
    pub dealt_with: bool,
    /// What.
    pub item: Item,
}
