//! Rust's tokens, as far as paths need them.

/// The tokens of `text`: names and numbers, `::`, and single characters. Comments, texts and characters in quotes are
/// left out: what stands in them names nothing.
pub(super) fn tokens(text: &str) -> Vec<&str> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let opaque = comment(rest).or_else(|| raw_text(rest)).or_else(|| quoted(rest)).or_else(|| character(rest));
        let length = match opaque {
            Some(length) => length,
            None if is_part(first) => rest.find(|c: char| !is_part(c)).unwrap_or(rest.len()),
            None if rest.starts_with("::") => 2,
            None => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        tokens.extend(opaque.is_none().then_some(token));
        rest = after.trim_start();
    }
    tokens
}

/// The path that `tokens` begin with, as its names; empty if they begin with no name.
pub(super) fn path<'text>(tokens: &[&'text str]) -> Vec<&'text str> {
    let is_name = |token: &str| token.starts_with(is_part);
    let mut path = Vec::new();
    let mut rest = tokens;
    while let [name, after @ ..] = rest
        && is_name(name)
    {
        path.push(*name);
        let ["::", further @ ..] = after else { break };
        rest = further;
    }
    path
}

/// How many tokens a path of so many names has.
pub(super) fn length(names: usize) -> usize {
    (2 * names).saturating_sub(1)
}

/// Whether `c` may be part of a name.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the comment that `text` begins with.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let inner = text.strip_prefix("/*")?;
    Some(inner.find("*/").map_or(text.len(), |end| 2 + end + 2))
}

/// The length of the raw text that `text` begins with, such as `r#"…"#`.
fn raw_text(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let marks = text[prefix.len()..].chars().take_while(|&c| c == '#').count();
    let begin = prefix.len() + marks;
    let inner = text[begin..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(marks));
    Some(inner.find(&close).map_or(text.len(), |end| begin + 1 + end + close.len()))
}

/// The length of the text in quotes that `text` begins with.
fn quoted(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('"')?;
    let mut escaped = false;
    let end = inner.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    Some(end.map_or(text.len(), |end| 1 + end + 1))
}

/// The length of the character in quotes that `text` begins with. A lifetime is none.
fn character(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('\'')?;
    if let Some(escape) = inner.strip_prefix('\\') {
        // What is escaped may be a quote.
        let first = escape.chars().next()?.len_utf8();
        return Some(2 + first + escape[first..].find('\'')? + 1);
    }
    let first = inner.chars().next()?.len_utf8();
    inner[first..].starts_with('\'').then_some(1 + first + 1)
}

#[test]
#[expect(clippy::needless_raw_string_hashes, reason = "the text has a raw string of its own")]
fn comments_texts_and_characters_are_no_tokens() {
    let text = r##"use a::b; // use c
/* use d */ let x: &'a str = "use \"e"; 'f'; '\''; '\u{1f}'; r#"use "g""#; br"h\"; b'{' "##;

    assert_eq!(tokens(text).join(" "), "use a :: b ; let x : & ' a str = ; ; ; ; ; ; b");
}

#[test]
fn a_path_ends_where_no_name_follows() {
    for (text, names) in [
        ("a::b::c(d::e)", &["a", "b", "c"][..]),
        ("a::b::<C>::d", &["a", "b"]),
        ("a.b::c", &["a"]),
        ("::a", &[]),
        ("", &[]),
    ] {
        assert_eq!(path(&tokens(text)), names, "{text}");
    }
}
