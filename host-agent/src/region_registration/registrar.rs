//! The thread that registers memory for RDMA, and everything that must not overtake it.
//!
//! Registering takes milliseconds, and a hanging device takes longer, so that a thread of its own does it. It gets the
//! control plane's device actions in their order, together with what has to follow them: messages to a worker (after
//! their keys are filled in), and slots and regions to be released (after the fence of the worker that could still read
//! them, decision D2). If a device does not fence a worker, slots are held back until it does. All other actions are
//! carried out at once and may overtake these.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use region::AcceptedRegion;
use wire::id::{LmapId, RegionId, WorkerId};
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::proto::registration::AgentMessage;
use wire::rdma::{Endpoint, PacketSequence};
use wire::time::Nanos;

use super::held_releases::HeldReleases;
use super::request::Request;
use super::{AffectedLmaps, ConnectFailure, Registrations, Renewal};
use crate::control_plane::ConnectionId;
use crate::node::Node;

/// Starts the thread. It ends when `node` is dropped.
///
/// # Errors
///
/// The error of the operating system if it starts no thread.
pub fn start(registrations: Registrations, inbox: Receiver<Request>, node: &Arc<Node>) -> io::Result<JoinHandle<()>> {
    let node = Arc::downgrade(node);
    let thread = std::thread::Builder::new().name("registrar".to_owned());
    thread.spawn(move || Registrar::new(registrations).run(&inbox, &node))
}

struct Registrar {
    registrations: Registrations,
    /// Counts already added to the node's.
    counted: (u64, u64),
    /// Workers not fenced, as last reported to the node.
    unfenced: BTreeSet<WorkerId>,
    /// Slots held back until all workers are fenced.
    held: HeldReleases,
}

impl Registrar {
    fn new(registrations: Registrations) -> Self {
        Self { registrations, counted: (0, 0), unfenced: BTreeSet::new(), held: HeldReleases::default() }
    }

    fn run(&mut self, inbox: &Receiver<Request>, node: &Weak<Node>) {
        let mut wait = Nanos::ZERO;
        loop {
            let request = match inbox.recv_timeout(wait.into()) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(node) = node.upgrade() else { return };
            if let Some(request) = request {
                self.carry_out(request, &node);
            }
            self.try_again(&node);
            self.look_after_fences(&node);
            self.count(&node);
            // At most an hour, so that no timer overflows.
            wait = self
                .registrations
                .next_deadline()
                .since(node.clock().now())
                .unwrap_or(Nanos::ZERO)
                .min(Nanos::from_secs(3600));
        }
    }

    fn carry_out(&mut self, request: Request, node: &Node) {
        match request {
            Request::Send { to, worker, mut message, memories } => {
                self.fill(worker, &mut message, &memories, node);
                node.send_to_worker(to, worker, *message);
            }
            Request::Connect { to, worker, attempt, peer } => {
                let answer = self.connect(worker, attempt, &peer, node);
                node.send_to_worker(to, worker, answer);
            }
            Request::Stop { worker, for_good } => {
                self.registrations.stop(node.clock().now(), worker, for_good);
                if self.registrations.unfenced().all(|(unfenced, _)| unfenced != worker) {
                    tracing::info!(%worker, for_good, "fenced from RDMA");
                }
            }
            Request::Release { to, message } => self.release(to, message, node),
            Request::Deregister(region) => {
                let kept = self.registrations.deregister(node.clock().now(), region);
                if kept > 0 {
                    node.counts.failed_deregistrations.add(kept as u64);
                    tracing::warn!(%region, kept, "devices refuse to deregister a region; their workers are fenced until they comply");
                }
            }
            Request::Resent(worker) => self.registrations.resent(worker),
        }
    }

