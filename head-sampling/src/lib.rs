//! Head sampling for those who cannot record everything: SDKs ask which share of each operation's requests to record, by Jaeger's remote
//! sampling protocol, and are told more while something is out of the ordinary. Advice: an SDK asks once a minute or less often, so that what
//! it is told takes effect late. How late is measured.
//!
//! | module | what |
//! | --- | --- |
//! | [`Advice`] | which share, decided: raised operations, and for how long; pure, given the time |
//! | [`Answer`] | the protocol's answer as JSON and as Protocol Buffers |
//! | `server` | HTTP (`/sampling?service=`) and gRPC (`jaeger.api_v2.SamplingManager`) on either port |

mod advice;
mod answer;
mod server;

pub use advice::{Advice, AdviceError, AdviceRule, Effect, Mode};
pub use answer::Answer;
pub use server::{Adviser, Counts, serve};
