//! Pure code decides and never acts: no clock, thread, socket, file, environment or randomness of its own.

use crate::{root, sources};

/// Members that are pure as a whole.
const PURE_MEMBERS: [&str; 14] = [
    "hooks/src",
    "hooks/webhooks/src",
    "host-agent/exposition/src",
    "host-agent/incidents/src",
    "host-agent/page/src",
    "host-agent/sources/src",
    "k8s/pods/src",
    "k8s/resources/src",
    "lmap/src",
    "lmap/recording/src",
    "preload/turns/src",
    "synopses/src",
    "synopses/one-way/src",
    "wire/src",
];

/// Members that act, and their pure modules. Within the crate these use each other only, so that no pure module reaches
/// one that acts.
const PURE_MODULES: [(&str, &[&str]); 8] = [
    (
        "nic-agent/src",
        &[
            "aggregation",
            "alarm",
            "attachments",
            "columns",
            "detector_settings",
            "detector_slot",
            "digest",
            "effect_error",
            "error",
            "histogram",
            "jobs",
            "liveness",
            "lmap_runtime",
            "observation",
            "outbox",
            "outlier",
            "pace",
            "queue_pair",
            "region_claim",
            "region_limits",
            "retained_lmap",
            "regions",
            "rows",
            "seeds",
            "settings",
            "sliding_rows",
            "ticker",
            "worker",
        ],
    ),
    ("host-agent/src", &["control_plane", "findings", "span_columns"]),
    ("hooks/otlp/src", &["codec", "gzip"]),
    ("k8s/controller/src", &["election", "events", "memory_budget", "pace", "scores"]),
    ("k8s/csi/src", &["mounts"]),
    (
        "hooks/remote-write/src",
        &["encoding", "feed", "ledger", "naming", "otlp", "queue", "reading", "reply", "series", "shipper"],
    ),
    ("hooks/head-sampling/src", &["advice", "request", "strategy"]),
    ("synopses/packets/src", &["delays", "filter", "frame", "identity", "packet", "pair"]),
];

/// What acting needs: modules and types of the standard library, macros, locks, randomness that is no argument.
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

/// `text` without comments and without its tests, which may do what they like.
pub(crate) fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The first thing in `text` that acts, as it is named in [`IMPURE`]. Comments do not count. A `use` of several names
/// is expanded.
fn acting(text: &str) -> Option<&'static str> {
    let code = code(text);
    let mut names: Vec<String> = code.split("use ").skip(1).flat_map(imports).collect();
    names.push(code);
    IMPURE.into_iter().find(|word| names.iter().any(|name| name.contains(word)))
}

/// The paths that a `use` names, up to its semicolon: `std::{fs, sync::{Arc, Mutex}};` is `std::fs`, `std::sync::Arc`,
/// `std::sync::Mutex`.
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

/// The modules of its own crate that `text` names by `crate::`.
fn own_modules(text: &str) -> Vec<String> {
    let code = code(text);
    let mut names: Vec<String> = code.split("use ").skip(1).flat_map(imports).collect();
    names.extend(code.match_indices("crate::").map(|(at, _)| code[at..].to_owned()));
    let first = |name: &String| {
        let path = name.strip_prefix("crate::")?;
        let module: String =
            path.chars().take_while(|&c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit()).collect();
        (!module.is_empty()).then_some(module)
    };
    names.iter().filter_map(first).collect()
}

#[test]
fn pure_members_touch_no_clock_thread_socket_file_or_environment() {
    for member in PURE_MEMBERS {
        for (file, text) in sources(&root().join(member)) {
            let acts = acting(&text);
            assert!(acts.is_none(), "{} uses {}", file.display(), acts.unwrap_or_default());
        }
    }
}

#[test]
fn pure_modules_of_members_that_act_are_pure_and_use_only_each_other() {
    for (member, modules) in PURE_MODULES {
        for module in modules {
            let (file, folder) = (root().join(member).join(format!("{module}.rs")), root().join(member).join(module));
            assert!(file.is_file(), "{} is not there: correct the list in this test", file.display());
            let inner = if folder.is_dir() { sources(&folder) } else { Vec::new() };
            for (file, text) in sources(&file).into_iter().chain(inner) {
                let is_test = file.components().any(|part| {
                    part.as_os_str()
                        .to_str()
                        .is_some_and(|part| part == "tests" || part == "tests.rs" || part == "testing.rs")
                });
                if is_test {
                    continue;
                }
                let acts = acting(&text);
                assert!(acts.is_none(), "{} uses {}", file.display(), acts.unwrap_or_default());
                let edges: Vec<_> =
                    own_modules(&text).into_iter().filter(|name| !modules.contains(&name.as_str())).collect();
                assert!(edges.is_empty(), "{} uses {edges:?}, which may act", file.display());
            }
        }
    }
}

#[test]
fn acting_code_is_found_however_it_is_written() {
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
        let acts = acting(text);
        assert!(acts.is_some_and(|acts| word.contains(acts)), "{text}: {acts:?}");
    }
    for text in ["use std::{fmt, sync::Arc};", "// std::fs is for others", "use core::time::Duration;", "let fs = 3;"] {
        assert_eq!(acting(text), None, "{text}");
    }
}

#[test]
fn modules_of_the_own_crate_are_found_however_they_are_named() {
    let text =
        "use crate::{clock, node::Node};\nuse crate::span::Span;\nfn f() { crate::socket::open() }\n// crate::no\n";

    let mut names = own_modules(text);
    names.sort();
    names.dedup();

    assert_eq!(names, ["clock", "node", "socket", "span"]);
}
