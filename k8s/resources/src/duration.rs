//! Durations as people write them: `200ms`, `1s`, `5m`.

/// Microseconds of `text`; `None` if it is no duration.
#[must_use]
pub fn micros(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|digit: char| !digit.is_ascii_digit())?);
    let unit = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_a_unit() {
        assert_eq!(
            ["200ms", "1s", "5m", "1h", "50us"].map(micros),
            [200_000, 1_000_000, 300_000_000, 3_600_000_000, 50].map(Some)
        );
        assert_eq!(["", "1", "ms", "1.5s", "-1s", "1 s", "off", "99999999999999999999h"].map(micros), [None; 8]);
    }
}
