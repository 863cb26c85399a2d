//! `cargo xtask release`: an archive with the program, the libraries for services, units, default configurations and
//! licences; an image for Kubernetes; a bill of materials; and checksums. The same commit and the same compiler give
//! the same bytes, wherever the clone lies.

mod archive;
mod build;
mod commit;
mod debian;
mod image;
mod in_image;
mod libraries;
mod notices;
mod packages;
mod parts;
mod sbom;
mod twice;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use cargo_metadata::Metadata;
use support::workspace;

use archive::Entry;
use build::{Build, cross_compiler};
use commit::Commit;
use packages::{MEMBER, each_once, host, metadata, shipped, version};
use parts::{PROGRAM, Parts, ReleaseFile};

pub use in_image::missing as image_missing;
pub use twice::run as run_twice;

/// Where everything is built, in the folder of a workspace for what is built.
const FOLDER: &str = "release-archive";
/// Runs programs of arm64 on other machines: Debian's package qemu-user-static.
const EMULATOR: &str = "qemu-aarch64-static";

/// A release of a commit.
#[derive(Debug)]
struct Release {
    commit: Commit,
    files: Vec<ReleaseFile>,
    /// How many packages took part.
    packages: usize,
}

/// An image as a release has it.
#[derive(Debug)]
pub struct ReleasedImage {
    /// Its name with its tag.
    pub name: String,
    /// Its archive, as a file of the release.
    pub archive: ReleaseFile,
}

/// The image of a release with `program`, which is of this machine's kind, in place of the one that a release builds:
/// the same files, packed alike, but of no commit.
///
/// # Errors
///
/// A program that is static, or a system that is not made of Debian.
pub fn image_of(program: &Path) -> Result<ReleasedImage> {
    let root = workspace();
    let target = host(&root)?;
    let metadata = metadata(&root, &target)?;
    let (version, architecture) = (version(&metadata)?, image::architecture(&target)?);
    let commit = Commit { id: String::new(), seconds: 0, time: "1970-01-01T00:00:00Z".to_owned() };
    let files = in_image::files(&root, &metadata, program, (&target, &commit.time))?;
    let archive = parts::image_file(&commit, (&version, architecture), files)?;
    Ok(ReleasedImage { name: parts::image_name(&version), archive })
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
    let version = version(&metadata)?;
    let in_image = match image::architecture(&target) {
        Ok(_) => Some(image_files(root, &metadata, &program, (&target, &version, &commit.time))?),
        Err(_) => None,
    };

    let libraries = libraries::entries(&build, &version)?;
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
        version: &version,
        target: &target,
        program: bytes,
        documents: parts::documents(root)?,
        libraries,
        in_image,
        bill: sbom::bill(&[&metadata, &python], &packages, &locks, &commit.time)?,
        notices: notices::collect(&packages)?,
    };
    let files = parts.pack()?;
    Ok(Release { files, packages: packages.len(), commit })
}

/// The files of the image of `program`, which has started once, where this machine can run it.
fn image_files(
    root: &Path,
    metadata: &Metadata,
    program: &Path,
    (target, version, time): (&str, &str, &str),
) -> Result<Vec<Entry>> {
    let files = in_image::files(root, metadata, program, (target, time))?;
    let emulator = cross_compiler(&host(root)?, target).map(|_| EMULATOR);
    let is_there = |emulator: &str| Command::new(emulator).arg("--version").output().is_ok();
    match emulator {
        Some(emulator) if !is_there(emulator) => println!("!! the program of the image was not started: no {emulator}"),
        emulator => println!("in the image: {}", in_image::start(&files, version, emulator)?),
    }
    Ok(files)
}
