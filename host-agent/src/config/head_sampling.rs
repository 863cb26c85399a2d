//! The part of the configuration that is about head sampling.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use head_sampling::{Advice, AdviceError, AdviceRule, Mode};
use serde::Deserialize;
use wire::time::Nanos;

use super::{ConfigError, Keep, OtlpConfig, at_least_one};

/// Operations that are raised at one time.
const MOST: usize = 10_000;

/// What services are advised that cannot record everything (Jaeger's remote sampling).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadSamplingConfig {
    /// Where they ask, by HTTP and by gRPC; without, they cannot.
    pub listen: Option<SocketAddr>,
    /// The share of an operation's requests that is recorded.
    pub usual: f64,
    /// The share while it is out of the ordinary.
    pub raised: f64,
    /// Requests of each operation that are recorded in a second in any case.
    pub floor_per_s: f64,
    /// An operation stays raised for so long after its last bad second.
    pub hold_ms: NonZeroU32,
}

impl Default for HeadSamplingConfig {
    fn default() -> Self {
        Self { listen: None, usual: 0.01, raised: 1.0, floor_per_s: 0.1, hold_ms: at_least_one(120_000) }
    }
}

impl HeadSamplingConfig {
    /// What is advised. Where spans wait for a decision, everything is to be recorded.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a share is none.
    pub fn advice(&self, otlp: &OtlpConfig) -> Result<Advice, ConfigError> {
        let tail = otlp.upstream.is_some() && otlp.traces.keep == Keep::Tail;
        let rule = AdviceRule {
            usual: self.usual,
            raised: self.raised,
            floor_per_s: self.floor_per_s,
            hold: Nanos::from_millis(u64::from(self.hold_ms.get())),
        };
        let mode = if tail { Mode::Tail } else { Mode::Head };
        let refused = |cause: AdviceError| ConfigError::value("head_sampling", cause);
        Advice::new(rule, mode, MOST).map_err(refused)
    }
}
