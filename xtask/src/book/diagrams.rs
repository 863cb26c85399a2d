//! Diagrams of pages: blocks of mermaid, which code hosts draw by themselves, become pictures in the book. Pictures are
//! drawn once, by hand (`cargo xtask book --draw`, which needs npm and Chromium), and are files of the repository,
//! named by the hash of their source: a diagram that was changed has no picture until it is drawn again.

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use support::workspace;

/// The folder of pictures, in `docs`.
pub const FOLDER: &str = "diagrams";
const BEGIN: &str = "```mermaid\n";
const END: &str = "```\n";
/// What draws them.
const MERMAID: &str = "mermaid@11.4.1";

/// The sources of the diagrams of a page.
fn sources(page: &str) -> Vec<&str> {
    page.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END)).map(|(source, _)| source).collect()
}

/// The name of a diagram's picture.
fn name(source: &str) -> String {
    let mut name = String::new();
    for byte in Sha256::digest(source).iter().take(6) {
        _ = write!(name, "{byte:02x}");
    }
    name + ".svg"
}

/// `page`, which is `file` of `docs`, with pictures in place of diagrams; their names are added to `used`.
///
/// # Errors
///
/// A diagram has no picture.
pub fn drawn(page: &str, file: &Path, docs: &Path, used: &mut BTreeSet<String>) -> Result<String> {
    let mut out = page.to_owned();
    let up = "../".repeat(file.components().count().saturating_sub(1));
    for source in sources(page) {
        let name = name(source);
        let picture = docs.join(FOLDER).join(&name);
        ensure!(
            picture.is_file(),
            "a diagram of {} has no picture; `cargo xtask book --draw` makes it",
            file.display()
        );
        let title = source.lines().next().unwrap_or("diagram");
        out = out.replace(&format!("{BEGIN}{source}{END}"), &format!("![{title}]({up}{FOLDER}/{name})\n"));
        used.insert(name);
    }
    Ok(out)
}

/// Pictures of diagrams that no page has any more.
///
/// # Errors
///
/// The folder cannot be read.
pub fn unused(docs: &Path, used: &BTreeSet<String>) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(docs.join(FOLDER))?.map(|entry| Ok(entry?.path()));
    let is_unused =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_none_or(|name| !used.contains(name));
    Ok(files.collect::<Result<Vec<_>>>()?.into_iter().filter(is_unused).collect())
}

/// Draws the diagrams of `pages` that have no picture, and removes pictures that nothing names.
///
/// # Errors
///
/// npm or Chromium fails, or mermaid refuses a diagram.
pub fn draw(docs: &Path, pages: &[String]) -> Result<()> {
    let folder = docs.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let wanted: BTreeMap<_, _> =
        pages.iter().flat_map(|page| sources(page)).map(|source| (name(source), source)).collect();
    for path in unused(docs, &wanted.keys().cloned().collect())? {
        println!("removed: {}", path.display());
        fs::remove_file(path)?;
    }
    let missing: Vec<_> = wanted.into_iter().filter(|(name, _)| !folder.join(name).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let scratch = tempfile::tempdir_in(workspace().join("target"))?;
    let script = fetched(scratch.path())?;
    for (name, source) in missing {
        let picture = picture(scratch.path(), &script, source).with_context(|| format!("the diagram\n{source}"))?;
        fs::write(folder.join(&name), picture)?;
        println!("drawn: {}", folder.join(name).display());
    }
    Ok(())
}

/// Mermaid's script, below `scratch`.
fn fetched(scratch: &Path) -> Result<PathBuf> {
    let packed = Command::new("npm").args(["pack", "--silent", MERMAID]).current_dir(scratch).output()?;
    ensure!(packed.status.success(), "npm: {}", String::from_utf8_lossy(&packed.stderr));
    let archive = String::from_utf8(packed.stdout)?;
    let unpacked = Command::new("tar").arg("xzf").arg(archive.trim()).current_dir(scratch).status()?;
    ensure!(unpacked.success(), "tar ended with {unpacked}");
    Ok(scratch.join("package/dist/mermaid.min.js"))
}

/// The picture of a diagram.
fn picture(scratch: &Path, script: &Path, source: &str) -> Result<String> {
    // In a script, nothing may look like its end.
    let source = serde_json::to_string(source)?.replace("</", "<\\/");
    let html = format!(
        "<meta charset=utf-8><body><script src='file://{}'></script><script>
mermaid.initialize({{startOnLoad: false, theme: 'neutral', htmlLabels: false, flowchart: {{htmlLabels: false}}}});
mermaid.render('diagram', {source}).then(drawn => {{
  document.body.replaceChildren(Object.assign(document.createElement('pre'), {{textContent: drawn.svg}}));
}}, error => {{ document.body.textContent = 'refused: ' + error; }});
</script>",
        script.display()
    );
    let page = scratch.join("page.html");
    fs::write(&page, html)?;
    let quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"];
    let output = Command::new("chromium")
        .args(quiet)
        .arg(format!("--user-data-dir={}", scratch.join("profile").display()))
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .output()
        .context("chromium")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let drawn = text.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (drawn, _) = drawn.with_context(|| format!("mermaid draws nothing: {}", text.lines().last().unwrap_or("")))?;
    // Text is printed with these four escaped.
    Ok(drawn.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}").replace("&amp;", "&") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagram_becomes_its_picture_and_one_without_is_an_error() {
        let docs = tempfile::tempdir().unwrap();
        let page = "before\n```mermaid\nflowchart LR\n    a --> b\n```\nafter\n";
        let drawn = |used: &mut _| drawn(page, Path::new("sub/page.md"), docs.path(), used);
        assert!(drawn(&mut BTreeSet::new()).unwrap_err().to_string().contains("--draw"));

        fs::create_dir(docs.path().join(FOLDER)).unwrap();
        let name = name("flowchart LR\n    a --> b\n");
        fs::write(docs.path().join(FOLDER).join(&name), "<svg/>").unwrap();
        fs::write(docs.path().join(FOLDER).join("old.svg"), "<svg/>").unwrap();
        let mut used = BTreeSet::new();

        assert_eq!(drawn(&mut used).unwrap(), format!("before\n![flowchart LR](../diagrams/{name})\nafter\n"));
        assert_eq!(unused(docs.path(), &used).unwrap(), [docs.path().join(FOLDER).join("old.svg")]);
    }
}
