//! The thread that registers memory, and whatever must not overtake it.
//!
//! Registering takes milliseconds and a device that hangs takes longer, so that it is done while nobody is kept waiting. What the control
//! plane wants of devices comes here, in its order, and with it everything that has to come after: the messages to a worker behind the keys
//! that are filled into them, slots that a service gets back and regions that are dropped behind the fence of the worker that could still
//! read them (D2). Where a device does not do the fence, slots are held back until it does. Whatever else the control plane wants is done at
//! once, and overtakes what is here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use region::AcceptedRegion;
use wire::id::{LmapId, RegionId, WorkerId};
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::proto::registration::AgentMessage;
use wire::rdma::{Endpoint, PacketSequence};
use wire::time::Nanos;

use super::{Exposures, Lmaps, Renewal};
use crate::control_plane::ConnectionId;
use crate::node::Node;

/// What is to be done, one after the other.
#[derive(Debug)]
pub enum Order {
    /// Tell a worker, with addresses and keys of these regions.
    Tell {
        /// Over which connection.
        to: ConnectionId,
        /// Which worker it is.
        worker: WorkerId,
        /// What.
        message: Box<proto::HostMessage>,
        /// The regions that are named there, and not dropped already.
        memories: BTreeMap<RegionId, Arc<AcceptedRegion>>,
    },
    /// Connect a worker's queue pair, and tell it.
    Connect {
        /// Over which connection.
        to: ConnectionId,
        /// Which worker it is.
        worker: WorkerId,
        /// The number of its attempt.
        attempt: u32,
        /// Its end.
        peer: Endpoint,
    },
    /// Shut a worker out.
    Stop {
        /// Which.
        worker: WorkerId,
        /// Nothing that it had is kept.
        for_good: bool,
    },
    /// Give slots back to a service.
    Release {
        /// Over which connection.
        to: ConnectionId,
        /// Which slots.
        message: AgentMessage,
    },
    /// Take a region from every worker.
    Withdraw(RegionId),
    /// Everything that a worker had to be told anew is ahead of this.
    Told(WorkerId),
}

/// Where orders are left. Leaving one never waits.
pub type Orders = mpsc::Sender<Order>;

/// Where orders are left, and where they come out.
#[must_use]
pub fn orders() -> (Orders, Receiver<Order>) {
    mpsc::channel()
}

/// Starts the thread. It ends with `node`, which it does not keep.
///
/// # Errors
///
/// The system gives no thread.
pub fn start(exposures: Exposures, inbox: Receiver<Order>, node: &Arc<Node>) -> io::Result<JoinHandle<()>> {
    let node = Arc::downgrade(node);
    let thread = std::thread::Builder::new().name("registrar".to_owned());
    thread.spawn(move || Registrar::new(exposures).run(&inbox, &node))
}

struct Registrar {
    exposures: Exposures,
    /// What of its counts the node has.
    counted: (u64, u64),
    /// Workers that are not shut out, as the node knows it.
    unfenced: BTreeSet<WorkerId>,
    /// Slots to be given back when all of them are.
    held: Vec<(ConnectionId, AgentMessage)>,
}

impl Registrar {
    fn new(exposures: Exposures) -> Self {
        Self { exposures, counted: (0, 0), unfenced: BTreeSet::new(), held: Vec::new() }
    }

    fn run(&mut self, inbox: &Receiver<Order>, node: &Weak<Node>) {
        let mut wait = Nanos::ZERO;
        loop {
            let order = match inbox.recv_timeout(wait.into()) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(node) = node.upgrade() else { return };
            if let Some(order) = order {
                self.carry_out(order, &node);
            }
            self.try_again(&node);
            self.look_after_fences(&node);
            self.count(&node);
            // An hour at the most, so that no timer overflows.
            wait = self.exposures.next().since(node.clock().now()).unwrap_or(Nanos::ZERO).min(Nanos::from_secs(3600));
        }
    }

    fn carry_out(&mut self, order: Order, node: &Node) {
        match order {
            Order::Tell { to, worker, mut message, memories } => {
                self.fill(worker, &mut message, &memories, node);
                node.pass_on(to, worker, *message);
            }
            Order::Connect { to, worker, attempt, peer } => {
                let answer = self.connect(worker, attempt, &peer, node);
                node.answer(to, worker, answer);
            }
            Order::Stop { worker, for_good } => {
                self.exposures.stop(node.clock().now(), worker, for_good);
                if self.exposures.unfenced().all(|(unfenced, _)| unfenced != worker) {
                    tracing::info!(%worker, for_good, "shut out from RDMA");
                }
            }
            Order::Release { to, message } => self.release(to, message, node),
            Order::Withdraw(region) => {
                let kept = self.exposures.withdraw(node.clock().now(), region);
                if kept > 0 {
                    node.counts.kept_regions.more(kept as u64);
                    tracing::warn!(%region, kept, "devices do not let go of a region: their workers are shut out until they do");
                }
            }
            Order::Told(worker) => self.exposures.told(worker),
        }
    }

