//! Operations, the services on their paths, and what spans tell of both: learnt from traffic, bounded, forgotten when
//! the traffic stops.
//!
//! | module | what |
//! | --- | --- |
//! | [`Names`] | names of services and operations ↔ ids; names beyond the limits are `_other` |
//! | [`Frontends`] | where requests enter the system |
//! | [`Paths`] | service graph: operation → services on its path, service → operations through it, caller → callees |
//! | `targets` | who answers calls of an operation |
//! | [`Durations`] | histogram of an operation's request durations, with an exemplar trace per bucket |
//! | [`Rates`] | rate, errors and duration of every operation, as series of a region |
//! | [`Latencies`] | the learnt latency quantile of each operation |
//! | [`LearningQueue`] | finished requests that are not learnt before it is known whether an alarm was on |

mod durations;
mod frontends;
mod graph;
mod latencies;
mod learning_queue;
mod names;
mod rates;
mod targets;

pub use durations::{BOUNDS, CLASSES, Durations, Exemplar, class};
pub use frontends::{FrontendRule, Frontends};
pub use graph::{CALLS_FROM, CallCounts, PathLimits, Paths};
pub use latencies::{Latencies, LatencyRule};
pub use learning_queue::{FinishedRequest, LearningQueue};
pub use names::{ForgottenNames, NameLimits, Names, OTHER};
pub use rates::{Rate, Rates};
