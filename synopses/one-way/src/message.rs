//! Requests and responses, and their protobuf encoding. Decoding checks bounds and consistency; whether a message is
//! true is for the two ends to judge.

mod plan;
mod report;

use thiserror::Error;
use wire::proto::one_way as proto;
use wire::proto::one_way::request::Body as ProtoRequestBody;
use wire::proto::one_way::response::Body as ProtoResponseBody;
use wire::time::{Nanos, UnixNanos};

use crate::Sampling;
use crate::clock::{ClockOffset, ClockState};
use crate::end_counters::EndCounters;
use crate::plan::{MAX_INTERVALS, Plan, PlanError};
use crate::report::Report;
use plan::{decode_plan, encode_plan};
use report::{decode_report, encode_report};

/// Maximum size of a message in bytes: 16 for each of two million packets, or as many cells as any interval needs.
pub const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Maximum length of a stream's name.
const MAX_NAME_BYTES: usize = 256;
/// Maximum number of reports in one message.
pub const MAX_REPORTS: usize = 16;
/// Maximum length of the reason in a refusal.
const MAX_REASON_BYTES: usize = 1024;

/// An invalid message.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message has no body, or one that this release does not know.
    #[error("a message without a body that this release knows")]
    Unknown,
    /// A required field is missing.
    #[error("a message without {0}")]
    Missing(&'static str),
    /// A number or length is above its limit.
    #[error("{what} is {found}, at most {most} is possible")]
    TooLarge {
        /// Name of the field.
        what: &'static str,
        /// The value in the message.
        found: u64,
        /// The largest number of buckets that it accepts.
        most: u64,
    },
    /// Two fields contradict each other.
    #[error("{0} contradict each other")]
    Contradiction(&'static str),
    /// A value outside its range, or not finite.
    #[error("{0} has an impossible value")]
    Number(&'static str),
    /// The plan is invalid.
    #[error("invalid plan")]
    Plan(#[from] PlanError),
}

/// A request of the sender's agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Name of the stream.
    pub stream: String,
    /// The run of the stream.
    pub epoch: u64,
    /// The interval, 0 for a start.
    pub interval: u64,
    /// State of the sender's clock.
    pub clock_state: ClockState,
    /// What is requested.
    pub body: RequestBody,
}

/// What the sender's agent requests.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestBody {
    /// Start a run.
    Start(Plan),
    /// Send the cells of an interval.
    Cells {
        /// The sender's packet counters.
        counters: EndCounters,
        /// Seed of the cells and of the XOR counters.
        seed: u64,
        /// Minimum number of cells in a bank.
        least_cells: u64,
        /// Encoded [`synopses::rda::XorCounters`].
        xor_counters: Vec<u8>,
    },
    /// Send the arrival times of the packets with these ids.
    Times(Vec<u64>),
    /// Compute the report from the sender's buckets.
    Buckets {
        /// The sender's packet counters.
        counters: EndCounters,
        /// An encoded [`synopses::finecomb::FineComb`].
        finecomb: Vec<u8>,
        /// Offset of the clocks, if the sender knows it.
        clock: Option<ClockOffset>,
    },
    /// Drop the interval, and take these reports.
    Finish {
        /// The reports that have become final.
        reports: Vec<Report>,
        /// A change of the sampled share of flows.
        sampling: Option<Sampling>,
    },
}

/// A response of the receiver's agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// Epoch of the request.
    pub epoch: u64,
    /// Interval of the request.
    pub interval: u64,
    /// When the receiver responded, by its clock.
    pub clock: UnixNanos,
    /// State of the receiver's clock.
    pub clock_state: ClockState,
    /// What the receiver responds.
    pub body: ResponseBody,
}

