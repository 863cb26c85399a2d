//! Pages about trust say what is there: tests and files of the threat model, modules with unchecked code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::{root, sources};

/// The word that lifts the compiler's checks. In two parts, so that this file has none.
const WORD: &str = concat!("un", "safe");

/// How often [`WORD`] stands in `text` as a word of its own. Comments do not count.
fn unchecked(text: &str) -> usize {
    let name = |c: char| c == '_' || c.is_alphanumeric();
    let in_line = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        code.split(|c| !name(c)).filter(|word| *word == WORD).count()
    };
    text.lines().map(in_line).sum()
}

/// The rows between the marks of the page: module → number in its second column.
fn listed(page: &str) -> BTreeMap<String, usize> {
    let mark = format!("<!-- {WORD} -->");
    let parts = page.split(&mark).skip(1);
    let tables = parts.map(|part| part.split_once("<!-- end").expect("a table has an end").0);
    let rows = tables.flat_map(|table| table.lines().filter(|line| line.starts_with("| `")));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "four cells, none empty: {row}");
        (cells[0].trim_matches('`').to_owned(), cells[1].parse().expect("the second column is a number"))
    })
    .collect()
}

#[test]
fn each_module_with_unchecked_code_is_on_its_page() {
    let page = fs::read_to_string(root().join("docs").join(format!("{WORD}.md"))).expect("the page is there");
    let own = sources(&root()).into_iter().map(|(file, text)| (file, unchecked(&text))).filter(|(_, count)| *count > 0);
    let named = |file: &Path| file.strip_prefix(root()).expect("a file of the project").display().to_string();

    let found: BTreeMap<_, _> = own.map(|(file, count)| (named(&file), count)).collect();

    assert_eq!(listed(&page), found, "left: the page; right: the code");
}

#[test]
fn files_and_tests_that_the_threat_model_names_are_there() {
    let page = fs::read_to_string(root().join("docs/threat-model.md")).expect("the page is there");
    let quoted = page.split('`').skip(1).step_by(2).filter(|text| text.contains('/') && !text.contains(' '));
    let mut tests = 0;
    for name in quoted {
        let (file, test) = name.split_once("::").map_or((name, None), |(file, test)| (file, Some(test)));
        // Addresses of pages and sockets are no files of the project.
        if file.starts_with('/') || !(file.contains(".rs") || root().join(file.split('/').next().unwrap()).is_dir()) {
            continue;
        }
        assert!(root().join(file).exists(), "{file} is not there");
        if let Some(test) = test {
            let text = fs::read_to_string(root().join(file)).expect("a test is text");
            assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
            tests += 1;
        }
    }
    assert!(tests > 20, "only {tests} tests");
}

#[test]
fn the_word_is_counted_in_code_only() {
    let text = format!(
        "#![expect({WORD}_code)]\n// {WORD} {{}}\nlet x = {WORD} {{ f() }}; // {WORD}\n{WORD} impl A for B {{}}\n"
    );

    assert_eq!(unchecked(&text), 2);
}
