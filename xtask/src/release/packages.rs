//! What cargo knows about a workspace, and which packages take part in a member of it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use cargo_metadata::{Metadata, MetadataCommand, Package};

use crate::command::output;

/// The member that is released.
pub const MEMBER: &str = "uview-cli";

/// The target of the compiler of the clone in `root`.
///
/// # Errors
///
/// A compiler that does not say it.
pub fn host(root: &Path) -> Result<String> {
    let about = output(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

/// What cargo knows about the workspace in `folder`, for `target`.
///
/// # Errors
///
/// A manifest that cargo cannot read, or a lock file that does not fit it.
pub fn metadata(folder: &Path, target: &str) -> Result<Metadata> {
    let options = ["--locked".to_owned(), "--filter-platform".to_owned(), target.to_owned()];
    Ok(MetadataCommand::new().current_dir(folder).other_options(options).exec()?)
}

/// The version of what is released.
///
/// # Errors
///
/// A workspace without the member.
pub fn version(metadata: &Metadata) -> Result<String> {
    let member = metadata.packages.iter().find(|package| package.name == MEMBER).context(MEMBER)?;
    Ok(member.version.to_string())
}

/// The packages in `members` of the workspace in `folder` and those that took part in building them, without those of
/// tests.
///
/// # Errors
///
/// A member that cargo does not know.
pub fn shipped<'a>(metadata: &'a Metadata, folder: &Path, members: &[&str], target: &str) -> Result<Vec<&'a Package>> {
    let mut tree = Command::new("cargo");
    tree.args(["tree", "--locked", "-e", "no-dev", "--target", target, "--prefix", "none", "-f", "{p}"]);
    tree.arg("--manifest-path").arg(folder.join("Cargo.toml"));
    let text = output(tree.args(members.iter().flat_map(|member| ["-p", *member])).current_dir(folder))?;
    // "serde v1.0.0 (proc-macro)": cargo knows which features are on, its metadata has those of all members.
    let named = |line: &str| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let mut all = metadata.packages.iter();
        all.find(|package| package.name == name && package.version.to_string() == version)
    };
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(named).collect::<Option<_>>().context("cargo's tree names a package that its metadata does not have")
}

/// By name and version, each once.
pub fn each_once(mut packages: Vec<&Package>) -> Vec<&Package> {
    packages.sort_by_key(|package| (package.name.to_string(), package.version.clone()));
    packages.dedup_by_key(|package| &package.id);
    packages
}

#[cfg(test)]
mod tests {
    use support::workspace;

    use super::*;

    #[test]
    fn what_operators_install_links_no_competitor_of_the_detector() {
        let (folder, target) = (workspace(), host(&workspace()).unwrap());
        let metadata = metadata(&folder, &target).unwrap();
        let linked = |members: &[&str]| {
            let packages = shipped(&metadata, &folder, members, &target).unwrap();
            packages.iter().map(|package| package.name.to_string()).collect::<Vec<_>>()
        };
        let has = |names: &[String], name: &str| names.iter().any(|other| other == name);

        let (released, lab) = (linked(&[MEMBER]), linked(&["lab"]));

        assert!(has(&released, "lmap") && has(&lab, "rcf3"), "{released:?} {lab:?}");
        assert!(!["rcf3", "nalgebra"].iter().any(|name| has(&released, name)), "{released:?}");
    }
}
