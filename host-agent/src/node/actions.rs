//! Carries out the control plane's actions: at once, or queued behind the registrar's work.

use std::collections::BTreeMap;
use std::sync::Arc;

use region::AcceptedRegion;
use tokio::sync::mpsc;
use wire::id::{RegionId, WorkerId};
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::proto::registration::{AgentMessage, Refusal, agent_message};

use super::{Node, State, WORKER_QUEUE};
use crate::control_plane::{Action, ConnectionId};
use crate::process_metrics;
use crate::region_registration::request::Request;
use crate::span_ring::read_ring;

impl Node {
    pub(super) fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::ToService { connection, message } if self.registrar.is_some() && is_release(&message) => {
                self.request(Request::Release { to: connection, message });
            }
            Action::ToService { connection, message } => self.deliver_to_service(state, connection, &message),
            Action::CloseService { connection } => {
                if let Some(outbox) = state.services.remove(&connection) {
                    outbox.close();
                }
            }
            Action::ReplicaJoined { connection, replica, service, instance, pid, process_metrics } => {
                tracing::info!(%service, %instance, %replica, pid, connection = connection.0, "replica registered");
                // Not the time of the hello: the number may have been reused since the process connected.
                let connected = state.connected.get(&connection).copied().filter(|_| pid != 0 && process_metrics);
                if let (Some(requests), Some(connected)) = (&state.requests, connected) {
                    requests.leave(process_metrics::Request::Measure { connection, service, pid, connected });
                }
            }
            Action::ReadSpans { connection, service, instance, owner, region, size, first_ticket } => {
                let Some(ring) = state.regions.remove(&region) else { return };
                let replica = (&service, &instance, owner);
                let read = read_ring(state.spans.as_ref(), connection, replica, ring, first_ticket);
                if let Err(reason) = read {
                    tracing::info!(%service, %instance, reason, bytes = size.bytes(), "span ring not read");
                    let refused = Refusal { what: "span ring".to_owned(), reason, retry_after_ms: 0 };
                    self.deliver_to_service(
                        state,
                        connection,
                        &AgentMessage { message: Some(agent_message::Message::Refusal(refused)) },
                    );
                }
            }
            Action::ReplicaLeft { connection } => {
                tracing::info!(connection = connection.0, "replica disconnected");
                if let Some(spans) = &state.spans {
                    spans.end(connection);
                }
                if let Some(requests) = &state.requests {
                    requests.leave(process_metrics::Request::Forget(connection));
                }
            }
            Action::ConnectQueuePair { connection, worker, attempt, peer } => {
                if self.takes_a_place(state, connection, worker) {
                    self.request(Request::Connect { to: connection, worker, attempt, peer });
                }
            }
            Action::StopReading { worker, for_good } => self.request(Request::Stop { worker, for_good }),
            Action::ToWorker { connection, worker, message } => {
                // A refusal ends the stream and need not wait for anything.
                let is_refusal = matches!(message.message, Some(Message::Refusal(_)));
                if self.registrar.is_some() && state.plane.uses_verbs(worker) && !is_refusal {
                    self.queue_for_worker(state, connection, worker, message);
                } else {
                    self.deliver_to_worker(state, connection, worker, message);
                }
            }
            Action::CloseWorker { connection } => drop(state.workers.remove(&connection)),
            Action::DropRegion(region) => {
                state.regions.remove(&region);
                self.request(Request::Deregister(region));
            }
            Action::Dispatch(event) => state.tell(|dispatch| dispatch.dispatch(*event)),
            Action::LmapCreated { lmap, service } => {
                state.tell(|dispatch| dispatch.lmap_created(lmap, &service));
                state.subscribe(lmap);
            }
            Action::LmapDeleted { lmap, service, deletion } => {
                state.tell(|dispatch| dispatch.lmap_deleted(lmap, &service, deletion.reason()));
            }
            Action::Rows(batch) => state.tell(|dispatch| dispatch.rows(&batch)),
            Action::Paces(paces) => self.tell_paces(state, paces),
        }
    }

    /// Sends a request to the registrar. Does nothing without RDMA.
    pub(crate) fn request(&self, request: Request) {
        let Some(requests) = &self.registrar else { return };
        if requests.send(request).is_err() {
            tracing::error!("the registrar thread has ended: this is a bug");
        }
    }

    /// Sends a message that was queued for a worker, after the registrar has filled in its keys, or the reply to its
    /// queue-pair request.
    pub(crate) fn send_to_worker(&self, to: ConnectionId, worker: WorkerId, message: proto::HostMessage) {
        let mut state = self.lock();
        if let Some(line) = state.workers.get_mut(&to) {
            line.queued = line.queued.saturating_sub(1);
        }
        self.deliver_to_worker(&mut state, to, worker, message);
    }

    /// Whether this connection of a service is still open.
    pub(crate) fn has_service(&self, id: ConnectionId) -> bool {
        self.lock().services.contains_key(&id)
    }

    /// Gives slots back to a service: no worker reads them any more.
    pub(crate) fn release(&self, to: ConnectionId, message: &AgentMessage) {
        self.deliver_to_service(&mut self.lock(), to, message);
    }

    /// Queues a message behind the registrar's work.
    fn queue_for_worker(&self, state: &mut State, to: ConnectionId, worker: WorkerId, message: proto::HostMessage) {
        if self.takes_a_place(state, to, worker) {
            let memories = memories(&state.regions, &message);
            self.request(Request::Send { to, worker, message: Box::new(message), memories });
        }
    }

    /// Takes a place in the registrar's queue for a worker. One that has none left, with messages and requests of its
    /// own together, is disconnected.
    fn takes_a_place(&self, state: &mut State, to: ConnectionId, worker: WorkerId) -> bool {
        let Some(line) = state.workers.get_mut(&to) else { return false };
        let free = line.queued < WORKER_QUEUE;
        if free {
            line.queued += 1;
        } else {
            self.disconnect_slow_worker(state, to, worker);
        }
        free
    }

    fn deliver_to_worker(&self, state: &mut State, to: ConnectionId, worker: WorkerId, message: proto::HostMessage) {
        let line = state.workers.get(&to);
        let full = line
            .is_some_and(|line| matches!(line.messages.try_send(Ok(message)), Err(mpsc::error::TrySendError::Full(_))));
        if full {
            self.disconnect_slow_worker(state, to, worker);
        }
    }

    fn disconnect_slow_worker(&self, state: &mut State, to: ConnectionId, worker: WorkerId) {
        self.counts.slow_workers.one_more();
        tracing::warn!(%worker, "disconnecting slow worker: more than {WORKER_QUEUE} messages are queued");
        state.workers.remove(&to);
    }

    fn deliver_to_service(&self, state: &mut State, to: ConnectionId, message: &AgentMessage) {
        let outbox = state.services.get(&to);
        if let Some(Err(overflow)) = outbox.map(|outbox| outbox.push(message)) {
            self.counts.slow_services.one_more();
            tracing::warn!(connection = to.0, "{overflow}");
        }
    }
}

