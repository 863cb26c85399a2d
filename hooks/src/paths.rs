//! Operations, the services on their paths, and what spans say of both: learnt while they pass, bounded, forgotten when they stop.
//!
//! | module | what |
//! | --- | --- |
//! | [`Names`] | names of services and operations ↔ ids; what is too much is `_other` |
//! | [`Frontends`] | with which spans a request enters the system |
//! | [`Paths`] | operation → services on its path, service → operations through it |
//! | [`Durations`] | how long requests of an operation took, in classes, each with a trace that was kept |
//! | [`Rates`] | rate, errors and duration of every operation, as series of a region |
//! | [`Latencies`] | what is usual for an operation: its learnt quantile |
//! | [`Lessons`] | requests that wait to be learnt, until it is known whether they were made during an alarm |

mod durations;
mod frontends;
mod latencies;
mod learnt;
mod lessons;
mod names;
mod rates;

pub use durations::{BOUNDS, CLASSES, Durations, Exemplar, class};
pub use frontends::{FrontendRule, Frontends};
pub use latencies::{Latencies, LatencyRule};
pub use learnt::{PathLimits, Paths};
pub use lessons::{Lesson, Lessons};
pub use names::{Forgotten, NameLimits, Names, OTHER};
pub use rates::{Rate, Rates};
