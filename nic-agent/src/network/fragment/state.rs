//! What this end knows of its fragment and of the other ends: epochs that have ended, tables, and counts that others
//! told. The ring adds an epoch when it ends; the thread that talks to other agents asks and answers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use packets::identity::{FLOW_BYTES, FlowKey};
use synopses::digest::{Digest, DigestKey};
use synopses::disaggregated::{
    Counting, EndCount, EndReport, EpochTable, Estimate, Fragment, NoEstimate, PathOwner, PathTaker, PlanSettings,
    combine,
};
use wire::proto::fragments as proto;

use super::heaviest::{HeavyFlow, MAX_FLOWS};
use crate::config::FragmentConfig;
use crate::error::chain;

/// Epochs that have ended and are kept: the other end may ask for the one before the last.
const KEPT: usize = 2;

/// An epoch of this fragment that has ended.
#[derive(Debug)]
pub(super) struct EndedEpoch {
    pub(super) fragment: Fragment,
    pub(super) passed: u64,
    /// Merged frames among what passed.
    pub(super) oversized: u64,
    /// Whether all packets of the epoch were looked at.
    pub(super) whole: bool,
    /// What was counted of each path.
    pub(super) countings: Vec<Counting>,
    pub(super) heaviest: Vec<HeavyFlow>,
}

/// What became of an epoch.
#[derive(Clone, Debug)]
pub(crate) struct EpochResult {
    pub(crate) epoch: u32,
    pub(crate) passed: u64,
    pub(crate) counted: u64,
    /// Merged frames (TSO, GSO, GRO) that passed here, each of which counts as one packet.
    pub(crate) oversized: u64,
    pub(crate) occupancy: f64,
    pub(crate) whole: bool,
    /// Number of paths, and of those whose ends had agreed on a table.
    pub(crate) paths: usize,
    pub(crate) agreed: usize,
    /// The heaviest flows with their estimates, the heaviest first.
    pub(crate) heaviest: Vec<(FlowKey, Estimate)>,
    /// Flows that neither end is known to have counted in the whole epoch.
    pub(crate) unknown: usize,
}

/// This end's part in the agreement about a path.
#[derive(Debug)]
enum Side {
    Owner(PathOwner),
    Taker(PathTaker),
}

/// A path to another node.
#[derive(Debug)]
struct PathState {
    id: u32,
    host: String,
    side: Side,
    /// What the other end said of the last epoch: its flows' counts are in the order in which they were asked for.
    report: Option<(proto::EndReport, Vec<FlowKey>)>,
}

impl PathState {
    fn table(&self, epoch: u32) -> Option<&EpochTable> {
        match &self.side {
            Side::Owner(owner) => owner.table(epoch),
            Side::Taker(taker) => taker.table(epoch),
        }
    }

    /// What the other end counted of a flow in `epoch`.
    fn count(&self, epoch: u32, flow: &FlowKey) -> Option<EndCount> {
        let (report, asked) = self.report.as_ref()?;
        if !(report.whole && report.epoch == epoch) {
            return None;
        }
        let count = report.counts.get(asked.iter().position(|asked| asked == flow)?)?;
        Some(EndCount { counting: report.run.map_or(Counting::All, Counting::Chosen), count: *count })
    }
}

/// The state that ring and peers share.
#[derive(Debug)]
pub(crate) struct FragmentState {
    id: u32,
    epoch_ms: u32,
    /// Key of the digests by which this fragment counts. Nobody else has it.
    pub(super) key: DigestKey,
    paths: Vec<PathState>,
    pub(super) ended: VecDeque<EndedEpoch>,
}

impl FragmentState {
    /// A state without any epoch, of an agent that starts in epoch `now`. `random` draws this run's number.
    pub(crate) fn new(config: &FragmentConfig, key: DigestKey, run: u64, now: u32) -> Self {
        let plan = PlanSettings { counters: config.counters.get(), error: config.error_packets.get().into() };
        let paths = config.peers.iter().map(|peer| PathState {
            id: peer.id,
            host: peer.host().to_owned(),
            side: if config.id < peer.id {
                Side::Owner(PathOwner::new(config.id, peer.id, plan, run, now))
            } else {
                Side::Taker(PathTaker::new(config.id, peer.id))
            },
            report: None,
        });
        let epoch_ms = config.epoch_ms.get();
        Self { id: config.id, epoch_ms, key, paths: paths.collect(), ended: VecDeque::with_capacity(KEPT) }
    }

