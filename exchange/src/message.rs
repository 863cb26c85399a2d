//! Questions and answers, from and to the bytes in which they travel. Whatever is decoded is within bounds; whether it is true is for the ends to judge.

use synopses::finecomb::Bank;
use synopses::rda::Ids;
use thiserror::Error;
use wire::proto::exchange as proto;
use wire::proto::exchange::answer::What as Answered;
use wire::proto::exchange::plan::Synopsis as ProtoSynopsis;
use wire::proto::exchange::question::What as Asked;

use crate::Sampling;
use crate::clock::{ClockOffset, ClockState};
use crate::plan::{MOST_INTERVALS, Plan, PlanError, Synopsis};
use crate::report::{Flags, Report};

/// No message is longer: 16 bytes for each of two million packets, or as many cells as any interval needs.
pub const MOST_MESSAGE_BYTES: usize = 32 << 20;
/// No name of a stream is longer.
const MOST_NAME_BYTES: usize = 256;
/// Reports in one message.
pub const MOST_REPORTS: usize = 16;
/// No refusal says more.
const MOST_WHY_BYTES: usize = 1024;

/// A message that is none.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Nothing in it that this release knows.
    #[error("a message without content that this release knows")]
    Unknown,
    /// Something that there has to be is missing.
    #[error("a message without {0}")]
    Without(&'static str),
    /// A value that cannot be.
    #[error("{what} is {found}, at most {most} is possible")]
    TooLarge {
        /// Of what there is too much.
        what: &'static str,
        /// What was found.
        found: u64,
        /// What is possible.
        most: u64,
    },
    /// Two things that belong together do not.
    #[error("{0} contradict each other")]
    Contradiction(&'static str),
    /// A number that nothing can be.
    #[error("{0} is no number that this can be")]
    Number(&'static str),
    /// The plan.
    #[error("a plan that cannot be")]
    Plan(#[from] PlanError),
}

/// What the sender's agent asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Of which stream.
    pub stream: String,
    /// Of which run.
    pub epoch: u64,
    /// Of which interval; 0 for a start.
    pub interval: u64,
    /// What the sender's kernel says of its clock.
    pub kept: ClockState,
    /// What.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// To begin a run.
    Start(Plan),
    /// For cells.
    Request {
        /// What the sender saw.
        seen: Seen,
        /// Of the cells and counters.
        seed: u64,
        /// In a bank.
        least_cells: u64,
        /// Encoded [`synopses::rda::XorCounters`].
        counters: Vec<u8>,
    },
    /// When these arrived.
    Missing(Vec<u64>),
    /// What comes out with these.
    Buckets {
        /// What the sender saw.
        seen: Seen,
        /// An encoded [`synopses::finecomb::Comb`].
        comb: Vec<u8>,
        /// The clocks, as far as the sender knows.
        clock: Option<ClockOffset>,
    },
    /// To forget the interval and to keep reports.
    Finish {
        /// Final ones.
        reports: Vec<Report>,
        /// What to look at from some interval on.
        sampling: Option<Sampling>,
    },
}

/// What the receiver's agent answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Of the question.
    pub epoch: u64,
    /// Of the question.
    pub interval: u64,
    /// When, by its clock, in nanoseconds since 1970.
    pub clock_ns: u64,
    /// What its kernel says of that clock.
    pub kept: ClockState,
    /// What.
    pub say: Say,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Say {
    /// The run begins, with another key every so many intervals.
    Started(u64),
    /// An encoded [`synopses::rda::Rda`].
    Cells(Seen, Vec<u8>),
    /// All packets: ids and times.
    All(Seen, Vec<(u64, u64)>),
    /// When packets arrived; `None` for those that did not.
    Times(Vec<(u64, Option<u64>)>),
    /// What came out.
    Report(Report),
    /// Forgotten.
    Finished,
    /// To ask again after so many nanoseconds.
    Later(u64),
    /// The interval is over.
    Gone,
    /// No.
    Refused(Refusal),
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such stream here.
    Stream(String),
    /// Something else is done here; with so many buckets in a bank it could be, if that is what is wrong.
    Parameters {
        /// What.
        why: String,
        /// Buckets that there is room for.
        most_buckets: Option<u64>,
    },
    /// This end is in the run with this number; 0 for none.
    Epoch(u64),
    /// The start lies behind: the answer's time says how far.
    TooLate,
    /// The question cannot be.
    Broken(String),
}

/// What an end says of the packets that it saw in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Packets, copies not counted (by FineComb and LDA they are).
    pub packets: u64,
    /// Copies.
    pub duplicates: u64,
    /// Packets for which there was no room.
    pub refused: u64,
    /// Packets that the kernel dropped.
    pub missed: u64,
    /// Packets of the interval before that came when it was over, and are not among its packets. FineComb's and LDA's, and those of still older
    /// intervals, are among `missed`.
    pub late: u64,
    /// Packets larger than the link carries.
    pub oversized: u64,
    /// The share of flows that was looked at, as a multiple of 2⁻³² less one.
    pub sampled: u32,
}

impl Default for Seen {
    fn default() -> Self {
        Self { packets: 0, duplicates: 0, refused: 0, missed: 0, late: 0, oversized: 0, sampled: u32::MAX }
    }
}

fn bounded(what: &'static str, found: u64, most: u64) -> Result<u64, MessageError> {
    if found <= most { Ok(found) } else { Err(MessageError::TooLarge { what, found, most }) }
}

fn pairs(ids: &[u64], times: &[u64]) -> Result<Vec<(u64, u64)>, MessageError> {
    if ids.len() != times.len() {
        return Err(MessageError::Contradiction("the numbers of ids and of times"));
    }
    Ok(ids.iter().copied().zip(times.iter().copied()).collect())
}

impl Seen {
    const fn encode(self) -> proto::Seen {
        let Self { packets, duplicates, refused, missed, late, oversized, sampled } = self;
        proto::Seen { packets, duplicates, missed, oversized, sampled, refused, late }
    }

    fn decode(from: Option<proto::Seen>) -> Result<Self, MessageError> {
        let proto::Seen { packets, duplicates, missed, oversized, sampled, refused, late } =
            from.ok_or(MessageError::Without("what was seen"))?;
        let most = 1 << 48;
        for (what, found) in [
            ("packets", packets),
            ("duplicates", duplicates),
            ("missed packets", missed),
            ("oversized packets", oversized),
            ("refused packets", refused),
            ("late packets", late),
        ] {
            bounded(what, found, most)?;
        }
        Ok(Self { packets, duplicates, refused, missed, late, oversized, sampled })
    }
}

impl Question {
    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> proto::Question {
        let what = match &self.ask {
            Ask::Start(plan) => Asked::Start(encode_plan(plan)),
            Ask::Request { seen, seed, least_cells, counters } => Asked::Request(proto::Request {
                seen: Some(seen.encode()),
                seed: *seed,
                least_cells: *least_cells,
                counters: counters.clone(),
            }),
            Ask::Missing(ids) => Asked::Missing(proto::Missing { ids: ids.clone() }),
            Ask::Buckets { seen, comb, clock } => Asked::Buckets(proto::Buckets {
                seen: Some(seen.encode()),
                comb: comb.clone(),
                clock_ahead_ns: clock.map(|clock| clock.ahead_ns),
                clock_within_ns: clock.map_or(0, |clock| clock.within_ns),
            }),
            Ask::Finish { reports, sampling } => Asked::Finish(proto::Finish {
                reports: reports.iter().map(encode_report).collect(),
                sampling: sampling
                    .map(|Sampling { from, share }| proto::Sampling { from_interval: from, sampled: share }),
            }),
        };
        let (stream, epoch, interval) = (self.stream.clone(), self.epoch, self.interval);
        proto::Question { stream, epoch, interval, kept: encode_kept(self.kept), what: Some(what) }
    }

    /// What travelled.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if it is none.
    pub fn decode(from: proto::Question) -> Result<Self, MessageError> {
        let proto::Question { stream, epoch, interval, kept, what } = from;
        bounded("a stream's name", stream.len() as u64, MOST_NAME_BYTES as u64)?;
        bounded("an interval", interval, MOST_INTERVALS)?;
        let ask = match what.ok_or(MessageError::Unknown)? {
            Asked::Start(plan) => Ask::Start(decode_plan(plan)?),
            Asked::Request(proto::Request { seen, seed, least_cells, counters }) => {
                Ask::Request { seen: Seen::decode(seen)?, seed, least_cells, counters }
            }
            Asked::Missing(proto::Missing { ids }) => Ask::Missing(ids),
            Asked::Buckets(proto::Buckets { seen, comb, clock_ahead_ns, clock_within_ns }) => {
                let clock = clock_ahead_ns.map(|ahead_ns| ClockOffset { ahead_ns, within_ns: clock_within_ns });
                Ask::Buckets { seen: Seen::decode(seen)?, comb, clock }
            }
            Asked::Finish(proto::Finish { reports, sampling }) => {
                bounded("the number of reports", reports.len() as u64, MOST_REPORTS as u64)?;
                let sampling = sampling.map(|asked| -> Result<_, MessageError> {
                    let from = bounded("an interval", asked.from_interval, MOST_INTERVALS)?;
                    Ok(Sampling { from, share: asked.sampled })
                });
                Ask::Finish {
                    reports: reports.into_iter().map(decode_report).collect::<Result<_, _>>()?,
                    sampling: sampling.transpose()?,
                }
            }
        };
        Ok(Self { stream, epoch, interval, kept: decode_kept(kept), ask })
    }
}

impl Answer {
    /// As it travels.
    #[must_use]
    pub fn encode(self) -> proto::Answer {
        let what = match self.say {
            Say::Started(rotates) => Answered::Started(proto::Started { rotates }),
            Say::Cells(seen, rda) => {
                Answered::Cells(proto::Cells { seen: Some(seen.encode()), rda, ..proto::Cells::default() })
            }
            Say::All(seen, packets) => {
                let (ids, times_unix_ns) = packets.into_iter().unzip();
                Answered::Cells(proto::Cells { seen: Some(seen.encode()), rda: Vec::new(), ids, times_unix_ns })
            }
            Say::Times(times) => {
                let (ids, times_unix_ns) = times.into_iter().map(|(id, time)| (id, time.unwrap_or(0))).unzip();
                Answered::Times(proto::Times { ids, times_unix_ns })
            }
            Say::Report(report) => Answered::Report(encode_report(&report)),
            Say::Finished => Answered::Finished(proto::Finished {}),
            Say::Later(later_ns) => Answered::LaterNs(later_ns),
            Say::Gone => Answered::Gone(proto::Gone {}),
            Say::Refused(refusal) => Answered::Refused(encode_refusal(refusal)),
        };
        let Self { epoch, interval, clock_ns, kept, .. } = self;
        proto::Answer { epoch, interval, clock_unix_ns: clock_ns, kept: encode_kept(kept), what: Some(what) }
    }

    /// What travelled.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if it is none.
    pub fn decode(from: proto::Answer) -> Result<Self, MessageError> {
        let proto::Answer { epoch, interval, clock_unix_ns, kept, what } = from;
        let say = match what.ok_or(MessageError::Unknown)? {
            Answered::Started(proto::Started { rotates }) => Say::Started(rotates),
            Answered::Cells(proto::Cells { seen, rda, ids, times_unix_ns }) => {
                let seen = Seen::decode(seen)?;
                match (rda.is_empty(), ids.is_empty() && times_unix_ns.is_empty()) {
                    (false, true) => Say::Cells(seen, rda),
                    (true, _) => Say::All(seen, pairs(&ids, &times_unix_ns)?),
                    (false, false) => return Err(MessageError::Contradiction("cells and all packets at once")),
                }
            }
            Answered::Times(proto::Times { ids, times_unix_ns }) => {
                let pairs = pairs(&ids, &times_unix_ns)?;
                Say::Times(pairs.into_iter().map(|(id, time)| (id, (time > 0).then_some(time))).collect())
            }
            Answered::Report(report) => Say::Report(decode_report(report)?),
            Answered::Finished(_) => Say::Finished,
            Answered::LaterNs(later_ns) => Say::Later(later_ns),
            Answered::Gone(_) => Say::Gone,
            Answered::Refused(refused) => Say::Refused(decode_refusal(refused)?),
        };
        Ok(Self { epoch, interval, clock_ns: clock_unix_ns, kept: decode_kept(kept), say })
    }
}

const fn encode_kept(kept: ClockState) -> Option<proto::Kept> {
    match kept {
        ClockState::Unknown => None,
        ClockState::Unsynchronised => Some(proto::Kept { unsynchronised: true, within_ns: 0 }),
        ClockState::Within(within_ns) => Some(proto::Kept { unsynchronised: false, within_ns }),
    }
}

const fn decode_kept(from: Option<proto::Kept>) -> ClockState {
    match from {
        None => ClockState::Unknown,
        Some(proto::Kept { unsynchronised: true, .. }) => ClockState::Unsynchronised,
        Some(proto::Kept { within_ns, .. }) => ClockState::Within(within_ns),
    }
}

fn encode_refusal(refusal: Refusal) -> proto::Refused {
    use proto::Reason;

    let (reason, why, epoch, most_buckets) = match refusal {
        Refusal::Stream(why) => (Reason::Stream, why, 0, 0),
        Refusal::Parameters { why, most_buckets } => (Reason::Parameters, why, 0, most_buckets.unwrap_or(0)),
        Refusal::Epoch(epoch) => (Reason::Epoch, String::new(), epoch, 0),
        Refusal::TooLate => (Reason::TooLate, String::new(), 0, 0),
        Refusal::Broken(why) => (Reason::Broken, why, 0, 0),
    };
    proto::Refused { why, epoch, most_buckets, reason: reason.into() }
}

fn decode_refusal(from: proto::Refused) -> Result<Refusal, MessageError> {
    use proto::Reason;

    bounded("what a refusal says", from.why.len() as u64, MOST_WHY_BYTES as u64)?;
    let (reason, why) = (from.reason(), from.why);
    Ok(match reason {
        Reason::Stream => Refusal::Stream(why),
        Reason::Parameters => {
            Refusal::Parameters { why, most_buckets: Some(from.most_buckets).filter(|most| *most > 0) }
        }
        Reason::Epoch => Refusal::Epoch(from.epoch),
        Reason::TooLate => Refusal::TooLate,
        // One that a later release has.
        Reason::Broken | Reason::Unspecified => Refusal::Broken(why),
    })
}

fn encode_plan(plan: &Plan) -> proto::Plan {
    let synopsis = match &plan.synopsis {
        Synopsis::Rda { banks, ids } => {
            ProtoSynopsis::Rda(proto::Rda { banks: *banks as u32, ids: u32::from(*ids as u8) })
        }
        Synopsis::Comb { digests, buckets, banks } => {
            let bank = |bank: &Bank| {
                let Bank { probability, stash, loss } = *bank;
                proto::Bank { probability, stash: stash as u64, loss }
            };
            let (digests, buckets) = (*digests, *buckets as u64);
            ProtoSynopsis::Comb(proto::Comb { digests, buckets, banks: banks.iter().map(bank).collect() })
        }
    };
    proto::Plan {
        begins_unix_ns: plan.begins_ns,
        length_ns: plan.length_ns,
        key: plan.key.to_le_bytes().to_vec(),
        seed: plan.seed,
        synopsis: Some(synopsis),
        rotates: plan.rotates,
    }
}

fn decode_plan(from: proto::Plan) -> Result<Plan, MessageError> {
    let proto::Plan { begins_unix_ns, length_ns, key, seed, synopsis, rotates } = from;
    let key = <[u8; 16]>::try_from(key).map_err(|_| MessageError::Without("a key of 16 bytes"))?;
    let size = |found: u64| usize::try_from(found).unwrap_or(usize::MAX);
    let synopsis = match synopsis.ok_or(MessageError::Without("a synopsis that this release knows"))? {
        ProtoSynopsis::Rda(proto::Rda { banks, ids }) => {
            let ids = match ids {
                0 => Ids::Plain,
                1 => Ids::Checked8,
                2 => Ids::Checked16,
                _ => return Err(MessageError::Number("the kind of ids")),
            };
            Synopsis::Rda { banks: banks as usize, ids }
        }
        ProtoSynopsis::Comb(proto::Comb { digests, buckets, banks }) => {
            bounded("the number of banks", banks.len() as u64, synopses::finecomb::MOST_BANKS as u64)?;
            let bank =
                |bank: proto::Bank| Bank { probability: bank.probability, stash: size(bank.stash), loss: bank.loss };
            Synopsis::Comb { digests, buckets: size(buckets), banks: banks.into_iter().map(bank).collect() }
        }
    };
    let plan = Plan { begins_ns: begins_unix_ns, length_ns, key: u128::from_le_bytes(key), seed, synopsis, rotates };
    plan.check()?;
    Ok(plan)
}

fn encode_report(report: &Report) -> proto::Report {
    proto::Report {
        interval: report.interval,
        mean_ns: report.mean_ns,
        deviation_ns: report.deviation_ns,
        loss: report.loss,
        sent: report.sent,
        received: report.received,
        packets: report.packets,
        lost: report.lost,
        late: report.late,
        odd: report.odd,
        clock_ahead_ns: report.clock.map(|clock| clock.ahead_ns),
        clock_within_ns: report.clock.map_or(0, |clock| clock.within_ns),
        clock_error_ns: report.clock_error_ns,
        flags: report.flags.0,
    }
}

fn decode_report(from: proto::Report) -> Result<Report, MessageError> {
    bounded("an interval", from.interval, MOST_INTERVALS)?;
    let finite = |value: Option<f64>| value.is_none_or(f64::is_finite);
    if !finite(from.mean_ns) {
        return Err(MessageError::Number("the mean"));
    }
    if !(finite(from.deviation_ns) && from.deviation_ns.is_none_or(|deviation| deviation >= 0.0)) {
        return Err(MessageError::Number("the deviation"));
    }
    if !(finite(from.loss) && from.loss.is_none_or(|loss| loss <= 1.0)) {
        return Err(MessageError::Number("the loss"));
    }
    if from.sent.is_some_and(|sent| from.lost > sent || from.packets > sent) {
        return Err(MessageError::Contradiction("sent packets and those of them that were lost, or rested on"));
    }
    let clock = from.clock_ahead_ns.map(|ahead_ns| ClockOffset { ahead_ns, within_ns: from.clock_within_ns });
    Ok(Report {
        interval: from.interval,
        mean_ns: from.mean_ns,
        deviation_ns: from.deviation_ns,
        loss: from.loss,
        sent: from.sent,
        received: from.received,
        packets: from.packets,
        lost: from.lost,
        late: from.late,
        odd: from.odd,
        clock,
        clock_error_ns: from.clock_error_ns,
        flags: Flags(from.flags),
    })
}
