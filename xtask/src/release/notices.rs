//! The licences of the packages in a program, as their authors wrote them: most of them ask for that.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use cargo_metadata::Package;

/// How files with licences and notices begin.
const BEGINNINGS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Each text once, after the names of the packages that have it. Members of the workspace have the project's own.
///
/// # Errors
///
/// A package's folder that cannot be read.
pub fn collect(packages: &[&Package]) -> Result<Vec<u8>> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        let name = format!("{} {}", package.name, package.version);
        let mut files: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        files.retain(|file| is_licence(&file.file_name().to_string_lossy()) && file.path().is_file());
        files.sort_by_key(fs::DirEntry::file_name);
        for file in &files {
            let text = String::from_utf8_lossy(&fs::read(file.path())?).trim().replace("\r\n", "\n");
            texts.entry(text).or_default().push(name.clone());
        }
        if files.is_empty() {
            let named = package.license.as_deref().unwrap_or("none that it names");
            texts.entry(format!("(The package has no such file. Its licence: {named}.)")).or_default().push(name);
        }
    }
    // By the first package that has it, not by its words.
    let mut texts: Vec<_> = texts
        .into_iter()
        .map(|(text, mut names)| {
            names.dedup();
            (names, text)
        })
        .collect();
    texts.sort();
    let parts = texts.into_iter().map(|(names, text)| format!("==== {}\n\n{text}\n\n", names.join(", ")));
    Ok(parts.collect::<String>().into_bytes())
}

fn is_licence(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_licences_are_known_by_their_names() {
        assert!(is_licence("LICENSE-MIT") && is_licence("license.txt") && is_licence("COPYING"));
        assert!(!is_licence("README.md") && !is_licence("Cargo.toml"));
    }
}
