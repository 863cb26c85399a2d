//! The programs that CI and guests run in a release build: built by one call of cargo, so that whatever they share is compiled once. Cargo gives
//! a dependency the features that the packages of a call ask for, and a call for each would compile much of it again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;

use crate::proto::workspace;

/// The packages of the call.
const PACKAGES: [&str; 5] = ["e2e", "hooks", "synopses", "uview-cli", "xtask"];
/// The programs in them: `uview`, this tool, the reproduction of synopses, and the tests that take too long in another build.
const TARGETS: [&str; 5] =
    ["--bin=uview", "--bin=xtask", "--example=reproduce", "--test=coherence", "--test=simulation"];

/// What was built.
#[derive(Debug)]
pub struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    /// Builds all of them.
    ///
    /// # Errors
    ///
    /// One was not built.
    pub fn build() -> Result<Self> {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release"]).args(TARGETS);
        cargo.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
        Self::built_by(&mut cargo)
    }

    /// The programs that `cargo test --workspace` runs, which is a moment's work after it. A cargo that is asked for one of them compiles what that
    /// one needs with fewer features, again.
    ///
    /// # Errors
    ///
    /// One was not built.
    pub fn of_tests() -> Result<Self> {
        Self::built_by(Command::new("cargo").args(["test", "--quiet", "--workspace", "--no-run"]))
    }

    fn built_by(cargo: &mut Command) -> Result<Self> {
        let output = cargo.arg("--message-format=json").current_dir(workspace()).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "programs were not built: {}", output.status);
        Ok(Self(named(&output.stdout)))
    }

    /// Where the program of target `name` is.
    ///
    /// # Errors
    ///
    /// It is none of them.
    pub fn path(&self, name: &str) -> Result<&Path> {
        self.0.get(name).map(PathBuf::as_path).with_context(|| format!("cargo has built no program {name}"))
    }

    /// A command that runs it, in the folder of the workspace's member `member`, which is where cargo starts tests.
    ///
    /// # Errors
    ///
    /// It is none of them.
    pub fn command(&self, name: &str, member: &str) -> Result<Command> {
        let mut command = Command::new(self.path(name)?);
        command.current_dir(workspace().join(member));
        Ok(command)
    }
}

/// The programs that cargo's messages name, by their targets' names.
fn named(messages: &[u8]) -> BTreeMap<String, PathBuf> {
    let artifacts = Message::parse_stream(messages).filter_map(Result::ok).filter_map(|message| match message {
        Message::CompilerArtifact(artifact) => Some((artifact.target.name, artifact.executable?.into())),
        _ => None,
    });
    artifacts.collect()
}
