//! docs/look-up/api.md has each call, message and field of operators.proto, and none besides.

use std::collections::BTreeSet;
use std::fs;

use prost::Message as _;
use support::workspace;

/// A proto file as its own compiler describes it, as far as this test looks (`google/protobuf/descriptor.proto`).
#[derive(Clone, PartialEq, prost::Message)]
struct FileSet {
    #[prost(message, repeated, tag = "1")]
    file: Vec<File>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct File {
    #[prost(message, repeated, tag = "4")]
    message_type: Vec<MessageType>,
    #[prost(message, repeated, tag = "6")]
    service: Vec<Service>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MessageType {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    field: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    nested_type: Vec<MessageType>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Field {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    number: i32,
    #[prost(int32, tag = "4")]
    label: i32,
    #[prost(int32, tag = "5")]
    kind: i32,
    #[prost(string, tag = "6")]
    type_name: String,
    #[prost(bool, tag = "17")]
    proto3_optional: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Service {
    #[prost(message, repeated, tag = "2")]
    method: Vec<Method>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Method {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    input_type: String,
    #[prost(string, tag = "3")]
    output_type: String,
    #[prost(bool, tag = "6")]
    server_streaming: bool,
}

/// The label of a repeated field.
const REPEATED: i32 = 3;

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The type of a field as the proto file writes it.
fn type_of(field: &Field, message: &MessageType) -> String {
    let scalar = match field.kind {
        1 => "double",
        2 => "float",
        4 => "uint64",
        6 => "fixed64",
        8 => "bool",
        9 => "string",
        12 => "bytes",
        13 => "uint32",
        _ => last(&field.type_name),
    };
    if let Some(map) = message.nested_type.iter().find(|nested| field.kind == 11 && nested.name == scalar) {
        let [key, value] = [0, 1].map(|at| type_of(&map.field[at], map));
        return format!("map<{key}, {value}>");
    }
    match (field.label, field.proto3_optional) {
        (REPEATED, _) => format!("repeated {scalar}"),
        (_, true) => format!("optional {scalar}"),
        _ => scalar.to_owned(),
    }
}

/// Lines that the page must have, each once: calls, messages, and the beginnings of fields' rows.
fn expected() -> BTreeSet<String> {
    let descriptors = protox::compile(["operators.proto"], [workspace().join("wire/proto")]).unwrap();
    let set = FileSet::decode(&descriptors.encode_to_vec()[..]).unwrap();
    let mut all = BTreeSet::new();
    for file in &set.file {
        for method in file.service.iter().flat_map(|service| &service.method) {
            let stream = if method.server_streaming { "stream of " } else { "" };
            let (request, reply) = (last(&method.input_type), last(&method.output_type));
            all.insert(format!("{}: `{request}` → {stream}`{reply}`", method.name));
        }
        for message in &file.message_type {
            all.insert(message.name.clone());
            let row = |field: &Field| {
                format!("{}.{} = {}: {}", message.name, field.name, field.number, type_of(field, message))
            };
            all.extend(message.field.iter().map(row));
        }
    }
    all
}

/// The same, of the page.
fn of_page(page: &str) -> Vec<String> {
    let (mut all, mut message) = (Vec::new(), "");
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            message = name;
            all.push(name.to_owned());
            continue;
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        match cells[..] {
            [_, name, _, shape, ..] if message.is_empty() && shape.contains(" → ") && name.starts_with('`') => {
                all.push(format!("{}: {shape}", name.trim_matches('`')));
            }
            [_, field, number, kind, what, _] if !message.is_empty() && field.starts_with('`') => {
                assert!(!what.is_empty(), "{message}.{field} says nothing");
                all.push(format!("{message}.{} = {number}: {kind}", field.trim_matches('`')));
            }
            _ => {}
        }
    }
    all
}

#[test]
fn the_page_has_every_call_message_and_field_of_the_operators_api() {
    let page = fs::read_to_string(workspace().join("docs/look-up/api.md")).unwrap();
    let (expected, shown) = (expected(), of_page(&page));

    let unique: BTreeSet<String> = shown.iter().cloned().collect();
    let missing: Vec<_> = expected.difference(&unique).collect();
    let unknown: Vec<_> = unique.difference(&expected).collect();

    assert!(expected.len() > 300, "{} lines are expected: the descriptors were not read", expected.len());
    assert!(missing.is_empty() && unknown.is_empty(), "missing: {missing:#?}, unknown: {unknown:#?}");
    assert_eq!(shown.len(), unique.len(), "something is there twice");
}
