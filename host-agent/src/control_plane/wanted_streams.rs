//! Streams of packets that policies want, and what came of each.

use std::collections::BTreeMap;

use wire::control::MAX_STREAMS;
use wire::proto::control as proto;

/// Most bytes of a text of a worker.
const MAX_TEXT: usize = 512;

/// What came of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOutcome {
    /// It is measured on this interface.
    Measured(String),
    /// It will be; why not yet.
    Waiting(String),
    /// It is not, and why.
    Refused(String),
}

/// Streams that are wanted.
#[derive(Debug)]
pub(super) struct WantedStreams {
    /// `None`: it is not known yet what is wanted, so that what is measured from before stays.
    streams: Option<Vec<proto::Stream>>,
    /// Names the list; 0: the empty one.
    revision: u64,
    last_revision: u64,
    /// What the worker says, by the names of streams.
    outcomes: BTreeMap<String, StreamOutcome>,
}

impl Default for WantedStreams {
    fn default() -> Self {
        Self { streams: Some(Vec::new()), revision: 0, last_revision: 0, outcomes: BTreeMap::new() }
    }
}

impl WantedStreams {
    /// It is not known yet what is wanted.
    pub(super) fn forget(&mut self) {
        self.streams = None;
    }

    /// These streams are wanted, at most [`MAX_STREAMS`], and no others. If there is no room for all, the first ones
    /// have it. Returns whether they are others than before.
    pub(super) fn set(&mut self, mut streams: Vec<proto::Stream>) -> bool {
        streams.truncate(MAX_STREAMS);
        if self.streams.as_ref() == Some(&streams) {
            return false;
        }
        let is_empty = streams.is_empty();
        // Other addresses are no other stream: what was said of it holds until the NIC agent says something else.
        let before = self.streams.take().unwrap_or_default();
        let stays = |name: &String| {
            let of = |streams: &[proto::Stream]| {
                let stream = streams.iter().find(|stream| stream.name == *name)?;
                Some(proto::Stream { addresses: Vec::new(), ..stream.clone() })
            };
            of(&before).is_some_and(|before| Some(before) == of(&streams))
        };
        self.outcomes.retain(|name, _| stays(name));
        self.streams = Some(streams);
        self.revision = if is_empty { 0 } else { self.next_revision() };
        true
    }

    fn next_revision(&mut self) -> u64 {
        self.last_revision += 1;
        self.last_revision
    }

    /// The list, and the revision that names it; `None` if it is not known yet what is wanted.
    pub(super) fn list(&self) -> Option<(&[proto::Stream], u64)> {
        Some((self.streams.as_deref()?, self.revision))
    }

    /// What the worker says of the stream `name`; `None`: nothing yet.
    pub(super) fn outcome(&self, name: &str) -> Option<&StreamOutcome> {
        self.outcomes.get(name)
    }

    /// The worker says what came of its streams. Ignored if they are those of an earlier list.
    pub(super) fn take_states(&mut self, states: proto::StreamStates) {
        if states.revision != self.revision {
            return;
        }
        let outcome = |state: proto::StreamState| {
            let short = |text: String| text.chars().take(MAX_TEXT).collect::<String>();
            let outcome = match (state.problem.is_empty(), state.waits) {
                (true, _) => StreamOutcome::Measured(short(state.interface)),
                (false, true) => StreamOutcome::Waiting(short(state.problem)),
                (false, false) => StreamOutcome::Refused(short(state.problem)),
            };
            (short(state.name), outcome)
        };
        self.outcomes = states.streams.into_iter().take(MAX_STREAMS).map(outcome).collect();
    }
}
