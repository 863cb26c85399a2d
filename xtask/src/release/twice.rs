//! `cargo xtask release --twice`: the same commit, built in this folder and in a clone in another one, gives the same
//! bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use support::workspace;

use super::parts::ReleaseFile;
use super::{FOLDER, make, publish};
use crate::command::output;

/// Where the clone lies, in the workspace: a longer path than the workspace's own.
const CLONE: &str = "target/release-twice/a-clone/in-another-folder";

/// Builds the release for `target` (`None`: this machine's kind) into the folder `into`, and once more elsewhere.
///
/// # Errors
///
/// A build that fails, or files that are not the same: they are named, and what differs in them.
pub fn run(target: Option<&str>, into: &Path) -> Result<()> {
    let root = workspace();
    let one = make(&root, target, None)?;
    publish(&one, into)?;
    let clone = cloned(&root, &one.commit.id)?;
    println!("the same commit in {}", clone.display());
    let other = make(&clone, target, Some(clone.join("target").join(FOLDER)))?;
    let differences = differences(&one.files, &other.files)?;
    ensure!(differences.is_empty(), "built twice, it is not the same (the clone is left):\n{}", differences.join("\n"));
    println!("built twice, {} files are the same bytes", one.files.len());
    fs::remove_dir_all(&clone).with_context(|| clone.display().to_string())
}

/// A new clone of the commit.
fn cloned(root: &Path, commit: &str) -> Result<PathBuf> {
    let clone = root.join(CLONE);
    if clone.exists() {
        fs::remove_dir_all(&clone).with_context(|| clone.display().to_string())?;
    }
    output(Command::new("git").args(["clone", "--quiet", "--no-tags"]).arg(root).arg(&clone))?;
    output(Command::new("git").args(["checkout", "--quiet", "--detach", commit]).current_dir(&clone))?;
    Ok(clone)
}

/// Which files are not the same, and what differs in them.
fn differences(one: &[ReleaseFile], other: &[ReleaseFile]) -> Result<Vec<String>> {
    let by_name = |files: &[ReleaseFile]| files.iter().cloned().collect::<BTreeMap<_, _>>();
    let (one, other) = (by_name(one), by_name(other));
    let mut found = Vec::new();
    for name in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
        match (one.get(name), other.get(name)) {
            (Some(one), Some(other)) if one == other => {}
            (Some(one), Some(other)) => found.push(format!("{name}: {}", within(name, one, other)?)),
            _ => found.push(format!("{name}: it is there only once")),
        }
    }
    Ok(found)
}

/// What differs in a file.
fn within(name: &str, one: &[u8], other: &[u8]) -> Result<String> {
    let (Some(one), Some(other)) = (contents(name, one)?, contents(name, other)?) else {
        return Ok("its bytes".to_owned());
    };
    let paths = one.keys().chain(other.keys()).collect::<BTreeSet<_>>().into_iter();
    let differing: Vec<_> = paths.filter(|path| one.get(*path) != other.get(*path)).map(String::as_str).collect();
    Ok(if differing.is_empty() { "the order of its files".to_owned() } else { differing.join(", ") })
}

/// A file of an archive: its mode, its time, its bytes.
type Content = (u32, u64, Vec<u8>);

/// Files of an archive by path; `None` if it is no archive.
fn contents(name: &str, bytes: &[u8]) -> Result<Option<BTreeMap<String, Content>>> {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    let unpacked: Box<dyn Read + '_> = match extension {
        Some("gz") => Box::new(GzDecoder::new(bytes)),
        Some("tar") => Box::new(bytes),
        _ => return Ok(None),
    };
    let mut contents = BTreeMap::new();
    for file in tar::Archive::new(unpacked).entries()? {
        let mut file = file?;
        let (path, mode, time) = (file.path()?.display().to_string(), file.header().mode()?, file.header().mtime()?);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        contents.insert(path, (mode, time, bytes));
    }
    Ok(Some(contents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::archive::{self, Entry};

    fn release(program: &[u8], seconds: u64) -> Vec<ReleaseFile> {
        let entries = || vec![Entry::program("bin/uview", program.to_vec()), Entry::text("LICENSE", b"it".to_vec())];
        vec![
            ("uview.cdx.json".to_owned(), b"{}".to_vec()),
            ("uview.oci.tar".to_owned(), archive::plain("", entries(), seconds).unwrap()),
            ("uview.tar.gz".to_owned(), archive::pack("uview", entries(), seconds).unwrap()),
        ]
    }

    #[test]
    fn releases_of_the_same_bytes_do_not_differ() {
        assert_eq!(differences(&release(b"ELF", 7), &release(b"ELF", 7)).unwrap(), [""; 0]);
    }

    #[test]
    fn what_differs_in_an_archive_is_named() {
        let found = differences(&release(b"ELF /one", 7), &release(b"ELF /other", 7)).unwrap();
        assert_eq!(found, ["uview.oci.tar: bin/uview", "uview.tar.gz: uview/bin/uview"]);

        let found = differences(&release(b"ELF", 7), &release(b"ELF", 8)).unwrap();
        assert_eq!(
            found,
            ["uview.oci.tar: LICENSE, bin/uview", "uview.tar.gz: uview/LICENSE, uview/bin/uview"],
            "their times differ"
        );
    }

    #[test]
    fn a_file_that_is_no_archive_or_is_there_once_is_named_too() {
        let one = release(b"ELF", 7);
        let mut other = one.clone();
        other[0].1 = b"{ }".to_vec();
        other.pop();

        let found = differences(&one, &other).unwrap();

        assert_eq!(found, ["uview.cdx.json: its bytes", "uview.tar.gz: it is there only once"]);
    }
}
