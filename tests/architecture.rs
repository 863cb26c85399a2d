//! The house as ARCHITECTURE.md draws it: who may depend on whom, what pure code may not touch, how long a file may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// No hand-written file is longer.
const LONGEST_FILE: usize = 600;
/// Members that decide and never act.
const PURE: [&str; 7] = ["exchange", "hooks", "lmap", "ranking", "recording", "synopses", "wire"];
/// What acting needs: modules and types of the standard library, macros, locks, randomness that nobody gave.
const IMPURE: [&str; 18] = [
    "std::fs",
    "std::net",
    "std::os",
    "std::thread",
    "std::env",
    "std::process",
    "std::time::Instant",
    "SystemTime",
    "std::io",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::mpsc",
    "print!(",
    "println!(",
    "dbg!(",
    "rand::rng(",
    "rand::random(",
];

/// The first thing in `text` that acts, as it is named in [`IMPURE`]. Comments do not count; `use` of several names at once is taken apart.
fn acting(text: &str) -> Option<&'static str> {
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut names: Vec<String> = code.split("use ").skip(1).flat_map(imports).collect();
    names.push(code);
    IMPURE.into_iter().find(|word| names.iter().any(|name| name.contains(word)))
}

/// The paths that a `use` names, up to its semicolon: `std::{fs, sync::{Arc, Mutex}};` is `std::fs`, `std::sync::Arc`, `std::sync::Mutex`.
fn imports(rest: &str) -> Vec<String> {
    let tree: String = rest.chars().take_while(|&c| c != ';').filter(|c| !c.is_whitespace()).collect();
    let (mut paths, mut outer, mut path) = (Vec::new(), Vec::new(), String::new());
    for c in tree.chars() {
        match c {
            '{' => outer.push(path.clone()),
            ',' | '}' => {
                paths.push(core::mem::replace(&mut path, outer.last().cloned().unwrap_or_default()));
                if c == '}' {
                    outer.pop();
                }
            }
            c => path.push(c),
        }
    }
    paths.push(path);
    paths
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// The table below the mark `<!-- dependencies -->`: member → what it may use.
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
fn pure_members_touch_no_clock_thread_socket_file_or_environment() {
    for member in PURE {
        for (file, text) in sources(&root().join(member).join("src")) {
            let found = acting(&text);
            assert!(found.is_none(), "{} uses {}", file.display(), found.unwrap_or_default());
        }
    }
}

#[test]
fn what_acts_is_found_however_it_is_written() {
    for (text, word) in [
        ("use std::fs;", "std::fs"),
        ("use std::{fmt, thread};", "std::thread"),
        ("use std::{\n    collections::BTreeMap,\n    sync::{Arc, Mutex},\n};", "std::sync::Mutex"),
        ("use std::{sync::{atomic::AtomicU64, Arc}, net::TcpStream};", "std::net"),
        ("use std::time::{Duration, Instant};", "std::time::Instant"),
        ("use std::io::Read as _;", "std::io"),
        ("fn f() { println!(\"{}\", 1) }", "println!("),
        ("let x: u64 = rand::random();", "rand::random("),
        ("let mut random = rand::rng();", "rand::rng("),
        ("static ONCE: std::sync::Mutex<u8> = todo;", "std::sync::Mutex"),
    ] {
        let found = acting(text);
        assert!(found.is_some_and(|found| word.contains(found)), "{text}: {found:?}");
    }
    for text in ["use std::{fmt, sync::Arc};", "// std::fs is for others", "use core::time::Duration;", "let fs = 3;"] {
        assert_eq!(acting(text), None, "{text}");
    }
}

#[test]
fn no_hand_written_file_is_longer_than_a_person_reads_at_once() {
    let generated = root().join("wire/src/proto");
    let long: Vec<_> = sources(&root())
        .into_iter()
        .filter(|(file, _)| !file.starts_with(&generated))
        .map(|(file, text)| (text.lines().count(), file))
        .filter(|(lines, _)| *lines > LONGEST_FILE)
        .collect();

    assert!(long.is_empty(), "longer than {LONGEST_FILE} lines: {long:?}");
}

/// All Rust files below `folder` that git would track: no build output.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project is readable") {
            let path = entry.expect("a folder of the project is readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("Rust files are text");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no Rust file below {}", folder.display());
    found
}
