//! Streams of packets that policies want, and what came of them: one worker of the node measures all of them.
//!
//! It is the one with the lowest number of those that read interfaces for policies. Others that know such streams are
//! told that there are none, so that a stream is measured once.

use std::collections::BTreeMap;

use wire::control::MAX_STREAMS;
use wire::id::WorkerId;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;

use super::ControlPlane;
use super::worker::Worker;

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

impl ControlPlane {
    /// Policies say later which streams they want: until then, workers are told nothing.
    pub fn await_streams(&mut self) {
        self.streams.streams = None;
    }

    /// These streams are wanted, at most [`MAX_STREAMS`], and no others. If there is no room for all, the first ones
    /// have it.
    pub fn set_streams(&mut self, mut streams: Vec<proto::Stream>) {
        streams.truncate(MAX_STREAMS);
        if self.streams.streams.as_ref() == Some(&streams) {
            return;
        }
        let is_empty = streams.is_empty();
        // Other addresses are no other stream: what was said of it holds until the NIC agent says something else.
        let before = self.streams.streams.take().unwrap_or_default();
        let stays = |name: &String| {
            let of = |streams: &[proto::Stream]| {
                let stream = streams.iter().find(|stream| stream.name == *name)?;
                Some(proto::Stream { addresses: Vec::new(), ..stream.clone() })
            };
            of(&before).is_some_and(|before| Some(before) == of(&streams))
        };
        self.streams.outcomes.retain(|name, _| stays(name));
        self.streams.streams = Some(streams);
        self.streams.revision = if is_empty { 0 } else { self.next_revision() };
        self.share_streams();
    }

    fn next_revision(&mut self) -> u64 {
        self.streams.last_revision += 1;
        self.streams.last_revision
    }

    /// What came of the stream `name`.
    #[must_use]
    pub fn stream_outcome(&self, name: &str) -> StreamOutcome {
        if self.stream_worker().is_none() {
            return self.without_stream_worker();
        }
        let waits = || StreamOutcome::Waiting("the NIC agent has not said yet that it measures it".to_owned());
        self.streams.outcomes.get(name).cloned().unwrap_or_else(waits)
    }

    /// The worker that measures them.
    pub(super) fn stream_worker(&self) -> Option<WorkerId> {
        let reads = |worker: &Worker| {
            worker.session.as_ref().is_some_and(|session| session.takes_streams && session.stream_interfaces > 0)
        };
        self.workers.iter().find(|(_, worker)| reads(worker)).map(|(id, _)| *id)
    }

    /// Why no worker measures them.
    fn without_stream_worker(&self) -> StreamOutcome {
        let mut sessions = self.workers.iter().filter_map(|(id, worker)| Some((id, worker.session.as_ref()?)));
        let Some((id, session)) =
            sessions.clone().find(|(_, session)| session.takes_streams).or_else(|| sessions.next())
        else {
            return StreamOutcome::Waiting("no NIC agent is connected".to_owned());
        };
        StreamOutcome::Refused(if session.takes_streams {
            format!(
                "no NIC agent of this node reads interfaces for policies: set network.policy_interfaces of {id} or another one \
                 (capture.enabled and capture.policyInterfaces of the chart)"
            )
        } else {
            let version = &session.version;
            format!("{id} is of release {version}, whose streams of packets cannot be changed: upgrade the NIC agent")
        })
    }

    /// Tells each worker which streams it is to measure, unless it was told already.
    pub(super) fn share_streams(&mut self) {
        let Some(streams) = &self.streams.streams else { return };
        let chosen = self.stream_worker();
        let mut updates = Vec::new();
        for (id, worker) in &mut self.workers {
            let Some(session) = worker.session.as_mut() else { continue };
            let revision = if chosen == Some(*id) { self.streams.revision } else { 0 };
            // One that reads no interface has no stream of an earlier list either.
            if session.stream_interfaces == 0 {
                continue;
            }
            if session.takes_streams && session.connection.is_some() && session.streams_sent != Some(revision) {
                session.streams_sent = Some(revision);
                let streams = if revision == 0 { Vec::new() } else { streams.clone() };
                updates.push((*id, worker.epoch.0, proto::SetStreams { revision, streams }));
            }
        }
        for (id, epoch, set) in updates {
            self.send(id, epoch, Message::SetStreams(set));
        }
    }

    /// A worker says what came of its streams.
    pub(super) fn take_stream_states(&mut self, id: WorkerId, states: proto::StreamStates) {
        // Of an earlier list, or of a worker that measures none any more.
        if self.stream_worker() != Some(id) || states.revision != self.streams.revision {
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
        self.streams.outcomes = states.streams.into_iter().take(MAX_STREAMS).map(outcome).collect();
    }
}
