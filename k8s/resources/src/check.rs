//! Checks the files of a folder, as an API server would check the same objects: by the schemas of the definitions and
//! their rules. Beyond that it finds objects about one service. Each problem has its line.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::files::{FileError, FileObjects, add, merge, read};
use crate::lines::{Lines, lines};
use crate::plan::{Key, Plan, Selected};
use crate::{Lmap, SamplingPolicy, SynopsisPolicy, plan, rules, sampling_plan, synopsis_plan};

/// Something wrong with an object in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Name of the file.
    pub file: String,
    /// Its line, from 1 on.
    pub line: u64,
    /// What is wrong, and what to do.
    pub what: String,
}

impl fmt::Display for Problem {
    /// In one line: `FILE:LINE: WHAT`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Where objects begin: file and line, by kind and name.
type Places = BTreeMap<(String, String), (String, u64)>;

/// What is wrong with `files`, texts by name, in their order. Without a problem, all of their objects are in effect on
/// a node that has such services, but for values that the agent's own configuration bounds.
#[must_use]
pub fn problems(files: &BTreeMap<String, String>) -> Vec<Problem> {
    let mut check = Check::default();
    for (file, text) in files {
        check.file(file, text);
    }
    let all = merge(&check.objects);
    for error in all.errors {
        // Names that are there twice were found with their lines.
        if let FileError::TooMany { file } = &error {
            check.problems.push(Problem { file: file.clone(), line: 1, what: error.to_string() });
        }
    }
    check.planned("Lmap", &plan::of_services(&all.lmaps));
    check.planned("SamplingPolicy", &sampling_plan::of_services(&all.policies));
    check.planned("SynopsisPolicy", &synopsis_plan::of_services(&all.synopses));
    check.problems.sort();
    check.problems
}

#[derive(Debug, Default)]
struct Check {
    objects: BTreeMap<String, FileObjects>,
    places: Places,
    problems: Vec<Problem>,
}

impl Check {
    fn file(&mut self, file: &str, text: &str) {
        let documents = match read(text) {
            Ok(documents) => documents,
            Err(error) => {
                let line = error.location().map_or(1, |location| location.line());
                return self.tell(file, line, error.without_snippet().to_string());
            }
        };
        let mut objects = FileObjects::default();
        // Both read the same documents.
        for (document, lines) in documents.into_iter().zip(lines(text)) {
            if !document.is_null() {
                self.document(file, document, &lines, &mut objects);
            }
        }
        self.objects.insert(file.to_owned(), objects);
    }

    fn document(&mut self, file: &str, document: Value, lines: &Lines, objects: &mut FileObjects) {
        let (kind, name) = (text(&document["kind"]), text(&document["metadata"]["name"]));
        let mut found = Vec::new();
        if let Some(schema) = schema_of(&kind) {
            check(&schema, document.get("spec").unwrap_or(&Value::Null), "spec", &mut found);
        }
        let begin = lines.of("");
        if found.is_empty() {
            match add(document, objects) {
                Ok(()) => match self.places.entry((kind, name)) {
                    Entry::Vacant(place) => drop(place.insert((file.to_owned(), begin))),
                    Entry::Occupied(place) => {
                        let ((kind, name), (other, line)) = (place.key(), place.get());
                        let what = format!(
                            "there is {kind} {name} already ({other}:{line}): give one of the two another name"
                        );
                        self.tell(file, begin, what);
                    }
                },
                Err(what) => self.tell(file, begin, what),
            }
        }
        for (path, what) in found {
            self.tell(file, lines.of(&path), what);
        }
    }

    fn tell(&mut self, file: &str, line: u64, what: String) {
        self.problems.push(Problem { file: file.to_owned(), line, what });
    }

