//! How the values of a service's replicas become one, and what a service declares about that.

use core::fmt;

use super::{Kind, TickDivider};
use crate::name::{Formula, MetricName, NameError};
use crate::time::{Interval, Nanos};

/// How the values of a service's replicas on a node are aggregated (μView, 4.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aggregation {
    /// The largest value.
    Max,
    /// The smallest value.
    Min,
    /// The sum of all values; the default of counters and of histograms' counts.
    Sum,
    /// The mean of all values; the default of gauges.
    Mean,
    /// A quantile of all values.
    Quantile(Quantile),
    /// An expression over the replicas' values, such as `max - min`. Whoever computes it checks it.
    Formula(Formula),
    /// Not from replicas: an expression over other columns, such as `errors / requests`. Whoever computes it checks it.
    Derived(Formula),
    /// An aggregation that was added to the NIC agent under this name.
    Named(MetricName),
}

/// A share of values, from 0 (the smallest) to 1 (the largest), in steps of a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantile(u32);

/// Why a text is no aggregation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AggregationError {
    /// Neither a name nor an expression.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A quantile out of range.
    #[error("{0} is no quantile: p0 to p100, or quantile(0) to quantile(1), with up to four decimal places of percent")]
    Quantile(String),
    /// Not what a service may declare.
    #[error("{0} cannot be declared by a service: sum, mean, min, max or a quantile such as p90 can")]
    Undeclarable(String),
}

impl Quantile {
    const MILLION: u32 = 1_000_000;

    /// The quantile of `share`, from 0 to 1, to a millionth; `None` for any other.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        let millionths = (share * f64::from(Self::MILLION)).round();
        (0.0..=1.0).contains(&share).then_some(Self(millionths as u32))
    }

    /// Its share, from 0 to 1.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Self::MILLION)
    }

    /// The quantile of a text such as `p99.9` or `quantile(0.999)`; `None` if it is of neither form.
    fn parse(text: &str) -> Option<Result<Self, AggregationError>> {
        let wrong = || AggregationError::Quantile(beginning(text));
        let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if let Some(digits) = text.strip_prefix('p').filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit())) {
            let percent = digits.parse::<f64>().ok().filter(|_| plain(digits))?;
            return Some(Self::new(percent / 100.0).ok_or_else(wrong));
        }
        let share = text.strip_prefix("quantile(")?.strip_suffix(')')?.trim();
        Some(share.parse().ok().and_then(Self::new).ok_or_else(wrong))
    }
}

impl fmt::Display for Quantile {
    /// As `p90` or `p99.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 {
            return write!(f, "p{whole}");
        }
        write!(f, "p{whole}.{}", format!("{part:04}").trim_end_matches('0'))
    }
}

impl Aggregation {
    /// The default aggregation of this kind.
    #[must_use]
    pub const fn default_for(kind: Kind) -> Self {
        match kind {
            Kind::Counter | Kind::UpDownCounter | Kind::Histogram(_) => Self::Sum,
            Kind::Gauge => Self::Mean,
        }
    }

    /// The aggregation of a text: `max`, `min`, `sum`, `mean`, a quantile, the name of one that was added to the NIC
    /// agent, or else an expression over the replicas' values. Names have no `-`, `/` or `:`.
    ///
    /// # Errors
    ///
    /// [`AggregationError`] if it is none of these. An expression is not looked into.
    pub fn parse(text: &str) -> Result<Self, AggregationError> {
        Ok(match text.trim() {
            "max" => Self::Max,
            "min" => Self::Min,
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            other => match Quantile::parse(other) {
                Some(quantile) => Self::Quantile(quantile?),
                None if other.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.') => {
                    Self::Named(MetricName::new(other)?)
                }
                None => Self::Formula(Formula::new(other)?),
            },
        })
    }

    /// Whether a service may declare it: what costs no more than the default, and needs no operator.
    #[must_use]
    pub const fn is_declarable(&self) -> bool {
        matches!(self, Self::Max | Self::Min | Self::Sum | Self::Mean | Self::Quantile(_))
    }
}

