//! One interval in progress at the sender: its next request, and the outcome of a response.

use std::collections::BTreeSet;

use synopses::finecomb::FineComb;
use synopses::rda::{Cache, MAX_CELLS, Rda, Reconciliation, XorCounters};
use wire::time::{Nanos, UnixNanos};

use crate::clock::{ClockOffset, ClockState};
use crate::comparison::Comparison;
use crate::end_counters::EndCounters;
use crate::message::{RequestBody, ResponseBody};
use crate::plan::{Plan, Synopsis};
use crate::report::{Flags, Report};

/// Maximum number of intervals in progress at a time.
pub(crate) const MAX_ROUNDS: usize = 4;
/// Maximum number of attempts with cells. Each attempt has twice as many cells as the one before.
const MAX_ATTEMPTS: u32 = 2;

/// An interval in progress.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) interval: u64,
    pub(crate) deadline: UnixNanos,
    /// When to send the next request.
    pub(crate) due: UnixNanos,
    /// Failed attempts in a row with the same request.
    pub(crate) failures: u32,
    pub(crate) ours: EndCounters,
    /// In the last interval of a key: pairs of each packet's id and its id under the next key.
    pub(crate) rekeyed: Vec<(u64, u64)>,
    pub(crate) theirs: Option<EndCounters>,
    /// The measured clock offset with the smallest uncertainty.
    pub(crate) clock: Option<ClockOffset>,
    pub(crate) step: Step,
}

/// The next request of a round.
#[derive(Debug)]
pub(crate) enum Step {
    /// Request cells, or all packets.
    Cells { cache: Option<Cache>, attempt: u32, seed: u64, least_cells: u64 },
    /// Request arrival times.
    Times(Box<Reconciliation>),
    /// Send these buckets, and request the report.
    Buckets(FineComb),
    /// Tell the receiver to drop the interval.
    Finish,
    /// No more requests.
    Done,
}

/// The outcome of a response, or of the deadline.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Send another request at once.
    Next,
    /// The interval is compared. Its cache is free.
    Compared(Box<Comparison>, Option<Cache>),
    /// The receiver has computed the report.
    Report(Report),
    /// The interval cannot be compared.
    Failed(Flags),
    /// Repeat the request after this many nanoseconds.
    RetryAfter(Nanos),
    /// The round is finished.
    Done,
    /// The response is invalid.
    Invalid,
}

impl Round {
    /// The next request. `clock` is the measured offset of the clocks.
    pub(crate) fn request(&self, plan: &Plan, clock: Option<ClockOffset>) -> Option<RequestBody> {
        match &self.step {
            Step::Cells { cache, seed, least_cells, .. } => {
                let xor_counters =
                    cache.as_ref().map_or_else(|| XorCounters::new(*seed), |cache| XorCounters::of(cache, *seed));
                let (seed, least_cells) = (*seed, *least_cells);
                Some(RequestBody::Cells { counters: self.ours, seed, least_cells, xor_counters: xor_counters.encode() })
            }
            Step::Times(reconciliation) => Some(RequestBody::Times(reconciliation.missing())),
            Step::Buckets(finecomb) => {
                debug_assert!(matches!(plan.synopsis, Synopsis::FineComb { .. }), "only FineComb and LDA have buckets");
                Some(RequestBody::Buckets { counters: self.ours, finecomb: finecomb.encode(), clock })
            }
            Step::Finish | Step::Done => None,
        }
    }

    /// The outcome of a response. An invalid response leaves the round as it was.
    pub(crate) fn receive(&mut self, body: ResponseBody, plan: &Plan, random: &mut dyn FnMut() -> u64) -> Outcome {
        match (core::mem::replace(&mut self.step, Step::Done), body) {
            (
                step @ (Step::Cells { .. } | Step::Times(_) | Step::Buckets(_)),
                ResponseBody::RetryAfter(retry_after),
            ) => {
                self.step = step;
                Outcome::RetryAfter(retry_after)
            }
            (Step::Cells { cache, .. }, ResponseBody::Expired) => self.fail(cache, Flags::NO_PEER_DATA),
            (Step::Buckets(_), ResponseBody::Expired) => Outcome::Failed(Flags::NO_PEER_DATA),
            // No more times will come.
            (Step::Times(reconciliation), ResponseBody::Expired) => self.compare(*reconciliation),
            (Step::Cells { cache, attempt, seed, least_cells }, ResponseBody::Cells(counters, bytes)) => {
                self.cells((cache, attempt, seed, least_cells), counters, &bytes, plan, random)
            }
            (Step::Cells { cache, attempt, seed, least_cells }, ResponseBody::Packets(counters, packets)) => {
                if !self.is_complete(&packets, &counters, plan) {
                    self.step = Step::Cells { cache, attempt, seed, least_cells };
                    return Outcome::Invalid;
                }
                self.theirs = Some(counters);
                let comparison =
                    Comparison::from_packets(self.interval, cache.as_ref(), &packets).rekey(&mut self.rekeyed);
                Outcome::Compared(Box::new(comparison), cache)
            }
            (Step::Times(reconciliation), ResponseBody::Times(times)) => self.times(reconciliation, &times, plan),
            (Step::Buckets(finecomb), ResponseBody::Report(report)) => {
                if report.interval == self.interval && report.sent == Some(self.ours.packets) {
                    return Outcome::Report(report);
                }
                self.step = Step::Buckets(finecomb);
                Outcome::Invalid
            }
            (Step::Finish, ResponseBody::Finished) => Outcome::Done,
            (step, _) => {
                self.step = step;
                Outcome::Invalid
            }
        }
    }