/// What the receiver's agent responds.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseBody {
    /// The run is accepted, with this number of intervals per key.
    Started(u64),
    /// An encoded [`synopses::rda::Rda`].
    Cells(EndCounters, Vec<u8>),
    /// All packets of the interval: ids and times.
    Packets(EndCounters, Vec<(u64, u64)>),
    /// Arrival times by id; `None` for an unknown id.
    Times(Vec<(u64, Option<u64>)>),
    /// The report, computed by the receiver.
    Report(Report),
    /// The interval is dropped and the reports are taken.
    Finished,
    /// Not yet: repeat the request after this many nanoseconds.
    RetryAfter(Nanos),
    /// The receiver has dropped the interval.
    Expired,
    /// The receiver refuses the request.
    Refused(Refusal),
}

/// Why the receiver refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The receiver has no such stream. The text is for the operator.
    UnknownStream(String),
    /// The receiver is configured differently.
    Parameters {
        /// The difference, for the operator.
        why: String,
        /// If there are too many buckets in a bank: the number that fits the receiver's memory budget.
        most_buckets: Option<u64>,
    },
    /// The receiver is in the run of this epoch; 0 for none.
    Epoch(u64),
    /// The start time has passed on the receiver's clock. The response's time shows by how much.
    TooLate,
    /// The request is invalid, for this reason.
    Invalid(String),
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

impl EndCounters {
    const fn encode(self) -> proto::EndCounters {
        let Self { packets, duplicates, overflowed, missed, late, oversized, sampled } = self;
        proto::EndCounters { packets, duplicates, missed, oversized, sampled, overflowed, late }
    }

    fn decode(from: Option<proto::EndCounters>) -> Result<Self, MessageError> {
        let proto::EndCounters { packets, duplicates, missed, oversized, sampled, overflowed, late } =
            from.ok_or(MessageError::Missing("packet counters"))?;
        let most = 1 << 48;
        for (what, found) in [
            ("packets", packets),
            ("duplicates", duplicates),
            ("missed packets", missed),
            ("oversized packets", oversized),
            ("packets over the memory budget", overflowed),
            ("late packets", late),
        ] {
            bounded(what, found, most)?;
        }
        Ok(Self { packets, duplicates, overflowed, missed, late, oversized, sampled })
    }
}

impl Request {
    /// Encodes it for the wire.
    #[must_use]
    pub fn encode(&self) -> proto::Request {
        let body = match &self.body {
            RequestBody::Start(plan) => ProtoRequestBody::Start(encode_plan(plan)),
            RequestBody::Cells { counters, seed, least_cells, xor_counters } => {
                ProtoRequestBody::Cells(proto::CellsRequest {
                    counters: Some(counters.encode()),
                    seed: *seed,
                    least_cells: *least_cells,
                    xor_counters: xor_counters.clone(),
                })
            }
            RequestBody::Times(ids) => ProtoRequestBody::Times(proto::TimesRequest { ids: ids.clone() }),
            RequestBody::Buckets { counters, finecomb, clock } => ProtoRequestBody::Buckets(proto::BucketsRequest {
                counters: Some(counters.encode()),
                finecomb: finecomb.clone(),
                clock_ahead_ns: clock.map(|clock| clock.ahead_ns),
                clock_uncertainty_ns: clock.map_or(0, |clock| clock.uncertainty_ns),
            }),
            RequestBody::Finish { reports, sampling } => ProtoRequestBody::Finish(proto::FinishRequest {
                reports: reports.iter().map(encode_report).collect(),
                sampling: sampling
                    .map(|Sampling { from, share }| proto::Sampling { from_interval: from, sampled: share }),
            }),
        };
        let (stream, epoch, interval) = (self.stream.clone(), self.epoch, self.interval);
        proto::Request { stream, epoch, interval, clock_state: encode_clock_state(self.clock_state), body: Some(body) }
    }

