//! Settings of LMAPs that no operator configured.

use std::num::NonZeroU32;
use std::path::PathBuf;

use agent_runtime::ConfigError;
use agent_runtime::config::range;
use lmap::ReplicaExpression;
use serde::Deserialize;
use wire::metric::Aggregation;
use wire::time::{Interval, Nanos};

use super::at_least_one;
use crate::control_plane::AggregationRule;

/// Defaults for LMAPs that no operator configured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LmapConfig {
    /// The local scraping interval, 1 ms to 1 h.
    pub interval_ms: NonZeroU32,
    /// The shortest interval that services may ask for and operators may set, in milliseconds, at most `interval_ms`.
    /// If left out: `interval_ms` for services, and a tenth of it for operators.
    pub fastest_ms: Option<NonZeroU32>,
    /// The longest interval that services may ask for and operators may set, in milliseconds, at least `interval_ms`; a
    /// minute, or `interval_ms` if that is longer, if left out.
    pub slowest_ms: Option<NonZeroU32>,
    /// Faster fetches while something seems wrong.
    pub adaptive: AdaptiveConfig,
    /// How replicas are aggregated: the first rule that applies counts.
    pub aggregations: Vec<AggregationConfig>,
    /// How often workers hand over what each LMAP has learnt, in seconds; 0: never.
    pub models_every_s: u32,
    /// Bytes of all models that are kept.
    pub model_bytes: usize,
    /// Directory of these models. `None`: they are kept in memory and lost when the agent ends.
    pub models_dir: Option<PathBuf>,
}

impl Default for LmapConfig {
    fn default() -> Self {
        Self {
            interval_ms: at_least_one(1000),
            fastest_ms: None,
            slowest_ms: None,
            adaptive: AdaptiveConfig::default(),
            aggregations: Vec::new(),
            models_every_s: 300,
            model_bytes: 64 << 20,
            models_dir: None,
        }
    }
}

/// Faster fetches while something seems wrong.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptiveConfig {
    /// Whether there are any.
    pub enabled: bool,
    /// Least time between two fetches, in milliseconds.
    pub fastest_ms: NonZeroU32,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self { enabled: true, fastest_ms: at_least_one(100) }
    }
}

/// How the replicas of some metrics are aggregated.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregationConfig {
    /// Names of services; `*` stands for any characters.
    #[serde(default = "every_service")]
    pub services: String,
    /// Names of metrics, likewise.
    pub metrics: String,
    /// `sum`, `mean`, `min`, `max`, a quantile, an expression, or the name of an aggregation of the NIC agent.
    pub aggregation: String,
}

fn every_service() -> String {
    "*".to_owned()
}

/// The longest interval that services may ask for: training takes two hours at it.
const SLOWEST: Nanos = Nanos::from_secs(60);

impl LmapConfig {
    /// The shortest and the longest interval that services may ask for, if `interval` is the usual one.
    pub(super) fn interval_bounds(&self, interval: Interval) -> Result<(Interval, Interval), ConfigError> {
        let bound = |key: &'static str, millis: Option<NonZeroU32>, usual: Interval| {
            let Some(millis) = millis else { return Ok(usual) };
            let length = Nanos::from_millis(u64::from(millis.get()));
            Interval::new(length).map_err(|cause| ConfigError::value(key, cause))
        };
        let fastest = bound("lmap.fastest_ms", self.fastest_ms, interval)?;
        let usual = Interval::new(SLOWEST).unwrap_or(interval).max(interval);
        let slowest = bound("lmap.slowest_ms", self.slowest_ms, usual)?;
        let millis = |bound: Interval| bound.length().as_millis();
        range(fastest <= interval, "lmap.fastest_ms", &millis(fastest), "must be at most lmap.interval_ms")?;
        range(interval <= slowest, "lmap.slowest_ms", &millis(slowest), "must be at least lmap.interval_ms")?;
        Ok((fastest, slowest))
    }

    /// The shortest and the longest interval that operators may set, if services may ask for `fastest` to `slowest`.
    pub(super) fn operator_bounds(&self, (fastest, slowest): (Interval, Interval)) -> (Interval, Interval) {
        let tenth = Interval::new(Nanos(fastest.length().0 / 10)).unwrap_or(Interval::MIN);
        (if self.fastest_ms.is_some() { fastest } else { tenth }, slowest)
    }

    /// Least time between two fetches while something seems wrong; `None`: an LMAP is fetched for its rows only.
    pub(super) fn adaptive(&self) -> Result<Option<Interval>, ConfigError> {
        let AdaptiveConfig { enabled, fastest_ms } = self.adaptive;
        let fastest = Interval::new(Nanos::from_millis(u64::from(fastest_ms.get())));
        let fastest = fastest.map_err(|cause| ConfigError::value("lmap.adaptive.fastest_ms", cause))?;
        Ok(enabled.then_some(fastest))
    }

    /// The rules for aggregations.
    pub(super) fn rules(&self) -> Result<Vec<AggregationRule>, ConfigError> {
        self.aggregations.iter().map(AggregationConfig::rule).collect()
    }
}

impl AggregationConfig {
    fn rule(&self) -> Result<AggregationRule, ConfigError> {
        let wrong = |cause: String| {
            ConfigError::value("lmap.aggregations", AggregationFault(format!("{}: {cause}", self.metrics)))
        };
        let aggregation = Aggregation::parse(&self.aggregation).map_err(|error| wrong(error.to_string()))?;
        if let Aggregation::Formula(formula) = &aggregation {
            ReplicaExpression::new(formula.as_str()).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(AggregationRule { services: self.services.clone(), metrics: self.metrics.clone(), aggregation })
    }
}

/// What is wrong with a rule.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct AggregationFault(String);

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use wire::id::Incarnation;
    use wire::name::{MetricName, ServiceName};

    #[test]
    fn the_first_rule_that_applies_says_how_replicas_are_aggregated() {
        let text = "lmap: {aggregations: [{services: cart*, metrics: 'queue.*', aggregation: max - min}, \
                    {metrics: '*.length', aggregation: p90}]}";
        let settings = Config::parse(text).unwrap().settings(Incarnation(1)).unwrap();
        let of = |service: &str, metric: &str| {
            let (service, metric) = (ServiceName::new(service).unwrap(), MetricName::new(metric).unwrap());
            settings.aggregation(&service, &metric).map(ToString::to_string)
        };

        assert_eq!(of("cart-2", "queue.length").as_deref(), Some("max - min"));
        assert_eq!(of("payment", "queue.length").as_deref(), Some("p90"));
        assert_eq!(of("payment", "queue.age"), None);
    }

    #[test]
    fn services_ask_for_intervals_within_bounds() {
        let bounds = |text: &str| {
            let (fastest, slowest) = Config::parse(text).unwrap().settings(Incarnation(1)).unwrap().interval_bounds;
            (fastest.length().as_millis(), slowest.length().as_millis())
        };

        let operators = |text: &str| {
            let bounds = Config::parse(text).unwrap().settings(Incarnation(1)).unwrap().operator_bounds;
            (bounds.0.length().as_millis(), bounds.1.length().as_millis())
        };
        assert_eq!(operators(""), (100, 60_000), "a tenth of the usual interval");
        assert_eq!(operators("lmap: {interval_ms: 100, fastest_ms: 50, slowest_ms: 5000}"), (50, 5000));

        assert_eq!(bounds(""), (1000, 60_000));
        assert_eq!(bounds("lmap: {interval_ms: 90000}"), (90_000, 90_000));
        assert_eq!(bounds("lmap: {interval_ms: 100, fastest_ms: 10, slowest_ms: 5000}"), (10, 5000));
    }
}
