//! Text of others on its way to people. Whatever a service, a worker, another node or a sender of telemetry says goes
//! through one of these functions before it stands on a terminal, in a log or on a page.
//!
//! | where it will stand | function |
//! | --- | --- |
//! | within a line of a terminal or a log | [`line()`] |
//! | a terminal: text that is laid out already | [`lines()`] |
//! | JSON, complete | [`json()`] |
//! | HTML and SVG, between tags and in attributes | [`markup()`] |
//!
//! They share [`is_printable`]. A character that is not printable is written as Rust writes it, `\u{1b}`; in JSON, as
//! JSON writes it, `\u001b`. Debug output of a text (`{:?}`) is in one line and printable as it is.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether `c` is seen, as itself, and leaves the text around it as it is: no control character, no end of a line or
/// paragraph, none of Unicode's controls of direction, with which a name could show as another one, and no character
/// that cannot be seen.
#[must_use]
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

fn is_layout(c: char) -> bool {
    c == '\n' || c == '\t'
}

/// `text` in one line: all characters that are not printable are written out, also line feeds and tabs.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    written_out(text, is_printable, |c, out| out.extend(c.escape_unicode()))
}

/// `text` that was laid out already: line feeds and tabs stay. A part of it that others have chosen was a [`line()`]
/// before, or it could pass for a line of its own.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    written_out(text, |c| is_printable(c) || is_layout(c), |c, out| out.extend(c.escape_unicode()))
}

/// The same JSON, with the characters of its texts escaped that are not printable. `text` is valid JSON, so that line
/// feeds and tabs stand between its values only.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    written_out(
        text,
        |c| is_printable(c) || is_layout(c),
        |c, out| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a string cannot fail.
                _ = write!(out, "\\u{unit:04x}");
            }
        },
    )
}

/// `text` between tags, or in an attribute with quotes, of HTML or SVG. Line feeds and tabs stay.
#[must_use]
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in lines(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn written_out(text: &str, stays: impl Fn(char) -> bool, write: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if stays(c) { out.push(c) } else { write(c, &mut out) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An escape sequence, controls of both kinds, controls of direction, what cannot be seen, and markup.
    const HOSTILE: &str = "a\u{1b}[2Jb\r\n\t\0\u{9b}\u{7f}\u{202e}\u{2066}\u{61c}\u{200b}\u{2028}\u{e0041}<script>'\"&";

    #[test]
    fn a_line_is_one_line_and_what_is_laid_out_stays_so() {
        assert_eq!(line("π µs, naïve, 東京"), "π µs, naïve, 東京");
        assert!(matches!(line("plain"), Cow::Borrowed("plain")));
        assert_eq!(line("a\tb\nc"), "a\\u{9}b\\u{a}c");
        assert_eq!(lines("a\tb\nπ µs"), "a\tb\nπ µs");
        assert_eq!(lines("x\u{1b}[2Jy\r\u{9b}z\u{7}"), "x\\u{1b}[2Jy\\u{d}\\u{9b}z\\u{7}");
        assert_eq!(lines("abc\u{202e}tnemyap\u{2069}"), "abc\\u{202e}tnemyap\\u{2069}");
        assert!(line(HOSTILE).chars().all(is_printable), "{}", line(HOSTILE));
    }

    #[test]
    fn json_stays_json_and_says_the_same() {
        let text = serde_json_of(HOSTILE);

        assert!(text.chars().all(is_printable), "{text}");
        for part in ["\\u001b", "\\u009b", "\\u007f", "\\u202e", "\\u200b", "\\udb40\\udc41"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(json("{\n\t\"a\": 1\n}\n"), "{\n\t\"a\": 1\n}\n");
    }

    /// What a JSON library makes of a text: it escapes quotes and the first 32 control characters.
    fn serde_json_of(text: &str) -> String {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
        json(&escaped.replace('\r', "\\r")).into_owned()
    }

    #[test]
    fn markup_has_no_tags_and_no_end_of_an_attribute() {
        assert_eq!(markup("<script>\u{202e}\u{1b}[2J\"&'"), "&lt;script&gt;\\u{202e}\\u{1b}[2J&quot;&amp;&#39;");
        assert_eq!(markup("a\n\tb"), "a\n\tb");
    }

    #[test]
    fn debug_output_of_a_text_is_printable() {
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|c| !is_printable(*c)) {
            let text = format!("{:?}", format!("a{c}b"));
            assert!(text.chars().all(is_printable), "U+{:04X}: {text}", u32::from(c));
        }
    }
}
