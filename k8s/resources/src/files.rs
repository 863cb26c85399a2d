//! The same objects as YAML files, for a node without Kubernetes. Its services have no namespace, no labels and no
//! kinds: `workload.name` is a service. Pure: texts in, objects and plans out.
//!
//! There is no API server that would check them: what the definitions' rules ask is checked here or by the agent that
//! applies them, and a field that nobody knows is refused.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lmap::{Kind, LmapSpec, Selector, Workload};
use crate::plan::Declared;
use crate::sampling_policy::SamplingPolicySpec;
use crate::synopsis_policy::SynopsisPolicySpec;

/// Most bytes of all files together.
pub const MAX_FILE_BYTES: u64 = 2 << 20;
/// Most objects of all files together.
pub const MAX_FILE_OBJECTS: usize = 256;

/// Why the objects of a file cannot be taken. None of them is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is no YAML.
    #[error("{file}: {cause}")]
    Yaml {
        /// Name of the file.
        file: String,
        /// What is wrong, with line and column.
        cause: String,
    },
    /// A document is no object of a kind that is known, or has a value of another type.
    #[error("{file}, document {number}: {cause}")]
    Object {
        /// Name of the file.
        file: String,
        /// Number of the document, from 1 on.
        number: usize,
        /// What is wrong.
        cause: String,
    },
    /// Two objects of one kind have one name.
    #[error("{file}: there is {kind} {name} already: give one of the two another name")]
    Twice {
        /// Name of the file with the second one.
        file: String,
        /// Kind of both objects.
        kind: &'static str,
        /// Name of both objects.
        name: String,
    },
    /// There are too many.
    #[error("{file}: {MAX_FILE_OBJECTS} objects of all files are the most")]
    TooMany {
        /// Name of the file that goes beyond.
        file: String,
    },
}

/// The objects of a file, in its order, with their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileObjects {
    /// How services are watched.
    pub lmaps: Vec<(String, LmapSpec)>,
    /// Which of their traces are kept.
    pub policies: Vec<(String, SamplingPolicySpec)>,
    /// Which packets are watched.
    pub synopses: Vec<(String, SynopsisPolicySpec)>,
}

/// The objects of all files: of two about one service, that of the first file by name has the say, and within a file
/// the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllObjects {
    /// How services are watched.
    pub lmaps: Vec<Declared<LmapSpec>>,
    /// Which of their traces are kept.
    pub policies: Vec<Declared<SamplingPolicySpec>>,
    /// Which packets are watched.
    pub synopses: Vec<Declared<SynopsisPolicySpec>>,
    /// Objects that are left out, and why.
    pub errors: Vec<FileError>,
}

/// One document of a file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Value,
}

/// What is read of an object's metadata. Labels and annotations may be there.
#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
}

/// The objects in the `text` of `file`. Empty documents are none.
///
/// # Errors
///
/// [`FileError`], about the first document that cannot be taken.
pub fn parse(file: &str, text: &str) -> Result<FileObjects, FileError> {
    let documents = read(text)
        .map_err(|error| FileError::Yaml { file: file.to_owned(), cause: error.without_snippet().to_string() })?;
    let mut objects = FileObjects::default();
    for (number, document) in (1..).zip(documents) {
        if document.is_null() {
            continue;
        }
        add(document, &mut objects).map_err(|cause| FileError::Object { file: file.to_owned(), number, cause })?;
    }
    Ok(objects)
}

/// How these files are read: services may be called y, and `adaptive: off` is a word.
pub(crate) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

/// The documents of `text`.
pub(crate) fn read(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}

/// Adds the object of `document`, or says why not.
pub(crate) fn add(document: Value, objects: &mut FileObjects) -> Result<(), String> {
    let Document { api_version, kind, metadata, spec } =
        serde_json::from_value(document).map_err(|error| error.to_string())?;
    if api_version != "uview.dev/v1alpha1" {
        return Err(format!("apiVersion is {api_version}: write uview.dev/v1alpha1"));
    }
    let Metadata { name, namespace } = metadata;
    if !namespace.is_empty() {
        return Err(format!("metadata.namespace is {namespace}: services of this node have none, leave it out"));
    }
    if name.is_empty() || name.len() > 253 {
        return Err("metadata.name must have 1 to 253 bytes".to_owned());
    }
    match kind.as_str() {
        "Lmap" => objects.lmaps.push((name, known(&spec)?)),
        "SamplingPolicy" => objects.policies.push((name, known(&spec)?)),
        "SynopsisPolicy" => objects.synopses.push((name, known(&spec)?)),
        _ => return Err(format!("kind is {kind}: write Lmap, SamplingPolicy or SynopsisPolicy")),
    }
    Ok(())
}

