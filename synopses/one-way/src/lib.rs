//! Two agents measure the one-way delay and the loss of a stream of packets: the protocol between them.
//!
//! The agent where packets are sent makes requests, the agent where they arrive responds ([`Sender`], [`Receiver`]).
//! Both collect packets in intervals of a synchronised clock ([`Collector`]). While they compare one interval, they
//! collect the next. Each interval ends with a [`Report`] at both ends; flags mark figures that cannot be trusted.
//!
//! ```text
//! sender                         receiver
//!   │ ── Start {plan} ──────────────▶ │   a run: start time on both clocks, key, synopsis
//!   │ ◀───────────────── Started ──── │   or Refused, with the reason and an acceptable size
//!   │                                 │
//!   │ ── Cells {XOR counters} ──────▶ │   RDA, each interval: the number of differences sets the number of cells
//!   │ ◀──────── Cells or Packets ──── │   all packets where those take fewer bytes
//!   │ ── Times {ids} ───────────────▶ │   packets that only the receiver has
//!   │ ◀─────────────────── Times ──── │
//!   │ ── Finish {reports} ──────────▶ │   reports are final one interval later: lost packets may have been late
//!   │                                 │
//!   │ ── Buckets ───────────────────▶ │   FineComb, LDA, each interval: the receiver stores packets near interval
//!   │ ◀────────────────── Report ──── │   ends, so it computes the report
//! ```
//!
//! Any message may be lost, late, duplicated or false. The sender retries a request without a response, with
//! exponential back-off until the interval's deadline. Requests are idempotent. The code is pure: no clock, thread or
//! socket. Times are nanoseconds since 1970 on this end's clock, random numbers are parameters, and actions are return
//! values ([`Action`], [`Effect`]).
//!
//! # Source
//!
//! The user-space system of RDA ([`synopses::rda`]). FineComb and LDA ([`synopses::finecomb`]) use the same messages
//! and the same intervals.
//!
//! # Differences from the papers
//!
//! FineComb's intervals also follow the clock, not marker packets in the stream. So its results can be checked against
//! RDA's, and no packets are added to the path under measurement. Where all packets take fewer bytes than the cells,
//! the receiver sends the packets.
//!
//! If switches measure at both ends (`p4/`), their intervals do follow marker packets. A plan has the fingerprint of
//! their constants then, since key and seed are compiled into their programs.
//!
//! | module | what |
//! | --- | --- |
//! | [`plan`] | what both ends agree on at the start of a run |
//! | [`message`] | requests and responses, to and from [`wire::proto::one_way`] |
//! | [`clock`] | offset between the two clocks, and the error of each |
//! | [`collector`] | packets of one end, by interval |
//! | `end_counters`, `unplaced_count` | how many packets an end saw, dropped and missed |
//! | `keys`, `bucket_receiver` | key rotation; the receiver's buckets for FineComb and LDA |
//! | [`sender`], `round`, `comparison`, `conclusions` | the requesting end: runs, intervals, results, reports |
//! | `sampling_controller` | the sampled share of flows |
//! | [`receiver`] | the responding end |
//! | [`report`] | figures of an interval, and flags |

mod bucket_receiver;
pub mod clock;
pub mod collector;
mod comparison;
mod conclusions;
mod end_counters;
mod keys;
pub mod message;
pub mod plan;
pub mod receiver;
pub mod report;
mod round;
mod sampling_controller;
pub mod sender;
mod unplaced_count;

pub use clock::{ClockOffset, ClockState};
pub use collector::{Collector, End, IntervalPackets};
pub use end_counters::EndCounters;
pub use message::{MAX_MESSAGE_BYTES, MessageError, Refusal, Request, RequestBody, Response, ResponseBody};
pub use plan::{Plan, Synopsis};
pub use receiver::{Receiver, ReceiverSettings};
pub use report::{Flags, Report};
pub use sender::{Action, Sender, SenderSettings};

use synopses::rda::Cache;

/// A change of the sampled share of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The first interval with this share. It lies in the future, so that both ends can follow.
    pub from: u64,
    /// The share of flows, as a multiple of 2⁻³² less one: [`u32::MAX`] for all.
    pub share: u32,
}

/// A consequence of the protocol, for the caller to carry out.
#[derive(Debug)]
pub enum Effect {
    /// Collect packets by this plan from now on. It replaces any earlier plan.
    Collect(Plan),
    /// Sample another share of flows.
    Sample(Sampling),
    /// An interval's report is final. Reports come in the order of intervals.
    Report(Report),
    /// Memory of a finished interval: pass it to [`Collector::give_back`].
    GiveBack(Cache),
    /// The other end refuses to run this stream, for this reason. An operator has to act.
    Refused(String),
}

/// Messages that an end ignored, and requests without a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of a finished run or interval, and unexpected responses: late, duplicated or replayed.
    pub stale: u64,
    /// Messages that contradict themselves or the plan.
    pub invalid: u64,
    /// Requests without a response in time.
    pub timeouts: u64,
}
