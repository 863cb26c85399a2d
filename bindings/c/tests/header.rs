//! The header and the library say the same: functions with their types, structures with their fields, codes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Rust's types and C's, as they stand in arguments and fields.
const TYPES: [(&str, &str); 35] = [
    ("Text", "const char *"),
    ("Buffer", "char *"),
    ("*const c_char", "const char *"),
    ("c_int", "int"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("i64", "int64_t"),
    ("usize", "size_t"),
    ("f64", "double"),
    ("*const Label", "const uview_label *"),
    ("*const AtomicU64", "uint64_t *"),
    ("Option<&ServiceHandle>", "const uview *"),
    ("Option<Box<ServiceHandle>>", "uview *"),
    ("Option<&ServiceOptions>", "const uview_options *"),
    ("Option<&MetricOptions>", "const uview_metric *"),
    ("Option<&HistogramHandle>", "const uview_histogram *"),
    ("Option<&GaugeHandle>", "const uview_gauge *"),
    ("Option<&mut MaybeUninit<ServiceState>>", "uview_state *"),
    ("Option<&mut MaybeUninit<Option<Box<ServiceHandle>>>>", "uview **"),
    ("Option<Box<HistogramHandle>>", "uview_histogram *"),
    ("Option<&ShardedHandle>", "const uview_sharded *"),
    ("Option<Box<ShardedHandle>>", "uview_sharded *"),
    ("HandlePlace<'_, ShardedHandle>", "uview_sharded **"),
    ("Option<&'a SpanHandle>", "const uview_span *"),
    ("Option<&SpanHandle>", "const uview_span *"),
    ("Option<&mut SpanHandle>", "uview_span *"),
    ("Option<Box<SpanHandle>>", "uview_span *"),
    ("Option<&SpanOptions<'_>>", "const uview_span_options *"),
    ("Option<&mut MaybeUninit<Option<Box<SpanHandle>>>>", "uview_span **"),
    ("HandlePlace<'_, HistogramHandle>", "uview_histogram **"),
    ("Option<Box<$handle>>", "$ *"),
    ("HandlePlace<'_, $handle>", "$ **"),
    ("[u64; RESERVED]", "uint64_t[4]"),
    ("[u64; RESERVED - 2]", "uint64_t[2]"),
    ("", "void"),
];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("a file of the crate is text")
}

fn rust() -> String {
    ["arguments", "handles", "outcome", "service", "spans"].map(|file| read(&format!("src/{file}.rs"))).concat()
}

fn c_type(rust: &str) -> String {
    let rust = rust.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = TYPES.iter().find(|(name, _)| *name == rust);
    assert!(found.is_some(), "no type of C for {rust:?}");
    found.map_or_else(String::new, |(_, c)| (*c).to_owned())
}

/// `text` without comments and inline functions, with single spaces.
fn header() -> String {
    let mut text = String::new();
    let header = read("include/uview.h");
    let declarations = header.split("static inline").next().unwrap_or_default();
    for part in declarations.split("/*") {
        text += part.split_once("*/").map_or(part, |(_, code)| code);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Commas outside of brackets separate fields and arguments.
fn fields(list: &str) -> Vec<(String, String)> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for character in list.chars() {
        match character {
            '<' | '[' | '(' => depth += 1,
            '>' | ']' | ')' => depth -= 1,
            _ => {}
        }
        if character == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("there is one from the beginning").push(character);
        }
    }
    let named = parts.iter().filter_map(|part| part.split_once(':'));
    named.map(|(name, of)| (name.trim().trim_start_matches("pub ").to_owned(), c_type(of))).collect()
}

/// `type name`, as C writes it.
fn declared(name: &str, of: &str) -> String {
    match of.split_once('[') {
        Some((of, length)) => format!("{of} {name}[{length}"),
        None if of.ends_with('*') => format!("{of}{name}"),
        None => format!("{of} {name}"),
    }
}

