//! Takes what a service counts with the SDK of OpenTelemetry: feature `opentelemetry`.
//!
//! ```
//! # #[cfg(feature = "opentelemetry")] {
//! use opentelemetry::metrics::MeterProvider as _;
//! use opentelemetry_sdk::metrics::SdkMeterProvider;
//!
//! let service = uview::Service::new("payment").changes_every(uview::open_telemetry::INTERVAL);
//! let uview = uview::connect(service);
//! let provider = SdkMeterProvider::builder().with_reader(uview.metric_reader()).build();
//!
//! provider.meter("shop").u64_counter("http.server.requests").build().add(1, &[]);
//! # }
//! ```
//!
//! The reader goes beside others: a provider may have an exporter to a Collector too.
//!
//! | the SDK has | uview gets |
//! | --- | --- |
//! | counter of integers | counter |
//! | counter of floats | counter in millionths: `s` becomes `us`, any other unit `10*-6.unit` |
//! | up-down counter of integers | up-down counter |
//! | gauge, up-down counter of floats | gauge |
//! | histogram of floats | histogram in µs (of `s`), thousandths (`ms`, `%`), units (`us`, `ns`, `By`) or millionths |
//! | histogram of integers | histogram of whole numbers, below 2^48 |
//! | attributes | labels; a name or a value that a label may not have is changed as by the [`facade`](crate::facade) |
//! | observable instruments | as the others: their callbacks run at each collection |
//! | exemplars, descriptions, scope, resource | nothing: who it is says [`Service`](crate::Service) |
//!
//! # Histograms
//!
//! A region's histogram has buckets of its own: four per power of two. The count of each of the SDK's buckets, explicit
//! or exponential, is spread evenly over those between its bounds; minimum and maximum of the interval narrow the first
//! and the last. Count and sum, and therefore rate and mean, stay exact. The 99th percentile is known to the width of
//! the SDK's bucket: with the default bounds of the SDK and values in seconds that is 5 s, so give such a histogram
//! bounds (`with_boundaries`) or, by a view, the SDK's exponential aggregation
//! (`Aggregation::Base2ExponentialHistogram`, feature `spec_unstable_metrics_views` of `opentelemetry_sdk`). Its
//! buckets are found on both sides of 0 and at whatever scale the SDK has come to in the interval; they are usually the
//! narrower ones. A histogram without bounds is one bucket, from the least value to the largest.
//!
//! Values below 0 are in a histogram of their own, `NAME.below_zero`, without their sign: it is registered with the
//! first of them, as a series of its own. A bucket with 0 inside is divided by its width. Both sums together are the
//! SDK's; which share is below 0, only the buckets say. If the second histogram is refused, as for a name of more than
//! 244 bytes, [`Client::status`](crate::Client::status) says so, and the first one goes on.
//!
//! # Interval and temporality
//!
//! The SDK is asked for its values once a second ([`INTERVAL`]), as often as an agent reads a service by default. More
//! often would cost more than it shows: a collection visits every series and allocates. Between two collections values
//! stand still, so connect the service with [`changes_every`](crate::Service::changes_every) of the same interval: the
//! detector takes one row per collection. Handles of the same client are then read as often, and agents do not notice
//! by a missing heartbeat that the service hangs. For another interval, build the reader yourself:
//! `PeriodicReader::builder(uview.metric_exporter()).with_interval(…)`.
//!
//! The exporter asks for delta temporality, so the SDK forgets attribute sets that are not used. Cumulative sums are
//! taken too. Cumulative histograms, which only another reader could pass on, are left out, and
//! [`Client::status`](crate::Client::status) says so.
//!
//! # Bounds
//!
//! [`Limits`](crate::Limits) hold as for any series: at most 256 label sets per metric have one of their own, the rest
//! share one. The exporter remembers as many series as a client may have.

use std::time::Duration;

#[cfg(feature = "opentelemetry")]
mod exporter;
#[cfg(feature = "opentelemetry")]
mod histogram;
#[cfg(feature = "opentelemetry")]
mod series;

#[cfg(feature = "opentelemetry")]
pub use exporter::Exporter;

/// Time between two collections.
pub const INTERVAL: Duration = Duration::from_secs(1);
