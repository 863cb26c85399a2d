//! Percentiles of scores.

/// The percentages for which a model keeps the distribution of its training scores.
pub const QUANTILES: [f64; 14] = [0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.0, 99.0, 99.5, 99.9, 100.0];

/// The `percent`-th percentile of `sorted`, linear between neighbours; 0 for an empty slice.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let position = last as f64 * (percent / 100.0).clamp(0.0, 1.0);
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// `values` in ascending order.
pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_linear_between_neighbours() {
        let values = sorted(vec![4.0, 1.0, 3.0, 2.0]);

        assert_eq!(percentile(&values, 0.0), 1.0);
        assert_eq!(percentile(&values, 50.0), 2.5);
        assert_eq!(percentile(&values, 100.0), 4.0);
        assert_eq!(percentile(&[], 50.0), 0.0);
    }
}
