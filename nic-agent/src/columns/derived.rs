//! Columns that no replica registers: expressions over other columns, such as `errors / requests`.

use lmap::{Expression, ExpressionError};
use wire::control::MetricSpec;
use wire::metric::{Aggregation, Kind, Statistic};

/// A column that is computed from others of its row.
#[derive(Clone, Debug)]
pub(super) struct DerivedColumn {
    /// Its index in the row.
    column: usize,
    expression: Expression,
    /// For each name of the expression: the columns that it stands for.
    inputs: Box<[Input]>,
}

/// The columns that one name stands for: those of all label sets of a metric.
#[derive(Clone, Debug)]
struct Input {
    columns: Box<[u32]>,
    /// Whether they are summed up; else it is their mean.
    is_sum: bool,
}

/// Whether several columns of a metric are summed up: what counts is, what measures is not.
const fn is_summed(kind: Kind, statistic: Statistic) -> bool {
    match statistic {
        Statistic::Increment | Statistic::Count => true,
        Statistic::Value => matches!(kind, Kind::UpDownCounter),
        Statistic::Mean | Statistic::P99 => false,
    }
}

/// The expression over other columns that `metric` is, if it is one.
pub(super) fn expression(metric: &MetricSpec) -> Option<Result<Expression, ExpressionError>> {
    let Aggregation::Derived(formula) = &metric.aggregation else { return None };
    Some(Expression::parse(formula.as_str()))
}

impl DerivedColumn {
    /// The column number `column`. Its names are looked up among the columns of `metrics`; one that is not found is
    /// missing in every row. Allocates everything that computing needs.
    pub(super) fn new(column: usize, expression: Expression, metrics: &[MetricSpec]) -> Self {
        let inputs = expression.names().iter().map(|name| Input::new(&name.text, metrics)).collect();
        Self { column, expression, inputs }
    }

    /// Computes it from the row; NaN (missing) if that is not finite. O(operations + columns named). Never allocates.
    pub(super) fn compute(&self, row: &mut [f64]) {
        let value = self.expression.evaluate(|name| self.inputs.get(name).map_or(f64::NAN, |input| input.value(row)));
        if let Some(cell) = row.get_mut(self.column) {
            *cell = if value.is_finite() { value } else { f64::NAN };
        }
    }
}

impl Input {
    fn new(name: &str, metrics: &[MetricSpec]) -> Self {
        let (mut columns, mut is_sum, mut at) = (Vec::new(), false, 0);
        for metric in metrics {
            let (series, statistics) = (&metric.series, metric.series.kind.statistics());
            for (column, statistic) in (at..).zip(statistics) {
                let is_derived = matches!(metric.aggregation, Aggregation::Derived(_));
                if !is_derived && series.column_is_named(*statistic, name) {
                    columns.push(column as u32);
                    is_sum = is_summed(series.kind, *statistic);
                }
            }
            at += statistics.len();
        }
        Self { columns: columns.into(), is_sum }
    }

    /// The sum or the mean of those columns that are not missing; NaN if all are.
    fn value(&self, row: &[f64]) -> f64 {
        let values = self.columns.iter().filter_map(|column| row.get(*column as usize)).filter(|value| !value.is_nan());
        let (sum, found) = values.fold((0.0, 0_u32), |(sum, found), value| (sum + value, found + 1));
        match (found, self.is_sum) {
            (0, _) => f64::NAN,
            (_, true) => sum,
            (found, false) => sum / f64::from(found),
        }
    }
}