    /// Decodes it from the wire.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if it is invalid.
    pub fn decode(from: proto::Request) -> Result<Self, MessageError> {
        let proto::Request { stream, epoch, interval, clock_state, body } = from;
        bounded("the length of a stream's name", stream.len() as u64, MAX_NAME_BYTES as u64)?;
        bounded("the interval", interval, MAX_INTERVALS)?;
        let body = match body.ok_or(MessageError::Unknown)? {
            ProtoRequestBody::Start(plan) => RequestBody::Start(decode_plan(plan)?),
            ProtoRequestBody::Cells(proto::CellsRequest { counters, seed, least_cells, xor_counters }) => {
                RequestBody::Cells { counters: EndCounters::decode(counters)?, seed, least_cells, xor_counters }
            }
            ProtoRequestBody::Times(proto::TimesRequest { ids }) => RequestBody::Times(ids),
            ProtoRequestBody::Buckets(proto::BucketsRequest {
                counters,
                finecomb,
                clock_ahead_ns,
                clock_uncertainty_ns,
            }) => {
                let clock =
                    clock_ahead_ns.map(|ahead_ns| ClockOffset { ahead_ns, uncertainty_ns: clock_uncertainty_ns });
                RequestBody::Buckets { counters: EndCounters::decode(counters)?, finecomb, clock }
            }
            ProtoRequestBody::Finish(proto::FinishRequest { reports, sampling }) => {
                bounded("the number of reports", reports.len() as u64, MAX_REPORTS as u64)?;
                let sampling = sampling.map(|change| -> Result<_, MessageError> {
                    let from = bounded("the interval", change.from_interval, MAX_INTERVALS)?;
                    Ok(Sampling { from, share: change.sampled })
                });
                RequestBody::Finish {
                    reports: reports.into_iter().map(decode_report).collect::<Result<_, _>>()?,
                    sampling: sampling.transpose()?,
                }
            }
        };
        Ok(Self { stream, epoch, interval, clock_state: decode_clock_state(clock_state), body })
    }
}

impl Response {
    /// Encodes it for the wire.
    #[must_use]
    pub fn encode(self) -> proto::Response {
        let body = match self.body {
            ResponseBody::Started(intervals_per_key) => {
                ProtoResponseBody::Started(proto::StartResponse { intervals_per_key })
            }
            ResponseBody::Cells(counters, rda) => ProtoResponseBody::Cells(proto::CellsResponse {
                counters: Some(counters.encode()),
                rda,
                ..proto::CellsResponse::default()
            }),
            ResponseBody::Packets(counters, packets) => {
                let (ids, times_unix_ns) = packets.into_iter().unzip();
                ProtoResponseBody::Cells(proto::CellsResponse {
                    counters: Some(counters.encode()),
                    rda: Vec::new(),
                    ids,
                    times_unix_ns,
                })
            }
            ResponseBody::Times(times) => {
                let (ids, times_unix_ns) = times.into_iter().map(|(id, time)| (id, time.unwrap_or(0))).unzip();
                ProtoResponseBody::Times(proto::TimesResponse { ids, times_unix_ns })
            }
            ResponseBody::Report(report) => ProtoResponseBody::Report(encode_report(&report)),
            ResponseBody::Finished => ProtoResponseBody::Finished(proto::FinishResponse {}),
            ResponseBody::RetryAfter(retry_after) => ProtoResponseBody::RetryAfterNs(retry_after.0),
            ResponseBody::Expired => ProtoResponseBody::Expired(proto::IntervalExpired {}),
            ResponseBody::Refused(refusal) => ProtoResponseBody::Refused(encode_refusal(refusal)),
        };
        let Self { epoch, interval, clock, clock_state, .. } = self;
        proto::Response {
            epoch,
            interval,
            clock_unix_ns: clock.0,
            clock_state: encode_clock_state(clock_state),
            body: Some(body),
        }
    }

