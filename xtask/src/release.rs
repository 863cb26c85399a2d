//! `cargo xtask release`: an archive with the program, the libraries for services, units, default configurations and
//! licences; an image for Kubernetes; a bill of materials; and checksums. The same commit and the same compiler give
//! the same bytes, wherever the clone lies.

mod archive;
mod build;
pub mod image;
mod libraries;
mod notices;
mod sbom;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use sha2::{Digest as _, Sha256};
use support::workspace;

use archive::Entry;
use build::Build;
use image::Image;

/// The member that is released, and its program.
const MEMBER: &str = "uview-cli";
const PROGRAM: &str = "uview";

/// What goes into the archive besides the program, with its place there.
const FILES: [(&str, &str); 11] = [
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("deploy/release/Makefile", "Makefile"),
    ("docs/clients.md", "docs/clients.md"),
    ("docs/systemd.md", "docs/systemd.md"),
    ("docs/access.md", "docs/access.md"),
    ("docs/metrics.md", "docs/metrics.md"),
    ("host-agent/src/config/default.yaml", "defaults/host-agent.yaml"),
    ("nic-agent/src/config/default.yaml", "defaults/nic-agent.yaml"),
];
/// Folders that are packed as a whole: units, users, folders and configurations to begin with; alerts; dashboards.
const FOLDERS: [&str; 3] = ["deploy/systemd", "deploy/prometheus", "deploy/grafana"];

/// What the image is called, as the chart's values have it.
const REPOSITORY: &str = "localhost/uview";
/// The program in the image.
pub const ENTRYPOINT: &str = "/bin/uview";
/// Authorities that the image trusts, as this machine does: Debian's package ca-certificates.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// The checksums of all archives and bills in a folder, as sha256sum(1) reads them.
const SUMS: &str = "SHA256SUMS";

/// The commit that is released.
struct Commit {
    id: String,
    /// Seconds since 1970: the time of everything in the archive.
    seconds: u64,
    /// The same, such as 2026-11-24T01:45:00Z.
    time: String,
}

/// Builds the release for `target` (`None`: this machine's kind) into the folder `into`.
///
/// # Errors
///
/// Changes that are not committed, a build that fails, or a program that holds paths of this machine.
pub fn run(target: Option<&str>, into: &Path) -> Result<()> {
    let commit = commit()?;
    let target = target.map_or_else(host, |target| Ok(target.to_owned()))?;
    let metadata = metadata(&workspace(), &target)?;
    let folder = metadata.target_directory.join("release-archive");
    let build = Build::new(&target, commit.seconds, folder.as_std_path())?;
    let program = build.program(MEMBER, PROGRAM)?;
    let bytes = build.read(&program)?;

    let version = &metadata.packages.iter().find(|package| package.name == MEMBER).context(MEMBER)?.version;
    let name = format!("{PROGRAM}-{version}-{target}");
    let libraries = libraries::entries(&build, &version.to_string())?;
    let python = self::metadata(&workspace().join(libraries::PYTHON), &target)?;
    let mut packages = shipped(&metadata, &workspace(), &[MEMBER], &target)?;
    let mut locks = fs::read_to_string(workspace().join("Cargo.lock"))?;
    if !libraries.is_empty() {
        packages.extend(shipped(&metadata, &workspace(), &libraries::MEMBERS, &target)?);
        packages.extend(shipped(&python, &workspace().join(libraries::PYTHON), &[libraries::EXTENSION], &target)?);
        locks.push_str(&fs::read_to_string(workspace().join(libraries::PYTHON).join("Cargo.lock"))?);
    }
    let packages = each_once(packages);
    let bill = sbom::bill(&[&metadata, &python], &packages, &locks, &commit.time)?;

    let notices = notices::collect(&packages)?;
    let mut written = vec![(format!("{name}.cdx.json"), bill.clone())];
    if let Ok(architecture) = image::architecture(&target) {
        let image = Image {
            name: &format!("{REPOSITORY}:{version}"),
            architecture,
            entrypoint: ENTRYPOINT,
            seconds: commit.seconds,
            created: &commit.time,
        };
        let about = [("sbom.cdx.json", bill.clone()), ("THIRD-PARTY-LICENCES", notices.clone())];
        let about = about.map(|(file, bytes)| Entry::text(&format!("usr/share/{PROGRAM}/{file}"), bytes));
        let archive = image.pack(in_image(&program, &target)?.into_iter().chain(about).collect())?;
        written.push((format!("{PROGRAM}-{version}-linux-{architecture}.oci.tar"), archive));
    }
    let mut entries = vec![
        Entry::program(&format!("bin/{PROGRAM}"), bytes),
        Entry::text("sbom.cdx.json", bill),
        Entry::text("COMMIT", format!("{}\n", commit.id).into_bytes()),
        Entry::text("THIRD-PARTY-LICENCES", notices),
    ];
    entries.extend(files()?);
    entries.extend(libraries);
    fs::create_dir_all(into)?;
    written.push((format!("{name}.tar.gz"), archive::pack(&name, entries, commit.seconds)?));
    for (file, bytes) in &written {
        fs::write(into.join(file), bytes)?;
    }
    let sums = sums(into, &written)?;
    fs::write(into.join(SUMS), &sums)?;
    print!("{} of {}, {} packages\n{sums}", into.display(), commit.id, packages.len());
    Ok(())
}

