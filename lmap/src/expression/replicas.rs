//! Expressions over the values of replicas, and quantiles of them.

use super::{Expression, ExpressionError};

/// Different quantities of the replicas' values that an expression may name.
pub const MAX_QUANTITIES: usize = 16;

/// The value below which the share `share` (0 to 1) of `values` lies, interpolated between neighbours (type 7 of
/// Hyndman and Fan, the default of R and NumPy). NaN if there are none. Reorders `values`, which have no NaN, in O(n);
/// allocates nothing.
#[must_use]
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let position = share.clamp(0.0, 1.0) * last as f64;
    let below = (position.floor() as usize).min(last);
    let (_, &mut low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    let weight = position - below as f64;
    // Not low + weight · (high − low), which overflows for values of both signs.
    if weight == 0.0 { low } else { low * (1.0 - weight) + high * weight }
}

/// What an expression may say of the replicas' values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aggregate {
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The sum of all.
    Sum,
    /// The mean of all.
    Mean,
    /// How many replicas have a value.
    Count,
    /// The quantile of this share.
    Quantile(f64),
}

impl Aggregate {
    const KNOWN: &'static str = "min, max, sum, mean, count, and quantiles such as p90 are";

    /// The quantity of this name.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "min" => Self::Min,
            "max" => Self::Max,
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            "count" => Self::Count,
            _ => {
                let percent = name.strip_prefix('p').filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()));
                let percent = percent.and_then(|percent| percent.parse::<f64>().ok());
                Self::Quantile(percent.filter(|percent| (0.0..=100.0).contains(percent))? / 100.0)
            }
        })
    }

    /// The quantity of `values`, which are finite and not none. May reorder them.
    #[must_use]
    pub fn of(self, values: &mut [f64]) -> f64 {
        let sum = |values: &[f64]| values.iter().sum::<f64>();
        match self {
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Sum => sum(values),
            Self::Mean => sum(values) / values.len() as f64,
            Self::Count => values.len() as f64,
            Self::Quantile(share) => quantile(values, share),
        }
    }
}

/// An expression over the values of a service's replicas, such as `max - min` or `max / p50`.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaExpression {
    expression: Expression,
    /// What each name means.
    aggregates: Box<[Aggregate]>,
}

/// Values of replicas with which an expression is tried.
const TRIED: [&[f64]; 6] = [&[1.0], &[0.0], &[1.0, 2.0, 4.0], &[0.5, 0.5], &[-3.0, 2.0], &[1e6, 1e3, 0.0, 7.0]];

impl ReplicaExpression {
    /// Reads `text`. Cost of an evaluation: O([`MAX_QUANTITIES`] · replicas) at the most.
    ///
    /// # Errors
    ///
    /// [`ExpressionError`] if it cannot be read, if it names something else than quantities of the replicas' values, or
    /// if it has no finite value for any replicas that were tried.
    pub fn new(text: &str) -> Result<Self, ExpressionError> {
        let expression = Expression::parse(text)?;
        let mut aggregates = Vec::with_capacity(expression.names().len());
        for name in expression.names() {
            let unknown =
                || ExpressionError::Name { at: name.at, name: name.text.clone(), known: Aggregate::KNOWN.to_owned() };
            if aggregates.len() == MAX_QUANTITIES {
                return Err(ExpressionError::Operations { at: name.at });
            }
            aggregates.push(Aggregate::named(&name.text).ok_or_else(unknown)?);
        }
        let read = Self { expression, aggregates: aggregates.into() };
        if !TRIED.iter().any(|values| read.evaluate(&mut values.to_vec()).is_finite()) {
            return Err(ExpressionError::NoNumber);
        }
        Ok(read)
    }

    /// Its value for the replicas' `values`, which are finite and not none, and may be reordered. May be infinite or
    /// NaN. Allocates nothing.
    #[must_use]
    pub fn evaluate(&self, values: &mut [f64]) -> f64 {
        let mut quantities = [f64::NAN; MAX_QUANTITIES];
        for (quantity, aggregate) in quantities.iter_mut().zip(&self.aggregates) {
            *quantity = aggregate.of(values);
        }
        self.expression.evaluate(|name| quantities.get(name).copied().unwrap_or(f64::NAN))
    }
}
