//! Formats a value with its unit for people: in `uview top`, in a replay's report and in the demo's table.

/// Formats a metric's value in at most about 8 characters, with four significant digits: large values are whole, very
/// large ones have a prefix, and a value that is not finite is a dash.
#[must_use]
pub fn number(value: f64) -> String {
    // From this size on, in this unit: 1,234 stays as it is, 12,345 becomes 12.35 k.
    const PREFIXES: [(f64, f64, &str); 4] = [(1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")];
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    if size >= 1e15 || (size < 1e-3 && size > 0.0) {
        return format!("{value:.2e}");
    }
    if let Some((_, unit, prefix)) = PREFIXES.iter().find(|(least, ..)| size >= *least) {
        return format!("{} {prefix}", significant(value / unit));
    }
    significant(value)
}

/// Formats a value with its UCUM unit: durations in the unit that fits, bytes with decimal prefixes, and no unit for
/// counts (`{request}`) and shares (`1`).
#[must_use]
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        _ if !value.is_finite() => number(value),
        "s" | "ms" | "us" | "ns" => seconds(in_seconds(value, unit).unwrap_or(value)),
        "By" => {
            let (unit, prefix) = match value.abs() {
                1e9.. => (1e9, "GB"),
                1e6.. => (1e6, "MB"),
                1e3.. => (1e3, "kB"),
                _ => (1.0, "B"),
            };
            format!("{} {prefix}", significant(value / unit))
        }
        "" | "1" => number(value),
        counted if counted.starts_with('{') => number(value),
        other => format!("{} {other}", number(value)),
    }
}

/// The value in seconds, if its UCUM unit is one of time: s, ms, us, ns.
#[must_use]
pub fn in_seconds(value: f64, unit: &str) -> Option<f64> {
    Some(match unit {
        "s" => value,
        "ms" => value / 1e3,
        "us" => value / 1e6,
        "ns" => value / 1e9,
        _ => return None,
    })
}

fn seconds(value: f64) -> String {
    let (unit, name) = match value.abs() {
        0.0 | 1.0.. => (1.0, "s"),
        1e-3.. => (1e-3, "ms"),
        1e-6.. => (1e-6, "µs"),
        _ => (1e-9, "ns"),
    };
    format!("{} {name}", significant(value / unit))
}

/// Four significant digits at most, without trailing zeros.
fn significant(value: f64) -> String {
    let size = value.abs();
    let digits = if size >= 1000.0 {
        0
    } else if size >= 100.0 {
        1
    } else if size >= 10.0 {
        2
    } else {
        3
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_four_digits() {
        let shown = [0.0, 3.25, 1234.0, 12_345.0, 52_428_800.0, -7.5e9, 0.000_012, f64::NAN].map(number);

        assert_eq!(shown, ["0", "3.25", "1234", "12.35 k", "52.43 M", "-7.5 G", "1.20e-5", "–"]);
    }

    #[test]
    fn quantities_are_in_the_unit_that_fits() {
        let shown = [
            (0.0825, "s"),
            (56_150_000.0, "ns"),
            (1.62e-6, "s"),
            (0.0, "s"),
            (90.0, "s"),
            (4_200_000.0, "us"),
            (34_200_000.0, "By"),
            (12.0, "By"),
            (0.05, "1"),
            (37.0, "{request}"),
            (99.5, "%"),
            (f64::NAN, "s"),
        ]
        .map(|(value, unit)| quantity(value, unit));

        let expected =
            ["82.5 ms", "56.15 ms", "1.62 µs", "0 s", "90 s", "4.2 s", "34.2 MB", "12 B", "0.05", "37", "99.5 %", "–"];
        assert_eq!(shown, expected);
    }
}
