//! The end that answers: the agent where packets arrive.

use std::collections::{BTreeMap, VecDeque};

use synopses::finecomb::{Comb, Deviation, Interval, Solver};
use synopses::rda::{Cache, MOST_CELLS, Sizing, XorCounters, sizing};

use crate::clock::{ClockOffset, ClockState};
use crate::gathering::{Gathered, Packets};
use crate::message::{Answer, Ask, Question, Refusal, Say, Seen};
use crate::plan::{Plan, Synopsis, soon_ns};
use crate::report::{Flags, Report};
use crate::sender::give_back;
use crate::{Counts, Effect};

/// Intervals whose packets are kept for questions: as many as the sender has under way.
const MOST_HELD: usize = crate::round::MOST_ROUNDS;
/// Intervals for which a report is awaited, or of which the answer is still known.
const MOST_AWAITED: usize = 32;
/// A run does not begin later than this.
const MOST_AHEAD_NS: u64 = 4_000_000_000_000;
/// Bytes of a cell as it travels.
const CELL_BYTES: usize = 20;

/// How the receiver's end of a stream runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverSettings {
    /// Nanoseconds of an interval: the sender's have to be the same.
    pub length_ns: u64,
    /// Which synopsis: the sender's has to be the same, with at most as many buckets.
    pub synopsis: Synopsis,
    /// So long after its end an interval is kept, and a report awaited for twice as long.
    pub deadline_ns: u64,
    /// The ends' clocks are promised to differ by no more.
    pub clock_bound_ns: u64,
    /// RDA: how the number of cells follows that of the differences.
    pub sizing: Sizing,
}

impl ReceiverSettings {
    /// With times that suit intervals of `length_ns`: a deadline of four, and clocks within a millisecond.
    #[must_use]
    pub fn new(length_ns: u64, synopsis: Synopsis) -> Self {
        Self { length_ns, synopsis, deadline_ns: 4 * length_ns, clock_bound_ns: 1_000_000, sizing: Sizing::default() }
    }
}

#[derive(Debug)]
struct Held {
    seen: Seen,
    packets: Packets,
    /// Ids that may be asked for: as many as there were cells.
    most_missing: usize,
}

/// An interval of which the report is awaited, or known.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    received: u64,
    expires_ns: u64,
    /// By FineComb and LDA, this end's own.
    report: Option<Report>,
}

/// The receiver's end of one stream.
#[derive(Debug)]
pub struct Receiver {
    settings: ReceiverSettings,
    run: Option<(u64, Plan)>,
    held: BTreeMap<u64, Held>,
    awaited: BTreeMap<u64, Awaited>,
    /// The next interval that comes.
    next: u64,
    /// The interval after the last one whose report was given out.
    reported: u64,
    /// What the kernel says of this end's clock.
    kept: ClockState,
    effects: VecDeque<Effect>,
    counts: Counts,
}

impl Receiver {
    /// An end without a run.
    #[must_use]
    pub const fn new(settings: ReceiverSettings) -> Self {
        Self {
            settings,
            run: None,
            held: BTreeMap::new(),
            awaited: BTreeMap::new(),
            next: 0,
            reported: 0,
            kept: ClockState::Unknown,
            effects: VecDeque::new(),
            counts: Counts { stale: 0, broken: 0, unanswered: 0 },
        }
    }

    /// What the kernel says of this end's clock, from now on.
    pub const fn clock_is(&mut self, kept: ClockState) {
        self.kept = kept;
    }

    /// What to answer at `now_ns`. The same question has the same answer, as long as its interval is kept.
    pub fn answer(&mut self, question: &Question, now_ns: u64) -> Answer {
        let say = self.say(question, now_ns);
        match &say {
            Say::Refused(Refusal::Epoch(_)) | Say::Gone => self.counts.stale += 1,
            Say::Refused(Refusal::Broken(_)) => self.counts.broken += 1,
            _ => {}
        }
        let Question { epoch, interval, .. } = *question;
        Answer { epoch, interval, clock_ns: now_ns, kept: self.kept, say }
    }

