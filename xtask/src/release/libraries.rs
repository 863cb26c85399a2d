//! The libraries of a release: the client for C, the wheel for Python, and the library that `uview watch --preload`
//! loads into a program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::archive::Entry;
use super::build::{Build, LINKED};

/// The members that are built as libraries: the client for C, and what is preloaded.
pub const MEMBERS: [&str; 2] = ["uview-c", "uview-preload"];
/// The folder of the package for Python, a workspace of its own, and its extension module.
pub const PYTHON: &str = "bindings/python";
/// The member of that workspace.
pub const EXTENSION: &str = "uview-python";
/// What builds the wheel. A version of its own would write other bytes.
const MATURIN: &str = "maturin==1.16.0";
/// Files of cargo, with their places in the archive.
const BUILT: [(&str, &str, bool); 3] = [
    ("libuview_c.so", "lib/libuview.so.0", true),
    ("libuview_c.a", "lib/libuview.a", false),
    ("libuview_preload.so", "lib/uview/libuview_preload.so", true),
];
const C: &str = "bindings/c";

/// Builds the libraries of release `version`, each with its place in the archive. None for musl, where a program is
/// static and loads no library.
///
/// # Errors
///
/// A build that fails, or a machine without Python or network, which maturin needs.
pub fn entries(build: &Build<'_>, version: &str) -> Result<Vec<Entry>> {
    if build.target().contains("musl") {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    MEMBERS.iter().try_for_each(|member| build.library(member))?;
    for (file, place, executable) in BUILT {
        entries.push(Entry { path: place.to_owned(), bytes: build.read(&build.built(file))?, executable });
    }
    let wheel = wheel(build)?;
    // The wheel itself is compressed.
    build.read(&build.folder_of("python").join(build.target()).join("release/lib_uview.so"))?;
    let name = wheel.file_name().and_then(|name| name.to_str()).context("a wheel's name is text")?;
    entries.push(Entry::text(&format!("python/{name}"), build.read(&wheel)?));
    entries.extend(for_c(build.root(), version)?);
    Ok(entries)
}

/// The header, and how pkg-config finds it wherever the archive lies.
fn for_c(root: &Path, version: &str) -> Result<Vec<Entry>> {
    let read = |name: &str| {
        let path = root.join(C).join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let pkg_config = read("uview.pc.in")?
        .replace("@PREFIX@", "${pcfiledir}/../..")
        .replace("@LIBDIR@", "${prefix}/lib")
        .replace("@VERSION@", version);
    ensure!(!pkg_config.contains('@'), "uview.pc.in has a place that nobody fills:\n{pkg_config}");
    Ok(vec![
        Entry::text("include/uview.h", read("include/uview.h")?.into_bytes()),
        Entry::text("lib/pkgconfig/uview.pc", pkg_config.into_bytes()),
    ])
}

/// Builds the wheel, with the one version of the tool, in an environment of its own.
fn wheel(build: &Build<'_>) -> Result<PathBuf> {
    let (environment, wheels) = (build.folder_of("maturin"), build.folder_of("wheels"));
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let run = |command: &mut Command| {
        let status = command.status().with_context(|| command.get_program().display().to_string())?;
        ensure!(status.success(), "the wheel does not build: it needs Python with venv, and a network for {MATURIN}");
        Ok(())
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", MATURIN]))?;
    let mut maturin = Command::new(environment.join("bin/maturin"));
    maturin.args(["build", "--quiet", "--release", "--locked", "--target", build.target()]);
    maturin.arg("--target-dir").arg(build.folder_of("python")).arg("--out").arg(&wheels);
    run(build.reproducible(maturin.current_dir(contained(build)?)))?;
    let mut built = fs::read_dir(&wheels)?.map(|file| file.map(|file| file.path())).collect::<Result<Vec<_>, _>>()?;
    let wheel = built.pop().with_context(|| format!("maturin has left no wheel in {}", wheels.display()))?;
    ensure!(built.is_empty() && is_for_every_python(&wheel), "{} is not the one wheel for all", wheel.display());
    Ok(wheel)
}

/// A copy of the package whose workspace contains the client, by a link. Cargo numbers crates by their paths within the
/// workspace, but by absolute paths outside of it, and the compiler's output depends on these numbers.
fn contained(build: &Build<'_>) -> Result<PathBuf> {
    let (link, root) = (build.folder_of(LINKED), build.root());
    let copy = link.parent().context("the link lies in the copy")?.to_owned();
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(&copy)?;
    let tracked = Command::new("git").args(["ls-files", "-z"]).current_dir(root.join(PYTHON)).output()?;
    ensure!(tracked.status.success(), "git does not list the files of {PYTHON}");
    for file in String::from_utf8(tracked.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(PYTHON).join(file), copy.join(file));
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
    }
    let manifest = copy.join("Cargo.toml");
    fs::write(&manifest, containing(&fs::read_to_string(&manifest)?)?)?;
    std::os::unix::fs::symlink(root, &link)?;
    Ok(copy)
}

/// The manifest with the client below it.
fn containing(manifest: &str) -> Result<String> {
    let mut manifest = manifest.to_owned();
    for (before, after) in [
        ("\"../../client\"", "\"source/client\""),
        // What is linked is of another workspace.
        ("[workspace]\n", "[workspace]\nexclude = [\"source\"]\n"),
    ] {
        ensure!(manifest.matches(before).count() == 1, "the manifest of {PYTHON} does not have {before} once");
        manifest = manifest.replace(before, after);
    }
    Ok(manifest)
}

/// Whether a wheel serves all versions of Python: its name says so.
fn is_for_every_python(wheel: &Path) -> bool {
    wheel.file_name().is_some_and(|name| name.to_string_lossy().contains("-abi3-"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use support::harness::not_run;
    use support::workspace;

    use super::*;

    /// What stands in for the program: `man` and `completions` are all that is asked of it.
    const PROGRAM: &str = "#!/bin/sh\ncase $1 in\nman) mkdir -p $2 && echo > $2/uview.1 && echo > $2/uview-top.1;;\n\
        completions) echo;;\nesac\n";

    fn files(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for file in fs::read_dir(next).unwrap() {
                let path = file.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                } else {
                    found.push(path.strip_prefix(folder).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    fn make(folder: &Path, target: &str, root: &Path) {
        let mut make = Command::new("make");
        make.arg("--silent").arg(target).arg(format!("DESTDIR={}", root.display())).current_dir(folder);
        assert!(make.status().unwrap().success(), "make {target}");
    }

    /// An archive as it lies unpacked, with something in place of what is built.
    fn unpacked() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let built = BUILT.map(|(_, place, executable)| Entry { path: place.to_owned(), bytes: vec![0], executable });
        let program = Entry::program("bin/uview", PROGRAM.as_bytes().to_vec());
        let makefile = fs::read(workspace().join("deploy/release/Makefile")).unwrap();
        let all = [program, Entry::text("Makefile", makefile)];
        for entry in all.into_iter().chain(built).chain(for_c(&workspace(), "1.2.3").unwrap()) {
            let path = folder.path().join(entry.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, entry.bytes).unwrap();
            let mode = if entry.executable { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        folder
    }

    #[test]
    fn what_is_installed_has_its_place_and_uninstalling_leaves_nothing() {
        let (folder, root) = (unpacked(), tempfile::tempdir().unwrap());

        make(folder.path(), "install", root.path());
        let there = files(root.path());
        for place in [
            "bin/uview",
            "include/uview.h",
            "lib/libuview.a",
            "lib/libuview.so",
            "lib/libuview.so.0",
            "lib/pkgconfig/uview.pc",
            "lib/uview/libuview_preload.so",
            "share/bash-completion/completions/uview",
            "share/man/man1/uview-top.1",
        ] {
            assert!(there.contains(&format!("usr/local/{place}")), "{place} is not in {there:?}");
        }
        let link = fs::read_link(root.path().join("usr/local/lib/libuview.so")).unwrap();
        assert_eq!(link, Path::new("libuview.so.0"));

        make(folder.path(), "uninstall", root.path());
        assert_eq!(files(root.path()), Vec::<String>::new());
        assert!(!root.path().join("usr/local/lib/uview").exists(), "a folder of its own is left");
    }

    #[test]
    fn the_package_for_python_can_be_built_where_its_workspace_contains_the_client() {
        let manifest = fs::read_to_string(workspace().join(PYTHON).join("Cargo.toml")).unwrap();

        let changed = containing(&manifest).unwrap();

        assert!(changed.contains("path = \"source/client\"") && changed.contains("exclude = [\"source\"]"));
        assert!(containing(&changed).is_err(), "a manifest that is another one is not changed without a word");
    }

    #[test]
    fn pkg_config_finds_the_library_wherever_the_archive_lies() {
        let folder = unpacked();
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", folder.path().join("lib/pkgconfig")).args(["--cflags", "--libs", "uview"]);
        let Ok(output) = command.output() else {
            return not_run("pkg-config on an unpacked release: it is not installed");
        };

        let flags = String::from_utf8(output.stdout).unwrap();
        for (option, place) in [("-I", "include"), ("-L", "lib")] {
            let named = flags.split_whitespace().find_map(|word| word.strip_prefix(option)).unwrap();
            assert_eq!(fs::canonicalize(named).unwrap(), folder.path().join(place).canonicalize().unwrap());
        }
    }
}
