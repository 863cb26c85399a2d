//! Texts of others as they are kept and sent to a browser: printable lines, of bounded length where they are kept.

use serde_json::Value;
use wire::printable::line;

/// `value` as JSON. Texts of others are written out where they could not be seen, or would move what is around them: a
/// script gets them as they will stand on the page. Names of fields are this crate's own.
pub(crate) fn json(mut value: Value) -> String {
    make_printable(&mut value);
    value.to_string()
}

/// `text` in one printable line of at most `most` characters, and three dots if there are more.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    let text = line(text);
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(shown) = line(text) {
                *text = shown;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_printable),
        Value::Object(fields) => fields.values_mut().for_each(make_printable),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_once_it_is_printable() {
        assert_eq!(shortened("λλλ", 3), "λλλ");
        assert_eq!(shortened("λλλλ", 3), "λλλ…");
        assert_eq!(shortened("a\nb", 4), "a\\u{…");
    }

    #[test]
    fn every_text_is_a_printable_line_however_deep_it_lies() {
        let hostile = "a\u{202e}b\n\u{1b}[0m<script>";

        let text = json(json!({ "a": [{ "b": hostile }], "c": 1 }));

        assert_eq!(text, r#"{"a":[{"b":"a\\u{202e}b\\u{a}\\u{1b}[0m<script>"}],"c":1}"#);
    }
}
