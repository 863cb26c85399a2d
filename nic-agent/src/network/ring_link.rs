//! The queues between the rings, which measure, and the thread that changes what they measure.

use std::sync::mpsc::{Receiver, Sender};

use packets::Filter;
use wire::proto::control::SetStreams;

use super::part::StreamPart;

/// A change of the streams of a ring.
#[derive(Debug)]
pub(super) enum Command {
    /// From now on this part is measured, too.
    Add(Box<StreamPart>),
    /// The stream of this name has other packets from its next interval on.
    Filter(String, Filter),
    /// The interval of the stream of this name is its last one.
    End(String),
}

/// What the thread that changes streams is told.
#[derive(Debug)]
pub(super) enum Event {
    /// These streams, and no others.
    Set(SetStreams),
    /// A part has ended with its interval.
    Ended(Box<StreamPart>),
    /// The agent ends.
    Stop,
}

/// The queues of one ring to and from that thread.
#[derive(Debug)]
pub(super) struct RingLink {
    pub(super) commands: Receiver<Command>,
    /// Takes parts that have ended.
    pub(super) events: Sender<Event>,
}