    /// Decodes it from the wire.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if it is invalid.
    pub fn decode(from: proto::Response) -> Result<Self, MessageError> {
        let proto::Response { epoch, interval, clock_unix_ns, clock_state, body } = from;
        let body = match body.ok_or(MessageError::Unknown)? {
            ProtoResponseBody::Started(proto::StartResponse { intervals_per_key }) => {
                ResponseBody::Started(intervals_per_key)
            }
            ProtoResponseBody::Cells(proto::CellsResponse { counters, rda, ids, times_unix_ns }) => {
                let counters = EndCounters::decode(counters)?;
                match (rda.is_empty(), ids.is_empty() && times_unix_ns.is_empty()) {
                    (false, true) => ResponseBody::Cells(counters, rda),
                    (true, _) => ResponseBody::Packets(counters, pairs(&ids, &times_unix_ns)?),
                    (false, false) => return Err(MessageError::Contradiction("cells and all packets at once")),
                }
            }
            ProtoResponseBody::Times(proto::TimesResponse { ids, times_unix_ns }) => {
                let pairs = pairs(&ids, &times_unix_ns)?;
                ResponseBody::Times(pairs.into_iter().map(|(id, time)| (id, (time > 0).then_some(time))).collect())
            }
            ProtoResponseBody::Report(report) => ResponseBody::Report(decode_report(report)?),
            ProtoResponseBody::Finished(_) => ResponseBody::Finished,
            ProtoResponseBody::RetryAfterNs(retry_after_ns) => ResponseBody::RetryAfter(Nanos(retry_after_ns)),
            ProtoResponseBody::Expired(_) => ResponseBody::Expired,
            ProtoResponseBody::Refused(refused) => ResponseBody::Refused(decode_refusal(refused)?),
        };
        Ok(Self {
            epoch,
            interval,
            clock: UnixNanos(clock_unix_ns),
            clock_state: decode_clock_state(clock_state),
            body,
        })
    }
}

const fn encode_clock_state(state: ClockState) -> Option<proto::ClockState> {
    match state {
        ClockState::Unknown => None,
        ClockState::Unsynchronised => Some(proto::ClockState { unsynchronised: true, max_error_ns: 0 }),
        ClockState::Synchronised(max_error_ns) => Some(proto::ClockState { unsynchronised: false, max_error_ns }),
    }
}

const fn decode_clock_state(from: Option<proto::ClockState>) -> ClockState {
    match from {
        None => ClockState::Unknown,
        Some(proto::ClockState { unsynchronised: true, .. }) => ClockState::Unsynchronised,
        Some(proto::ClockState { max_error_ns, .. }) => ClockState::Synchronised(max_error_ns),
    }
}

fn encode_refusal(refusal: Refusal) -> proto::Refusal {
    use proto::Reason;

    let (reason, why, epoch, most_buckets) = match refusal {
        Refusal::UnknownStream(why) => (Reason::UnknownStream, why, 0, 0),
        Refusal::Parameters { why, most_buckets } => (Reason::Parameters, why, 0, most_buckets.unwrap_or(0)),
        Refusal::Epoch(epoch) => (Reason::Epoch, String::new(), epoch, 0),
        Refusal::TooLate => (Reason::TooLate, String::new(), 0, 0),
        Refusal::Invalid(why) => (Reason::Invalid, why, 0, 0),
    };
    proto::Refusal { why, epoch, most_buckets, reason: reason.into() }
}

fn decode_refusal(from: proto::Refusal) -> Result<Refusal, MessageError> {
    use proto::Reason;

    bounded("the length of a refusal's reason", from.why.len() as u64, MAX_REASON_BYTES as u64)?;
    let (reason, why) = (from.reason(), from.why);
    Ok(match reason {
        Reason::UnknownStream => Refusal::UnknownStream(why),
        Reason::Parameters => {
            Refusal::Parameters { why, most_buckets: Some(from.most_buckets).filter(|most| *most > 0) }
        }
        Reason::Epoch => Refusal::Epoch(from.epoch),
        Reason::TooLate => Refusal::TooLate,
        // A later release may send other reasons.
        Reason::Invalid | Reason::Unspecified => Refusal::Invalid(why),
    })
}
