//! The files of a release's image: the program with what it loads and whom it trusts, the licences of all of that, and
//! a bill of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Metadata;

use crate::command::output;

use super::archive::Entry;
use super::build::cross_compiler;
use super::debian::{DPKG_QUERY, DebianPackage};
use super::image::{self, Library, READELF};
use super::packages::{MEMBER, each_once, host, shipped};
use super::parts::{ENTRYPOINT, PROGRAM};
use super::{notices, sbom};

/// Authorities that the image trusts, as this machine does.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// The package that makes them.
const OF_AUTHORITIES: &str = "ca-certificates";
/// The compiler of this machine, for programs of its own kind.
const NATIVE: &str = "cc";
/// How the names of loaders begin.
const LOADER: &str = "ld-";

/// Why no image of a program of this machine's kind can be made here.
pub fn missing() -> Option<String> {
    let is_missing = |program: &&str| Command::new(program).arg("--version").output().is_err();
    let programs: Vec<_> = [NATIVE, READELF, DPKG_QUERY].into_iter().filter(is_missing).collect();
    if !programs.is_empty() {
        return Some(format!("an image needs {} (Debian: apt-get install gcc dpkg)", programs.join(", ")));
    }
    let is_there = DebianPackage::named(OF_AUTHORITIES).is_ok() && Path::new("/").join(AUTHORITIES).is_file();
    (!is_there).then(|| format!("an image needs /{AUTHORITIES} (Debian: apt-get install {OF_AUTHORITIES})"))
}

/// All files of the image of `program`, which is built from the workspace in `root` for `target`. The bill is of the
/// time `time` (RFC 3339).
///
/// # Errors
///
/// A program or a library that cannot be read, or a system that is not made of Debian.
pub fn files(root: &Path, metadata: &Metadata, program: &Path, (target, time): (&str, &str)) -> Result<Vec<Entry>> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let mut files = vec![Entry::program(ENTRYPOINT.trim_start_matches('/'), bytes)];
    let mut described = Vec::new();
    for (package, of_package) in of_system(root, program, target)? {
        described.push(package.component(&of_package));
        files.push(package.licence()?);
        files.extend(of_package);
    }
    let packages = each_once(shipped(metadata, root, &[MEMBER], target)?);
    let locks = fs::read_to_string(root.join("Cargo.lock"))?;
    let bill = sbom::with(&sbom::bill(&[metadata], &packages, &locks, time)?, described)?;
    for (name, bytes) in [("sbom.cdx.json", bill), ("THIRD-PARTY-LICENCES", notices::collect(&packages)?)] {
        files.push(Entry::text(&format!("usr/share/{PROGRAM}/{name}"), bytes));
    }
    Ok(files)
}

/// Files of this machine's system, by the packages that they are of: what `program` loads, unless it is static, and
/// the authorities that it trusts.
fn of_system(root: &Path, program: &Path, target: &str) -> Result<BTreeMap<DebianPackage, Vec<Entry>>> {
    let mut files: BTreeMap<DebianPackage, Vec<Entry>> = BTreeMap::new();
    if !target.contains("musl") {
        let compiler = cross_compiler(&host(root)?, target).unwrap_or(NATIVE);
        for Library { source, entry } in image::libraries(program, compiler)? {
            files.entry(DebianPackage::owning(&source)?).or_default().push(entry);
        }
    }
    let read = fs::read(Path::new("/").join(AUTHORITIES));
    let bytes =
        read.with_context(|| format!("/{AUTHORITIES} is part of the image: apt-get install {OF_AUTHORITIES}"))?;
    files.entry(DebianPackage::named(OF_AUTHORITIES)?).or_default().push(Entry::text(AUTHORITIES, bytes));
    Ok(files)
}

/// Has the program of an image say its version, by the loader and the libraries that are among the image's `files`;
/// `emulator` runs it if it is for other processors than this machine's. Returns what it says.
///
/// Where a library is missing, the loader would take this machine's: it lists first what it takes.
///
/// # Errors
///
/// It does not start, has another version, or needs a library that is not among the files.
pub fn start(files: &[Entry], version: &str, emulator: Option<&str>) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let programs = || files.iter().filter(|file| file.executable);
    for file in programs() {
        let path = folder.path().join(&file.path);
        fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        fs::write(&path, &file.bytes)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    let is_loader = |file: &&Entry| file.path.rsplit('/').next().is_some_and(|name| name.starts_with(LOADER));
    let here = |path: &str| folder.path().join(path).into_os_string();
    let program = here(ENTRYPOINT.trim_start_matches('/'));
    let emulator: Vec<OsString> = emulator.into_iter().map(OsString::from).collect();
    let mut words = emulator.clone();
    if let Some(loader) = programs().find(is_loader) {
        let by_loader = [here(&loader.path), "--library-path".into(), here("lib")];
        let list = [&emulator[..], &by_loader, &[OsString::from("--list"), program.clone()]].concat();
        let listed = run(&list).context("the loader of the image does not list what the program needs")?;
        let elsewhere = outside(&listed, folder.path());
        ensure!(elsewhere.is_empty(), "the program needs what is not in the image: {}", elsewhere.join("; "));
        words.extend(by_loader);
    }
    words.extend([program, "--version".into()]);
    let said = run(&words).context("the program of the image does not start")?;
    ensure!(said.contains(version), "the program of the image says {said:?}, and not {version}");
    Ok(said.trim().to_owned())
}