impl fmt::Display for Aggregation {
    /// As [`Self::parse`] takes it, but for a derived column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.pad("max"),
            Self::Min => f.pad("min"),
            Self::Sum => f.pad("sum"),
            Self::Mean => f.pad("mean"),
            Self::Quantile(quantile) => write!(f, "{quantile}"),
            Self::Formula(formula) | Self::Derived(formula) => write!(f, "{formula}"),
            Self::Named(name) => write!(f, "{name}"),
        }
    }
}

/// What a service declares about one of its metrics. Operators may decide otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Declaration {
    /// How values of replicas are aggregated; `None`: by kind. Always [declarable](Aggregation::is_declarable).
    aggregation: Option<Aggregation>,
    /// How often it is worth reading; `None`: in every row.
    pub read_every: Option<Interval>,
    /// The start of a declared aggregation that is not declarable, such as of a later release: as if none was declared.
    unknown: Option<Box<str>>,
}

impl Declaration {
    /// Nothing is declared.
    pub const NONE: Self = Self { aggregation: None, read_every: None, unknown: None };

    /// Declares how values of replicas are aggregated.
    ///
    /// # Errors
    ///
    /// [`AggregationError::Undeclarable`] unless it is declarable.
    pub fn aggregated(self, aggregation: Aggregation) -> Result<Self, AggregationError> {
        if !aggregation.is_declarable() {
            return Err(AggregationError::Undeclarable(beginning(&aggregation.to_string())));
        }
        Ok(Self { aggregation: Some(aggregation), ..self })
    }

    /// How values of replicas are aggregated; `None`: by kind.
    #[must_use]
    pub const fn aggregation(&self) -> Option<&Aggregation> {
        self.aggregation.as_ref()
    }

    /// From how a message says it.
    #[must_use]
    pub fn from_message(aggregation: &str, read_every_ms: u32) -> Self {
        // Longer than any LMAP's interval: the longest that there is.
        let length = Nanos::from_millis(u64::from(read_every_ms)).min(Interval::LONGEST);
        let none = Self { read_every: Interval::new(length).ok(), ..Self::NONE };
        if aggregation.is_empty() {
            return none;
        }
        let declared = Aggregation::parse(aggregation).and_then(|aggregation| none.clone().aggregated(aggregation));
        declared.unwrap_or_else(|_| Self { unknown: Some(beginning(aggregation).into()), ..none })
    }

    /// Why the declared aggregation counts as none, if it does. Takes it out.
    #[must_use]
    pub fn take_unknown(&mut self) -> Option<AggregationError> {
        self.unknown.take().map(|text| AggregationError::Undeclarable(text.into()))
    }

    /// How a message says it: the aggregation, empty for none; and milliseconds, 0 for none.
    #[must_use]
    pub fn to_message(&self) -> (String, u32) {
        let text = self.aggregation.as_ref().map(ToString::to_string).unwrap_or_default();
        (text, self.read_every.map_or(0, |every| every.length().as_millis() as u32))
    }

    /// The stride, in rows at `interval`, at which the metric is read.
    #[must_use]
    pub fn stride(&self, interval: Interval) -> TickDivider {
        stride(self.read_every.map_or(Nanos::ZERO, Interval::length), interval)
    }
}

impl fmt::Display for Declaration {
    /// As "aggregated by max, read every 5000 ms".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.aggregation, self.read_every) {
            (None, None) => f.write_str("aggregated by its kind"),
            (Some(aggregation), None) => write!(f, "aggregated by {aggregation}"),
            (None, Some(every)) => write!(f, "read every {}", every.length()),
            (Some(aggregation), Some(every)) => {
                write!(f, "aggregated by {aggregation}, read every {}", every.length())
            }
        }
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(32).collect()
}