    /// What only shows when all objects of a kind are known.
    fn planned<T>(&mut self, kind: &str, plan: &Plan<T>) {
        for Selected { key, conflicts, invalid, .. } in &plan.selected {
            let place = |(_, name): &Key| self.places.get(&(kind.to_owned(), name.clone())).cloned();
            let Some((file, line)) = place(key) else { continue };
            let conflict = |(service, owner): (&String, &Key)| {
                let (other, line) = place(owner)?;
                let owner = &owner.1;
                Some(format!(
                    "{service} is set by {kind} {owner} already ({other}:{line}): delete one of the two, or name \
                     another service"
                ))
            };
            let invalid = invalid.iter().map(|why| format!("{kind} {}: {why}", key.1));
            let all: Vec<_> = invalid.chain(conflicts.iter().filter_map(conflict)).collect();
            for what in all {
                self.tell(&file, line, what);
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The schema of `spec` in the definition of `kind`.
fn schema_of(kind: &str) -> Option<Value> {
    let definition = match kind {
        "Lmap" => Lmap::crd(),
        "SamplingPolicy" => SamplingPolicy::crd(),
        "SynopsisPolicy" => SynopsisPolicy::crd(),
        _ => return None,
    };
    let definition = serde_json::to_value(definition).ok()?;
    Some(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone())
}

/// What `schema` and its rules do not allow of `value` at `path`: path and reason.
fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<(String, String)>) {
    let kind = schema["type"].as_str().unwrap_or_default();
    let mut tell = |what: String| found.push((path.to_owned(), format!("{path} {what}")));
    match value {
        Value::Object(fields) if kind == "object" => {
            if let Some(most) = schema["maxProperties"].as_u64().filter(|most| fields.len() as u64 > *most) {
                tell(format!("has {} entries: {most} are the most", fields.len()));
            }
            object(schema, fields, path, found);
        }
        Value::Array(items) if kind == "array" => {
            bounds(schema, ["minItems", "maxItems"], items.len() as f64, "entries", &mut tell);
            for (at, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{at}]"), found);
            }
        }
        Value::String(text) if kind == "string" => {
            bounds(schema, ["minLength", "maxLength"], text.chars().count() as f64, "characters", &mut tell);
            let listed = schema["enum"].as_array().map_or(&[][..], Vec::as_slice);
            if !listed.is_empty() && !listed.contains(value) {
                let words: Vec<_> = listed.iter().filter_map(Value::as_str).collect();
                tell(format!("is {text}: write one of {}", words.join(", ")));
            }
        }
        Value::Number(number) if kind == "number" || (kind == "integer" && number.as_f64().is_some_and(is_whole)) => {
            bounds(schema, ["minimum", "maximum"], number.as_f64().unwrap_or(f64::NAN), "", &mut tell);
        }
        Value::Bool(_) if kind == "boolean" => {}
        _ => tell(format!("is {value}: it has to be of the type {kind}")),
    }
    // They are about objects.
    if !value.is_object() {
        return;
    }
    for rule in schema["x-kubernetes-validations"].as_array().map_or(&[][..], Vec::as_slice) {
        let rule = rule["rule"].as_str().and_then(rules::of_cel);
        if let Some(rule) = rule.filter(|rule| !(rule.holds)(value)) {
            found.push((path.to_owned(), format!("{path}: {}", rule.message)));
        }
    }
}

fn object(schema: &Value, fields: &serde_json::Map<String, Value>, path: &str, found: &mut Vec<(String, String)>) {
    for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let path = format!("{path}.{key}");
        let known = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
        match known {
            Some(known) => check(known, value, &path, found),
            None => found.push((path.clone(), format!("{path} is no field that is known: is it misspelt?"))),
        }
    }
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    for key in required.iter().filter_map(Value::as_str) {
        if fields.get(key).is_none_or(Value::is_null) {
            found.push((path.to_owned(), format!("{path}.{key} is missing")));
        }
    }
}

fn is_whole(number: f64) -> bool {
    number.fract().abs() < f64::EPSILON
}

/// Tells of `number` if it is out of the bounds with these names.
fn bounds(schema: &Value, [least, most]: [&str; 2], number: f64, of: &str, tell: &mut impl FnMut(String)) {
    let of = if of.is_empty() { String::new() } else { format!(" {of}") };
    if let Some(least) = schema[least].as_f64().filter(|least| number < *least) {
        tell(format!("is {number}{of}: {least} is the least"));
    }
    if let Some(most) = schema[most].as_f64().filter(|most| number > *most) {
        tell(format!("is {number}{of}: {most} is the most"));
    }
}

#[cfg(test)]
mod tests;
