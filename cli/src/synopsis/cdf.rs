//! A cumulative distribution for the terminal: delays on a logarithmic scale, shares as bars.

use core::fmt;

use synopses::fridge::Histogram;

/// Columns and rows of the plot.
const WIDTH: usize = 64;
const HEIGHT: usize = 10;
/// Characters for eighths of a row.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The distribution as points: a delay in nanoseconds and the share of delays at or below it, rising.
#[must_use]
pub fn points(histogram: &Histogram) -> Vec<(f64, f64)> {
    let shares = (0..=100).map(|percent| f64::from(percent) / 100.0);
    shares.filter_map(|share| Some((histogram.estimate(share)?.delay_ns, share))).collect()
}

/// A duration in nanoseconds as text with a unit and three digits.
#[must_use]
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// Draws the distribution: above each delay, the share of requests that were answered by then.
///
/// # Errors
///
/// The error of the formatter.
pub fn draw(histogram: &Histogram, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let ends = [0.001, 0.999].map(|share| histogram.estimate(share).map(|quantile| quantile.delay_ns.max(1.0)));
    let [Some(least), Some(most)] = ends else { return Ok(()) };
    let most = most.max(least * 1.01);
    let delay = |column: usize| least * (most / least).powf((column as f64 + 0.5) / WIDTH as f64);
    let below = |delay: f64| histogram.above(delay as u64).map_or(0.0, |(above, _)| 1.0 - above);
    let shares: Vec<f64> = (0..WIDTH).map(|column| below(delay(column))).collect();
    for row in (0..HEIGHT).rev() {
        let label = if row + 1 == HEIGHT {
            "100 %"
        } else if row == HEIGHT / 2 {
            " 50 %"
        } else {
            "     "
        };
        let cell = |share: &f64| EIGHTHS[((share * HEIGHT as f64 - row as f64).clamp(0.0, 1.0) * 8.0).round() as usize];
        let bars: String = shares.iter().map(cell).collect();
        writeln!(f, "{label} │{}", bars.trim_end())?;
    }
    writeln!(f, "      └{}", "─".repeat(WIDTH))?;
    let [left, middle, right] = [least, (least * most).sqrt(), most].map(time);
    let half = WIDTH / 2;
    writeln!(f, "       {left:<half$}{middle:<rest$}{right}", rest = half.saturating_sub(right.chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use synopses::fridge::{HistogramShape, Sample};

    fn histogram(delays: &[u64]) -> Histogram {
        let mut histogram = Histogram::new(HistogramShape { tick_shift: 6, fineness: 4 }).unwrap();
        for &delay_ns in delays {
            histogram.insert(Sample { delay_ns, weight: 1.0 });
        }
        histogram
    }

    struct Picture(Histogram);

    impl fmt::Display for Picture {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            draw(&self.0, f)
        }
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let times = [5.0, 12_340.0, 123_400.0, 1_234_000.0, 99_400_000.0, 12e9].map(time);

        assert_eq!(times, ["5.00 ns", "12.3 µs", "123 µs", "1.23 ms", "99.4 ms", "12.0 s"]);
    }

    #[test]
    fn half_of_the_picture_is_full_where_half_of_the_delays_are_short() {
        let delays: Vec<u64> = (0..1_000).map(|n| if n % 2 == 0 { 1_000_000 } else { 100_000_000 }).collect();
        let picture = Picture(histogram(&delays)).to_string();
        let lines: Vec<&str> = picture.lines().collect();

        assert_eq!(lines.len(), HEIGHT + 2);
        let bars = |row: usize| lines[row].chars().filter(|c| *c == '█').count();
        assert!(bars(HEIGHT - 1) > WIDTH - 3, "{picture}");
        assert!(bars(0) < 4, "{picture}");
        assert!(lines[HEIGHT + 1].contains("ms") && !picture.is_ascii(), "{picture}");
        assert!(Picture(histogram(&[])).to_string().is_empty());
        let points = points(&histogram(&delays));
        assert!(points.len() == 101 && points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    }
}