    fn say(&mut self, question: &Question, now_ns: u64) -> Say {
        if let Ask::Start(plan) = &question.ask {
            return self.start(question.epoch, plan, now_ns);
        }
        let known = self.run.as_ref().map_or(0, |(epoch, _)| *epoch);
        if question.epoch != known {
            return Say::Refused(Refusal::Epoch(known));
        }
        let Some((_, plan)) = &self.run else { return Say::Refused(Refusal::Epoch(0)) };
        let interval = question.interval;
        if !matches!(question.ask, Ask::Finish { .. }) && interval >= self.next {
            // Nothing is known of what is far ahead, and no time is named for it.
            let ends_ns = plan.begin_of(interval.saturating_add(1));
            return Say::Later(ends_ns.saturating_sub(now_ns).clamp(soon_ns(plan.length_ns), plan.length_ns));
        }
        match &question.ask {
            Ask::Request { seed, least_cells, counters, .. } => self.cells(interval, *seed, *least_cells, counters),
            Ask::Missing(ids) => self.times(interval, ids),
            Ask::Buckets { seen, comb, clock } => self.buckets(question, seen, comb, *clock),
            Ask::Finish { reports, sampling } => {
                if let Some(held) = self.held.remove(&interval) {
                    self.forget(held);
                }
                for report in reports {
                    self.told(report);
                }
                self.effects.extend(sampling.map(Effect::Sample));
                Say::Finished
            }
            Ask::Start(_) => Say::Refused(Refusal::Broken("a start".to_owned())),
        }
    }

    fn start(&mut self, epoch: u64, plan: &Plan, now_ns: u64) -> Say {
        if let Some((known, running)) = &self.run {
            if *known == epoch && running == plan {
                return Say::Started(plan.rotates);
            }
            if *known >= epoch {
                return Say::Refused(Refusal::Epoch(*known));
            }
        }
        if let Err(refusal) = self.fits(plan) {
            return Say::Refused(refusal);
        }
        if plan.begins_ns <= now_ns {
            return Say::Refused(Refusal::TooLate);
        }
        if plan.begins_ns - now_ns > MOST_AHEAD_NS {
            let why =
                format!("the run would begin in {} s: the clocks differ", (plan.begins_ns - now_ns) / 1_000_000_000);
            return Say::Refused(Refusal::Parameters { why, most_buckets: None });
        }
        self.end_run();
        self.effects.push_back(Effect::Gather(plan.clone()));
        self.run = Some((epoch, plan.clone()));
        (self.next, self.reported) = (0, 0);
        Say::Started(plan.rotates)
    }

    /// Whether this end does the same.
    fn fits(&self, plan: &Plan) -> Result<(), Refusal> {
        let refuse = |why: String, most_buckets| Err(Refusal::Parameters { why, most_buckets });
        if plan.length_ns != self.settings.length_ns {
            let why = format!("intervals of {} ns, here they are of {} ns", plan.length_ns, self.settings.length_ns);
            return refuse(why, None);
        }
        match (&plan.synopsis, &self.settings.synopsis) {
            (Synopsis::Rda { .. }, Synopsis::Rda { .. }) => Ok(()),
            (
                Synopsis::Comb { digests, buckets, banks },
                Synopsis::Comb { digests: ours, buckets: most, banks: our_banks },
            ) if digests == ours => {
                let size = |banks: &[synopses::finecomb::Bank]| -> usize { banks.iter().map(|bank| bank.stash).sum() };
                if banks.len() > our_banks.len() || size(banks) > size(our_banks) {
                    return refuse(format!("{} banks with more room than there is here", banks.len()), None);
                }
                if buckets > most {
                    return refuse(format!("{buckets} buckets, there is room for {most} here"), Some(*most as u64));
                }
                Ok(())
            }
            (theirs, ours) => refuse(format!("{}, here it is {}", theirs.name(), ours.name()), None),
        }
    }

