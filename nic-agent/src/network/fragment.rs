//! This node's fragment: counts the packets of flows in epochs, by the tables on which both ends of a path agreed. It
//! is fed by the ring of its interface. What it shares with the thread that talks to other agents is a `FragmentState`,
//! which it looks into at the ends of epochs only.

mod heaviest;
mod metrics;
mod state;

use std::sync::{Arc, Mutex};

use packets::identity::FlowKey;
use packets::{Filter, Packet, ParseError, View};
use synopses::digest::DigestKey;
use synopses::disaggregated::{Counting, EpochTable, Fragment, Settings, SettingsError};
use tokio::sync::watch;
use wire::time::{Nanos, UnixNanos};

use heaviest::{Heaviest, HeavyFlow};
pub(super) use metrics::FragmentMetrics;
use state::{EndedEpoch, choice_key};
pub(super) use state::{EpochResult, FragmentState, locked};

use super::frame_info::FrameInfo;
use super::interval::{WallInterval, interval_number};
use crate::config::{FragmentConfig, FragmentPeer};

/// Time after an epoch's end in which its packets may still be read; as for one-way streams.
const GRACE: Nanos = Nanos::from_millis(60);

/// A path to another node.
#[derive(Debug)]
struct ActivePath {
    /// Packets from and to that node.
    addresses: Vec<Filter>,
    /// This end's place on the path.
    position: usize,
    /// The epoch's table, and the key of its choices; `None`: all flows are counted.
    table: Option<(EpochTable, DigestKey)>,
}

/// The fragment as its ring sees it.
#[derive(Debug)]
pub(super) struct FragmentStream {
    filter: Filter,
    view: View,
    key: DigestKey,
    paths: Vec<ActivePath>,
    /// Length of an epoch.
    length: Nanos,
    epoch: WallInterval,
    fragment: Fragment,
    heaviest: Heaviest,
    passed: u64,
    /// Merged frames of this epoch: each counts as one packet where several passed.
    oversized: u64,
    /// Whether all packets of the epoch were looked at.
    whole: bool,
    /// By when it was last noticed that packets had not been looked at.
    missed_until: UnixNanos,
    /// An epoch that has ended in this block of packets.
    ended: Option<EndedEpoch>,
    state: Arc<Mutex<FragmentState>>,
    /// Tells the other thread which epoch has ended.
    ended_epoch: watch::Sender<u32>,
}

impl FragmentStream {
    /// An empty fragment, which `state` knows by the same key.
    ///
    /// # Errors
    ///
    /// [`SettingsError`], which does not occur with a checked configuration.
    pub(super) fn new(
        config: &FragmentConfig,
        key: DigestKey,
        seed: u64,
        state: Arc<Mutex<FragmentState>>,
        ended_epoch: watch::Sender<u32>,
    ) -> Result<Self, SettingsError> {
        let settings = Settings { id: config.id, counters: config.counters.get(), rows: config.rows.get(), seed };
        let length = Nanos::from_millis(config.epoch_ms.get().into());
        let path = |(place, filters): (usize, Vec<Filter>)| {
            let position = locked(&state).position(place);
            ActivePath { addresses: filters, position, table: None }
        };
        Ok(Self {
            // The filter was checked with the configuration.
            filter: config.filter.parse().unwrap_or_default(),
            view: if config.inner { View::Inner } else { View::Outer },
            key,
            paths: config.peers.iter().map(FragmentPeer::filters).enumerate().map(path).collect(),
            length,
            epoch: WallInterval::new(length),
            fragment: Fragment::new(settings)?,
            heaviest: Heaviest::new(),
            passed: 0,
            oversized: 0,
            whole: false,
            missed_until: UnixNanos(0),
            ended: None,
            state,
            ended_epoch,
        })
    }

    /// Whether outer or inner packets of tunnels are counted.
    pub(super) const fn view(&self) -> View {
        self.view
    }