/// The program's files in an image: itself, and unless it is static the C library with its licence, and the authorities
/// that it trusts.
fn in_image(program: &Path, target: &str) -> Result<Vec<Entry>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("{} is part of the image", path.display()));
    let mut entries = if target.contains("musl") {
        vec![Entry::program(ENTRYPOINT.trim_start_matches('/'), read(program)?)]
    } else {
        let native = host()? == target;
        let (compiler, package) = if native { ("cc", "libc6") } else { ("aarch64-linux-gnu-gcc", "libc6-arm64-cross") };
        let licence = format!("usr/share/doc/{package}/copyright");
        let mut entries = image::program(program, PROGRAM, compiler)?;
        entries.push(Entry::text(&licence, read(&Path::new("/").join(&licence))?));
        entries
    };
    entries.push(Entry::text(AUTHORITIES, read(&Path::new("/").join(AUTHORITIES))?));
    Ok(entries)
}

/// Checksums of `written`, and those that the folder `into` has of other files there: releases for other targets.
fn sums(into: &Path, written: &[(String, Vec<u8>)]) -> Result<String> {
    let path = into.join(SUMS);
    let before = if path.exists() { fs::read_to_string(&path).context(SUMS)? } else { String::new() };
    let there = before.lines().filter_map(|line| line.split_once("  ")).filter(|(_, file)| into.join(file).is_file());
    let mut all: BTreeMap<_, _> = there.map(|(sum, file)| (file, sum.to_owned())).collect();
    all.extend(written.iter().map(|(file, bytes)| (file.as_str(), format!("{:x}", Sha256::digest(bytes)))));
    let lines: Vec<_> = all.iter().map(|(file, sum)| format!("{sum}  {file}\n")).collect();
    Ok(lines.concat())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.current_dir(workspace()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {text}", command.get_program().display());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn commit() -> Result<Commit> {
    let changes = output(Command::new("git").args(["status", "--porcelain"]))?;
    ensure!(changes.is_empty(), "commit first: a release is of a commit, and these files differ:\n{changes}");
    let show = |format: &str| {
        let date = "--date=format-local:%Y-%m-%dT%H:%M:%SZ";
        output(Command::new("git").env("TZ", "UTC0").args(["show", "--no-patch", date, &format!("--format={format}")]))
    };
    Ok(Commit { id: show("%H")?, seconds: show("%ct")?.parse()?, time: show("%cd")? })
}

/// The target of this machine's compiler.
fn host() -> Result<String> {
    let about = output(Command::new("rustc").arg("-vV"))?;
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
    let text = output(tree.args(members.iter().flat_map(|member| ["-p", *member])))?;
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

/// Documents, configurations and units.
fn files() -> Result<Vec<Entry>> {
    let read = |from: &Path| fs::read(workspace().join(from)).with_context(|| from.display().to_string());
    let mut entries = Vec::new();
    for (from, to) in FILES {
        entries.push(Entry::text(to, read(from.as_ref())?));
    }
    for folder in FOLDERS {
        for file in fs::read_dir(workspace().join(folder))? {
            let name = file?.file_name().into_string().ok().context("a file's name is no text")?;
            let path = format!("{folder}/{name}");
            entries.push(Entry::text(&path, read(path.as_ref())?));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_archive_is_there_and_has_a_place_of_its_own() {
        let entries = files().unwrap();
        let mut places: Vec<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
        places.sort_unstable();
        places.dedup();

        assert_eq!(places.len(), entries.len());
        assert!(entries.iter().any(|entry| entry.path == "deploy/systemd/uview-host-agent.service"));
    }

    #[test]
    fn what_operators_install_links_no_competitor_of_the_detector() {
        let (folder, target) = (workspace(), host().unwrap());
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

    #[test]
    fn checksums_of_other_targets_in_the_same_folder_stay_while_their_files_do() {
        let folder = tempfile::tempdir().unwrap();
        let release = |file: &str, bytes: &[u8]| {
            let written = [(file.to_owned(), bytes.to_owned())];
            fs::write(folder.path().join(file), bytes).unwrap();
            let sums = sums(folder.path(), &written).unwrap();
            fs::write(folder.path().join(SUMS), &sums).unwrap();
            sums
        };
        let line = |file: &str, bytes: &[u8]| format!("{:x}  {file}\n", Sha256::digest(bytes));

        assert_eq!(release("x86.tar.gz", b"1"), line("x86.tar.gz", b"1"));
        assert_eq!(release("arm.tar.gz", b"2"), [line("arm.tar.gz", b"2"), line("x86.tar.gz", b"1")].concat());
        assert_eq!(release("x86.tar.gz", b"3"), [line("arm.tar.gz", b"2"), line("x86.tar.gz", b"3")].concat());
        fs::remove_file(folder.path().join("arm.tar.gz")).unwrap();
        assert_eq!(release("x86.tar.gz", b"3"), line("x86.tar.gz", b"3"));
    }
}
