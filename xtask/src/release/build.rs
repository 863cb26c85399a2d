//! Builds what is released so that the same source gives the same bytes. It does so in a folder of its own, since the
//! flags for that would have everything else built anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Where the sources lie once more, by a link in [`Build::folder_of`], for a build whose workspace has to contain them.
pub const LINKED: &str = "python-source/source";

/// How everything of one release is built.
#[derive(Debug)]
pub struct Build<'a> {
    /// The clone that is built.
    root: &'a Path,
    target: &'a str,
    /// Time of the commit, in seconds since 1970.
    seconds: u64,
    folder: &'a Path,
    /// Folders of this machine that a compiler may write into a program, and what stands for them.
    hidden: Vec<(String, &'static str)>,
}

impl<'a> Build<'a> {
    /// Builds the clone in `root` for `target` in `folder`; `seconds` since 1970 is the time of the commit.
    ///
    /// # Errors
    ///
    /// A machine that does not say where cargo keeps its files.
    pub fn new(root: &'a Path, target: &'a str, seconds: u64, folder: &'a Path) -> Result<Self> {
        let registry = cargo_home().context("neither CARGO_HOME nor HOME is set")?;
        // Of several that fit, the last one counts.
        let places = [
            (root.to_owned(), "/uview"),
            (registry, "/cargo"),
            // Code that is generated lies there, perhaps outside of the clone.
            (folder.to_owned(), "/uview/target/release-archive"),
            (folder.join(LINKED), "/uview"),
        ];
        let hidden = places.map(|(path, name)| (path.display().to_string(), name)).to_vec();
        Ok(Self { root, target, seconds, folder, hidden })
    }

    /// The clone that is built.
    pub const fn root(&self) -> &Path {
        self.root
    }

    /// The kind of machine that is built for.
    pub const fn target(&self) -> &str {
        self.target
    }

    /// A folder for what is built by other tools than cargo.
    pub fn folder_of(&self, tool: &str) -> PathBuf {
        self.folder.join(tool)
    }

    /// Builds the program `name` of a member, and returns its path.
    ///
    /// # Errors
    ///
    /// A build that fails.
    pub fn program(&self, member: &str, name: &str) -> Result<PathBuf> {
        self.cargo(&["-p", member, "--bin", name])?;
        Ok(self.built(name))
    }

    /// Builds the libraries of a member, which are then at [`Build::built`].
    ///
    /// # Errors
    ///
    /// A build that fails.
    pub fn library(&self, member: &str) -> Result<()> {
        self.cargo(&["-p", member, "--lib"])
    }

    /// Where cargo has put the file `name`.
    pub fn built(&self, name: &str) -> PathBuf {
        self.folder.join(self.target).join("release").join(name)
    }

    fn cargo(&self, what: &[&str]) -> Result<()> {
        let mut command = Command::new("cargo");
        command.args(["build", "--release", "--locked", "--target", self.target]).args(what);
        command.arg("--target-dir").arg(self.folder).current_dir(self.root);
        ensure!(self.reproducible(&mut command).status()?.success(), "the release does not build");
        Ok(())
    }

    /// Has compilers write the same on each machine.
    pub fn reproducible<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let prefixes = |option: &str| {
            let each = self.hidden.iter().map(|(path, name)| format!("{option}={path}={name}"));
            each.collect::<Vec<_>>()
        };
        command.env("SOURCE_DATE_EPOCH", self.seconds.to_string()).env("CARGO_INCREMENTAL", "0");
        // Symbols name no path, but take a third of the file.
        command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
        command.env("CARGO_ENCODED_RUSTFLAGS", prefixes("--remap-path-prefix").join("\u{1f}"));
        command.env("CFLAGS", prefixes("-ffile-prefix-map").join(" "))
    }

    /// The bytes of a file that was built.
    ///
    /// # Errors
    ///
    /// A file that is not there, or that holds a path of this machine.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        no_path_of_this_machine(&bytes, &self.hidden).with_context(|| path.display().to_string())?;
        Ok(bytes)
    }
}

#[expect(clippy::disallowed_methods, reason = "only the environment says where cargo keeps its files")]
fn cargo_home() -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// A path of this machine in the program tells who built it, and makes it differ from anybody else's.
fn no_path_of_this_machine(program: &[u8], paths: &[(String, &str)]) -> Result<()> {
    for (path, _) in paths {
        let found = program.windows(path.len()).any(|window| window == path.as_bytes());
        ensure!(!found, "it contains the path {path} of this machine");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_path_of_this_machine_is_refused() {
        let paths = [("/home/somebody".to_owned(), "/uview")];

        assert!(no_path_of_this_machine(b"\x7fELF /uview/src/main.rs", &paths).is_ok());
        assert!(no_path_of_this_machine(b"\x7fELF /home/somebody/src/main.rs", &paths).is_err());
    }
}
