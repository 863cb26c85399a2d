//! Redundant metrics: those that are strongly correlated with another one. Pure.

use crate::unit::Rows;

/// Two metrics are redundant if the absolute value of their correlation is at least this.
pub const SAME: f64 = 0.999;

/// Maximum number of multiplications: one or two seconds.
const MAX_WORK: usize = 4_000_000_000;

/// A metric that follows an earlier one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedundantColumn {
    /// The later of the two columns.
    pub column: usize,
    /// The earlier one, which is not redundant itself.
    pub like: usize,
    /// The correlation of both, in \[−1, 1\].
    pub correlation: f64,
}

/// The columns that follow an earlier one, in order. Missing values repeat the one before. O(m² n); `None` if that is
/// more than 4·10⁹ multiplications.
#[must_use]
pub fn redundant(rows: &Rows, metrics: usize) -> Option<Vec<RedundantColumn>> {
    if metrics.saturating_mul(metrics).saturating_mul(rows.len()) > MAX_WORK {
        return None;
    }
    let values = rows.filled(None);
    let columns: Vec<Option<Vec<f64>>> = (0..metrics).map(|column| unit(&values, column, metrics)).collect();
    let mut out: Vec<RedundantColumn> = Vec::new();
    let mut alone: Vec<usize> = Vec::new();
    for (column, own) in columns.iter().enumerate() {
        let Some(own) = own else { continue };
        let correlation = |other: usize| columns[other].as_deref().map_or(0.0, |other| dot(own, other));
        let like = alone.iter().map(|other| (*other, correlation(*other))).find(|(_, size)| size.abs() >= SAME);
        match like {
            Some((like, correlation)) => {
                out.push(RedundantColumn { column, like, correlation: correlation.clamp(-1.0, 1.0) });
            }
            None => alone.push(column),
        }
    }
    Some(out)
}

/// A column minus its mean, scaled to length 1; `None` if it does not move, or its squares overflow.
fn unit(values: &[f64], column: usize, metrics: usize) -> Option<Vec<f64>> {
    let own = || values.iter().skip(column).step_by(metrics).copied();
    let count = own().count() as f64;
    let mean = own().map(|value| value / count).sum::<f64>();
    let largest = own().map(|value| (value - mean).abs()).fold(0.0, f64::max);
    if !(largest.is_finite() && largest > 1e-9 * mean.abs().max(1e-9)) {
        return None;
    }
    let scaled: Vec<f64> = own().map(|value| (value - mean) / largest).collect();
    let length = dot(&scaled, &scaled).sqrt();
    Some(scaled.into_iter().map(|value| value / length).collect())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Columns;
    use crate::table::read;

    fn found(text: &str) -> Vec<RedundantColumn> {
        let table = read(text.as_bytes()).unwrap();
        let rows = Rows::of(&table, &Columns::gauges(&table.metrics, |_| 0), None).unwrap();
        redundant(&rows, table.metrics.len()).unwrap()
    }

    #[test]
    fn a_metric_that_follows_an_earlier_one_is_found_whatever_its_scale_and_sign() {
        let row = |t: i32| format!("{t},7,{},{},{}", t * t % 17, 1000 - 3 * t, t * t % 17);
        let rows: Vec<String> = (0..50).map(row).collect();

        let found = found(&format!("a,constant,b,down,copy\n{}", rows.join("\n")));

        assert_eq!(found.iter().map(|r| (r.column, r.like)).collect::<Vec<_>>(), [(3, 0), (4, 2)]);
        assert!((found[0].correlation + 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_that_is_huge_constant_or_missing_counts() {
        assert_eq!(found("a,b,c,d\n1,1e308,,5\n2,-1e308,,5\n3,1e308,,5\n"), []);
    }
}
