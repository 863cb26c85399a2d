//! Makes pages of a book from pages of the repository. Pure, but for files that are included.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag};

use super::fields;

/// A line that names a file, which becomes a block of code in the book.
const INCLUDE: &str = "<!-- include ";
/// A line that names a page of the folder above, which is put in as it is.
const PAGE: &str = "<!-- page ../";
/// A line that names definitions of custom resources, which become tables of fields.
const FIELDS: &str = "<!-- fields of ";

/// Links of a page, without addresses elsewhere and without their fragments.
pub fn links(page: &str) -> Vec<String> {
    let targets = Parser::new_ext(page, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.into_string()),
        _ => None,
    });
    targets.filter_map(|target| file_of(&target).map(str::to_owned)).collect()
}

/// The file that a link names. `None`: an address, or a place in the same page.
fn file_of(target: &str) -> Option<&str> {
    let file = target.split('#').next().filter(|file| !file.is_empty())?;
    (!file.contains("://") && !file.starts_with("mailto:")).then_some(file)
}

/// `page`, which is at `path`, with the files that it includes.
///
/// # Errors
///
/// A file cannot be read.
pub fn included(page: &str, path: &Path) -> Result<String> {
    let mut out = String::with_capacity(page.len());
    let folder = path.parent().context("a page is in a folder")?;
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).with_context(|| folder.join(name).display().to_string());
    for line in page.lines() {
        let named = |mark| line.strip_prefix(mark).and_then(|rest: &str| rest.strip_suffix(" -->"));
        if let Some(name) = named(INCLUDE) {
            let kind = name.rsplit('.').next().unwrap_or_default();
            out.extend(["```", kind, "\n", read(name)?.trim_end(), "\n```"]);
        } else if let Some(name) = named(PAGE) {
            // Its links begin in the folder above.
            out.push_str(read(&format!("../{name}"))?.replace("](docs/", "](").trim_end());
        } else if let Some(name) = named(FIELDS) {
            out.push_str(&fields::chapters(&read(name)?)?);
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    Ok(out)
}

/// `page`, which is `file` of the book, whose links to files that are no chapters have become the names of those files.
pub fn inside(page: &str, file: &Path, chapters: &BTreeSet<PathBuf>) -> String {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut out = page.to_owned();
    let parsed: Vec<_> = Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter().collect();
    // From the last to the first, so that places stay what they are.
    for (event, range) in parsed.into_iter().rev() {
        let Event::Start(Tag::Link { dest_url, .. }) = event else { continue };
        let Some(target) = file_of(&dest_url) else { continue };
        let name = normal(&Path::new("docs").join(folder).join(target));
        if name.strip_prefix("docs").is_ok_and(|page| chapters.contains(page)) {
            if name.ends_with("README.md") {
                // mdbook names the page so, but not what leads to it.
                let link = page[range.clone()].replace("README.md", "index.md");
                out.replace_range(range, &link);
            }
            continue;
        }
        let Some((text, _)) = page[range.clone()].strip_prefix('[').and_then(|link| link.rsplit_once("](")) else {
            continue;
        };
        let said = name.ends_with(text.trim_matches('`')) || name.file_stem().is_some_and(|stem| stem == text);
        let name = name.display();
        let plain = if said { format!("`{name}`") } else { format!("{text} (`{name}`)") };
        out.replace_range(range, &plain);
    }
    out
}

/// A path without `..`, as far as there are folders to leave.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = out.pop(),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_of_the_book_become_names_of_files() {
        let chapters = ["a.md", "sub/b.md", "sub/README.md"].map(PathBuf::from).into();
        let page = "See [b](b.md#part), [a](../a.md), [the plan](../plan.md), [README](../../README.md), [lib.rs](../../lmap/src/lib.rs), [all](README.md#x)\n\
                    | [x](https://example.org) | [here](#there) | `[no](link.md)` |";

        let inside = inside(page, Path::new("sub/b.md"), &chapters);

        assert_eq!(
            inside,
            "See [b](b.md#part), [a](../a.md), the plan (`docs/plan.md`), `README.md`, `lmap/src/lib.rs`, [all](index.md#x)\n\
             | [x](https://example.org) | [here](#there) | `[no](link.md)` |"
        );
    }

    #[test]
    fn a_page_includes_a_file_as_code() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.yaml"), "a: 1\n\n").unwrap();

        let page = included("# T\n<!-- include x.yaml -->\nend\n", &folder.path().join("page.md")).unwrap();

        assert_eq!(page, "# T\n```yaml\na: 1\n```\nend\n");
        assert!(included("<!-- include y.yaml -->", &folder.path().join("page.md")).is_err());
    }
}