    fn cells(&mut self, interval: u64, seed: u64, least_cells: u64, counters: &[u8]) -> Say {
        let broken = |why: &str| Say::Refused(Refusal::Broken(why.to_owned()));
        let Some((_, plan)) = &self.run else { return Say::Gone };
        let Synopsis::Rda { banks, .. } = plan.synopsis else { return broken("cells, of a stream that has none") };
        let Some(held) = self.held.get_mut(&interval) else { return Say::Gone };
        let Packets::Each(cache) = &held.packets else { return broken("cells, of a stream that has none") };
        let Some(cache) = cache else { return Say::All(held.seen, Vec::new()) };
        let Ok(theirs) = XorCounters::decode(counters, seed) else { return broken("counters that are none") };
        let differences = theirs.estimate(&XorCounters::of(cache, seed)).unwrap_or(f64::INFINITY);
        let most = self.settings.sizing.most.min(MOST_CELLS);
        let asked = usize::try_from(least_cells).unwrap_or(usize::MAX).min(most);
        let cells = self.settings.sizing.cells(banks, differences).max(asked).min(most);
        if sizing::direct_bytes(cache.iter().len()) <= CELL_BYTES * banks * cells {
            return Say::All(held.seen, cache.iter().collect());
        }
        match cache.aggregate(&plan.cells(cells, seed)) {
            Ok(rda) => {
                held.most_missing = banks * cells;
                Say::Cells(held.seen, rda.encode())
            }
            Err(error) => broken(&error.to_string()),
        }
    }

    fn times(&self, interval: u64, ids: &[u64]) -> Say {
        let Some(held) = self.held.get(&interval) else { return Say::Gone };
        let Packets::Each(Some(cache)) = &held.packets else {
            return Say::Refused(Refusal::Broken("times, of an interval that has none".to_owned()));
        };
        if ids.len() > held.most_missing {
            let why = format!("{} packets are missed, of {} cells", ids.len(), held.most_missing);
            return Say::Refused(Refusal::Broken(why));
        }
        Say::Times(ids.iter().map(|id| (*id, cache.time_of(*id))).collect())
    }

    fn buckets(&mut self, question: &Question, seen: &Seen, bytes: &[u8], clock: Option<ClockOffset>) -> Say {
        let interval = question.interval;
        if let Some(report) = self.awaited.get(&interval).and_then(|awaited| awaited.report) {
            return Say::Report(report);
        }
        let Some((_, plan)) = &self.run else { return Say::Gone };
        let Some(held) = self.held.get(&interval) else { return Say::Gone };
        let Packets::Received(ours) = &held.packets else {
            return Say::Refused(Refusal::Broken("buckets, of a stream that has none".to_owned()));
        };
        let comb = match Comb::decode(bytes, &plan.buckets()) {
            Ok(comb) if comb.packets() == seen.packets => comb,
            Ok(_) => return Say::Refused(Refusal::Broken("buckets of other packets than were seen".to_owned())),
            Err(error) => return Say::Refused(Refusal::Broken(error.to_string())),
        };
        let Some(mut report) = of_buckets(interval, plan, ours, &comb) else {
            return Say::Refused(Refusal::Broken("buckets of other settings".to_owned()));
        };
        report.flags = report.flags | Flags::of(seen, &held.seen);
        report.clock = clock;
        report.judge_clock(self.settings.clock_bound_ns, self.kept.and(question.kept));
        if let Some(awaited) = self.awaited.get_mut(&interval) {
            awaited.report = Some(report);
        }
        self.give_out(report);
        Say::Report(report)
    }

    /// A report of the sender. One of an interval that this end knows nothing of, or knows otherwise, is none.
    fn told(&mut self, report: &Report) {
        let known = self.awaited.get(&report.interval).map(|awaited| awaited.received);
        match known {
            Some(received) if report.received.is_none_or(|told| told == received) => self.give_out(*report),
            Some(_) => self.counts.broken += 1,
            None => self.counts.stale += 1,
        }
    }

    /// Each interval's report once, and none of an earlier one.
    fn give_out(&mut self, report: Report) {
        if report.interval < self.reported {
            return;
        }
        self.reported = report.interval + 1;
        if self.awaited.get(&report.interval).is_some_and(|awaited| awaited.report.is_none()) {
            self.awaited.remove(&report.interval);
        }
        self.effects.push_back(Effect::Report(report));
    }