    /// The tables by which flows of each path are counted in `epoch`; `None`: all are.
    pub(super) fn tables(&self, epoch: u32) -> Vec<Option<EpochTable>> {
        let tables = self.paths.iter().map(|path| match &path.side {
            Side::Owner(owner) => owner.agreed(epoch),
            Side::Taker(taker) => taker.table(epoch),
        });
        tables.map(Option::<&EpochTable>::cloned).collect()
    }

    /// This end's place on a path: the owner is the first.
    pub(super) fn position(&self, path: usize) -> usize {
        usize::from(self.paths.get(path).is_some_and(|path| matches!(path.side, Side::Taker(_))))
    }

    /// Takes an epoch that has ended.
    pub(super) fn end(&mut self, ended: EndedEpoch) {
        while self.ended.len() >= KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }

    fn ended(&self, epoch: u32) -> Option<&EndedEpoch> {
        self.ended.iter().find(|ended| ended.fragment.epoch() == epoch)
    }

    /// The question about `epoch` for the other end of a path.
    pub(crate) fn question(&self, path: usize, epoch: u32) -> proto::FragmentRequest {
        let heaviest = self.ended(epoch).map_or_else(Default::default, |ended| ended.heaviest.clone());
        let flows = heaviest.iter().filter(|flow| flow.peer == Some(path)).map(|flow| flow.key.bytes().to_vec());
        self.request(path, epoch, flows.collect())
    }

    fn request(&self, path: usize, epoch: u32, flows: Vec<Vec<u8>>) -> proto::FragmentRequest {
        let to = self.paths.get(path).map_or(0, |path| path.id);
        let (from, epoch_ms) = (self.id, self.epoch_ms);
        proto::FragmentRequest { from, to, epoch, epoch_ms, flows, table: Vec::new(), run: 0 }
    }

    /// Takes the reply to a question. Returns whether it was known.
    pub(crate) fn take_reply(
        &mut self,
        path: usize,
        asked: &proto::FragmentRequest,
        reply: proto::FragmentReply,
    ) -> bool {
        let Some(path) = self.paths.get_mut(path) else { return false };
        let Some(report) = reply.report.filter(|report| report.epoch == asked.epoch) else { return false };
        let flows = asked.flows.iter().filter_map(|flow| flow_key(flow)).collect();
        path.report = Some((report, flows));
        true
    }

    /// The message with the table for the epoch after `now`, if this end makes it and both reports are there.
    pub(crate) fn table_to_send(&mut self, path: usize, now: u32, seed: u64) -> Option<proto::FragmentRequest> {
        let epoch = now.checked_sub(1)?;
        let own = EndReport { epoch, passed: self.ended(epoch)?.passed };
        let mut request = self.request(path, epoch, Vec::new());
        let state = self.paths.get_mut(path)?;
        let (report, _) = state.report.as_ref()?;
        let other = EndReport { epoch: report.epoch, passed: report.passed };
        let Side::Owner(owner) = &mut state.side else { return None };
        let table = owner.plan(now, own, other, seed)?;
        (request.table, request.run) = (table.encode(), table.run);
        Some(request)
    }

    /// The other end has the table for the epoch after `made`, which it said in epoch `now`.
    pub(crate) fn acknowledged(&mut self, path: usize, now: u32, made: u32) {
        if let Some(Side::Owner(owner)) = self.paths.get_mut(path).map(|path| &mut path.side) {
            owner.acknowledged(now, made.saturating_add(1));
        }
    }

    /// The host of the agent that owns the fragment `id`, if it is at the other end of a path.
    pub(crate) fn host(&self, id: u32) -> Option<&str> {
        self.paths.iter().find(|path| path.id == id).map(|path| &*path.host)
    }

