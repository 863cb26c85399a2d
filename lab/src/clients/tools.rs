//! Installs the SDKs for Python and Node into `target/clients`, once, as their users install them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use support::workspace;

/// Folders of the installations.
#[derive(Clone, Debug)]
pub struct Tools {
    pub python: PathBuf,
    pub node: PathBuf,
}

/// Why the SDKs cannot be installed here; `None` if no obstacle is known.
pub fn missing() -> Option<String> {
    let works = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    if !works("python3", &["-c", "import ensurepip, venv"]) {
        return Some("it needs Python with venv (Debian: apt-get install python3-venv)".to_owned());
    }
    if !works("node", &["--version"]) || !works("npm", &["--version"]) {
        return Some("it needs Node and npm (Debian: apt-get install nodejs npm)".to_owned());
    }
    if !works("setpriv", &["--version"]) {
        return Some("it needs setpriv (Debian: apt-get install util-linux)".to_owned());
    }
    let tools = Tools::places();
    if tools.installed().is_some() {
        return None;
    }
    // The smallest requests that need the network, to tell a missing network from a broken package.
    let index = "import urllib.request as r; r.urlopen('https://pypi.org/simple/pip/', timeout=20)";
    if !works("python3", &["-c", index]) {
        return Some("it needs a network to install the SDKs of Python".to_owned());
    }
    (!works("npm", &["view", "pino", "version"])).then(|| "it needs a network to install the SDKs of Node".to_owned())
}

impl Tools {
    fn places() -> Self {
        let folder = workspace().join("target/clients");
        Self { python: folder.join("python"), node: folder.join("node") }
    }

    /// `Some` if the same lists of packages are installed already.
    fn installed(&self) -> Option<()> {
        let same =
            |folder: &PathBuf, list: &str| fs::read(folder.join("installed")).ok() == Some(list.as_bytes().to_vec());
        (same(&self.python, PYTHON) && same(&self.node, NODE)).then_some(())
    }

    /// Installs missing packages.
    ///
    /// # Errors
    ///
    /// A package cannot be installed.
    pub fn install() -> Result<Self> {
        let tools = Self::places();
        fs::create_dir_all(&tools.node)?;
        fs::write(tools.node.join("service.cjs"), include_str!("../../../tests/clients/service.cjs"))?;
        if tools.installed().is_some() {
            return Ok(tools);
        }
        let source = workspace().join("tests/clients");
        // An existing installation may be incomplete.
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&tools.python))?;
        let mut pip = Command::new(tools.python.join("bin/pip"));
        succeed(
            pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(source.join("requirements.txt")),
        )?;
        fs::write(tools.node.join("package.json"), NODE)?;
        let mut npm = Command::new("npm");
        succeed(npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&tools.node))?;
        fs::write(tools.python.join("installed"), PYTHON)?;
        fs::write(tools.node.join("installed"), NODE)?;
        Ok(tools)
    }
}

const PYTHON: &str = include_str!("../../../tests/clients/requirements.txt");
const NODE: &str = include_str!("../../../tests/clients/package.json");

fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.stdout(Stdio::null()).status().with_context(|| format!("{program} does not start"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
