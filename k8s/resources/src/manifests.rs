//! The definitions of all kinds, as they are installed.

use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::{Lmap, LmapNodeStatus, SamplingPolicy, SynopsisPolicy};

/// All definitions.
///
/// # Errors
///
/// The serializer's; none for these values.
pub fn definitions() -> Result<[Value; 4], serde_json::Error> {
    let mut definitions = [
        serde_json::to_value(Lmap::crd())?,
        serde_json::to_value(SamplingPolicy::crd())?,
        serde_json::to_value(SynopsisPolicy::crd())?,
        serde_json::to_value(LmapNodeStatus::crd())?,
    ];
    definitions.iter_mut().for_each(without_null);
    Ok(definitions)
}

/// A field that is null is one that is absent: the API server drops it, unless the schema calls it nullable.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // Not a property of that name.
            fields.retain(|key, value| key != "nullable" || !value.is_boolean());
            fields.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// All definitions as YAML documents.
///
/// # Errors
///
/// The serializer's; none for these values.
pub fn yaml() -> Result<String, serde_json::Error> {
    use serde::ser::Error as _;

    let documents: Result<Vec<_>, _> = definitions()?.iter().map(serde_saphyr::to_string).collect();
    Ok(documents.map_err(serde_json::Error::custom)?.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_structural_and_each_rule_says_what_to_do() {
        let mut rules = 0;
        for definition in definitions().unwrap() {
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            check(schema, &mut rules);
        }
        assert!(rules >= 20, "{rules}");
    }

    /// What the API server asks of a schema, as far as it can be said here.
    fn check(schema: &Value, rules: &mut usize) {
        for keyword in ["$ref", "oneOf", "anyOf", "nullable", "definitions"] {
            assert!(schema.get(keyword).is_none(), "{keyword} in {schema}");
        }
        assert!(schema["type"].is_string(), "{schema}");
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            *rules += 1;
            assert!(rule["message"].as_str().is_some_and(|message| message.len() > 20), "{rule}");
        }
        for property in schema["properties"].as_object().into_iter().flat_map(|all| all.values()) {
            check(property, rules);
        }
        for inner in [&schema["items"], &schema["additionalProperties"]] {
            if inner.is_object() {
                check(inner, rules);
            }
        }
    }

    #[test]
    fn yaml_has_all_kinds() {
        let text = yaml().unwrap();
        for plural in ["lmaps", "samplingpolicies", "synopsispolicies", "lmapnodestatuses"] {
            assert!(text.contains(&format!("name: {plural}.uview.dev\n")), "{plural}");
        }
        assert_eq!(text.split("---\n").count(), 4);
    }

    #[test]
    fn the_chart_has_these_definitions() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../chart-crds/files/crds.yaml");
        let there = std::fs::read_to_string(file).unwrap();
        let (_, there) = there.split_once('\n').unwrap();
        assert!(there == yaml().unwrap(), "{file} is of other types: run `cargo xtask kubernetes --write`");
    }
}
