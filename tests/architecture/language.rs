//! Words: types are nouns, doc comments say something, comments fit the width of a screen.

use std::fs;

use crate::{files, is_generated, root, sources};

/// The most columns of a line with a comment.
const WIDTH: usize = 120;

/// Words that name nothing: no type is called by one of them alone.
const NO_NOUNS: [&str; 54] = [
    "About", "Asked", "At", "Beside", "Book", "Both", "By", "Came", "Departed", "During", "Exposed", "Found", "Four",
    "From", "Given", "Gone", "Half", "Handed", "Heard", "Held", "Here", "Judged", "Kept", "Known", "Look", "Looked",
    "Made", "Met", "Noted", "Nothing", "Off", "Offered", "One", "Out", "Part", "Passed", "Place", "Rest", "Room",
    "Said", "Seen", "Shown", "Since", "Spoken", "Taken", "Together", "Told", "Tried", "Until", "Untold", "Waiting",
    "Watch", "What", "Whole",
];

/// Files with comments that begin with one of these are looked at: by the end of their names.
const COMMENTED: [(&str, &str); 8] = [
    (".rs", "//"),
    (".proto", "//"),
    (".toml", "#"),
    (".yaml", "#"),
    (".sh", "#"),
    (".service", "#"),
    (".py", "#"),
    (".cjs", "//"),
];

/// The type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line =
        line.strip_prefix("pub ").or_else(|| Some(line.strip_prefix("pub(")?.split_once(") ")?.1)).unwrap_or(line);
    let rest = ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|word| line.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end])
}

/// The text of a doc comment that is one line long, if `lines[at]` is one.
fn lone_doc<'a>(lines: &[&'a str], at: usize) -> Option<&'a str> {
    let doc = |line: &'a str| line.trim_start().strip_prefix("///");
    let beside = |at: Option<usize>| at.and_then(|at| lines.get(at)).is_some_and(|line| doc(line).is_some());
    let text = doc(lines.get(at)?)?.trim();
    (!beside(at.checked_sub(1)) && !beside(Some(at + 1))).then_some(text)
}

#[test]
fn types_are_named_by_nouns() {
    let mut bare = Vec::new();
    for (file, text) in sources(&root()) {
        let names = text.lines().filter(|line| !line.trim_start().starts_with("//")).filter_map(declared);
        bare.extend(names.filter(|name| NO_NOUNS.contains(name)).map(|name| format!("{}: {name}", file.display())));
    }

    assert!(bare.is_empty(), "these types are named by no noun:\n{}", bare.join("\n"));
}

#[test]
fn a_doc_comment_has_three_words_at_least() {
    let mut short = Vec::new();
    for (file, text) in sources(&root()) {
        let lines: Vec<_> = text.lines().collect();
        let docs = (0..lines.len()).filter_map(|at| Some((at + 1, lone_doc(&lines, at)?)));
        // A link says something.
        let docs = docs.filter(|(_, text)| text.split_whitespace().count() < 3 && !text.contains('['));
        short.extend(docs.map(|(line, text)| format!("{}:{line}: {text}", file.display())));
    }

    assert!(short.is_empty(), "{} doc comments say nothing:\n{}", short.len(), short.join("\n"));
}

#[test]
fn comments_are_wrapped() {
    let mut wide = Vec::new();
    for file in files(&root()).into_iter().filter(|file| !is_generated(file)) {
        let name = file.to_string_lossy();
        let Some((_, mark)) = COMMENTED.iter().find(|(end, _)| name.ends_with(end)) else { continue };
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let long = text.lines().enumerate().filter(|(_, line)| line.chars().count() > WIDTH);
        let comments = long.filter(|(_, line)| line.trim_start().starts_with(mark));
        wide.extend(comments.map(|(line, _)| format!("{}:{}", file.display(), line + 1)));
    }

    assert!(wide.is_empty(), "{} comments are wider than {WIDTH} columns:\n{}", wide.len(), wide.join("\n"));
}

#[test]
fn declarations_and_lone_docs_are_found() {
    for line in ["pub struct Found {", "    enum Found<T> {", "pub(crate) type Found = u8;", "trait Found: Copy {"] {
        assert_eq!(declared(line), Some("Found"));
    }
    assert_eq!(declared("let structure = 1;"), None);

    let lines = ["/// Why.", "x", "/// One", "/// two"];
    assert_eq!((lone_doc(&lines, 0), lone_doc(&lines, 1), lone_doc(&lines, 2)), (Some("Why."), None, None));
}
