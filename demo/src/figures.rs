//! Formats delays and shares for people; [`wire::quantity`] formats values with their units.

use wire::time::Nanos;

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
    fn shares_are_percentages() {
        assert_eq!(percent(0.0042), "0.42 %");
        assert_eq!(percent(0.42), "42.0 %");
    }
}