/// What a command prints, which these words make.
fn run(words: &[OsString]) -> Result<String> {
    let (first, rest) = words.split_first().context("a command has a first word")?;
    output(Command::new(first).args(rest))
}

/// Of what a loader lists, such as `libc.so.6 => /lib/libc.so.6 (0x7f1d4beba000)`, that which is not below `folder`.
fn outside<'a>(listed: &'a str, folder: &Path) -> Vec<&'a str> {
    let is_outside =
        |line: &&str| line.split_once(" => ").is_some_and(|(_, path)| !Path::new(path).starts_with(folder));
    listed.lines().map(str::trim).filter(is_outside).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;
    use support::harness::not_run;
    use support::workspace;

    use super::*;
    use crate::release::packages::metadata;

    #[test]
    fn what_is_of_the_system_is_in_the_bill_by_its_package_and_comes_with_its_licence() {
        if let Some(why) = missing() {
            return not_run(&format!("the files of an image: {why}"));
        }
        let target = host(&workspace()).unwrap();
        let metadata = metadata(&workspace(), &target).unwrap();
        let program = std::env::current_exe().unwrap();

        let files = files(&workspace(), &metadata, &program, (&target, "2026-01-01T00:00:00Z")).unwrap();

        let there: BTreeSet<_> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(there.len(), files.len(), "each has a place of its own: {there:?}");
        let bill = files.iter().find(|file| file.path == "usr/share/uview/sbom.cdx.json").unwrap();
        let bill: Value = serde_json::from_slice(&bill.bytes).unwrap();
        let packages = bill["components"].as_array().unwrap().iter();
        let packages: Vec<_> = packages.filter(|of| of["bom-ref"].as_str().unwrap().starts_with("pkg:deb/")).collect();
        let mut names = packages.iter().map(|of| of["name"].as_str().unwrap());
        for package in &packages {
            let licence = package["licenses"][0]["license"]["name"].as_str().unwrap();
            assert!(there.contains(licence.trim_start_matches('/')), "the licence of {}", package["name"]);
        }
        assert!(names.any(|name| name == OF_AUTHORITIES) && packages.len() >= 2, "{packages:?}");
        let listed = packages.iter().flat_map(|of| of["components"].as_array().unwrap());
        let listed: BTreeSet<_> = listed.map(|of| of["name"].as_str().unwrap().trim_start_matches('/')).collect();
        let is_of_system = |path: &&str| path.starts_with("lib") || path.starts_with("etc/");
        let of_system: BTreeSet<_> = there.iter().copied().filter(is_of_system).collect();
        assert_eq!(listed, of_system, "left: the bill; right: the image");
    }

    #[test]
    fn a_library_that_the_loader_takes_from_this_machine_or_does_not_find_is_not_in_the_image() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd4c0f8000)
\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f1d4c09c000)
\tlibc.so.6 => /tmp/image/lib/libc.so.6 (0x00007f1d4beba000)
\tlibm.so.6 => not found
\t/lib64/ld-linux-x86-64.so.2 => /tmp/image/lib64/ld-linux-x86-64.so.2 (0x00007f1d4c0fa000)
";

        let elsewhere = outside(listed, Path::new("/tmp/image"));

        let gcc = "libgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f1d4c09c000)";
        assert_eq!(elsewhere, [gcc, "libm.so.6 => not found"]);
    }

    #[test]
    fn a_program_that_says_another_version_is_an_error() {
        let shell = |line: &str| [Entry::program("bin/uview", format!("{line}\n").into_bytes())];
        // By a shell, since a file that was just written may still be open in a process that another thread starts.
        let start = |line: &str| start(&shell(line), "1.2.3", Some("sh"));

        assert_eq!(start("echo uview 1.2.3 $1").unwrap(), "uview 1.2.3 --version");
        assert!(start("echo uview 1.2.4").is_err());
        assert!(start("exit 1").is_err());
    }
}