    /// Fills addresses and keys into a message to a worker.
    fn fill(
        &mut self,
        worker: WorkerId,
        message: &mut proto::HostMessage,
        memories: &BTreeMap<RegionId, Arc<AcceptedRegion>>,
        node: &Node,
    ) {
        match &mut message.message {
            Some(Message::SetLmap(config)) => {
                let lmap = LmapId(config.lmap);
                let failed = self.registrations.fill(node.clock().now(), worker, config, memories);
                if let Some((region, why)) = failed.first() {
                    let regions = failed.len();
                    tracing::warn!(%worker, %lmap, regions, first = %region, why, "cannot register regions for RDMA; retrying");
                }
                node.plane(|plane, _| plane.regions_registered(worker, lmap, failed));
            }
            Some(Message::RemoveLmap(remove)) => self.registrations.forget(worker, LmapId(remove.lmap)),
            _ => {}
        }
    }

    fn connect(&mut self, worker: WorkerId, attempt: u32, peer: &Endpoint, node: &Node) -> proto::HostMessage {
        let psn = PacketSequence::from_random(rand::random());
        let answer = match self.registrations.connect(node.clock().now(), worker, psn, peer) {
            Ok(host) => {
                tracing::info!(%worker, attempt, %peer, "queue pair connected");
                proto::QueuePairReply { attempt, host: Some((&host).into()), problem: String::new() }
            }
            Err(ConnectFailure { why: problem, .. }) => {
                tracing::warn!(%worker, attempt, %peer, why = problem, "cannot connect queue pair");
                node.plane(|plane, _| plane.queue_pair_refused(worker, &problem));
                proto::QueuePairReply { attempt, host: None, problem }
            }
        };
        proto::HostMessage { epoch: 0, message: Some(Message::QueuePair(answer)) }
    }

    /// Carries out due retries, and has the results sent to workers.
    fn try_again(&mut self, node: &Node) {
        for Renewal { worker, lmaps } in self.registrations.poll(node.clock().now()) {
            match lmaps {
                AffectedLmaps::All => {
                    tracing::info!(%worker, "RDMA device reopened; registering regions again");
                    node.plane(|plane, now| plane.resend(now, worker, None));
                    node.request(Request::Resent(worker));
                }
                AffectedLmaps::These(lmaps) => {
                    tracing::info!(%worker, lmaps = lmaps.len(), "regions registered for RDMA after a retry");
                    node.plane(|plane, now| plane.resend(now, worker, Some(&lmaps)));
                }
            }
        }
    }

    /// Gives slots back, or holds them back while a worker is not fenced.
    fn release(&mut self, to: ConnectionId, message: AgentMessage, node: &Node) {
        if self.registrations.unfenced().next().is_none() {
            return node.release(to, &message);
        }
        self.held.retain(|to| node.has_service(to));
        if let Some(connection) = self.held.hold(to, message) {
            let connection = connection.0;
            tracing::warn!(connection, "too many slots are held back: a service gets its own when it connects again");
        }
    }

    /// Reports changes of the workers that are not fenced. Gives back what was held, once all are fenced.
    fn look_after_fences(&mut self, node: &Node) {
        let unfenced: BTreeMap<_, _> =
            self.registrations.unfenced().map(|(worker, why)| (worker, why.to_owned())).collect();
        let workers: BTreeSet<_> = unfenced.keys().copied().collect();
        if workers == self.unfenced {
            return;
        }
        for worker in workers.difference(&self.unfenced) {
            let why = &unfenced[worker];
            node.counts.failed_fences.one_more();
            tracing::error!(%worker, why, "a device does not fence a worker from RDMA; no service gets slots back until it does. Retrying; a restart of the host agent fences it");
        }
        for worker in self.unfenced.difference(&workers) {
            tracing::info!(%worker, "fenced from RDMA after a retry");
        }
        self.unfenced = workers;
        node.plane(|plane, _| plane.set_unfenced(unfenced));
        if self.unfenced.is_empty() {
            for (to, message) in self.held.take() {
                node.release(to, &message);
            }
        }
    }

    fn count(&mut self, node: &Node) {
        let (lost, renewed) = self.registrations.counts();
        node.counts.lost_devices.add(lost - self.counted.0);
        node.counts.reopened_devices.add(renewed - self.counted.1);
        self.counted = (lost, renewed);
    }
}
