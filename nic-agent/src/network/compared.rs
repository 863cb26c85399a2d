//! A stream that is compared with another agent's: the end that sees its packets pass. What it gathers goes to the thread that speaks with the
//! other agent, and what that thread wants comes back between packets.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use exchange::gathering::GatheringSettings;
use exchange::{End, Gathered, Gathering, Plan, Sampling};
use packets::{Filter, Packet, Unusable, View, identity};
use synopses::rda::Cache;
use tokio::sync::mpsc::Sender;

use super::figures::Figures;
use super::interface::Seen;
use crate::config::StreamConfig;
use crate::error::told;

/// Packets that were handed over so long after their interval's end are too late: the ring's deadline, and as long again as that may be late.
const GRACE_NS: u64 = 60_000_000;

/// What the thread that speaks wants.
#[derive(Debug)]
pub(super) enum Command {
    /// Gather by this plan.
    Gather(Box<Plan>),
    /// Look at another share of flows.
    Sample(Sampling),
    /// Memory that is not needed any more.
    GiveBack(Cache),
}

/// The two queues to that thread.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) gathered: Sender<Gathered>,
    pub(super) commands: Receiver<Command>,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Compared {
    name: String,
    interface: String,
    filter: Filter,
    view: View,
    settings: GatheringSettings,
    gathering: Option<Gathering>,
    queues: Queues,
    figures: Arc<Figures>,
    /// It was told that there are such.
    told: bool,
    oversized: bool,
    refused: u64,
    /// An interval that found no room in the queue.
    lost: u64,
}

impl Compared {
    /// A stream that waits for a plan.
    pub(super) fn new(config: &StreamConfig, queues: Queues, figures: Arc<Figures>) -> Self {
        let sends = config.compared.as_ref().is_some_and(|compared| compared.peer.is_some());
        let end = if sends { End::Sender } else { End::Receiver };
        Self {
            name: config.name.clone(),
            interface: config.interface.clone(),
            // A checked configuration has filters that can be read.
            filter: config.filter.parse().unwrap_or_default(),
            view: if config.inner { View::Inner } else { View::Outer },
            settings: GatheringSettings { end, packets: config.packets(), grace_ns: GRACE_NS },
            gathering: None,
            queues,
            figures,
            told: false,
            oversized: false,
            refused: 0,
            lost: 0,
        }
    }

    /// Which packet of a tunnel it is about.
    pub(super) const fn view(&self) -> View {
        self.view
    }

    /// A frame of the interface, of whatever stream, as its view has it.
    #[inline]
    pub(super) fn insert(&mut self, packet: &Result<Packet<'_>, Unusable>, seen: Seen) {
        let packet = match packet {
            Ok(packet) => packet,
            Err(reason) => {
                self.refused += u64::from(!reason.is_harmless());
                return;
            }
        };
        let Some(gathering) = self.gathering.as_mut().filter(|_| self.filter.meets(packet)) else { return };
        if seen.put_together {
            gathering.oversized();
            self.oversized = true;
        }
        gathering.insert(packet.time_ns, |key| identity::digest(packet, key), |key| identity::flow(packet, key));
    }

    /// So many frames of the interface were dropped by the kernel, perhaps of this stream.
    pub(super) fn lost(&mut self, frames: u64) {
        self.figures.dropped(frames);
        if let Some(gathering) = &mut self.gathering {
            gathering.missed(frames);
        }
    }

    /// The interface could not be read for some time: packets may have passed.
    pub(super) fn blind(&mut self) {
        self.gathering.iter_mut().for_each(|gathering| gathering.missed(1));
    }

    /// Whether an interval is over at `now_ns`, or everything is to be looked at because nothing is gathered.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.gathering.as_ref().is_some_and(|gathering| now_ns >= gathering.due_ns())
    }

    /// Does what the other thread wants, and gives it what is over at `now_ns`. Called between blocks of packets.
    pub(super) fn poll(&mut self, now_ns: u64) {
        loop {
            match self.queues.commands.try_recv() {
                Ok(Command::Gather(plan)) => self.gather(*plan),
                Ok(Command::Sample(sampling)) => {
                    self.gathering.iter_mut().for_each(|gathering| gathering.sample(sampling));
                }
                Ok(Command::GiveBack(cache)) => {
                    if let Some(gathering) = &mut self.gathering {
                        gathering.give_back(cache);
                    }
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.gathering = None;
                    break;
                }
            }
        }
        self.figures.refused(core::mem::take(&mut self.refused));
        self.warn();
        let Some(gathering) = &mut self.gathering else { return };
        while let Some(gathered) = gathering.poll(now_ns) {
            // Where the other thread is so far behind, an interval more or less is nothing to it.
            if self.queues.gathered.try_send(gathered).is_err() {
                self.lost += 1;
            }
        }
    }

    fn gather(&mut self, plan: Plan) {
        match Gathering::new(plan, self.settings) {
            Ok(gathering) => self.gathering = Some(gathering),
            Err(error) => {
                self.gathering = None;
                tracing::warn!(stream = self.name, why = told(&error), "the stream is not compared by this plan");
            }
        }
    }

    /// Tells once that packets are put together on this machine.
    fn warn(&mut self) {
        if self.oversized && !self.told {
            self.told = true;
            tracing::warn!(
                stream = self.name,
                interface = self.interface,
                "segments are put together before they are seen here (TSO, GSO, GRO), so that both ends see different packets: no delay or \
                 loss is told. Switch that off at both ends: ethtool -K {} tso off gso off gro off",
                self.interface
            );
        }
    }
}
