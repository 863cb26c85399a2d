//! Builds the release programs that CI and guests run, by one call of cargo, so that shared dependencies are compiled
//! once. Cargo unifies the features of dependencies over the packages of one call; separate calls would compile many
//! dependencies again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;

use crate::workspace;

/// The packages of the call.
const PACKAGES: [&str; 6] = ["e2e", "hooks", "lab", "nic-agent", "synopses", "uview-cli"];
/// The programs in them: `uview`, `lab`, the reproduction of synopses, the tests that are too slow in a debug build,
/// and the one whose times are judged.
const TARGETS: [&str; 6] =
    ["--bin=lab", "--bin=uview", "--example=reproduce", "--test=coherence", "--test=simulation", "--test=two_agents"];

/// The built programs: target name → path.
#[derive(Debug)]
pub struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    /// Builds all of them.
    ///
    /// # Errors
    ///
    /// A program cannot be built.
    pub fn build() -> Result<Self> {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release"]).args(TARGETS);
        cargo.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
        Self::built_by(&mut cargo)
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

/// The programs in cargo's messages, by target name.
fn named(messages: &[u8]) -> BTreeMap<String, PathBuf> {
    let artifacts = Message::parse_stream(messages).filter_map(Result::ok).filter_map(|message| match message {
        Message::CompilerArtifact(artifact) => Some((artifact.target.name, artifact.executable?.into())),
        _ => None,
    });
    artifacts.collect()
}
