//! The clients for C under sanitizers, and for Python as its users install it, each with the shared list of cases.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use support::programs::Programs;
use support::workspace;

use super::commands::succeed;
use super::steps::Steps;
use crate::licences;

const C: &str = "client for C under sanitizers";
const PYTHON: &str = "client for Python";

/// Both steps, or why they cannot be run here.
pub fn run(steps: &mut Steps) -> Result<()> {
    match without_sanitizers()? {
        None => steps.in_time(C, Duration::from_mins(2), || {
            let programs = Programs::of_tests()?;
            succeed(programs.command("c_programs", "bindings/c")?.args(["--quiet", "--ignored"]))
        })?,
        Some(why) => steps.cannot(C, why),
    }
    match without_maturin() {
        None => steps.in_time(PYTHON, Duration::from_mins(4), python)?,
        Some(why) => steps.cannot(PYTHON, why),
    }
    Ok(())
}

fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Why programs in C cannot be built with sanitizers.
fn without_sanitizers() -> Result<Option<&'static str>> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("empty.c");
    fs::write(&source, "int main(void) { return 0; }\n")?;
    let mut cc = Command::new("cc");
    cc.args(["-fsanitize=address,undefined", "-o"]).arg(folder.path().join("empty")).arg(&source);
    let compiles = cc.output().is_ok_and(|output| output.status.success());
    Ok((!compiles || !works("make", &["--version"]))
        .then_some("it needs make, and cc with sanitizers (Debian: apt-get install gcc make)"))
}

/// Why the package cannot be built.
fn without_maturin() -> Option<&'static str> {
    if !works("python3", &["-c", "import ensurepip, venv"]) {
        return Some("it needs Python with venv (Debian: apt-get install python3-venv)");
    }
    // The smallest request that needs the network, to tell a missing network from a broken package.
    let index = "import urllib.request as r; r.urlopen('https://pypi.org/simple/maturin/', timeout=20)";
    (!works("python3", &["-c", index])).then_some("it needs a network to install maturin")
}

/// Builds and installs the package, runs its tests with the list, and checks its Rust as that of the workspace, to
/// which it does not belong.
fn python() -> Result<()> {
    let (package, built) = (workspace().join("bindings/python"), workspace().join("target/python"));
    let cargo = |arguments: &[&str]| {
        succeed(Command::new("cargo").args(arguments).current_dir(&package).env("CARGO_TARGET_DIR", &built))
    };
    cargo(&["fmt", "--check"])?;
    cargo(&["clippy", "--quiet", "--", "-D", "warnings"])?;
    licences::check_in(&package)?;
    let environment = built.join("environment");
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    let python = environment.join("bin/python");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).arg(&package);
    succeed(pip.env("CARGO_TARGET_DIR", &built))?;
    let programs = Programs::of_tests()?;
    tests(&python, &package, programs.path("client-cases")?)
}

fn tests(python: &Path, package: &Path, cases: &Path) -> Result<()> {
    let mut tests = Command::new(python);
    // From elsewhere: the folder of the sources would hide the installed package.
    tests
        .args(["-m", "unittest", "discover", "--start-directory"])
        .arg(package.join("tests"))
        .current_dir(package.join("tests"));
    succeed(tests.env("UVIEW_CLIENT_CASES", cases))
}
