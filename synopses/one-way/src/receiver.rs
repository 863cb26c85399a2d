//! The responding end: the agent where packets arrive.

use core::num::NonZeroU64;
use std::collections::{BTreeMap, VecDeque};

use synopses::finecomb::{Deviation, FineComb, Interval, Solver};
use synopses::rda::{Cache, MAX_CELLS, Sizing, XorCounters, sizing};
use wire::time::{Nanos, UnixNanos};

use crate::clock::{ClockOffset, ClockState};
use crate::collector::{IntervalPackets, Packets};
use crate::end_counters::EndCounters;
use crate::message::{Refusal, Request, RequestBody, Response, ResponseBody};
use crate::plan::{Plan, Synopsis, soon};
use crate::report::{Flags, Report};
use crate::sender::give_back;
use crate::{Counts, Effect};

/// Maximum number of stored intervals: as many as the sender has in progress.
const MAX_STORED: usize = crate::round::MAX_ROUNDS;
/// Maximum number of intervals whose report is pending or still stored for retries.
const MAX_PENDING: usize = 32;
/// Maximum time from a start request to the start of the run.
const MAX_AHEAD: Nanos = Nanos::from_secs(4000);
/// Bytes of an encoded cell.
const CELL_BYTES: usize = 20;

/// Settings of the receiver's end of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverSettings {
    /// Length of an interval, the same as at the sender.
    pub length: Nanos,
    /// The synopsis, the same as at the sender. Its buckets are the maximum for the sender's.
    pub synopsis: Synopsis,
    /// Time after its end for which an interval is stored. The report may take twice as long.
    pub deadline: Nanos,
    /// Bound on the difference of the two clocks. Reports beyond it are flagged.
    pub clock_bound: Nanos,
    /// RDA only: how many cells to send for an estimated number of differences.
    pub sizing: Sizing,
    /// If a switch measures: the fingerprint of its program's constants, which the sender's switch has to have, too.
    pub fingerprint: Option<NonZeroU64>,
}

impl ReceiverSettings {
    /// Defaults for intervals of `length`: a deadline of four intervals, and clocks within a millisecond.
    #[must_use]
    pub fn new(length: Nanos, synopsis: Synopsis) -> Self {
        let (deadline, clock_bound) = (Nanos(length.0.saturating_mul(4)), Nanos::from_millis(1));
        Self { length, synopsis, deadline, clock_bound, sizing: Sizing::default(), fingerprint: None }
    }
}

#[derive(Debug)]
struct StoredInterval {
    counters: EndCounters,
    packets: Packets,
    /// Maximum number of ids in a request for times: the number of cells that were sent.
    most_missing: usize,
}

/// An interval whose report is pending, or stored for retries.
#[derive(Clone, Copy, Debug)]
struct PendingReport {
    received: u64,
    expires: UnixNanos,
    /// FineComb and LDA: the report that this end computed.
    report: Option<Report>,
}

/// The receiver's end of one stream.
#[derive(Debug)]
pub struct Receiver {
    settings: ReceiverSettings,
    run: Option<(u64, Plan)>,
    stored: BTreeMap<u64, StoredInterval>,
    pending: BTreeMap<u64, PendingReport>,
    /// The next interval that will end.
    next: u64,
    /// The interval after the last one with a published report.
    reported: u64,
    /// State of this end's clock.
    clock_state: ClockState,
    effects: VecDeque<Effect>,
    counts: Counts,
}

impl Receiver {
    /// A receiver that waits for a start request.
    #[must_use]
    pub const fn new(settings: ReceiverSettings) -> Self {
        Self {
            settings,
            run: None,
            stored: BTreeMap::new(),
            pending: BTreeMap::new(),
            next: 0,
            reported: 0,
            clock_state: ClockState::Unknown,
            effects: VecDeque::new(),
            counts: Counts { stale: 0, invalid: 0, timeouts: 0 },
        }
    }

    /// Sets the state of this end's clock.
    pub const fn set_clock_state(&mut self, state: ClockState) {
        self.clock_state = state;
    }

    /// The response to a request at `now`. Repeated requests get the same response while their interval is stored.
    pub fn respond(&mut self, request: &Request, now: UnixNanos) -> Response {
        let body = self.body(request, now);
        match &body {
            ResponseBody::Refused(Refusal::Epoch(_)) | ResponseBody::Expired => self.counts.stale += 1,
            ResponseBody::Refused(Refusal::Invalid(_)) => self.counts.invalid += 1,
            _ => {}
        }
        let Request { epoch, interval, .. } = *request;
        Response { epoch, interval, clock: now, clock_state: self.clock_state, body }
    }

