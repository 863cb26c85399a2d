//! Numbers as people read them.

use wire::time::Nanos;

/// `value` in `unit` (UCUM), with three digits that matter: `12.3 ms` for 0.0123 and `s`.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    match unit {
        "s" => seconds(value),
        "ms" => seconds(value / 1e3),
        "us" => seconds(value / 1e6),
        "ns" => seconds(value / 1e9),
        "By" => scaled(value, 1000.0, &[" B", " kB", " MB", " GB", " TB"]),
        _ => scaled(value, 1000.0, &["", "k", "M", "G", "T"]),
    }
}

fn seconds(value: f64) -> String {
    match value.abs() {
        0.0 => "0 s".to_owned(),
        size if size < 0.9995e-3 => format!("{} µs", digits(value * 1e6)),
        size if size < 0.9995 => format!("{} ms", digits(value * 1e3)),
        _ => format!("{} s", digits(value)),
    }
}

fn scaled(value: f64, step: f64, suffixes: &[&str]) -> String {
    let mut value = value;
    let mut suffix = 0;
    while value.abs() >= 0.9995 * step && suffix + 1 < suffixes.len() {
        value /= step;
        suffix += 1;
    }
    format!("{}{}", digits(value), suffixes.get(suffix).unwrap_or(&""))
}

/// Three digits that matter, no zeros at the end.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 0.0005 => return "0".to_owned(),
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

/// A delay in whole milliseconds: `231 ms`.
pub(crate) fn millis(delay: Nanos) -> String {
    format!("{} ms", delay.as_millis())
}

/// A share of one core as a percentage: `0.42 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

/// A time since the start: `+12.3 s`.
pub(crate) fn since_start(at: Nanos) -> String {
    format!("+{:.1} s", at.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits_that_matter_and_a_unit_that_fits() {
        assert_eq!(quantity(0.012_345, "s"), "12.3 ms");
        assert_eq!(quantity(0.000_25, "s"), "250 µs");
        assert_eq!(quantity(81_234_567.0, "ns"), "81.2 ms");
        assert_eq!(quantity(24_600_000.0, "By"), "24.6 MB");
        assert_eq!(quantity(12_345.0, "{request}"), "12.3k");
        assert_eq!(quantity(0.0, "{request}"), "0");
        assert_eq!(quantity(999.9, "By"), "1 kB");
        assert_eq!(quantity(-3.5, ""), "-3.5");
        assert_eq!(quantity(f64::NAN, "s"), "none");
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(percent(0.0042), "0.42 %");
        assert_eq!(percent(0.42), "42.0 %");
    }
}
