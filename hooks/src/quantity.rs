//! Values with their units as people read them, for the reasons that stand in kept traces.

/// A value with its UCUM unit: times and bytes with the prefix that fits, no unit for what is only counted (`{request}`).
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    const SECONDS: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
    const BYTES: [(f64, &str); 4] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
    if !value.is_finite() {
        return "–".to_owned();
    }
    match unit {
        "s" => scaled(value, &SECONDS),
        "ms" => scaled(value / 1e3, &SECONDS),
        "us" => scaled(value / 1e6, &SECONDS),
        "ns" => scaled(value / 1e9, &SECONDS),
        "By" => scaled(value, &BYTES),
        "" | "1" => significant(value),
        counted if counted.starts_with('{') => significant(value),
        other => format!("{} {other}", significant(value)),
    }
}

/// In the largest unit of which there is one, in the first if the value is zero.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fits = |&&(size, _): &&(f64, &str)| value.abs() >= size;
    let unit = if value == 0.0 { units.first() } else { units.iter().find(fits).or(units.last()) };
    unit.map_or_else(|| significant(value), |(size, name)| format!("{} {name}", significant(value / size)))
}

/// Four significant digits, as many as are needed.
fn significant(value: f64) -> String {
    let digits = match value.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_in_the_unit_that_fits() {
        let shown = [(0.18, "s"), (20_000.0, "us"), (0.0, "s"), (34_200_000.0, "By"), (37.0, "{request}"), (99.5, "%")];

        let shown = shown.map(|(value, unit)| quantity(value, unit));

        assert_eq!(shown, ["180 ms", "20 ms", "0 s", "34.2 MB", "37", "99.5 %"]);
        assert_eq!(quantity(f64::NAN, "s"), "–");
        assert_eq!(quantity(0.25, "By"), "0.25 B");
    }
}
