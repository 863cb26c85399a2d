//! Reasons of a score, by the names of series.

use wire::control::Reason;
use wire::metric::{Series, Statistic};
use wire::time::Nanos;

/// A column that contributes to a score, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedReason {
    /// The series of the column. Of an LMAP over several services, its name begins with the service.
    pub series: Series,
    /// Which of its columns.
    pub statistic: Statistic,
    /// Share of the squared score, 0 to 1.
    pub share: f64,
    /// The value, in the unit.
    pub seen: f64,
    /// The expected value, in the unit.
    pub expected: f64,
    /// How long it has stood out by itself; zero if it just began, or does not.
    pub since: Nanos,
    /// What the value is about, in the service's words; empty: nothing in particular.
    pub about: String,
    /// The replica whose value explains the deviation: in a pod, the pod's name. Empty: none stands out, or replicas
    /// are not known one by one.
    pub replica: String,
}

impl NamedReason {
    /// `reason` about a column of `series`, whose values are about `about`, and explained by `replica`.
    #[must_use]
    pub fn new(series: Series, reason: &Reason, about: String, replica: String) -> Self {
        let Reason { statistic, share, seen, expected, since, .. } = *reason;
        Self { series, statistic, share, seen, expected, since, about, replica }
    }

    /// Title of the column: metric, statistic and labels.
    #[must_use]
    pub fn column(&self) -> String {
        self.series.column_title(self.statistic)
    }

    /// Unit of `seen` and `expected`; empty if not stated.
    #[must_use]
    pub fn unit(&self) -> &str {
        self.series.column_unit(self.statistic)
    }

    /// Memory in bytes, with its texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let Series { name, labels, unit, .. } = &self.series;
        let label = |(key, value): (&str, &str)| size_of::<(Box<str>, Box<str>)>() + key.len() + value.len();
        let unit = unit.as_ref().map_or(0, |unit| unit.as_str().len());
        let texts = self.about.len() + self.replica.len() + name.as_str().len() + unit;
        size_of::<Self>() + texts + labels.iter().map(label).sum::<usize>()
    }
}
