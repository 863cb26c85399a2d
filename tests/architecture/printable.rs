//! Text of others becomes printable in one place, `wire::printable`, and is printed in few.

use std::path::Path;

use crate::purity::code;
use crate::{root, sources};

/// Members that others talk to, or that print what others said.
const MEMBERS: [&str; 13] = [
    "agent-runtime/src",
    "cli/src",
    "client/src",
    "demo/src",
    "hooks",
    "host-agent",
    "k8s",
    "lmap/evaluation/src",
    "nic-agent/src",
    "region",
    "synopses/one-way/src",
    "synopses/packets/src",
    "wire/src",
];

/// What code does that makes text printable, or prints it, and the files that may.
const DONE_IN: [(&[&str], &[&str]); 3] = [
    // Escapes for a terminal, a log, HTML or SVG.
    (&["\"&lt;\"", "\"&amp;\"", "escape_unicode", "escape_default"], &["wire/src/printable.rs"]),
    // Decides about characters. Others than the first decide what a name may hold.
    (
        &["is_control", "\\u{202e}", "'\\u{1b}'", "'\\x1b'"],
        &[
            "wire/src/printable.rs",
            "wire/src/name.rs",
            "client/src/text.rs",
            "hooks/src/coherence/codec.rs",
            "host-agent/src/receipts/file_format.rs",
        ],
    ),
    // Writes to a terminal, or asks whether it is one.
    (
        &["println!(", "print!(", "io::stdout", "io::stderr"],
        &[
            "agent-runtime/src/logs.rs",
            "agent-runtime/src/program.rs",
            "cli/src/output.rs",
            "cli/src/replay/mod.rs",
            "cli/src/top/mod.rs",
            "demo/src/screen.rs",
        ],
    ),
];

/// Whether `file` is of the product: no test, benchmark or example.
fn is_product(file: &Path) -> bool {
    !file.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        part.ends_with("tests") || part.ends_with("tests.rs") || part == "benches" || part == "examples"
    })
}

/// The words that `file` may not have and has.
fn forbidden(file: &str, text: &str) -> Vec<&'static str> {
    let code = code(text);
    let rows = DONE_IN.iter().filter(|(_, files)| !files.contains(&file));
    rows.flat_map(|(words, _)| words.iter().copied()).filter(|word| code.contains(word)).collect()
}

#[test]
fn text_of_others_is_made_printable_in_one_place_and_printed_in_few() {
    let mut others = Vec::new();
    for (file, text) in MEMBERS.iter().flat_map(|member| sources(&root().join(member))) {
        let name = file.strip_prefix(root()).expect("a file of the project").display().to_string();
        if is_product(Path::new(&name)) {
            others.extend(forbidden(&name, &text).into_iter().map(|word| format!("{name}: {word}")));
        }
    }

    let advice = "wire::printable is for this; print through cli's output, agent-runtime's logs or program";
    assert!(others.is_empty(), "{advice}:\n{}", others.join("\n"));
}

#[test]
fn files_that_may_print_or_escape_are_there_and_do() {
    for (words, files) in DONE_IN {
        for file in files {
            let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            assert!(words.iter().any(|word| text.contains(word)), "{file} has none of {words:?}: correct the list");
        }
    }
}

#[test]
fn a_sink_that_escapes_on_its_own_is_found() {
    let text = "fn escape(text: &str) -> String {\n    text.replace('<', \"&lt;\")\n}\n";

    assert_eq!(forbidden("cli/src/new.rs", text), ["\"&lt;\""]);
    assert_eq!(forbidden("cli/src/new.rs", "fn f(c: char) { c.is_control() }"), ["is_control"]);
    assert_eq!(forbidden("nic-agent/src/new.rs", "eprintln!(\"{name}\")"), ["println!("]);
    assert_eq!(forbidden("wire/src/printable.rs", text), Vec::<&str>::new());
}