    fn body(&mut self, request: &Request, now: UnixNanos) -> ResponseBody {
        if let RequestBody::Start(plan) = &request.body {
            return self.start(request.epoch, plan, now);
        }
        let current = self.run.as_ref().map_or(0, |(epoch, _)| *epoch);
        if request.epoch != current {
            return ResponseBody::Refused(Refusal::Epoch(current));
        }
        let Some((_, plan)) = &self.run else { return ResponseBody::Refused(Refusal::Epoch(0)) };
        let interval = request.interval;
        if !matches!(request.body, RequestBody::Finish { .. }) && interval >= self.next {
            // The interval has not ended here. For one far ahead the time is capped at one interval.
            let ends = plan.begin_of(interval.saturating_add(1));
            return ResponseBody::RetryAfter(ends.since(now).clamp(soon(plan.length), plan.length));
        }
        match &request.body {
            RequestBody::Cells { seed, least_cells, xor_counters, .. } => {
                self.cells(interval, *seed, *least_cells, xor_counters)
            }
            RequestBody::Times(ids) => self.times(interval, ids),
            RequestBody::Buckets { counters, finecomb, clock } => self.buckets(request, counters, finecomb, *clock),
            RequestBody::Finish { reports, sampling } => {
                if let Some(stored) = self.stored.remove(&interval) {
                    self.release(stored);
                }
                for report in reports {
                    self.accept(report);
                }
                self.effects.extend(sampling.map(Effect::Sample));
                ResponseBody::Finished
            }
            RequestBody::Start(_) => ResponseBody::Refused(Refusal::Invalid("an unexpected start".to_owned())),
        }
    }

    fn start(&mut self, epoch: u64, plan: &Plan, now: UnixNanos) -> ResponseBody {
        if let Some((current, running)) = &self.run {
            if *current == epoch && running == plan {
                return ResponseBody::Started(plan.intervals_per_key);
            }
            if *current >= epoch {
                return ResponseBody::Refused(Refusal::Epoch(*current));
            }
        }
        if let Err(refusal) = self.check(plan) {
            return ResponseBody::Refused(refusal);
        }
        let begins = plan.begins;
        if begins <= now {
            return ResponseBody::Refused(Refusal::TooLate);
        }
        let ahead = begins.since(now);
        if ahead > MAX_AHEAD {
            let why = format!("the run would begin in {} s: the clocks differ", ahead.0 / 1_000_000_000);
            return ResponseBody::Refused(Refusal::Parameters { why, most_buckets: None });
        }
        self.end_run();
        self.effects.push_back(Effect::Collect(plan.clone()));
        self.run = Some((epoch, plan.clone()));
        (self.next, self.reported) = (0, 0);
        ResponseBody::Started(plan.intervals_per_key)
    }

    /// Checks a plan against this end's settings.
    fn check(&self, plan: &Plan) -> Result<(), Refusal> {
        let refuse = |why: String, most_buckets| Err(Refusal::Parameters { why, most_buckets });
        if plan.length != self.settings.length {
            let (asked, own) = (plan.length.0, self.settings.length.0);
            let why = format!("intervals of {asked} ns, the receiver has {own} ns");
            return refuse(why, None);
        }
        if plan.fingerprint != self.settings.fingerprint {
            let (asked, own) = (measured_by(plan.fingerprint), measured_by(self.settings.fingerprint));
            return refuse(format!("packets are measured by {asked}, at the receiver by {own}"), None);
        }
        match (&plan.synopsis, &self.settings.synopsis) {
            (Synopsis::Rda { .. }, Synopsis::Rda { .. }) => Ok(()),
            (
                Synopsis::FineComb { digests, buckets, banks },
                Synopsis::FineComb { digests: ours, buckets: most, banks: our_banks },
            ) if digests == ours => {
                let size = |banks: &[synopses::finecomb::Bank]| -> usize { banks.iter().map(|bank| bank.stash).sum() };
                if banks.len() > our_banks.len() || size(banks) > size(our_banks) {
                    return refuse(format!("{} banks with more stash than the receiver has", banks.len()), None);
                }
                if buckets > most {
                    return refuse(format!("{buckets} buckets, the receiver has {most}"), Some(*most as u64));
                }
                Ok(())
            }
            (theirs, ours) => refuse(format!("synopsis {}, the receiver has {}", theirs.name(), ours.name()), None),
        }
    }

