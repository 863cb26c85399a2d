//! Builds what is released so that the same source gives the same bytes. It does so in a folder of its own, since the
//! flags for that would have everything else built anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::packages::host;

/// The compiler for programs of arm64 on other machines: Debian's package gcc-aarch64-linux-gnu.
const FOR_ARM64: &str = "aarch64-linux-gnu-gcc";

/// Where the sources lie once more, by a link in [`Build::folder_of`], for a build whose workspace has to contain them.
pub const LINKED: &str = "python-source/source";

/// How everything of one release is built.
#[derive(Debug)]
pub struct Build<'a> {
    /// The clone that is built.
    root: &'a Path,
    target: &'a str,
    /// What compiles C and links for `target`, unless this machine's own compiler does.
    cross: Option<&'static str>,
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
    /// A machine that does not say where cargo keeps its files, or what kind of machine it is.
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
        let cross = cross_compiler(&host(root)?, target);
        Ok(Self { root, target, cross, seconds, folder, hidden })
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

    /// Has compilers write the same on each machine, for the one that is built for.
    pub fn reproducible<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let prefixes = |option: &str| {
            let each = self.hidden.iter().map(|(path, name)| format!("{option}={path}={name}"));
            each.collect::<Vec<_>>()
        };
        command.env("SOURCE_DATE_EPOCH", self.seconds.to_string()).env("CARGO_INCREMENTAL", "0");
        // Symbols name no path, but take a third of the file. The profile's setting is not taken over by a package with
        // settings of its own, as the program's is.
        let mut flags = prefixes("--remap-path-prefix");
        flags.push("-Cstrip=symbols".to_owned());
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        if let Some(compiler) = self.cross {
            let target = self.target.replace('-', "_");
            command.env(format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()), compiler);
            command.env(format!("CC_{target}"), compiler);
        }
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

/// What compiles C and links for `target` on a machine of the kind `host`; `None`: the machine's own compiler does, or
/// cargo knows.
pub fn cross_compiler(host: &str, target: &str) -> Option<&'static str> {
    let processors = |triple: &str| triple.starts_with("aarch64-");
    (processors(target) && !processors(host)).then_some(FOR_ARM64)
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
    use support::workspace;

    use super::*;

    #[test]
    fn only_programs_for_other_processors_have_another_compiler() {
        let (intel, arm) = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu");

        assert_eq!(cross_compiler(intel, arm), Some(FOR_ARM64));
        assert_eq!(cross_compiler(intel, "aarch64-unknown-linux-musl"), Some(FOR_ARM64));
        for (host, target) in [(intel, intel), (arm, arm), (intel, "x86_64-unknown-linux-musl")] {
            assert_eq!(cross_compiler(host, target), None, "{host}, {target}");
        }
    }

    #[test]
    fn cargo_is_told_what_links_for_other_processors() {
        let (root, folder) = (workspace(), tempfile::tempdir().unwrap());
        let told = |target: &str| {
            let mut command = Command::new("cargo");
            Build::new(&root, target, 0, folder.path()).unwrap().reproducible(&mut command);
            let compiler = command.get_envs().filter(|(_, value)| value.is_some_and(|value| value == FOR_ARM64));
            compiler.map(|(name, _)| name.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let host = host(&root).unwrap();
        let expected = ["CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "CC_aarch64_unknown_linux_gnu"];

        assert_eq!(told(&host), [""; 0]);
        let is_cross = cross_compiler(&host, "aarch64-unknown-linux-gnu").is_some();
        assert_eq!(told("aarch64-unknown-linux-gnu"), if is_cross { &expected[..] } else { &[] });
    }

    #[test]
    fn programs_have_no_symbols() {
        let (root, folder) = (workspace(), tempfile::tempdir().unwrap());
        let mut command = Command::new("cargo");
        Build::new(&root, "x86_64-unknown-linux-gnu", 0, folder.path()).unwrap().reproducible(&mut command);

        let flags =
            command.get_envs().find(|(name, _)| *name == "CARGO_ENCODED_RUSTFLAGS").and_then(|(_, value)| value);

        assert!(flags.unwrap().to_string_lossy().split('\u{1f}').any(|flag| flag == "-Cstrip=symbols"));
    }

    #[test]
    fn a_program_with_a_path_of_this_machine_is_refused() {
        let paths = [("/home/somebody".to_owned(), "/uview")];

        assert!(no_path_of_this_machine(b"\x7fELF /uview/src/main.rs", &paths).is_ok());
        assert!(no_path_of_this_machine(b"\x7fELF /home/somebody/src/main.rs", &paths).is_err());
    }
}
