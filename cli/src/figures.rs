//! Formats of numbers, scores, durations and sparklines.

pub use wire::quantity::{number, quantity};

/// A score with one decimal; a dash if it is not finite.
#[must_use]
pub fn score(value: f64) -> String {
    if value.is_finite() { format!("{value:.1}") } else { "–".to_owned() }
}

/// The threshold γ with one decimal; a dash unless it is above 0.
#[must_use]
pub fn threshold(gamma: f64) -> String {
    if gamma > 0.0 { score(gamma) } else { score(f64::NAN) }
}

/// A duration in milliseconds as text with its two largest units, such as `2 h 1 min`.
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

/// Eight heights. The lowest is not empty, so that a zero differs from a gap.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The height of a score in a sparkline, 0 to 7: 0 to 3 below γ, from 4 on at or above it, one step per doubling. While
/// there is no γ (learning), the height is 0.
#[must_use]
pub fn height(score: f64, gamma: f64) -> usize {
    if !(score.is_finite() && gamma > 0.0) {
        return 0;
    }
    let share = score / gamma;
    if share < 1.0 { (share * 4.0).max(0.0) as usize } else { (4 + share.log2() as usize).min(7) }
}

/// The character of a sparkline for `height`, 0 to 7.
#[must_use]
pub fn bar(height: usize) -> char {
    BARS[height.min(BARS.len() - 1)]
}

/// Splits `values` into at most `width` parts of nearly equal length and returns the maximum of each; NaN if a part has
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