    fn fail(&mut self, cache: Option<Cache>, flags: Flags) -> Outcome {
        // Keeps the cache, so that its memory is reused.
        self.step = Step::Cells { cache, attempt: 0, seed: 0, least_cells: 0 };
        Outcome::Failed(flags)
    }

    /// Whether these can be all of the receiver's packets of this interval: the number matches its counters, ids are
    /// unique and times lie within the interval.
    fn is_complete(&self, packets: &[(u64, u64)], counters: &EndCounters, plan: &Plan) -> bool {
        let ids: BTreeSet<u64> = packets.iter().map(|(id, _)| *id).collect();
        packets.len() as u64 == counters.packets
            && ids.len() == packets.len()
            && packets.iter().all(|(_, time)| plan.interval_of(UnixNanos(*time)) == Some(self.interval))
    }

    fn cells(
        &mut self,
        (cache, attempt, seed, least_cells): (Option<Cache>, u32, u64, u64),
        counters: EndCounters,
        bytes: &[u8],
        plan: &Plan,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        let settings = plan.cells(1, seed);
        let decoded = match Rda::decode(bytes, &settings, MAX_CELLS) {
            Ok(decoded) if decoded.packets() == counters.packets => Ok(decoded),
            Err(synopses::encoding::DecodeError::Parameters) => Err(Outcome::Failed(Flags::PARAMETER_MISMATCH)),
            Ok(_) | Err(_) => Err(Outcome::Invalid),
        };
        let theirs = match decoded {
            Ok(theirs) => theirs,
            Err(outcome) => {
                self.step = Step::Cells { cache, attempt, seed, least_cells };
                return outcome;
            }
        };
        let cells = theirs.settings().cells as u64;
        // An empty cache has the plan's kind of ids.
        let Some(ours) = cache.or_else(|| Cache::new(1, settings.ids).ok()) else { return Outcome::Invalid };
        let Ok(reconciliation) = Reconciliation::new(ours, theirs) else {
            return Outcome::Failed(Flags::PARAMETER_MISMATCH);
        };
        self.theirs = Some(counters);
        if reconciliation.difference().residual > 0 && attempt + 1 < MAX_ATTEMPTS {
            let cache = Some(reconciliation.into_cache());
            self.step = Step::Cells { cache, attempt: attempt + 1, seed: random(), least_cells: 2 * cells };
            return Outcome::Next;
        }
        self.request_times(reconciliation)
    }

    /// Requests missing arrival times, if there are any.
    fn request_times(&mut self, reconciliation: Reconciliation) -> Outcome {
        if reconciliation.missing().is_empty() {
            return self.compare(reconciliation);
        }
        self.step = Step::Times(Box::new(reconciliation));
        Outcome::Next
    }

    fn times(&mut self, mut reconciliation: Box<Reconciliation>, times: &[(u64, Option<u64>)], plan: &Plan) -> Outcome {
        let requested: BTreeSet<u64> = reconciliation.missing().into_iter().collect();
        let within = |(id, time): &(u64, Option<u64>)| {
            requested.contains(id) && time.is_none_or(|time| plan.interval_of(UnixNanos(time)) == Some(self.interval))
        };
        // An incomplete response would be requested for ever.
        if times.len() != requested.len() || !times.iter().all(within) || reconciliation.add_times(times).is_err() {
            self.step = Step::Times(reconciliation);
            return Outcome::Invalid;
        }
        self.request_times(*reconciliation)
    }

    fn compare(&mut self, reconciliation: Reconciliation) -> Outcome {
        let comparison = Comparison::from_cells(self.interval, &reconciliation).rekey(&mut self.rekeyed);
        Outcome::Compared(Box::new(comparison), Some(reconciliation.into_cache()))
    }

    /// The outcome at the deadline, from the responses so far.
    pub(crate) fn expire(&mut self) -> Outcome {
        match core::mem::replace(&mut self.step, Step::Done) {
            Step::Times(reconciliation) => self.compare(*reconciliation),
            Step::Cells { cache, .. } => self.fail(cache, Flags::NO_PEER_DATA),
            Step::Buckets(_) => Outcome::Failed(Flags::NO_PEER_DATA),
            Step::Finish | Step::Done => Outcome::Done,
        }
    }

    /// The cache, whose memory is no longer needed.
    pub(crate) fn into_cache(self) -> Option<Cache> {
        match self.step {
            Step::Cells { cache, .. } => cache,
            Step::Times(reconciliation) => Some(reconciliation.into_cache()),
            Step::Buckets(_) | Step::Finish | Step::Done => None,
        }
    }

    /// Adds flags to a report: those of both ends' counters and those of the clocks, whose joint state is
    /// `clock_state`.
    pub(crate) fn flag(&self, report: &mut Report, bound: Nanos, clock_state: ClockState) {
        report.clock = self.clock;
        if let Some(theirs) = &self.theirs {
            report.flags = report.flags | Flags::of(&self.ours, theirs);
        }
        report.flag_clock(bound, clock_state);
    }
}