    /// Puts addresses and keys into what a worker is to be told.
    fn fill(
        &mut self,
        worker: WorkerId,
        message: &mut proto::HostMessage,
        memories: &BTreeMap<RegionId, Arc<AcceptedRegion>>,
        node: &Node,
    ) {
        match &mut message.message {
            Some(Message::SetLmap(told)) => {
                let lmap = LmapId(told.lmap);
                let but = self.exposures.fill(node.clock().now(), worker, told, memories);
                if let Some((region, why)) = but.first() {
                    let regions = but.len();
                    tracing::warn!(%worker, %lmap, regions, first = %region, why, "regions cannot be registered for RDMA: tried again");
                }
                node.plane(|plane, _| plane.regions_registered(worker, lmap, but));
            }
            Some(Message::RemoveLmap(remove)) => self.exposures.forget(worker, LmapId(remove.lmap)),
            _ => {}
        }
    }

    fn connect(&mut self, worker: WorkerId, attempt: u32, peer: &Endpoint, node: &Node) -> proto::HostMessage {
        let psn = PacketSequence::from_random(rand::random());
        let answer = match self.exposures.answer(node.clock().now(), worker, psn, peer) {
            Ok(host) => {
                tracing::info!(%worker, attempt, %peer, "a worker's queue pair is connected");
                proto::QueuePairAnswer { attempt, host: Some((&host).into()), problem: String::new() }
            }
            Err(problem) => {
                tracing::warn!(%worker, attempt, %peer, why = problem, "a worker's queue pair cannot be connected");
                node.plane(|plane, _| plane.queue_pair_refused(worker, &problem));
                proto::QueuePairAnswer { attempt, host: None, problem }
            }
        };
        proto::HostMessage { epoch: 0, message: Some(Message::QueuePair(answer)) }
    }

    /// Does what is due by itself, and has workers told of what came of it.
    fn try_again(&mut self, node: &Node) {
        for Renewal { worker, lmaps } in self.exposures.poll(node.clock().now()) {
            match lmaps {
                Lmaps::All => {
                    tracing::info!(%worker, "the RDMA device was opened again: its regions are registered anew");
                    node.plane(|plane, now| plane.tell_again(now, worker, None));
                    node.order(Order::Told(worker));
                }
                Lmaps::These(lmaps) => {
                    tracing::info!(%worker, lmaps = lmaps.len(), "regions could be registered for RDMA after all");
                    node.plane(|plane, now| plane.tell_again(now, worker, Some(&lmaps)));
                }
            }
        }
    }

    /// Gives slots back, if nobody may read them any more who did not say that he has forgotten them.
    fn release(&mut self, to: ConnectionId, message: AgentMessage, node: &Node) {
        if self.exposures.unfenced().next().is_none() {
            return node.release(to, &message);
        }
        // A service that comes again says anew what it has retired.
        self.held.retain(|(to, _)| node.has_service(*to));
        self.held.push((to, message));
    }

    /// Tells of workers that are not shut out, and of those that are after all; then gives back what was held for that.
    fn look_after_fences(&mut self, node: &Node) {
        let unfenced: BTreeMap<_, _> =
            self.exposures.unfenced().map(|(worker, why)| (worker, why.to_owned())).collect();
        let workers: BTreeSet<_> = unfenced.keys().copied().collect();
        if workers == self.unfenced {
            return;
        }
        for worker in workers.difference(&self.unfenced) {
            let why = &unfenced[worker];
            node.counts.failed_fences.one_more();
            tracing::error!(%worker, why, "a device does not shut a worker out from RDMA: no service gets slots back until it does; tried again, and a restart of the host agent ends it");
        }
        for worker in self.unfenced.difference(&workers) {
            tracing::info!(%worker, "shut out from RDMA after all");
        }
        self.unfenced = workers;
        node.plane(|plane, _| plane.set_unfenced(unfenced));
        if self.unfenced.is_empty() {
            for (to, message) in self.held.drain(..) {
                node.release(to, &message);
            }
        }
    }

    fn count(&mut self, node: &Node) {
        let (lost, renewed) = self.exposures.counts();
        node.counts.lost_devices.more(lost - self.counted.0);
        node.counts.reopened_devices.more(renewed - self.counted.1);
        self.counted = (lost, renewed);
    }
}
