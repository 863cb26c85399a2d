//! `cargo xtask book`: the pages of `docs` as a book, by mdbook. Files that a page includes are put in, links that lead
//! out of the book become the names of files, and every link that is left has to lead somewhere.

mod diagrams;
mod fields;
mod links;
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use support::workspace;

/// Pages of `docs` that are for builders, and the table of contents itself.
const NOT_PAGES: [&str; 2] = ["SUMMARY.md", "plan.md"];

/// Why no book can be made here.
pub fn missing() -> Option<&'static str> {
    let works = Command::new("mdbook").arg("--version").output().is_ok_and(|output| output.status.success());
    (!works).then_some("it needs mdbook (cargo install mdbook)")
}

/// Makes the book in `target/book`, and checks its links. `draw`: diagrams without a picture are drawn first.
///
/// # Errors
///
/// A page that is in no chapter, a file that cannot be read, a diagram without a picture, mdbook's own errors, and
/// links that lead nowhere.
pub fn make(draw: bool) -> Result<()> {
    let (docs, source) = (workspace().join("docs"), workspace().join("target/book-source"));
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).context("docs/SUMMARY.md")?;
    let chapters: BTreeSet<PathBuf> = pages::links(&summary).into_iter().map(PathBuf::from).collect();
    let files = files(&docs)?;
    let is_page = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let names = |path: &&PathBuf| NOT_PAGES.iter().any(|name| path.as_os_str() == *name);
    let outside: Vec<_> =
        files.iter().filter(is_page).filter(|path| !names(path) && !chapters.contains(*path)).collect();
    ensure!(outside.is_empty(), "pages that are not in docs/SUMMARY.md: {outside:?}");

    let mut pages = BTreeMap::new();
    for file in &chapters {
        let path = docs.join(file);
        let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        pages.insert(file.clone(), pages::included(&page, &path)?);
    }
    if draw {
        diagrams::draw(&docs, &pages.values().cloned().collect::<Vec<_>>())?;
    }
    let mut used = BTreeSet::new();
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    // With what was drawn.
    for file in &self::files(&docs)? {
        let (from, to) = (docs.join(file), source.join("docs").join(file));
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        if let Some(page) = pages.get(file) {
            let page = diagrams::drawn(page, file, &docs, &mut used)?;
            fs::write(&to, pages::inside(&page, file, &chapters))?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    let unused = diagrams::unused(&docs, &used)?;
    ensure!(
        unused.is_empty(),
        "pictures of diagrams that are gone; `cargo xtask book --draw` removes them: {unused:?}"
    );
    fs::copy(workspace().join("book.toml"), source.join("book.toml"))?;
    let into = workspace().join("target/book");
    let status =
        Command::new("mdbook").arg("build").arg("--dest-dir").arg(&into).arg(&source).status().context("mdbook")?;
    ensure!(status.success(), "mdbook ended with {status}");
    let broken = links::broken(&into)?;
    ensure!(broken.is_empty(), "links of the book lead nowhere:\n{}", broken.join("\n"));
    println!("{} pages: {}", chapters.len(), into.join("index.html").display());
    Ok(())
}

/// All files below `folder`, relative to it.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(within) = folders.pop() {
        for entry in fs::read_dir(folder.join(&within))? {
            let entry = entry?;
            let path = within.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(path) } else { all.push(path) }
        }
    }
    all.sort();
    Ok(all)
}