/// The stride, in rows at `interval`, of what happens every `period`; 1 if that is more often than rows are made.
#[must_use]
pub fn stride(period: Nanos, interval: Interval) -> TickDivider {
    TickDivider::new(period.0.div_ceil(interval.nanos().get()) as u32).unwrap_or(TickDivider::MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_aggregation_is_a_known_word_a_quantile_a_name_or_an_expression() {
        let quantile = |share| Aggregation::Quantile(Quantile::new(share).unwrap());
        for (text, expected) in [
            ("max", Aggregation::Max),
            (" mean ", Aggregation::Mean),
            ("p90", quantile(0.9)),
            ("p99.9", quantile(0.999)),
            ("p0", quantile(0.0)),
            ("quantile(0.25)", quantile(0.25)),
            ("p90th", Aggregation::Named(MetricName::new("p90th").unwrap())),
            ("spread", Aggregation::Named(MetricName::new("spread").unwrap())),
            ("max - min", Aggregation::Formula(Formula::new("max - min").unwrap())),
            ("sum/count", Aggregation::Formula(Formula::new("sum/count").unwrap())),
        ] {
            assert_eq!(Aggregation::parse(text), Ok(expected.clone()), "{text}");
            assert_eq!(Aggregation::parse(&expected.to_string()), Ok(expected), "{text}");
        }
        for text in ["", "p101", "quantile(1.5)", "quantile(-0.1)", "quantile(NaN)", "max\n- 1", "1.5", "ü"] {
            assert!(Aggregation::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_quantile_is_named_by_its_percent() {
        let name = |share| Quantile::new(share).unwrap().to_string();

        assert_eq!([0.9, 0.999, 0.12345, 1.0].map(name), ["p90", "p99.9", "p12.345", "p100"]);
        assert_eq!(Quantile::new(f64::NAN), None);
    }

    #[test]
    fn a_declaration_survives_its_message_and_what_cannot_be_declared_is_said() {
        let every = Interval::new(Nanos::from_secs(5)).unwrap();
        let declared =
            Declaration { read_every: Some(every), ..Declaration::NONE }.aggregated(Aggregation::Max).unwrap();
        let (text, millis) = declared.to_message();

        assert_eq!((text.as_str(), millis), ("max", 5000));
        assert_eq!(Declaration::from_message(&text, millis), declared);
        assert_eq!(Declaration::from_message("", 0), Declaration::NONE);
        let long = Declaration::from_message("", u32::MAX).read_every.unwrap();
        assert_eq!(long.length(), Interval::LONGEST);
        for text in ["spread", "max - min", "p101", "a\nb"] {
            let mut kept = Declaration::from_message(text, 1000);
            assert_eq!(kept.take_unknown(), Some(AggregationError::Undeclarable(text.to_owned())));
            assert_eq!(kept.take_unknown(), None);
            assert_eq!(kept.aggregation(), None);
            assert_eq!(kept.read_every.unwrap().length(), Nanos::from_secs(1));
        }
    }

    #[test]
    fn a_metric_is_read_at_the_first_row_after_its_period() {
        let interval = Interval::new(Nanos::from_millis(300)).unwrap();

        assert_eq!(stride(Nanos::from_secs(1), interval).get(), 4);
        assert_eq!(stride(Nanos::from_millis(100), interval).get(), 1);
        assert_eq!(Declaration::NONE.stride(interval).get(), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_an_aggregation_or_an_error_and_its_name_is_read_as_the_same(text in any::<String>()) {
            if let Ok(aggregation) = Aggregation::parse(&text) {
                prop_assert_eq!(Aggregation::parse(&aggregation.to_string()), Ok(aggregation));
            }
        }

        #[test]
        fn every_quantile_survives_its_name(millionths in 0..=1_000_000u32) {
            let quantile = Quantile(millionths);
            prop_assert_eq!(Aggregation::parse(&quantile.to_string()), Ok(Aggregation::Quantile(quantile)));
        }
    }
}