/// The prototypes of the library: name → declaration.
fn exported() -> BTreeMap<String, String> {
    let rust = rust();
    let mut found = BTreeMap::new();
    for (at, _) in rust.match_indices("extern \"C\" fn ") {
        let text = &rust[at + "extern \"C\" fn ".len()..];
        let (signature, _) = text.split_once('{').expect("a function has a body");
        let (name, rest) = signature.split_once('(').expect("a function has arguments");
        let (arguments, result) = rest.rsplit_once(')').expect("arguments end");
        let arguments: Vec<_> = fields(arguments).iter().map(|(name, of)| declared(name, of)).collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        let result = c_type(result.trim().trim_start_matches("->").trim());
        let prototype = |name: &str| declared(&format!("{name}({arguments})"), &result);
        if name.starts_with('$') {
            // Of each kind with one slot.
            for kind in ["counter", "up_down", "gauge"] {
                let name = match name {
                    "$register" => format!("uview_register_{kind}"),
                    other => format!("uview_{kind}_{}", other.trim_start_matches('$')),
                };
                found.insert(name.clone(), prototype(&name).replace('$', &format!("uview_{kind}")));
            }
        } else {
            found.insert(name.to_owned(), prototype(name));
        }
    }
    found
}

#[test]
fn the_header_declares_the_functions_that_the_library_has() {
    let header = header();
    let statements = header.split(';').map(str::trim).filter(|text| text.contains('(') && !text.contains('{'));
    let prototypes = statements.map(|text| {
        // What stands before the first one of a section.
        let text = text.rsplit("} ").next().unwrap_or_default();
        let text = text.rsplit_once("extern \"C\" { #endif ").map_or(text, |(_, text)| text);
        let name = text.split('(').next().unwrap_or_default().rsplit([' ', '*']).next().unwrap_or_default();
        (name.to_owned(), text.to_owned())
    });

    let declared: BTreeMap<_, _> = prototypes.collect();

    assert_eq!(declared, exported(), "left: the header; right: the library");
    assert!(declared.len() > 20, "{declared:?}");
}

#[test]
fn structures_have_the_same_fields_in_the_same_order() {
    let (header, rust) = (header(), rust());
    let of_rust = |name: &str| {
        let (_, rest) = rust.split_once(&format!("pub struct {name} {{")).expect("the structure is there");
        let (body, _) = rest.split_once("\n}").expect("a structure ends");
        let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let body: String = lines.collect::<Vec<_>>().join(" ");
        // An array of labels is two fields of C.
        let body = body.replace("labels: Labels", "labels: *const Label, label_count: usize");
        fields(&body).iter().map(|(name, of)| declared(name, of)).collect::<Vec<_>>()
    };
    for (name, of) in [
        ("uview_label", "Label"),
        ("uview_options", "ServiceOptions"),
        ("uview_metric", "MetricOptions"),
        ("uview_state", "ServiceState"),
        ("uview_span_options", "SpanOptions<'a>"),
    ] {
        let (_, rest) = header.split_once(&format!("typedef struct {name} {{")).expect("the structure is declared");
        let (body, _) = rest.split_once('}').expect("a structure ends");
        let fields: Vec<_> = body.split(';').map(|field| field.trim().to_owned()).filter(|f| !f.is_empty()).collect();

        assert_eq!(fields, of_rust(of), "{name}");
    }
}

#[test]
fn codes_have_the_same_values() {
    let header = read("include/uview.h");
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define UVIEW_")).filter_map(|line| {
        let line = line.split("/*").next().unwrap_or_default();
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().trim_matches(['(', ')']).parse::<i32>().ok()?))
    });
    let rust = rust();
    let constants = rust.lines().filter_map(|line| line.strip_prefix("pub(crate) const ")).filter_map(|line| {
        let (name, value) = line.split_once(": c_int = ")?;
        Some((name.to_owned(), value.trim_end_matches(';').parse::<i32>().ok()?))
    });

    let defined: BTreeMap<_, _> = defined.collect();

    assert_eq!(defined, constants.collect::<BTreeMap<_, _>>(), "left: the header; right: the library");
    assert_eq!(defined.len(), 15);
}
