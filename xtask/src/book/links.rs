//! Links of a book's pages: each has to lead to a file, and to a place in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// A page that has all chapters in one, for printers.
const ALL_IN_ONE: &str = "print.html";

/// Links within the book at `folder` that lead nowhere, each with its page.
///
/// # Errors
///
/// A page cannot be read.
pub fn broken(folder: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for file in super::files(folder)? {
        if file.extension().is_some_and(|extension| extension == "html") && file.as_os_str() != ALL_IN_ONE {
            pages.insert(file.clone(), fs::read_to_string(folder.join(file))?);
        }
    }
    let places: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages.iter().map(|(file, page)| (file, attributes(page, "id").collect())).collect();
    let mut broken = Vec::new();
    for (file, page) in &pages {
        for link in attributes(page, "href") {
            if link.contains(':') || link.starts_with("//") {
                continue;
            }
            let (path, place) = link.split_once('#').map_or((link, None), |(path, place)| (path, Some(place)));
            let target = if path.is_empty() { file.clone() } else { beside(file, path) };
            let is_there = match (pages.contains_key(&target), place) {
                (true, Some(place)) => place.is_empty() || places[&target].contains(place),
                (true, None) => true,
                (false, _) => folder.join(&target).exists(),
            };
            if !is_there {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    Ok(broken)
}

/// Values of an attribute in a page, in order.
fn attributes<'a>(page: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {name}=\"");
    let mut rest = page;
    core::iter::from_fn(move || {
        let (_, after) = rest.split_once(begin.as_str())?;
        let (value, after) = after.split_once('"')?;
        rest = after;
        Some(value)
    })
}

/// The file that `path` names in `page`.
fn beside(page: &Path, path: &str) -> PathBuf {
    let mut target = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in path.split('/') {
        match part {
            ".." => _ = target.pop(),
            "." | "" => {}
            part => target.push(part),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_places_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        let page = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        page(
            "a.html",
            r##"<h1 id="x"> <a href="sub/b.html#y"> <a href="#x"> <a href="https://e.org/z"> <a href="#q">"##,
        );
        page("sub/b.html", r#"<p id="y"> <a href="../a.html#x"> <a href="../c.html"> <a href="../a.html#z">"#);

        let broken = broken(folder.path()).unwrap();

        assert_eq!(broken, ["a.html: #q", "sub/b.html: ../c.html", "sub/b.html: ../a.html#z"]);
    }
}
