//! Aggregation of the values of a service's replicas into one (μView, 4.2).

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use lmap::ReplicaExpression;
use wire::metric::Aggregation;
use wire::name::MetricName;

/// A user-defined aggregation over replicas. Any `Fn(&[f64]) -> f64` is one.
///
/// ```
/// # use nic_agent::{Aggregations, wire::name::MetricName};
/// let range = |values: &[f64]| {
///     let most = values.iter().copied().fold(f64::MIN, f64::max);
///     most - values.iter().copied().fold(f64::MAX, f64::min)
/// };
/// let mut aggregations = Aggregations::default();
/// aggregations.add(MetricName::new("range")?, range);
/// # Ok::<(), nic_agent::wire::name::NameError>(())
/// ```
///
/// [`run_with`](crate::run_with) runs a NIC agent with it. It is called in every tick for each column: it has to be
/// fast, and must not allocate, block or panic.
pub trait Aggregate: Send + Sync {
    /// Returns one value for the service. `values` has one finite value for each replica that has one, in the order of
    /// replica ids, and is never empty. A result that is not finite is a missing value.
    fn aggregate(&self, values: &[f64]) -> f64;
}

impl<F: Fn(&[f64]) -> f64 + Send + Sync> Aggregate for F {
    fn aggregate(&self, values: &[f64]) -> f64 {
        self(values)
    }
}

/// User-defined aggregations, by name. Metrics can select those whose names have no `-`, `/` or `:`; a text with one of
/// these is an expression.
#[derive(Clone, Default)]
pub struct Aggregations(BTreeMap<MetricName, Arc<dyn Aggregate>>);

impl Aggregations {
    /// Adds `aggregate` under `name`, or replaces the one with that name.
    pub fn add(&mut self, name: MetricName, aggregate: impl Aggregate + 'static) {
        self.0.insert(name, Arc::new(aggregate));
    }

    /// The method of `aggregation`; `None` if no aggregation has that name, or if it cannot be computed from the values
    /// of replicas.
    pub(crate) fn find(&self, aggregation: &Aggregation) -> Option<Method> {
        Some(match aggregation {
            Aggregation::Max => Method::Max,
            Aggregation::Min => Method::Min,
            Aggregation::Sum => Method::Sum,
            Aggregation::Mean => Method::Mean,
            Aggregation::Quantile(quantile) => Method::Quantile(quantile.share()),
            Aggregation::Formula(text) => Method::Formula(Arc::new(ReplicaExpression::new(text.as_str()).ok()?)),
            Aggregation::Derived(_) => return None,
            Aggregation::Named(name) => Method::Own(Arc::clone(self.0.get(name)?)),
        })
    }
}

impl fmt::Debug for Aggregations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The method of an aggregation.
#[derive(Clone)]
pub(crate) enum Method {
    Max,
    Min,
    Sum,
    Mean,
    Quantile(f64),
    Formula(Arc<ReplicaExpression>),
    Own(Arc<dyn Aggregate>),
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Max => "Max",
            Self::Min => "Min",
            Self::Sum => "Sum",
            Self::Mean => "Mean",
            Self::Quantile(_) => "Quantile",
            Self::Formula(_) => "Formula",
            Self::Own(_) => "Own",
        })
    }
}

impl Method {
    pub(crate) fn is_sum(&self) -> bool {
        matches!(self, Self::Sum)
    }

    /// Whether a single value is its own aggregate.
    pub(crate) fn keeps_one(&self) -> bool {
        !matches!(self, Self::Own(_) | Self::Formula(_))
    }

    /// The aggregate of `values`, which it may reorder; NaN if there are none, or if the result is not finite. Nothing
    /// is allocated but by a user-defined aggregation.
    pub(crate) fn apply(&self, values: &mut [f64]) -> f64 {
        if values.is_empty() {
            return f64::NAN;
        }
        let sum = || values.iter().sum::<f64>();
        let one = match self {
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Sum => sum(),
            Self::Mean => sum() / values.len() as f64,
            Self::Quantile(share) => lmap::quantile(values, *share),
            Self::Formula(expression) => expression.evaluate(values),
            Self::Own(aggregate) => aggregate.aggregate(values),
        };
        if one.is_finite() { one } else { f64::NAN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(aggregation: &Aggregation, values: &[f64]) -> f64 {
        Aggregations::default().find(aggregation).unwrap().apply(&mut values.to_vec())
    }

    #[test]
    fn every_aggregation_makes_one_of_many() {
        let values = [1.0, 5.0, 3.0];

        assert_eq!(apply(&Aggregation::Max, &values), 5.0);
        assert_eq!(apply(&Aggregation::Min, &values), 1.0);
        assert_eq!(apply(&Aggregation::Sum, &values), 9.0);
        assert_eq!(apply(&Aggregation::Mean, &values), 3.0);
        assert_eq!(apply(&Aggregation::parse("p75").unwrap(), &values), 4.0);
        assert_eq!(apply(&Aggregation::parse("max - min").unwrap(), &values), 4.0);
    }

    #[test]
    fn nothing_and_infinity_are_missing() {
        assert!(apply(&Aggregation::Sum, &[]).is_nan());
        assert!(apply(&Aggregation::Sum, &[f64::MAX, f64::MAX]).is_nan());
        assert!(apply(&Aggregation::parse("max / min").unwrap(), &[0.0, 1.0]).is_nan());
        assert!(apply(&Aggregation::parse("p50").unwrap(), &[]).is_nan());
    }

    #[test]
    fn a_users_aggregation_is_found_by_its_name_and_an_unknown_one_is_not() {
        let median = |values: &[f64]| values[values.len() / 2];
        let named = |name| Aggregation::Named(MetricName::new(name).unwrap());
        let mut aggregations = Aggregations::default();
        aggregations.add(MetricName::new("median").unwrap(), median);

        assert_eq!(aggregations.find(&named("median")).unwrap().apply(&mut [1.0, 2.0, 9.0]), 2.0);
        assert!(aggregations.find(&named("mode")).is_none());
    }
}
