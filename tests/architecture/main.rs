//! The house as ARCHITECTURE.md describes it: who may depend on whom, what pure code may not touch, how long files are,
//! which words types may not be named by, how long documents may be, what pages about trust say, which files name each
//! other, and where text of others is made printable.

mod circles;
mod documents;
mod language;
mod printable;
mod purity;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// The most lines that a hand-written file may have.
const MAX_LINES: usize = 600;
/// Folders of what is made from proto files.
const GENERATED: [&str; 2] = ["wire/src/proto", "k8s/csi/src/proto"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// Whether `file` is made from proto files by `cargo xtask proto`.
fn is_generated(file: &Path) -> bool {
    GENERATED.iter().any(|folder| file.starts_with(root().join(folder)))
}

/// All hand-written Rust files below `folder`, with their text: neither generated nor built.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = files(folder);
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs") && !is_generated(file));
    assert!(!files.is_empty(), "no Rust file below {}", folder.display());
    let text = |file: PathBuf| (file.clone(), fs::read_to_string(&file).expect("Rust files are text"));
    files.into_iter().map(text).collect()
}

/// All files below `folder` that git would track: no build output.
fn files(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_path_buf()];
    }
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project is readable") {
            let path = entry.expect("a folder of the project is readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
            if path.is_dir() && name != "target" && !hidden {
                folders.push(path);
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    files
}

/// The table below the mark `<!-- dependencies -->`: member → the members that it may use.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is a file");
    let (_, table) = text.split_once("<!-- dependencies -->").expect("ARCHITECTURE.md marks its table");
    let rows = table.trim_start().lines().take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let uses = cells[1].split(',').map(str::trim).filter(|name| !name.is_empty());
        (cells[0].to_owned(), uses.map(str::to_owned).collect())
    })
    .collect()
}

#[test]
fn members_depend_on_each_other_only_as_the_architecture_says() {
    let metadata =
        MetadataCommand::new().current_dir(root()).no_deps().other_options(["--offline".to_owned()]).exec().unwrap();
    let members: BTreeSet<_> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let allowed = allowed();

    let listed: BTreeSet<_> = allowed.keys().cloned().collect();
    assert_eq!(listed, members, "the table of ARCHITECTURE.md and the workspace's members differ");
    for package in &metadata.packages {
        let uses = package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
        let uses: BTreeSet<_> =
            uses.map(|dependency| dependency.name.clone()).filter(|name| members.contains(name)).collect();
        let forbidden: Vec<_> = uses.difference(&allowed[package.name.as_str()]).collect();
        assert!(forbidden.is_empty(), "{} must not depend on {forbidden:?}", package.name);
    }
}

#[test]
fn no_hand_written_file_is_longer_than_a_person_reads_at_once() {
    let lengths = sources(&root()).into_iter().map(|(file, text)| (text.lines().count(), file));
    let long: Vec<_> = lengths.filter(|(lines, _)| *lines > MAX_LINES).collect();

    assert!(long.is_empty(), "longer than {MAX_LINES} lines: {long:?}");
}
