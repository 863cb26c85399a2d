//! One interval under way at the sender: what there is to ask, and what follows from an answer.

use std::collections::BTreeSet;

use synopses::finecomb::Comb;
use synopses::rda::{Cache, MOST_CELLS, Rda, Reconciliation, XorCounters};

use crate::clock::{ClockOffset, ClockState};
use crate::found::Found;
use crate::message::{Ask, Say, Seen};
use crate::plan::{Plan, Synopsis};
use crate::report::{Flags, Report};

/// Intervals that are compared at a time.
pub(crate) const MOST_ROUNDS: usize = 4;
/// Attempts with cells: the second with twice as many.
const MOST_ATTEMPTS: u32 = 2;

/// An interval under way.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) interval: u64,
    pub(crate) deadline_ns: u64,
    /// When to ask next.
    pub(crate) due_ns: u64,
    pub(crate) pause_ns: u64,
    pub(crate) ours: Seen,
    /// In the last interval of a key: the ids of all packets, each with that of the next key.
    pub(crate) renamed: Vec<(u64, u64)>,
    pub(crate) theirs: Option<Seen>,
    /// The closest look at both clocks.
    pub(crate) clock: Option<ClockOffset>,
    pub(crate) step: Step,
}

/// What there is to ask.
#[derive(Debug)]
pub(crate) enum Step {
    /// For cells, or all packets.
    Cells { cache: Option<Cache>, attempt: u32, seed: u64, least_cells: u64 },
    /// When packets arrived.
    Times(Box<Reconciliation>),
    /// What comes out with these.
    Buckets(Comb),
    /// To forget.
    Finish,
    /// Nothing.
    Over,
}

/// What followed from an answer.
#[derive(Debug)]
pub(crate) enum Turn {
    /// There is something else to ask, at once.
    Next,
    /// The interval was compared.
    Found(Box<Found>, Option<Cache>),
    /// The receiver has compared it.
    Report(Report),
    /// It will not be.
    Failed(Flags),
    /// To be asked again later.
    Later(u64),
    /// All is done.
    Done,
    /// The answer cannot be.
    Broken,
}

impl Round {
    /// The question that is next; `clock` is what is known of both clocks.
    pub(crate) fn ask(&self, plan: &Plan, clock: Option<ClockOffset>) -> Option<Ask> {
        match &self.step {
            Step::Cells { cache, seed, least_cells, .. } => {
                let counters =
                    cache.as_ref().map_or_else(|| XorCounters::new(*seed), |cache| XorCounters::of(cache, *seed));
                let (seed, least_cells) = (*seed, *least_cells);
                Some(Ask::Request { seen: self.ours, seed, least_cells, counters: counters.encode() })
            }
            Step::Times(exchange) => Some(Ask::Missing(exchange.missing())),
            Step::Buckets(comb) => {
                debug_assert!(matches!(plan.synopsis, Synopsis::Comb { .. }), "buckets are of such a plan");
                Some(Ask::Buckets { seen: self.ours, comb: comb.encode(), clock })
            }
            Step::Finish | Step::Over => None,
        }
    }

    /// What follows from an answer to it. What cannot be leaves the round as it was.
    pub(crate) fn answered(&mut self, say: Say, plan: &Plan, random: &mut dyn FnMut() -> u64) -> Turn {
        match (core::mem::replace(&mut self.step, Step::Over), say) {
            (step @ (Step::Cells { .. } | Step::Times(_) | Step::Buckets(_)), Say::Later(later_ns)) => {
                self.step = step;
                Turn::Later(later_ns)
            }
            (Step::Cells { cache, .. }, Say::Gone) => self.without(cache, Flags::NO_PEER_DATA),
            (Step::Buckets(_), Say::Gone) => Turn::Failed(Flags::NO_PEER_DATA),
            // What is known is all that will be.
            (Step::Times(exchange), Say::Gone) => self.found(*exchange),
            (Step::Cells { cache, attempt, seed, least_cells }, Say::Cells(seen, bytes)) => {
                self.cells((cache, attempt, seed, least_cells), seen, &bytes, plan, random)
            }
            (Step::Cells { cache, attempt, seed, least_cells }, Say::All(seen, packets)) => {
                if !self.is_whole(&packets, &seen, plan) {
                    self.step = Step::Cells { cache, attempt, seed, least_cells };
                    return Turn::Broken;
                }
                self.theirs = Some(seen);
                let found = Found::by_all(self.interval, cache.as_ref(), &packets).renamed(&mut self.renamed);
                Turn::Found(Box::new(found), cache)
            }
            (Step::Times(exchange), Say::Times(times)) => self.times(exchange, &times, plan),
            (Step::Buckets(comb), Say::Report(report)) => {
                if report.interval == self.interval && report.sent == Some(self.ours.packets) {
                    return Turn::Report(report);
                }
                self.step = Step::Buckets(comb);
                Turn::Broken
            }
            (Step::Finish, Say::Finished) => Turn::Done,
            (step, _) => {
                self.step = step;
                Turn::Broken
            }
        }
    }

