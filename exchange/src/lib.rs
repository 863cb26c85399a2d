//! Two agents measure the one-way delay and the loss of a stream of packets together: what they say to each other, and when.
//!
//! The agent where packets are sent asks, the one where they arrive answers ([`Sender`], [`Receiver`]). Both gather packets in intervals of a clock
//! that they share ([`Gathering`]); while one interval is compared the next is gathered. Of each interval both have a [`Report`] in the end, and
//! whatever it cannot vouch for has a flag beside it.
//!
//! ```text
//! sender                         receiver
//!   │ ── Start {plan} ──────────────▶ │   run, beginning in the time of both, key, synopsis
//!   │ ◀───────────────── Started ──── │   or Refused, with what would do
//!   │                                 │
//!   │ ── Request {counters} ────────▶ │   RDA, of each interval: how many differ decides the number of cells
//!   │ ◀──────────── Cells, or all ─── │   all packets where that is less
//!   │ ── Missing {ids} ─────────────▶ │   whose arrival is asked for
//!   │ ◀─────────────────── Times ──── │
//!   │ ── Finish {reports} ──────────▶ │   final one interval later: what looked lost may have been late
//!   │                                 │
//!   │ ── Buckets ───────────────────▶ │   FineComb, LDA, of each interval: the receiver has the packets near the ends, and computes
//!   │ ◀────────────────── Report ──── │
//! ```
//!
//! Every message may be lost, late, doubled, or a lie. A question that was not answered is asked again with growing pauses until the interval's deadline; each is answered
//! alike however often it comes. Pure: no clock, thread or socket; times are nanoseconds since 1970 of this end's clock, random numbers come as
//! arguments, and what there is to do is returned ([`Todo`], [`Effect`]).
//!
//! # Source
//!
//! The user-space system of RDA ([`synopses::rda`]); FineComb and LDA over the same channel and the same intervals.
//!
//! # Differences from the papers
//!
//! FineComb's intervals are those of the clock, too, and not of marks between packets: so one can be checked against the other, and nothing is sent on the way
//! of the packets. Where all packets take fewer bytes than the cells, they are sent.
//!
//! | module | what |
//! | --- | --- |
//! | [`plan`] | what both ends agree on at the start |
//! | [`message`] | questions and answers, from and to [`wire::proto::exchange`] |
//! | [`clock`] | how far apart the two clocks are, and how far off each may be |
//! | [`gathering`] | packets as they come, in intervals |
//! | `names`, `buckets` | with which keys, and what a receiver of FineComb and LDA keeps |
//! | [`sender`], `round`, `found`, `conclusions` | the end that asks: runs, intervals under way, what was found, what is final |
//! | `steering` | how many flows are looked at |
//! | [`receiver`] | the end that answers |
//! | [`report`] | what is known of an interval, and what cannot be vouched for |

mod buckets;
pub mod clock;
mod conclusions;
mod found;
pub mod gathering;
pub mod message;
mod names;
pub mod plan;
pub mod receiver;
pub mod report;
mod round;
pub mod sender;
mod steering;

pub use clock::{ClockOffset, ClockState};
pub use gathering::{End, Gathered, Gathering};
pub use message::{Answer, Ask, MOST_MESSAGE_BYTES, MessageError, Question, Refusal, Say, Seen};
pub use plan::{Plan, Synopsis};
pub use receiver::{Receiver, ReceiverSettings};
pub use report::{Flags, Report};
pub use sender::{Sender, SenderSettings, Todo};

use synopses::rda::Cache;

/// From some interval on, fewer flows are looked at, or more again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The first interval; not begun yet where both ends can still keep to it.
    pub from: u64,
    /// The share of flows, as a multiple of 2⁻³² less one: [`u32::MAX`] for all.
    pub share: u32,
}

/// What follows from what was said: for whoever gathers packets and keeps figures.
#[derive(Debug)]
pub enum Effect {
    /// Gather packets by this plan from now on, whatever was gathered before.
    Gather(Plan),
    /// Look at another share of flows.
    Sample(Sampling),
    /// An interval's figures are final. In the order of intervals.
    Report(Report),
    /// Memory of an interval that is over: [`Gathering::give_back`].
    GiveBack(Cache),
    /// The other end refuses what this one wants: somebody has to look.
    Refused(String),
}

/// What an end has counted of messages that it did not follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// About a run or an interval that is over, or answers to no question: late, doubled, replayed.
    pub stale: u64,
    /// That contradict themselves, or what was agreed.
    pub broken: u64,
    /// Questions without an answer in time.
    pub unanswered: u64,
}