/// `spec` as its type has it, if that knows each of its fields.
fn known<S: DeserializeOwned + Serialize>(spec: &Value) -> Result<S, String> {
    let typed: S = serde_json::from_value(spec.clone()).map_err(|error| format!("spec: {error}"))?;
    let again = serde_json::to_value(&typed).map_err(|error| format!("spec: {error}"))?;
    match unknown(spec, &again, "spec") {
        Some(path) => Err(format!("{path} is no field that is known: is it misspelt?")),
        None => Ok(typed),
    }
}

/// The first field of `written` that is not in `read`. What is empty says nothing, and is left out there.
fn unknown(written: &Value, read: &Value, path: &str) -> Option<String> {
    match written {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            match read.get(key) {
                Some(read) => unknown(value, read, &path),
                None if is_empty || value.as_object().is_some_and(serde_json::Map::is_empty) => None,
                None => Some(path),
            }
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| unknown(item, read.get(at).unwrap_or(&Value::Null), &format!("{path}[{at}]"))),
        _ => None,
    }
}

/// All objects of `files`, by the names of these.
#[must_use]
pub fn merge(files: &BTreeMap<String, FileObjects>) -> AllObjects {
    let mut all = AllObjects::default();
    for (file, FileObjects { lmaps, policies, synopses }) in files {
        for (name, spec) in lmaps {
            let others = all.policies.len() + all.synopses.len();
            all.errors.extend(push(&mut all.lmaps, others, ("Lmap", file, name), spec));
        }
        for (name, spec) in policies {
            let others = all.lmaps.len() + all.synopses.len();
            all.errors.extend(push(&mut all.policies, others, ("SamplingPolicy", file, name), spec));
        }
        for (name, spec) in synopses {
            let others = all.lmaps.len() + all.policies.len();
            all.errors.extend(push(&mut all.synopses, others, ("SynopsisPolicy", file, name), spec));
        }
    }
    all
}

/// Adds an object to those of its kind, with `others` of the other kinds; or says why not.
fn push<S: Clone>(
    objects: &mut Vec<Declared<S>>,
    others: usize,
    (kind, file, name): (&'static str, &str, &str),
    spec: &S,
) -> Option<FileError> {
    let (file, name) = (file.to_owned(), name.to_owned());
    if objects.iter().any(|known| known.name == name) {
        return Some(FileError::Twice { file, kind, name });
    }
    if objects.len() + others >= MAX_FILE_OBJECTS {
        return Some(FileError::TooMany { file });
    }
    // The order of files takes the place of the time of creation.
    let created = objects.len() as i64;
    objects.push(Declared { namespace: String::new(), name, created, generation: 0, spec: Ok(spec.clone()) });
    None
}

/// The service that `workload` means on a node without Kubernetes.
///
/// # Errors
///
/// It says something that only pods have.
pub(crate) fn service_of(workload: &Workload) -> Result<String, String> {
    if workload.kind != Kind::default() {
        return Err(format!("workload.kind is {:?}: services of this node have no kind, leave it out", workload.kind));
    }
    match &workload.container {
        Some(container) => Err(format!("workload.container is {container}: this node has no containers, leave it out")),
        None => Ok(workload.name.clone()),
    }
}

/// The one service that an object is about.
///
/// # Errors
///
/// It does not name exactly one.
pub(crate) fn one_service(
    workload: Option<&Workload>,
    selector: Option<&Selector>,
) -> Result<BTreeSet<String>, String> {
    match (workload, selector) {
        (Some(workload), None) => Ok(BTreeSet::from([service_of(workload)?])),
        (_, Some(_)) => {
            Err("selector is for pods, and this node has none: name the service in workload.name".to_owned())
        }
        (None, None) => Err("name the service in workload.name".to_owned()),
    }
}

#[cfg(test)]
mod tests;
