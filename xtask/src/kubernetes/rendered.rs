//! What helm renders, object by object.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The objects of `rendered`, in order. Documents with comments only are none.
///
/// # Errors
///
/// A document is no YAML.
pub fn objects(rendered: &str) -> Result<Vec<Value>> {
    let documents = rendered.split("\n---\n").filter(|text| text.lines().any(|line| line.starts_with("kind:")));
    documents.map(|text| serde_saphyr::from_str(text).context("helm rendered no object")).collect()
}