    fn cells(&mut self, interval: u64, seed: u64, least_cells: u64, xor_counters: &[u8]) -> ResponseBody {
        let invalid = |why: &str| ResponseBody::Refused(Refusal::Invalid(why.to_owned()));
        let Some((_, plan)) = &self.run else { return ResponseBody::Expired };
        let Synopsis::Rda { banks, .. } = plan.synopsis else { return invalid("cells of a stream without cells") };
        let Some(stored) = self.stored.get_mut(&interval) else { return ResponseBody::Expired };
        let Packets::Each(cache) = &stored.packets else { return invalid("cells of a stream without cells") };
        let Some(cache) = cache else { return ResponseBody::Packets(stored.counters, Vec::new()) };
        let Ok(theirs) = XorCounters::decode(xor_counters, seed) else {
            return invalid("XOR counters that cannot be decoded");
        };
        let differences = theirs.estimate(&XorCounters::of(cache, seed)).unwrap_or(f64::INFINITY);
        let most = self.settings.sizing.most.min(MAX_CELLS);
        let requested = usize::try_from(least_cells).unwrap_or(usize::MAX).min(most);
        let cells = self.settings.sizing.cells(banks, differences).max(requested).min(most);
        if sizing::direct_bytes(cache.iter().len()) <= CELL_BYTES * banks * cells {
            return ResponseBody::Packets(stored.counters, cache.iter().collect());
        }
        match cache.aggregate(&plan.cells(cells, seed)) {
            Ok(rda) => {
                stored.most_missing = banks * cells;
                ResponseBody::Cells(stored.counters, rda.encode())
            }
            Err(error) => invalid(&error.to_string()),
        }
    }

    fn times(&self, interval: u64, ids: &[u64]) -> ResponseBody {
        let Some(stored) = self.stored.get(&interval) else { return ResponseBody::Expired };
        let Packets::Each(Some(cache)) = &stored.packets else {
            return ResponseBody::Refused(Refusal::Invalid("times of an interval without stored packets".to_owned()));
        };
        if ids.len() > stored.most_missing {
            let why = format!("times of {} packets, at most {} are possible", ids.len(), stored.most_missing);
            return ResponseBody::Refused(Refusal::Invalid(why));
        }
        ResponseBody::Times(ids.iter().map(|id| (*id, cache.time_of(*id))).collect())
    }

    fn buckets(
        &mut self,
        request: &Request,
        counters: &EndCounters,
        bytes: &[u8],
        clock: Option<ClockOffset>,
    ) -> ResponseBody {
        let interval = request.interval;
        if let Some(report) = self.pending.get(&interval).and_then(|pending| pending.report) {
            return ResponseBody::Report(report);
        }
        let Some((_, plan)) = &self.run else { return ResponseBody::Expired };
        let Some(stored) = self.stored.get(&interval) else { return ResponseBody::Expired };
        let Packets::Received(ours) = &stored.packets else {
            return ResponseBody::Refused(Refusal::Invalid("buckets of a stream without buckets".to_owned()));
        };
        let finecomb = match FineComb::decode(bytes, &plan.buckets()) {
            Ok(finecomb) if finecomb.packets() == counters.packets => finecomb,
            Ok(_) => {
                return ResponseBody::Refused(Refusal::Invalid(
                    "buckets with another number of packets than the counters".to_owned(),
                ));
            }
            Err(error) => return ResponseBody::Refused(Refusal::Invalid(error.to_string())),
        };
        let Some(mut report) = bucket_report(interval, plan, ours, &finecomb) else {
            return ResponseBody::Refused(Refusal::Invalid("buckets with other settings".to_owned()));
        };
        report.flags = report.flags | Flags::of(counters, &stored.counters);
        report.clock = clock;
        report.flag_clock(self.settings.clock_bound, self.clock_state.and(request.clock_state));
        if let Some(pending) = self.pending.get_mut(&interval) {
            pending.report = Some(report);
        }
        self.publish(report);
        ResponseBody::Report(report)
    }

    /// Publishes a report of the sender, unless its interval is unknown here or its count of received packets is wrong.
    fn accept(&mut self, report: &Report) {
        let received = self.pending.get(&report.interval).map(|pending| pending.received);
        match received {
            Some(received) if report.received.is_none_or(|reported| reported == received) => self.publish(*report),
            Some(_) => self.counts.invalid += 1,
            None => self.counts.stale += 1,
        }
    }

    /// Publishes each interval's report once, in the order of intervals.
    fn publish(&mut self, report: Report) {
        if report.interval < self.reported {
            return;
        }
        self.reported = report.interval + 1;
        if self.pending.get(&report.interval).is_some_and(|pending| pending.report.is_none()) {
            self.pending.remove(&report.interval);
        }
        self.effects.push_back(Effect::Report(report));
    }

