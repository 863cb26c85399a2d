//! Tables of the fields of custom resources, from their definitions.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// A chapter for each kind in `definitions`, YAML documents of CustomResourceDefinitions: its fields, and what must
/// hold.
///
/// # Errors
///
/// The text is no YAML, or a definition has no schema.
pub fn chapters(definitions: &str) -> Result<String> {
    let all: Vec<Value> = serde_saphyr::from_multiple(definitions).context("definitions are YAML")?;
    let chapters: Result<Vec<String>> = all.iter().map(chapter).collect();
    Ok(chapters?.join("\n"))
}

fn chapter(definition: &Value) -> Result<String> {
    let kind = definition["spec"]["names"]["kind"].as_str().context("a definition has a kind")?;
    let version = &definition["spec"]["versions"][0];
    let schema = version["schema"]["openAPIV3Schema"].as_object().context("a version has a schema")?;
    let mut rows = Vec::new();
    let mut rules = Vec::new();
    for part in ["spec", "status"] {
        if let Some(inner) = schema.get("properties").and_then(|properties| properties.get(part)) {
            add(inner, part, &mut rows, &mut rules);
        }
    }
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let mut out = format!("## {kind}\n\n{}\n\n| field | type | what |\n| --- | --- | --- |\n", line(text));
    out.extend(rows);
    if !rules.is_empty() {
        out.push_str("\nThe API server refuses what breaks a rule, and says so:\n\n");
        out.extend(rules);
    }
    Ok(out)
}

/// Rows of the fields of `schema`, which is at `path`, and lines of its rules.
fn add(schema: &Value, path: &str, rows: &mut Vec<String>, rules: &mut Vec<String>) {
    let named = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules.extend(named.filter_map(|rule| Some(format!("- `{path}`: {}\n", line(rule["message"].as_str()?)))));
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut fields: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
    // An order of its own: that of the map depends on features of its crate that others switch on.
    fields.sort_by_key(|(name, _)| (!required.contains(&name.as_str()), *name));
    for (name, field) in fields {
        let path = format!("{path}.{name}");
        let must = if required.contains(&name.as_str()) { ", required" } else { "" };
        let what = line(field["description"].as_str().unwrap_or_default());
        rows.push(format!("| `{path}` | {}{must} | {what} |\n", kind_of(field)));
        let (inner, path) =
            if field["items"].is_object() { (&field["items"], format!("{path}[]")) } else { (field, path) };
        add(inner, &path, rows, rules);
    }
}

/// The type of a field, with its bounds.
fn kind_of(field: &Value) -> String {
    let name = field["type"].as_str().unwrap_or("any");
    if let Some(values) = field["enum"].as_array() {
        let words: Vec<_> = values.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
        return words.join(", ");
    }
    let bounds = match (field["minimum"].as_f64(), field["maximum"].as_f64()) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (Some(least), None) => format!(", at least {least}"),
        (None, Some(most)) => format!(", at most {most}"),
        (None, None) => String::new(),
    };
    let default = field.get("default").map(|value| format!(", default {value}")).unwrap_or_default();
    format!("{name}{bounds}{default}")
}

/// Text in one line of a table.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = "
spec:
  names: {kind: Lmap}
  versions:
  - schema:
      openAPIV3Schema:
        description: How it
          is watched.
        properties:
          spec:
            required: [interval]
            x-kubernetes-validations: [{rule: x, message: a or b}]
            properties:
              form: {type: string, enum: [scaled, absolute]}
              interval: {type: string, description: 'Time | rows.'}
              list: {type: array, items: {properties: {rank: {type: integer, minimum: 1, maximum: 9, default: 3}}}}
";

    #[test]
    fn fields_have_their_types_bounds_and_rules() {
        let text = chapters(DEFINITION).unwrap();

        let expected = "## Lmap\n\nHow it is watched.\n\n| field | type | what |\n| --- | --- | --- |\n\
            | `spec.interval` | string, required | Time \\| rows. |\n| `spec.form` | `scaled`, `absolute` |  |\n\
            | `spec.list` | array |  |\n| `spec.list[].rank` | integer, 1 to 9, default 3 |  |\n\
            \nThe API server refuses what breaks a rule, and says so:\n\n- `spec`: a or b\n";
        assert_eq!(text, expected);
        assert!(chapters("kind: X").is_err());
    }
}
