//! Builds the programs that CI and guests run, by one call of cargo, so that shared dependencies are compiled once.
//! Cargo unifies the features of dependencies over the packages of one call; separate calls would compile many
//! dependencies again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Artifact, Message};

use crate::workspace;

/// What is measured by hand: packages and programs.
const MEASURED: [(&str, &str); 2] = [("uview-cli", "--bin=uview"), ("lab", "--bin=lab")];

/// The built programs: target name → path.
#[derive(Debug)]
pub struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    /// Builds releases of `uview` and `lab`.
    ///
    /// # Errors
    ///
    /// A program cannot be built.
    pub fn build() -> Result<Self> {
        Self::release(&MEASURED)
    }

    /// Builds releases of these: packages, and cargo's option for what of them.
    ///
    /// # Errors
    ///
    /// A program cannot be built.
    pub fn release(targets: &[(&str, &str)]) -> Result<Self> {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release"]);
        cargo.args(targets.iter().flat_map(|(package, target)| ["-p", package, target]));
        Self::built_by(&mut cargo)
    }

    /// These, and `others`, which are taken first.
    #[must_use]
    pub fn beside(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// The programs that `cargo test --workspace` runs; takes only a moment after it. Asking cargo for a single one
    /// would compile its dependencies again, with fewer features.
    ///
    /// # Errors
    ///
    /// A program cannot be built.
    pub fn of_tests() -> Result<Self> {
        Self::built_by(Command::new("cargo").args(["test", "--quiet", "--workspace", "--no-run"]))
    }

    fn built_by(cargo: &mut Command) -> Result<Self> {
        let output = cargo.arg("--message-format=json").current_dir(workspace()).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "programs were not built: {}", output.status);
        Ok(Self(named(&output.stdout)))
    }

    /// The path of the program of target `name`.
    ///
    /// # Errors
    ///
    /// There is no such program.
    pub fn path(&self, name: &str) -> Result<&Path> {
        self.0.get(name).map(PathBuf::as_path).with_context(|| format!("cargo has built no program {name}"))
    }

    /// A command that runs it in the folder of the workspace member `member`, as cargo does with tests.
    ///
    /// # Errors
    ///
    /// There is no such program.
    pub fn command(&self, name: &str, member: &str) -> Result<Command> {
        let mut command = Command::new(self.path(name)?);
        command.current_dir(workspace().join(member));
        Ok(command)
    }
}

/// The programs in cargo's messages, by target name. A library or a program with its unit tests gives way to a program
/// of the same name.
fn named(messages: &[u8]) -> BTreeMap<String, PathBuf> {
    let artifacts = Message::parse_stream(messages).filter_map(Result::ok).filter_map(|message| match message {
        Message::CompilerArtifact(artifact) => Some(artifact),
        _ => None,
    });
    let (units, programs): (Vec<_>, Vec<_>) =
        artifacts.partition(|artifact| artifact.profile.test && !artifact.target.is_test());
    let named = |artifact: Artifact| Some((artifact.target.name, artifact.executable?.into()));
    units.into_iter().chain(programs).filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(kind: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"a","manifest_path":"/a/Cargo.toml","target":{{"name":"uview","kind":["{kind}"],"crate_types":["{kind}"],"required-features":[],"src_path":"/a/a.rs","edition":"2024","doctest":false,"test":true,"doc":true}},"profile":{{"opt_level":"0","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":{test}}},"features":[],"filenames":["{executable}"],"executable":"{executable}","fresh":true}}"#
        )
    }

    #[test]
    fn a_program_is_taken_before_unit_tests_of_its_name() {
        let [program, units, library] =
            [("bin", false, "/uview"), ("bin", true, "/uview-1"), ("lib", true, "/uview-2")]
                .map(|(kind, test, executable)| artifact(kind, test, executable));

        for messages in [[&program, &units, &library], [&library, &units, &program]] {
            let lines: Vec<u8> = messages.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            assert_eq!(named(&lines)["uview"], Path::new("/uview"));
        }
        assert_eq!(named(artifact("test", true, "/memory-1").as_bytes())["uview"], Path::new("/memory-1"));
        assert_eq!(named(library.as_bytes())["uview"], Path::new("/uview-2"));
    }
}
