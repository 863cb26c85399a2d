//! Streams of packets that policies want, and what came of them: one worker of the node measures all of them.
//!
//! It is the one with the lowest number of those that read interfaces for policies. Others that know such streams are
//! told that there are none, so that a stream is measured once.

use wire::id::WorkerId;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;

use super::state::ControlPlane;
use super::wanted_streams::StreamOutcome;
use super::worker::Worker;

impl ControlPlane {
    /// Policies say later which streams they want: until then, workers are told nothing.
    pub fn await_streams(&mut self) {
        self.streams.forget();
    }

    /// These streams are wanted, at most [`MAX_STREAMS`](wire::control::MAX_STREAMS), and no others. If there is no
    /// room for all, the first ones have it.
    pub fn set_streams(&mut self, streams: Vec<proto::Stream>) {
        if self.streams.set(streams) {
            self.share_streams();
        }
    }

    /// What came of the stream `name`.
    #[must_use]
    pub fn stream_outcome(&self, name: &str) -> StreamOutcome {
        if self.stream_worker().is_none() {
            return self.without_stream_worker();
        }
        let waits = || StreamOutcome::Waiting("the NIC agent has not said yet that it measures it".to_owned());
        self.streams.outcome(name).cloned().unwrap_or_else(waits)
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
        let Some((streams, current)) = self.streams.list() else { return };
        let chosen = self.stream_worker();
        let mut updates = Vec::new();
        for (id, worker) in &mut self.workers {
            let Some(session) = worker.session.as_mut() else { continue };
            let revision = if chosen == Some(*id) { current } else { 0 };
            // One that reads no interface has no stream of an earlier list either.
            if session.stream_interfaces == 0 {
                continue;
            }
            if session.takes_streams && session.connection.is_some() && session.streams_sent != Some(revision) {
                session.streams_sent = Some(revision);
                let streams = if revision == 0 { Vec::new() } else { streams.to_vec() };
                updates.push((*id, worker.epoch.0, proto::SetStreams { revision, streams }));
            }
        }
        for (id, epoch, set) in updates {
            self.send(id, epoch, Message::SetStreams(set));
        }
    }

    /// A worker says what came of its streams.
    pub(super) fn take_stream_states(&mut self, id: WorkerId, states: proto::StreamStates) {
        // One that measures none any more may say it still.
        if self.stream_worker() == Some(id) {
            self.streams.take_states(states);
        }
    }
}
