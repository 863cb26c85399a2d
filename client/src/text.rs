//! Names and label values of others, as a registration takes them.

/// Longest label value, in bytes.
const LABEL_VALUE_BYTES: usize = 256;

/// `name` with `_` for every character that a metric or a label name may not have, and one before a digit at its start.
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub(crate) fn name(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_.-/:".contains(c) { c } else { '_' };
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let prefix = if starts { "" } else { "_" };
    prefix.chars().chain(name.chars().map(allowed)).collect()
}

/// `value` with spaces for control characters, cut to what a label may have.
pub(crate) fn label_value(value: &str) -> String {
    let mut value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    value.truncate(value.floor_char_boundary(LABEL_VALUE_BYTES));
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
    fn what_a_name_may_not_have_becomes_an_underscore() {
        assert_eq!(name("http.requests/total:sum-1_x"), "http.requests/total:sum-1_x");
        assert_eq!(name("queue depth\u{202e}é"), "queue_depth__");
        assert_eq!(name("5xx"), "_5xx");
        assert_eq!(name(""), "_");
    }

    #[test]
    fn a_label_value_is_cut_between_characters() {
        let long = label_value(&format!("a\n{}", "é".repeat(200)));

        assert!(long.starts_with("a é"));
        assert_eq!(long.len(), 256);
        assert_eq!(label_value(&format!("a{}", "é".repeat(200))).len(), 255);
    }
}
