//! Doing what the control plane wants: at once, or behind what the registrar has to do first.

use std::collections::BTreeMap;
use std::sync::Arc;

use region::AcceptedRegion;
use tokio::sync::mpsc;
use wire::id::{RegionId, WorkerId};
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::proto::registration::{AgentMessage, Refused, agent_message};

use super::{Node, State, WORKER_QUEUE};
use crate::clock;
use crate::control_plane::{Action, ConnectionId};
use crate::exposing::registrar::Order;
use crate::process_metrics;
use crate::span_ring;

impl Node {
    pub(super) fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::ToService { connection, message } if self.registrar.is_some() && is_release(&message) => {
                self.order(Order::Release { to: connection, message });
            }
            Action::ToService { connection, message } => self.tell_service(state, connection, &message),
            Action::CloseService { connection } => {
                if let Some(outbox) = state.services.remove(&connection) {
                    outbox.close();
                }
            }
            Action::ReplicaJoined { connection, replica, service, instance, pid, process_metrics } => {
                tracing::info!(%service, %instance, %replica, pid, connection = connection.0, "a replica registered");
                if let (Some(orders), true) = (&state.orders, pid != 0 && process_metrics) {
                    let connected = clock::since_boot();
                    orders.leave(process_metrics::Order::Measure { connection, pid, connected });
                }
            }
            Action::ReadSpans { connection, service, instance, region, size, first_ticket } => {
                let Some(ring) = state.regions.remove(&region) else { return };
                let read =
                    span_ring::begin(state.spans.as_ref(), connection, (&service, &instance), &ring, first_ticket);
                if let Err(reason) = read {
                    tracing::info!(%service, %instance, reason, bytes = size.bytes(), "a span ring is not read");
                    let refused = Refused { what: "span ring".to_owned(), reason };
                    self.tell_service(
                        state,
                        connection,
                        &AgentMessage { message: Some(agent_message::Message::Refused(refused)) },
                    );
                }
            }
            Action::ReplicaLeft { connection } => {
                tracing::info!(connection = connection.0, "a replica is gone");
                if let Some(spans) = &state.spans {
                    spans.end(connection);
                }
                if let Some(orders) = &state.orders {
                    orders.leave(process_metrics::Order::Forget(connection));
                }
            }
            Action::ConnectQueuePair { connection, worker, attempt, peer } => {
                self.order(Order::Connect { to: connection, worker, attempt, peer });
            }
            Action::StopReading { worker, for_good } => self.order(Order::Stop { worker, for_good }),
            Action::ToWorker { connection, worker, message } => {
                // A refusal ends the stream: there is nothing that it could overtake.
                let is_refusal = matches!(message.message, Some(Message::Refusal(_)));
                if self.registrar.is_some() && state.plane.uses_verbs(worker) && !is_refusal {
                    self.queue_for_worker(state, connection, worker, message);
                } else {
                    self.tell_worker(state, connection, worker, message);
                }
            }
            Action::CloseWorker { connection } => drop(state.workers.remove(&connection)),
            Action::DropRegion(region) => {
                state.regions.remove(&region);
                self.order(Order::Withdraw(region));
            }
            Action::Dispatch(event) => {
                let woken = state.dispatch.dispatch(*event);
                state.wake(&woken);
            }
            Action::Rows(batch) => {
                let woken = state.dispatch.rows(&batch);
                state.wake(&woken);
            }
        }
    }

    /// Leaves an order for the registrar; without RDMA there is none, and nothing to be done.
    pub(crate) fn order(&self, order: Order) {
        let Some(orders) = &self.registrar else { return };
        if orders.send(order).is_err() {
            tracing::error!("the thread that registers memory has ended: this is a fault of the program");
        }
    }

    /// A worker is told what was queued for it, now that its keys are filled in.
    pub(crate) fn pass_on(&self, to: ConnectionId, worker: WorkerId, message: proto::HostMessage) {
        let mut state = self.lock();
        if let Some(line) = state.workers.get_mut(&to) {
            line.queued = line.queued.saturating_sub(1);
        }
        self.tell_worker(&mut state, to, worker, message);
    }

    /// A worker is told what became of its queue pair.
    pub(crate) fn answer(&self, to: ConnectionId, worker: WorkerId, answer: proto::HostMessage) {
        self.tell_worker(&mut self.lock(), to, worker, answer);
    }

    /// Whether this connection of a service is still there.
    pub(crate) fn has_service(&self, id: ConnectionId) -> bool {
        self.lock().services.contains_key(&id)
    }

    /// A service gets slots back, now that nobody reads them any more.
    pub(crate) fn release(&self, to: ConnectionId, message: &AgentMessage) {
        self.tell_service(&mut self.lock(), to, message);
    }

    /// Puts a message behind whatever the registrar has to do first. Whoever lets too much wait there is cut off, too.
    fn queue_for_worker(&self, state: &mut State, to: ConnectionId, worker: WorkerId, message: proto::HostMessage) {
        let Some(line) = state.workers.get_mut(&to) else { return };
        if line.queued == WORKER_QUEUE {
            return self.cut_off(state, to, worker);
        }
        line.queued += 1;
        let memories = memories(&state.regions, &message);
        self.order(Order::Tell { to, worker, message: Box::new(message), memories });
    }

    fn tell_worker(&self, state: &mut State, to: ConnectionId, worker: WorkerId, message: proto::HostMessage) {
        let line = state.workers.get(&to);
        let full = line
            .is_some_and(|line| matches!(line.messages.try_send(Ok(message)), Err(mpsc::error::TrySendError::Full(_))));
        if full {
            self.cut_off(state, to, worker);
        }
    }

    fn cut_off(&self, state: &mut State, to: ConnectionId, worker: WorkerId) {
        self.counts.slow_workers.one_more();
        tracing::warn!(%worker, "cut off: more than {WORKER_QUEUE} messages wait for it");
        state.workers.remove(&to);
    }

    fn tell_service(&self, state: &mut State, to: ConnectionId, message: &AgentMessage) {
        let outbox = state.services.get(&to);
        if let Some(Err(overflow)) = outbox.map(|outbox| outbox.push(message)) {
            self.counts.slow_services.one_more();
            tracing::warn!(connection = to.0, "{overflow}");
        }
    }
}

/// Whether a service gets something back that a worker may have read.
fn is_release(message: &AgentMessage) -> bool {
    matches!(message.message, Some(agent_message::Message::Released(_)))
}

/// The regions that a message names, as far as they are there.
fn memories(
    regions: &BTreeMap<RegionId, Arc<AcceptedRegion>>,
    message: &proto::HostMessage,
) -> BTreeMap<RegionId, Arc<AcceptedRegion>> {
    let Some(Message::SetLmap(lmap)) = &message.message else { return BTreeMap::new() };
    let named = lmap.replicas.iter().flat_map(|replica| &replica.regions).map(|region| RegionId(region.region));
    named.filter_map(|id| Some((id, Arc::clone(regions.get(&id)?)))).collect()
}
