//! Configuration of head sampling advice.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use head_sampling::{Advice, AdviceError, AdviceRule, Mode};
use serde::Deserialize;
use wire::time::Nanos;

use super::{ConfigError, KeepMode, OtlpConfig, at_least_one};

/// Limit of operations with a raised probability.
const MAX: usize = 10_000;

/// Advice for services that sample at the head, by Jaeger's remote sampling protocol.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadSamplingConfig {
    /// Address for requests over HTTP and gRPC. `None`: off.
    pub listen: Option<SocketAddr>,
    /// Sampling probability of an operation.
    pub default_probability: f64,
    /// Sampling probability while an LMAP on the operation's path is in alarm.
    pub raised_probability: f64,
    /// Traces per second and operation that are sampled in any case.
    pub lower_bound_traces_per_s: f64,
    /// How long an operation stays raised after its last second in alarm.
    pub hold_ms: NonZeroU32,
}

impl Default for HeadSamplingConfig {
    fn default() -> Self {
        Self {
            listen: None,
            default_probability: 0.01,
            raised_probability: 1.0,
            lower_bound_traces_per_s: 0.1,
            hold_ms: at_least_one(120_000),
        }
    }
}

impl HeadSamplingConfig {
    /// The advice to give. Where traces are buffered (`keep: tail`), it is to sample everything.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a probability is outside 0 to 1.
    pub fn advice(&self, otlp: &OtlpConfig) -> Result<Advice, ConfigError> {
        let tail = otlp.is_on() && otlp.traces.keep == KeepMode::Tail;
        let rule = AdviceRule {
            default_probability: self.default_probability,
            raised_probability: self.raised_probability,
            lower_bound_traces_per_s: self.lower_bound_traces_per_s,
            hold: Nanos::from_millis(u64::from(self.hold_ms.get())),
        };
        let mode = if tail { Mode::Tail } else { Mode::Head };
        let refused = |cause: AdviceError| ConfigError::value("head_sampling", cause);
        Advice::new(rule, mode, MAX).map_err(refused)
    }
}
