//! One end of a one-way stream: collects its packets. Collected intervals go to the thread that talks to the other
//! agent (`peers`); commands of that thread are carried out between blocks of packets.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use one_way::collector::CollectorSettings;
use one_way::{Collector, End, IntervalPackets, Plan, Sampling};
use packets::{Filter, Packet, ParseError, View, identity};
use synopses::rda::Cache;
use tokio::sync::mpsc::Sender;
use wire::time::{Nanos, UnixNanos};

use super::frame_info::FrameInfo;
use super::one_way_metrics::OneWayMetrics;
use crate::config::StreamConfig;
use crate::error::chain;

/// Grace period after an interval's end, in which its packets are still accepted: the ring's deadline, and the same
/// again by which the deadline may be late.
pub(super) const GRACE: Nanos = Nanos::from_millis(60);

/// A command of the thread that talks to the other agent.
#[derive(Debug)]
pub(super) enum Command {
    /// Collect packets by this plan.
    Collect(Box<Plan>),
    /// Sample another share of flows.
    Sample(Sampling),
    /// Memory of a finished interval, for reuse.
    GiveBack(Cache),
}

/// The two queues to and from that thread.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) intervals: Sender<IntervalPackets>,
    pub(super) commands: Receiver<Command>,
}

/// One end of a one-way stream.
#[derive(Debug)]
pub(super) struct OneWayStream {
    name: String,
    interface: String,
    filter: Filter,
    view: View,
    settings: CollectorSettings,
    collector: Option<Collector>,
    queues: Queues,
    metrics: Arc<OneWayMetrics>,
    /// Whether merged frames have been logged.
    warned: bool,
    /// Whether there were merged frames.
    oversized: bool,
    refused: u64,
    /// Intervals that were dropped because the queue was full.
    lost_intervals: u64,
}

impl OneWayStream {
    /// A stream without a plan: it collects nothing yet.
    pub(super) fn new(config: &StreamConfig, queues: Queues, metrics: Arc<OneWayMetrics>) -> Self {
        let sends = config.one_way.as_ref().is_some_and(|one_way| one_way.peer.is_some());
        let end = if sends { End::Sender } else { End::Receiver };
        Self {
            name: config.name.clone(),
            interface: config.interface.clone(),
            // The filter was checked with the configuration.
            filter: config.filter.parse().unwrap_or_default(),
            view: if config.inner { View::Inner } else { View::Outer },
            settings: CollectorSettings { end, packets: config.packets(), grace: GRACE },
            collector: None,
            queues,
            metrics,
            warned: false,
            oversized: false,
            refused: 0,
            lost_intervals: 0,
        }
    }

    /// Whether the stream is about the outer or the inner packets of tunnels.
    pub(super) const fn view(&self) -> View {
        self.view
    }

    /// Takes a packet of the interface, parsed for this stream's view. It may belong to another stream.
    #[inline]
    pub(super) fn insert(&mut self, packet: &Result<Packet<'_>, ParseError>, info: FrameInfo) {
        let packet = match packet {
            Ok(packet) => packet,
            Err(reason) => {
                self.refused += u64::from(!reason.is_harmless());
                return;
            }
        };
        let Some(collector) = self.collector.as_mut().filter(|_| self.filter.matches(packet)) else { return };
        let at = UnixNanos(packet.time_ns);
        if info.merged {
            collector.oversized(at);
            self.oversized = true;
        }
        collector.insert(at, |key| identity::digest(packet, key), |key| identity::flow(packet, key));
    }

    /// Adds frames of the interface that the kernel had dropped by `noticed`, since the last call. They may be of this
    /// stream.
    pub(super) fn add_dropped(&mut self, frames: u64, noticed: UnixNanos) {
        self.metrics.dropped(frames);
        if let Some(collector) = &mut self.collector {
            collector.missed(frames, noticed);
        }
    }

    /// The interface could not be read for some time until `now`, so packets may be missing.
    pub(super) fn unread_until(&mut self, now: UnixNanos) {
        self.collector.iter_mut().for_each(|collector| collector.missed(1, now));
    }

    /// Carries out commands of the other thread, and passes it the intervals that are over at `now`. Called between
    /// blocks of packets.
    pub(super) fn poll(&mut self, now: UnixNanos) {
        loop {
            match self.queues.commands.try_recv() {
                Ok(Command::Collect(plan)) => self.start_collector(*plan),
                Ok(Command::Sample(sampling)) => {
                    self.collector.iter_mut().for_each(|collector| collector.sample(sampling));
                }
                Ok(Command::GiveBack(cache)) => {
                    if let Some(collector) = &mut self.collector {
                        collector.give_back(cache);
                    }
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.collector = None;
                    break;
                }
            }
        }
        self.metrics.refused(core::mem::take(&mut self.refused));
        self.warn();
        let Some(collector) = &mut self.collector else { return };
        while let Some(interval) = collector.poll(now) {
            // If the other thread is this far behind, one interval more does not help it.
            if self.queues.intervals.try_send(interval).is_err() {
                self.lost_intervals += 1;
            }
        }
    }

    fn start_collector(&mut self, plan: Plan) {
        match Collector::new(plan, self.settings) {
            Ok(collector) => self.collector = Some(collector),
            Err(error) => {
                self.collector = None;
                tracing::warn!(
                    stream = self.name,
                    why = chain(&error),
                    "the plan cannot be carried out: the stream is not measured"
                );
            }
        }
    }

    /// Logs once that segments are merged on this machine.
    fn warn(&mut self) {
        if self.oversized && !self.warned {
            self.warned = true;
            tracing::warn!(
                stream = self.name,
                interface = self.interface,
                "segments are merged before they are captured (TSO, GSO, GRO), so both ends see different packets: delay and loss are \
                 missing. Switch that off at both ends: ethtool -K {} tso off gso off gro off",
                self.interface
            );
        }
    }
}