    fn without(&mut self, cache: Option<Cache>, flags: Flags) -> Turn {
        // So that its memory is given back.
        self.step = Step::Cells { cache, attempt: 0, seed: 0, least_cells: 0 };
        Turn::Failed(flags)
    }

    /// Whether these can be all packets of the receiver in this interval: as many as it says, each once, within it.
    fn is_whole(&self, packets: &[(u64, u64)], seen: &Seen, plan: &Plan) -> bool {
        let ids: BTreeSet<u64> = packets.iter().map(|(id, _)| *id).collect();
        packets.len() as u64 == seen.packets
            && ids.len() == packets.len()
            && packets.iter().all(|(_, time)| plan.interval_of(*time) == Some(self.interval))
    }

    fn cells(
        &mut self,
        (cache, attempt, seed, least_cells): (Option<Cache>, u32, u64, u64),
        seen: Seen,
        bytes: &[u8],
        plan: &Plan,
        random: &mut dyn FnMut() -> u64,
    ) -> Turn {
        let settings = plan.cells(1, seed);
        let decoded = match Rda::decode(bytes, &settings, MOST_CELLS) {
            Ok(decoded) if decoded.packets() == seen.packets => Ok(decoded),
            Err(synopses::encoding::DecodeError::Parameters) => Err(Turn::Failed(Flags::PARAMETER_MISMATCH)),
            Ok(_) | Err(_) => Err(Turn::Broken),
        };
        let theirs = match decoded {
            Ok(theirs) => theirs,
            Err(turn) => {
                self.step = Step::Cells { cache, attempt, seed, least_cells };
                return turn;
            }
        };
        let cells = theirs.settings().cells as u64;
        // One that is empty has the ids of the plan.
        let Some(ours) = cache.or_else(|| Cache::new(1, settings.ids).ok()) else { return Turn::Broken };
        let Ok(exchange) = Reconciliation::new(ours, theirs) else { return Turn::Failed(Flags::PARAMETER_MISMATCH) };
        self.theirs = Some(seen);
        if exchange.difference().residual > 0 && attempt + 1 < MOST_ATTEMPTS {
            let cache = Some(exchange.into_cache());
            self.step = Step::Cells { cache, attempt: attempt + 1, seed: random(), least_cells: 2 * cells };
            return Turn::Next;
        }
        self.asks(exchange)
    }

    /// Asks for times that are missing, if any are.
    fn asks(&mut self, exchange: Reconciliation) -> Turn {
        if exchange.missing().is_empty() {
            return self.found(exchange);
        }
        self.step = Step::Times(Box::new(exchange));
        Turn::Next
    }

    fn times(&mut self, mut exchange: Box<Reconciliation>, times: &[(u64, Option<u64>)], plan: &Plan) -> Turn {
        let asked: BTreeSet<u64> = exchange.missing().into_iter().collect();
        let within = |(id, time): &(u64, Option<u64>)| {
            asked.contains(id) && time.is_none_or(|time| plan.interval_of(time) == Some(self.interval))
        };
        // One that says less than was asked for would be asked for ever.
        if times.len() != asked.len() || !times.iter().all(within) || exchange.answer(times).is_err() {
            self.step = Step::Times(exchange);
            return Turn::Broken;
        }
        self.asks(*exchange)
    }

    fn found(&mut self, exchange: Reconciliation) -> Turn {
        let found = Found::by_cells(self.interval, &exchange).renamed(&mut self.renamed);
        Turn::Found(Box::new(found), Some(exchange.into_cache()))
    }

    /// The deadline has passed: what is known has to do.
    pub(crate) fn expire(&mut self) -> Turn {
        match core::mem::replace(&mut self.step, Step::Over) {
            Step::Times(exchange) => self.found(*exchange),
            Step::Cells { cache, .. } => self.without(cache, Flags::NO_PEER_DATA),
            Step::Buckets(_) => Turn::Failed(Flags::NO_PEER_DATA),
            Step::Finish | Step::Over => Turn::Done,
        }
    }

    /// Memory that is not needed any more.
    pub(crate) fn into_cache(self) -> Option<Cache> {
        match self.step {
            Step::Cells { cache, .. } => cache,
            Step::Times(exchange) => Some(exchange.into_cache()),
            Step::Buckets(_) | Step::Finish | Step::Over => None,
        }
    }

    /// What stands beside the figures: both ends' flags, and the clocks, of which both kernels say `kept`.
    pub(crate) fn judge(&self, report: &mut Report, bound_ns: u64, kept: ClockState) {
        report.clock = self.clock;
        if let Some(theirs) = &self.theirs {
            report.flags = report.flags | Flags::of(&self.ours, theirs);
        }
        report.judge_clock(bound_ns, kept);
    }
}
