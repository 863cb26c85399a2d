//! Head sampling for services that cannot record everything: SDKs ask for the sampling probability of each operation
//! with Jaeger's remote sampling protocol. The probability is raised while an operation is anomalous. It is advice: an
//! SDK polls once a minute or less often, so a raised probability takes effect late. The delay is measured.
//!
//! | module | what |
//! | --- | --- |
//! | [`Advice`] | which operations have a raised probability, and for how long; pure, time is an argument |
//! | [`StrategyResponse`] | the protocol's response as JSON and as Protocol Buffers |
//! | [`request`] | the service that a request names; pure |
//! | `server` | HTTP (`/sampling?service=`) and gRPC (`jaeger.api_v2.SamplingManager`) on either port |

mod advice;
pub mod request;
mod server;
mod strategy;

pub use advice::{Advice, AdviceError, AdviceLatency, AdviceRule, Mode, VerdictSource};
pub use server::{Counts, StrategyProvider, serve};
pub use strategy::StrategyResponse;