/// Whether the message gives a service slots back that a worker may have read.
fn is_release(message: &AgentMessage) -> bool {
    matches!(message.message, Some(agent_message::Message::Release(_)))
}

/// The regions that a message names, except those already dropped.
fn memories(
    regions: &BTreeMap<RegionId, Arc<AcceptedRegion>>,
    message: &proto::HostMessage,
) -> BTreeMap<RegionId, Arc<AcceptedRegion>> {
    let Some(Message::SetLmap(lmap)) = &message.message else { return BTreeMap::new() };
    let named = lmap.replicas.iter().flat_map(|replica| &replica.regions).map(|region| RegionId(region.region));
    named.filter_map(|id| Some((id, Arc::clone(regions.get(&id)?)))).collect()
}

#[cfg(test)]
mod tests {
    use wire::id::Incarnation;
    use wire::name::{InstanceName, Labels, ServiceName};
    use wire::registration::{Hello, ServiceMessage};
    use wire::time::{Interval, Nanos};

    use super::*;
    use crate::clock::Clock;
    use crate::control_plane::{Peer, Settings};
    use crate::process_metrics::{Request, RequestSender};

    #[test]
    fn a_process_is_measured_if_it_is_the_one_that_connected_however_late_its_hello() {
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        let node = Node::new(Settings::new(Incarnation(1), interval), 4, Clock::start(), None);
        let (sender, requests) = RequestSender::for_test();
        node.measure_with(sender);
        let hello = |pid| {
            let (id, _outbox) = node.service_connected_at(Peer { pid, uid: 0, cgroup: String::new() }, Nanos(5));
            let names = (ServiceName::new("payment").unwrap(), InstanceName::new(&format!("p-{pid}")).unwrap());
            node.service_message(id, ServiceMessage::Hello(Hello::new(names.0, names.1, Labels::default())), None);
            id
        };

        let (first, _unknown) = (hello(7), hello(0));

        let measured: Vec<_> = requests.try_iter().collect();
        let service = ServiceName::new("payment").unwrap();
        assert_eq!(measured, [Request::Measure { connection: first, service, pid: 7, connected: Nanos(5) }]);
    }
}
