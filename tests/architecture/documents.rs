//! Documents that a newcomer reads are short, and their links lead somewhere.

use std::fs;
use std::path::Path;

use crate::{files, root};

/// The most bytes of ARCHITECTURE.md: one page.
const ARCHITECTURE_BYTES: usize = 12 << 10;
/// The most words of a decision.
const DECISION_WORDS: usize = 250;
/// The most words of a sentence of the README.
const SENTENCE_WORDS: usize = 30;

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a document of the project is text")
}

/// `text` without code blocks, tables, headings and the addresses of links.
fn prose(text: &str) -> String {
    let (mut prose, mut code) = (String::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if !code && !line.starts_with(['|', '#', '!']) {
            prose += line;
            // An empty line ends a sentence.
            prose += if line.is_empty() { ". " } else { " " };
        }
    }
    prose
}

/// The targets of relative links in `text`, without anchors.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let relative = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    relative.map(|target| target.split('#').next().unwrap_or_default()).collect()
}

#[test]
fn the_architecture_is_one_page() {
    let bytes = read(&root().join("ARCHITECTURE.md")).len();

    assert!(bytes <= ARCHITECTURE_BYTES, "ARCHITECTURE.md has {bytes} bytes");
}

#[test]
fn a_decision_is_short_and_says_context_decision_and_consequence() {
    for file in files(&root().join("docs/decisions")) {
        let text = read(&file);
        if file.ends_with("README.md") {
            continue;
        }
        let words = text.split_whitespace().count();

        assert!(words <= DECISION_WORDS, "{} has {words} words", file.display());
        for part in ["**Context.**", "**Decision.**", "**Consequence.**"] {
            assert!(text.contains(part), "{} lacks {part}", file.display());
        }
    }
}

#[test]
fn every_decision_is_a_row_of_the_list_and_a_chapter_of_the_book() {
    let folder = root().join("docs/decisions");
    let (list, book) = (read(&folder.join("README.md")), read(&root().join("docs/SUMMARY.md")));
    for file in files(&folder) {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a decision has a plain name");
        if name == "README.md" {
            continue;
        }

        assert!(list.contains(&format!("]({name})")), "docs/decisions/README.md has no row of {name}");
        assert!(book.contains(&format!("](decisions/{name})")), "docs/SUMMARY.md does not have {name}");
    }
}

#[test]
fn no_sentence_of_the_readme_is_long() {
    let text = prose(&read(&root().join("README.md")));
    let sentences = text.split(['.', '?', '!', ':']).map(|sentence| (sentence.split_whitespace().count(), sentence));
    let long: Vec<_> = sentences.filter(|(words, _)| *words > SENTENCE_WORDS).collect();

    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn links_between_documents_lead_to_files() {
    let mut broken = Vec::new();
    for file in files(&root()) {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = read(&file);
        let folder = file.parent().expect("a file is in a folder");
        broken.extend(
            links(&text)
                .into_iter()
                .filter(|target| !target.is_empty() && !folder.join(target).exists())
                .map(|target| format!("{}: {target}", file.display())),
        );
    }

    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
