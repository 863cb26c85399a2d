//! Values of the agent's own metrics, of a page as it is exported.

use std::collections::BTreeMap;

/// The value of each metric of `page`, over all its labels. A counter has its name as documented, without `_total`.
pub(super) fn of(page: &str) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::<String, u64>::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let name = series.split('{').next().unwrap_or(series);
        let Ok(value) = value.parse::<f64>() else { continue };
        let sum = values.entry(name.strip_suffix("_total").unwrap_or(name).to_owned()).or_default();
        *sum = sum.saturating_add(value.max(0.0) as u64);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_summed_over_labels_whatever_is_in_them() {
        let page = "# HELP a 7\na_total{who=\"x} 9\"} 3\na_total{who=\"y\"} 4\nb 2\nc 0.5\nd NaN\n# EOF\n";

        let values = of(page);

        let found: Vec<_> = values.iter().map(|(name, value)| (&**name, *value)).collect();
        assert_eq!(found, [("a", 7), ("b", 2), ("c", 0), ("d", 0)]);
    }
}