    /// The reply to another end in epoch `now`.
    ///
    /// # Errors
    ///
    /// Why it is no question for this end.
    pub(crate) fn reply(&mut self, request: &proto::FragmentRequest, now: u32) -> Result<proto::FragmentReply, String> {
        let place = self.paths.iter().position(|path| path.id == request.from);
        let place = place.ok_or_else(|| format!("no fragment {} is in network.fragment.peers", request.from))?;
        if request.to != self.id {
            return Err(format!("this is fragment {}, not {}", self.id, request.to));
        }
        if request.epoch_ms != self.epoch_ms {
            return Err(format!("epochs have {} ms here, and {} ms there", self.epoch_ms, request.epoch_ms));
        }
        if request.flows.len() > MAX_FLOWS || request.flows.iter().any(|flow| flow.len() != FLOW_BYTES) {
            return Err(format!(
                "{} flows, at most {MAX_FLOWS} of {FLOW_BYTES} bytes are possible",
                request.flows.len()
            ));
        }
        let report = self.ended(request.epoch).map(|ended| self.report(ended, place, &request.flows));
        let taken = if request.table.is_empty() { Ok(false) } else { self.take_table(place, request, now) };
        let (taken, refused) = taken.map_or_else(|why| (false, why), |taken| (taken, String::new()));
        Ok(proto::FragmentReply { report, taken, refused })
    }

    fn report(&self, ended: &EndedEpoch, path: usize, flows: &[Vec<u8>]) -> proto::EndReport {
        let counts = flows.iter().filter_map(|flow| flow_key(flow));
        let run = match ended.countings.get(path) {
            Some(Counting::Chosen(run)) => Some(*run),
            Some(Counting::All) | None => None,
        };
        proto::EndReport {
            epoch: ended.fragment.epoch(),
            passed: ended.passed,
            counted: ended.fragment.load(),
            counters: ended.fragment.settings().counters,
            whole: ended.whole,
            run,
            counts: counts.map(|flow| ended.fragment.estimate(flow.digest(&self.key))).collect(),
        }
    }

    fn take_table(&mut self, path: usize, request: &proto::FragmentRequest, now: u32) -> Result<bool, String> {
        let Some(Side::Taker(taker)) = self.paths.get_mut(path).map(|path| &mut path.side) else {
            return Err(format!("fragment {} makes the tables of this path", self.id));
        };
        let table = EpochTable::decode(request.run, &request.table).map_err(|error| chain(&error))?;
        taker.take(now, table).map(|()| true).map_err(|error| chain(&error))
    }

    /// What became of `epoch`, with the counts of other ends that replied.
    pub(crate) fn result(&self, epoch: u32) -> Option<EpochResult> {
        let ended = self.ended(epoch)?;
        let estimates = ended.heaviest.iter().map(|flow| (flow.key, self.estimate(ended, flow)));
        let mut heaviest: Vec<_> = estimates.filter_map(|(key, found)| Some((key, found.ok()?))).collect();
        heaviest.sort_by_key(|(key, estimate)| (core::cmp::Reverse(estimate.count), *key));
        let agreed = ended.countings.iter().filter(|counting| matches!(counting, Counting::Chosen(_))).count();
        Some(EpochResult {
            epoch,
            passed: ended.passed,
            counted: ended.fragment.load(),
            oversized: ended.oversized,
            occupancy: ended.fragment.occupancy(),
            whole: ended.whole,
            paths: ended.countings.len(),
            agreed,
            unknown: ended.heaviest.len() - heaviest.len(),
            heaviest,
        })
    }

    fn estimate(&self, ended: &EndedEpoch, flow: &HeavyFlow) -> Result<Estimate, NoEstimate> {
        let count = ended.fragment.estimate(flow.key.digest(&self.key));
        let here = |counting| ended.whole.then_some(EndCount { counting, count });
        let Some((place, path)) = flow.peer.and_then(|place| Some((place, self.paths.get(place)?))) else {
            return combine(None, Digest(0), [here(Counting::All), None]);
        };
        let epoch = ended.fragment.epoch();
        let table = path.table(epoch);
        let there = path.count(epoch, &flow.key);
        let here = here(ended.countings.get(place).copied().unwrap_or(Counting::All));
        let ends = if self.position(place) == 0 { [here, there] } else { [there, here] };
        let digest = table.map_or(Digest(0), |table| flow.key.digest(&choice_key(table)));
        combine(table, digest, ends)
    }
}

/// The state that a ring and the thread with other agents share. A thread that panicked left it whole.
pub(crate) fn locked(state: &Mutex<FragmentState>) -> MutexGuard<'_, FragmentState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of the digests by which flows choose their ends: both ends have the table.
pub(super) fn choice_key(table: &EpochTable) -> DigestKey {
    DigestKey::new(table.path.seed().into())
}

fn flow_key(bytes: &[u8]) -> Option<FlowKey> {
    bytes.try_into().ok().map(FlowKey::from_bytes)
}