    /// Adds the packets of an interval that has ended. One that has not, by the plan, is of the run before: taken, it
    /// would cost all intervals before it.
    pub fn add_interval(&mut self, interval: IntervalPackets, now: UnixNanos) {
        let IntervalPackets { interval, counters, packets, .. } = interval;
        let ends = |plan: &Plan| plan.begin_of(interval.saturating_add(1));
        if interval < self.next || self.run.as_ref().is_none_or(|(_, plan)| ends(plan) > now) {
            if let Packets::Each(cache) = packets {
                give_back(cache, &mut self.effects);
            }
            return;
        }
        if matches!(packets, Packets::Unread) {
            // The sender is told that the interval has expired.
            self.next = interval + 1;
            return self.publish(Report::unknown(interval, Flags::MISSED));
        }
        self.next = interval + 1;
        while self.stored.len() >= MAX_STORED
            && let Some((_, oldest)) = self.stored.pop_first()
        {
            self.release(oldest);
        }
        let expires = now.plus(self.settings.deadline).plus(self.settings.deadline);
        self.pending.insert(interval, PendingReport { received: counters.packets, expires, report: None });
        while self.pending.len() > MAX_PENDING {
            self.pending.pop_first();
        }
        self.stored.insert(interval, StoredInterval { counters, packets, most_missing: 0 });
    }

    fn release(&mut self, interval: StoredInterval) {
        if let Packets::Each(cache) = interval.packets {
            give_back(cache, &mut self.effects);
        }
    }

    fn end_run(&mut self) {
        while let Some((_, stored)) = self.stored.pop_first() {
            self.release(stored);
        }
        while let Some((interval, pending)) = self.pending.pop_first() {
            self.expire(interval, pending);
        }
    }

    fn expire(&mut self, interval: u64, pending: PendingReport) {
        if pending.report.is_none() && interval >= self.reported {
            let received = Some(pending.received);
            self.publish(Report { received, ..Report::unknown(interval, Flags::NO_PEER_DATA) });
        }
    }

    /// Drops intervals past their deadline and publishes empty reports for them. Call it a few times per interval.
    pub fn poll(&mut self, now: UnixNanos) {
        let past_deadline = |ends: UnixNanos| now > ends.plus(self.settings.deadline);
        let plan = self.run.as_ref().map(|(_, plan)| plan);
        let has_expired =
            |interval: u64| plan.is_none_or(|plan| past_deadline(plan.begin_of(interval.saturating_add(1))));
        while let Some((&interval, _)) = self.stored.first_key_value()
            && has_expired(interval)
        {
            let Some(stored) = self.stored.remove(&interval) else { break };
            if let Packets::Each(cache) = stored.packets {
                give_back(cache, &mut self.effects);
            }
        }
        while let Some((&interval, pending)) = self.pending.first_key_value()
            && now > pending.expires
        {
            let pending = *pending;
            self.pending.remove(&interval);
            self.expire(interval, pending);
        }
    }

    /// Effects since the last call, to be carried out in this order.
    pub fn take_effects(&mut self) -> impl Iterator<Item = Effect> {
        core::mem::take(&mut self.effects).into_iter()
    }

    /// Ignored and invalid messages.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of the stored intervals.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |stored: &StoredInterval| match &stored.packets {
            Packets::Each(Some(cache)) => Cache::memory_bytes(cache),
            Packets::Each(None) | Packets::Unread => 0,
            Packets::Sent(finecomb) => finecomb.memory_bytes(),
            Packets::Received(ended) => ended.finecomb().memory_bytes(),
        };
        self.stored.values().map(of).sum()
    }
}

/// Who measures packets, in words.
fn measured_by(fingerprint: Option<NonZeroU64>) -> String {
    fingerprint.map_or_else(|| "the agent".to_owned(), |of| format!("a switch with constants {of:#x}"))
}

/// The report from both ends' buckets.
fn bucket_report(interval: u64, plan: &Plan, ours: &Interval, theirs: &FineComb) -> Option<Report> {
    let estimate = ours.estimate(theirs, plan.rule(), Solver::Elimination, Deviation::PerBucket).ok()?;
    let (sent, received) = (theirs.packets(), ours.finecomb().packets());
    let unchecked = matches!(plan.synopsis, Synopsis::FineComb { digests: false, .. })
        && (estimate.health.useless > 0 || sent != received);
    let flags = Flags::NONE
        .with(Flags::CLAMPED, estimate.deviation_clamped)
        .with(Flags::THIN, 4 * estimate.packets < sent)
        .with(Flags::UNCHECKED, unchecked);
    Some(Report {
        mean_ns: estimate.mean_ns,
        deviation_ns: estimate.deviation_ns,
        loss: estimate.loss,
        sent: Some(sent),
        received: Some(received),
        packets: estimate.packets.min(sent),
        lost: sent.saturating_sub(received),
        odd: received.saturating_sub(sent),
        ..Report::unknown(interval, flags)
    })
}
