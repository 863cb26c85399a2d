//! Takes what a service counts with the facade [`metrics`](https://docs.rs/metrics): feature `metrics`.
//!
//! ```
//! # #[cfg(feature = "metrics")] {
//! let uview = uview::connect(uview::Service::new("payment"));
//! metrics::set_global_recorder(uview.recorder()).expect("no other recorder is set");
//!
//! metrics::counter!("http_requests_total", "route" => "/pay").increment(1);
//! metrics::histogram!("http_request_duration_seconds").record(0.018);
//! # }
//! ```
//!
//! | `metrics` has | uview gets |
//! | --- | --- |
//! | counter, `absolute` | counter, [`Counter::raise_to`](crate::Counter::raise_to) |
//! | gauge, `increment`, `decrement` | gauge, [`Gauge::add`](crate::Gauge::add) |
//! | histogram of a described unit of time | histogram in µs (of seconds and milliseconds) or the unit itself |
//! | histogram of bytes, counts and rates | histogram of whole numbers, below 2^48 |
//! | histogram that nobody described | histogram in millionths, values below 280 million |
//! | values of a histogram below 0 | another histogram, `NAME.below_zero`, without their sign |
//! | unit | UCUM: `s`, `ms`, `By`, `%` … |
//! | name or label name with other characters than letters, digits and `_ . - / :` | `_` in their place |
//!
//! A unit counts if it is described before the metric is first used. Descriptions themselves are not passed on. A value
//! that is no number is left out. The histogram for values below 0 is registered with the first of them, as a series of
//! its own; if it is refused, as for a name of more than 244 bytes, [`Client::status`](crate::Client::status) says so,
//! and the others go on.
//!
//! To record with another recorder too, such as an exporter, put both into `metrics_util::layers::FanoutBuilder`.
//!
//! # Cost
//!
//! The macros ask the recorder at each use: a shared lock and one look-up by the key's ready hash, without allocation,
//! then the atomic operations of the handle. A handle that is kept (`let requests = counter!(…)`) skips the look-up.
//! Handles are remembered for as many series as [`Limits::series`](crate::Limits::series).

#[cfg(feature = "metrics")]
mod handles;
#[cfg(feature = "metrics")]
mod names;
#[cfg(feature = "metrics")]
mod recorder;

#[cfg(feature = "metrics")]
pub use recorder::Recorder;
