//! Where the fields of YAML documents are.

use std::collections::BTreeMap;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use crate::files::options;

/// Lines of the fields of one document, from 1 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines(BTreeMap<String, u64>);

impl Lines {
    /// The line of the field at `path`, such as `spec.metrics[0].name`, or of what it is in.
    pub(crate) fn of(&self, path: &str) -> u64 {
        let mut path = path;
        loop {
            if let Some(line) = self.0.get(path) {
                return *line;
            }
            let Some(end) = path.rfind(['.', '[']) else { return self.0.get("").copied().unwrap_or(1) };
            path = &path[..end];
        }
    }
}

/// Lines of the documents of `text`, which is YAML.
pub(crate) fn lines(text: &str) -> Vec<Lines> {
    let documents: Vec<Spanned<Tree>> = serde_saphyr::from_multiple_with_options(text, options()).unwrap_or_default();
    let lines = |document: &Spanned<Tree>| {
        let mut lines = Lines::default();
        lines.0.insert(String::new(), document.referenced.line());
        add(&document.value, "", &mut lines);
        lines
    };
    documents.iter().map(lines).collect()
}

fn add(tree: &Tree, path: &str, to: &mut Lines) {
    match tree {
        Tree::Fields(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.value.clone() } else { format!("{path}.{}", key.value) };
                to.0.insert(path.clone(), key.referenced.line());
                add(&value.value, &path, to);
            }
        }
        Tree::Items(items) => {
            for (at, item) in items.iter().enumerate() {
                let path = format!("{path}[{at}]");
                to.0.insert(path.clone(), item.referenced.line());
                add(&item.value, &path, to);
            }
        }
        Tree::Leaf => {}
    }
}

/// The shape of a document.
#[derive(Clone, Debug)]
enum Tree {
    Fields(Vec<(Spanned<String>, Spanned<Self>)>),
    Items(Vec<Spanned<Self>>),
    Leaf,
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Fields(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Tree::Items(all))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_the_line_of_its_key_and_what_is_missing_that_of_its_parent() {
        let text = "# one\na: 1\nspec:\n  metrics:\n  - name: x\n    every: 2\n  - {name: y}\n---\nb: 2\n";
        let all = lines(text);

        assert_eq!(all.len(), 2);
        let of = |path| all[0].of(path);
        assert_eq!(
            [of(""), of("a"), of("spec"), of("spec.metrics[0].every"), of("spec.metrics[1].name")],
            [2, 2, 3, 6, 7]
        );
        assert_eq!([of("spec.metrics[0].unit"), of("spec.interval"), of("c")], [5, 3, 2]);
        assert_eq!(all[1].of("b"), 9);
    }
}