    /// The packets of an interval that is over.
    pub fn gathered(&mut self, gathered: Gathered, now_ns: u64) {
        let Gathered { interval, seen, packets, .. } = gathered;
        if self.run.is_none() || interval < self.next {
            if let Packets::Each(cache) = packets {
                give_back(cache, &mut self.effects);
            }
            return;
        }
        let ends_ns = self.run.as_ref().map_or(now_ns, |(_, plan)| plan.begin_of(interval + 1));
        self.next = interval + 1;
        while self.held.len() >= MOST_HELD
            && let Some((_, oldest)) = self.held.pop_first()
        {
            self.forget(oldest);
        }
        let expires_ns = ends_ns.max(now_ns).saturating_add(2 * self.settings.deadline_ns);
        self.awaited.insert(interval, Awaited { received: seen.packets, expires_ns, report: None });
        while self.awaited.len() > MOST_AWAITED {
            self.awaited.pop_first();
        }
        self.held.insert(interval, Held { seen, packets, most_missing: 0 });
    }

    fn forget(&mut self, held: Held) {
        if let Packets::Each(cache) = held.packets {
            give_back(cache, &mut self.effects);
        }
    }

    fn end_run(&mut self) {
        while let Some((_, held)) = self.held.pop_first() {
            self.forget(held);
        }
        while let Some((interval, awaited)) = self.awaited.pop_first() {
            self.give_up(interval, awaited);
        }
    }

    fn give_up(&mut self, interval: u64, awaited: Awaited) {
        if awaited.report.is_none() && interval >= self.reported {
            let received = Some(awaited.received);
            self.give_out(Report { received, ..Report::unknown(interval, Flags::NO_PEER_DATA) });
        }
    }

    /// Forgets what the sender has not asked for in time. To be called a few times in each interval.
    pub fn poll(&mut self, now_ns: u64) {
        let over = |ends_ns: u64| now_ns > ends_ns.saturating_add(self.settings.deadline_ns);
        let plan = self.run.as_ref().map(|(_, plan)| plan);
        let is_over = |interval: u64| plan.is_none_or(|plan| over(plan.begin_of(interval.saturating_add(1))));
        while let Some((&interval, _)) = self.held.first_key_value()
            && is_over(interval)
        {
            let Some(held) = self.held.remove(&interval) else { break };
            if let Packets::Each(cache) = held.packets {
                give_back(cache, &mut self.effects);
            }
        }
        while let Some((&interval, awaited)) = self.awaited.first_key_value()
            && now_ns > awaited.expires_ns
        {
            let awaited = *awaited;
            self.awaited.remove(&interval);
            self.give_up(interval, awaited);
        }
    }

    /// What follows, in this order.
    pub fn take_effects(&mut self) -> impl Iterator<Item = Effect> {
        core::mem::take(&mut self.effects).into_iter()
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Memory that is with intervals which are kept.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |held: &Held| match &held.packets {
            Packets::Each(Some(cache)) => Cache::memory_bytes(cache),
            Packets::Each(None) => 0,
            Packets::Sent(comb) => comb.memory_bytes(),
            Packets::Received(ended) => ended.comb().memory_bytes(),
        };
        self.held.values().map(of).sum()
    }
}

/// What two ends' buckets say.
fn of_buckets(interval: u64, plan: &Plan, ours: &Interval, theirs: &Comb) -> Option<Report> {
    let found = ours.estimate(theirs, plan.rule(), Solver::Elimination, Deviation::PerBucket).ok()?;
    let (sent, received) = (theirs.packets(), ours.comb().packets());
    let unchecked = matches!(plan.synopsis, Synopsis::Comb { digests: false, .. })
        && (found.health.useless > 0 || sent != received);
    let flags = Flags::NONE
        .with(Flags::CLAMPED, found.deviation_clamped)
        .with(Flags::THIN, 4 * found.packets < sent)
        .with(Flags::UNCHECKED, unchecked);
    Some(Report {
        mean_ns: found.mean_ns,
        deviation_ns: found.deviation_ns,
        loss: found.loss,
        sent: Some(sent),
        received: Some(received),
        packets: found.packets.min(sent),
        lost: sent.saturating_sub(received),
        odd: received.saturating_sub(sent),
        ..Report::unknown(interval, flags)
    })
}
