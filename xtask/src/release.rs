//! `cargo xtask release`: an archive with the program, the libraries for services, units, default configurations and
//! licences; an image for Kubernetes; a bill of materials; and checksums. The same commit and the same compiler give
//! the same bytes, wherever the clone lies.

mod archive;
mod build;
mod commit;
pub mod image;
mod libraries;
mod notices;
mod parts;
mod sbom;
mod twice;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use support::workspace;

use crate::command::output;
use archive::Entry;
use build::Build;
use commit::Commit;
use parts::{PROGRAM, Parts, ReleaseFile};

pub use parts::ENTRYPOINT;
pub use twice::run as run_twice;

/// The member that is released.
const MEMBER: &str = "uview-cli";
/// Where everything is built, in the folder of a workspace for what is built.
const FOLDER: &str = "release-archive";
/// Authorities that the image trusts, as this machine does: Debian's package ca-certificates.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// A release of a commit.
#[derive(Debug)]
struct Release {
    commit: Commit,
    files: Vec<ReleaseFile>,
    /// How many packages took part.
    packages: usize,
}

/// Builds the release for `target` (`None`: this machine's kind) into the folder `into`.
///
/// # Errors
///
/// Changes that are not committed, a build that fails, or a program that holds paths of this machine.
pub fn run(target: Option<&str>, into: &Path) -> Result<()> {
    publish(&make(&workspace(), target, None)?, into)
}

/// Writes a release, and prints its checksums.
fn publish(release: &Release, into: &Path) -> Result<()> {
    let sums = parts::write(into, &release.files)?;
    print!("{} of {}, {} packages\n{sums}", into.display(), release.commit.id, release.packages);
    Ok(())
}

/// Builds the release of the clone in `root`, in `folder` [default: where cargo builds it].
fn make(root: &Path, target: Option<&str>, folder: Option<PathBuf>) -> Result<Release> {
    let commit = Commit::of(root)?;
    let target = target.map_or_else(|| host(root), |target| Ok(target.to_owned()))?;
    let metadata = metadata(root, &target)?;
    let folder = folder.unwrap_or_else(|| metadata.target_directory.join(FOLDER).into_std_path_buf());
    let build = Build::new(root, &target, commit.seconds, &folder)?;
    let program = build.program(MEMBER, PROGRAM)?;
    let bytes = build.read(&program)?;

    let version = &metadata.packages.iter().find(|package| package.name == MEMBER).context(MEMBER)?.version;
    let libraries = libraries::entries(&build, &version.to_string())?;
    let python_root = root.join(libraries::PYTHON);
    let python = self::metadata(&python_root, &target)?;
    let mut packages = shipped(&metadata, root, &[MEMBER], &target)?;
    let mut locks = fs::read_to_string(root.join("Cargo.lock"))?;
    if !libraries.is_empty() {
        packages.extend(shipped(&metadata, root, &libraries::MEMBERS, &target)?);
        packages.extend(shipped(&python, &python_root, &[libraries::EXTENSION], &target)?);
        locks.push_str(&fs::read_to_string(python_root.join("Cargo.lock"))?);
    }
    let packages = each_once(packages);
    let parts = Parts {
        commit: &commit,
        version: &version.to_string(),
        target: &target,
        program: bytes,
        documents: parts::documents(root)?,
        libraries,
        in_image: image::architecture(&target).is_ok().then(|| in_image(root, &program, &target)).transpose()?,
        bill: sbom::bill(&[&metadata, &python], &packages, &locks, &commit.time)?,
        notices: notices::collect(&packages)?,
    };
    let files = parts.pack()?;
    Ok(Release { files, packages: packages.len(), commit })
}

/// The program's files in an image: itself, and unless it is static the C library with its licence, and the authorities
/// that it trusts.
fn in_image(root: &Path, program: &Path, target: &str) -> Result<Vec<Entry>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("{} is part of the image", path.display()));
    let mut entries = if target.contains("musl") {
        vec![Entry::program(ENTRYPOINT.trim_start_matches('/'), read(program)?)]
    } else {
        let native = host(root)? == target;
        let (compiler, package) = if native { ("cc", "libc6") } else { ("aarch64-linux-gnu-gcc", "libc6-arm64-cross") };
        let licence = format!("usr/share/doc/{package}/copyright");
        let mut entries = image::program(program, PROGRAM, compiler)?;
        entries.push(Entry::text(&licence, read(&Path::new("/").join(&licence))?));
        entries
    };
    entries.push(Entry::text(AUTHORITIES, read(&Path::new("/").join(AUTHORITIES))?));
    Ok(entries)
}

/// The target of this machine's compiler.
fn host(root: &Path) -> Result<String> {
    let about = output(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

/// What cargo knows about the workspace in `folder`, for `target`.
fn metadata(folder: &Path, target: &str) -> Result<Metadata> {
    let options = ["--locked".to_owned(), "--filter-platform".to_owned(), target.to_owned()];
    Ok(MetadataCommand::new().current_dir(folder).other_options(options).exec()?)
}

/// The packages in `members` of the workspace in `folder` and those that took part in building them, without those of
/// tests.
fn shipped<'a>(metadata: &'a Metadata, folder: &Path, members: &[&str], target: &str) -> Result<Vec<&'a Package>> {
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
fn each_once(mut packages: Vec<&Package>) -> Vec<&Package> {
    packages.sort_by_key(|package| (package.name.to_string(), package.version.clone()));
    packages.dedup_by_key(|package| &package.id);
    packages
}

#[cfg(test)]
mod tests {
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

        let (released, lab) = (linked(&["uview-cli"]), linked(&["lab"]));

        assert!(has(&released, "lmap") && has(&lab, "rcf3"), "{released:?} {lab:?}");
        assert!(!["rcf3", "nalgebra"].iter().any(|name| has(&released, name)), "{released:?}");
    }
}
