//! Numbers, durations and sparklines as people read them.

/// A value of a metric in at most about 8 characters: whole where it is large, with a prefix where it is very large.
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

/// A value with its UCUM unit as people read it: times in the unit that fits, bytes with decimal prefixes, and nothing for what
/// is only counted (`{request}`).
#[must_use]
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        _ if !value.is_finite() => number(value),
        "s" => seconds(value),
        "ms" => seconds(value / 1e3),
        "us" => seconds(value / 1e6),
        "ns" => seconds(value / 1e9),
        "By" => {
            let (unit, prefix) = match value.abs() {
                1e9.. => (1e9, "GB"),
                1e6.. => (1e6, "MB"),
                1e3.. => (1e3, "kB"),
                _ => (1.0, "B"),
            };
            format!("{} {prefix}", significant(value / unit))
        }
        "" => number(value),
        counted if counted.starts_with('{') => number(value),
        other => format!("{} {other}", number(value)),
    }
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

/// A score; a dash while there is none.
#[must_use]
pub fn score(value: f64) -> String {
    if value.is_finite() { format!("{value:.1}") } else { "–".to_owned() }
}

/// γ; a dash while there is none.
#[must_use]
pub fn threshold(gamma: f64) -> String {
    if gamma > 0.0 { score(gamma) } else { score(f64::NAN) }
}

/// A length of time with its two largest units.
#[must_use]
pub fn duration_ms(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// Eight heights; the lowest is not empty, so that a gap can be told from a zero.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How high a score is drawn, 0 to 7: up to 3 below γ, from 4 on at or above it, one step for each doubling. Without a γ
/// (learning) everything is low.
#[must_use]
pub fn height(score: f64, gamma: f64) -> usize {
    if !(score.is_finite() && gamma > 0.0) {
        return 0;
    }
    let share = score / gamma;
    if share < 1.0 { (share * 4.0).max(0.0) as usize } else { (4 + share.log2() as usize).min(7) }
}

/// The sign of `height`.
#[must_use]
pub fn bar(height: usize) -> char {
    BARS[height.min(BARS.len() - 1)]
}

/// Cuts `values` into at most `width` parts of nearly the same length and gives the largest of each; NaN where a part has
/// none.
#[must_use]
pub fn largest_of_parts(values: &[f64], width: usize) -> Vec<f64> {
    let parts = width.min(values.len());
    let part = |i: usize| &values[i * values.len() / parts..(i + 1) * values.len() / parts];
    (0..parts).map(|i| part(i).iter().copied().fold(f64::NAN, f64::max)).collect()
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
            (34_200_000.0, "By"),
            (12.0, "By"),
            (37.0, "{request}"),
            (99.5, "%"),
            (f64::NAN, "s"),
        ]
        .map(|(value, unit)| quantity(value, unit));

        let expected = ["82.5 ms", "56.15 ms", "1.62 µs", "0 s", "90 s", "34.2 MB", "12 B", "37", "99.5 %", "–"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn durations_have_two_units() {
        assert_eq!(
            [5, 1500, 61_000, 7_260_000, 90_000_000].map(duration_ms),
            ["5 ms", "1.5 s", "1 min 1 s", "2 h 1 min", "1 d 1 h"]
        );
    }

    #[test]
    fn the_upper_half_of_a_sparkline_is_at_or_above_gamma() {
        let heights = [0.0, 2.4, 9.9, 10.0, 19.9, 20.0, 1e9].map(|score| height(score, 10.0));

        assert_eq!(heights, [0, 0, 3, 4, 4, 5, 7]);
        assert_eq!(height(5.0, f64::NAN), 0);
    }

    #[test]
    fn parts_keep_the_peak_wherever_it_is() {
        for peak in 0..10 {
            let values: Vec<f64> = (0..10).map(|i| if i == peak { 9.0 } else { 1.0 }).collect();
            let parts = largest_of_parts(&values, 4);
            assert_eq!(parts.len(), 4);
            assert_eq!(parts.iter().filter(|&&part| part == 9.0).count(), 1);
        }
        assert!(largest_of_parts(&[], 4).is_empty());
    }
}