    /// Takes a packet of the interface, parsed for this view. Counts it if its flow chose this end.
    #[inline]
    pub(super) fn insert(&mut self, packet: &Result<Packet<'_>, ParseError>, info: FrameInfo) {
        let Ok(packet) = packet else { return };
        if !self.filter.matches(packet) {
            return;
        }
        let at = UnixNanos(packet.time_ns);
        // A packet that is a little late counts for the epoch that goes on.
        if self.epoch.is_due(at) {
            self.begin(at);
        }
        self.passed += 1;
        self.oversized += u64::from(info.merged);
        let key = FlowKey::of(packet);
        let peer = self.paths.iter().position(|path| path.addresses.iter().any(|filter| filter.matches(packet)));
        if peer.and_then(|peer| self.paths.get(peer)).is_none_or(|path| path.chooses(&key)) {
            let count = self.fragment.insert(key.digest(&self.key), 1);
            self.heaviest.see(HeavyFlow { key, peer, count });
        }
    }

    /// Begins the epoch that `at` is in.
    fn begin(&mut self, at: UnixNanos) {
        // In seconds, 32 bits last until 2106.
        let epoch = interval_number(at, self.length) as u32;
        if self.epoch.was_set_back(at) {
            // What was missed is of a time that is still to come.
            self.missed_until = self.missed_until.min(at);
        }
        let before = self.epoch.enter(at);
        // Some of what was missed since the epoch began may have been of it.
        let is_whole = before == Some(self.epoch.begins()) && self.missed_until < self.epoch.begins();
        let mut fragment = self.fragment.clone();
        fragment.rotate(epoch);
        let ended = EndedEpoch {
            fragment: core::mem::replace(&mut self.fragment, fragment),
            passed: core::mem::take(&mut self.passed),
            oversized: core::mem::take(&mut self.oversized),
            whole: core::mem::replace(&mut self.whole, is_whole),
            countings: self.paths.iter().map(ActivePath::counting).collect(),
            heaviest: core::mem::replace(&mut self.heaviest, Heaviest::new()).into_flows(),
        };
        if before.is_some() {
            self.publish();
            self.ended = Some(ended);
        }
        let tables = locked(&self.state).tables(epoch);
        for (path, table) in self.paths.iter_mut().zip(tables) {
            path.table = table.map(|table| {
                let key = choice_key(&table);
                (table, key)
            });
        }
    }

    /// Whether an epoch has ended, when the interface has been read until `read`.
    pub(super) fn is_due(&self, read: UnixNanos) -> bool {
        self.ended.is_some() || read >= self.epoch.ends().plus(GRACE) || self.epoch.was_set_back(read)
    }

    /// Adds frames of the interface that the kernel had dropped by `noticed`, since the last call. They may be of this
    /// epoch, of one that has ended, or of any until then.
    pub(super) fn add_dropped(&mut self, frames: u64, noticed: UnixNanos) {
        if frames > 0 {
            self.whole = false;
            self.ended.iter_mut().for_each(|ended| ended.whole = false);
            self.missed_until = self.missed_until.max(noticed);
        }
    }

    /// The interface could not be read for some time until `now`, so packets may be missing.
    pub(super) fn unread_until(&mut self, now: UnixNanos) {
        self.add_dropped(1, now);
    }

    /// Ends an epoch if it is over, and passes on what has ended. Called between blocks of packets.
    pub(super) fn poll(&mut self, read: UnixNanos) {
        if self.ended.is_none() && self.is_due(read) {
            self.begin(read);
        }
        self.publish();
    }

    fn publish(&mut self) {
        let Some(ended) = self.ended.take() else { return };
        let epoch = ended.fragment.epoch();
        locked(&self.state).end(ended);
        // Nobody listens when the agent ends.
        self.ended_epoch.send_replace(epoch);
    }
}

impl ActivePath {
    fn chooses(&self, flow: &FlowKey) -> bool {
        let chooses =
            |(table, key): &(EpochTable, DigestKey)| table.path.select(flow.digest(key)).contains(self.position);
        self.table.as_ref().is_none_or(chooses)
    }

    fn counting(&self) -> Counting {
        self.table.as_ref().map_or(Counting::All, |(table, _)| Counting::Chosen(table.run))
    }
}

#[cfg(test)]
mod tests;
