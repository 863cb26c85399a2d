//! Both agents and the demo's shop in virtual machines: in one, and in two that are joined by a wire, where everything that can be killed is.
//! What happens in the guests is in tests/rdma-vm/agents.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};

use super::{in_guest, program, step};
use crate::proto::workspace;

/// How long a guest may run, in seconds. Its processor is emulated.
const LIMIT: &str = "420";

/// Runs both.
///
/// # Errors
///
/// Something did not recover, or could not be started.
pub fn run(guest: &Path) -> Result<()> {
    let program = program(guest, "uview", &["build", "--release", "--package=uview-cli"])?;
    step("both agents in one guest", || {
        in_guest(guest, "sh ./one-guest.sh", &[&program, &script("common.sh"), &script("one-guest.sh")])
    })?;
    step("the agents in two guests", || two_guests(guest, &program))
}

fn script(name: &str) -> PathBuf {
    workspace().join("tests/rdma-vm/agents").join(name)
}

/// A guest that runs beside others, its output in a file.
struct Guest {
    name: &'static str,
    output: PathBuf,
    child: Child,
}

impl Guest {
    fn start(
        guest: &Path,
        wire: &Path,
        name: &'static str,
        address: u8,
        command: &str,
        files: &[PathBuf],
    ) -> Result<Self> {
        let output = guest.join(format!("{name}.log"));
        let file = File::create(&output)?;
        let child = Command::new(workspace().join("tests/rdma-vm/run-in-vm"))
            .arg(command)
            .args(files)
            .env("RDMA_VM", guest)
            .env("RDMA_VM_TIMEOUT", LIMIT)
            .env("RDMA_VM_WIRE", wire)
            .env("RDMA_VM_ADDRESS", address.to_string())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start the guest {name}"))?;
        Ok(Self { name, output, child })
    }

    /// Waits until it has ended, and prints what it said.
    fn end(mut self) -> Result<()> {
        let status = self.child.wait()?;
        println!("-- {}", self.name);
        print!("{}", fs::read_to_string(&self.output).unwrap_or_default());
        ensure!(status.success(), "the guest {} ended with {status}", self.name);
        Ok(())
    }
}

/// Host agent and shop in one guest, the NIC agent in another one, which is replaced by a fresh one in the end.
fn two_guests(guest: &Path, program: &Path) -> Result<()> {
    let wire = guest.join("wire");
    fs::create_dir_all(&wire)?;
    let files = |name| [program.to_owned(), script("common.sh"), script(name)];
    let host = Guest::start(guest, &wire, "host", 1, "sh ./host.sh", &files("host.sh"))?;
    let both = ["first", "second"].into_iter().try_for_each(|which| {
        let command = format!("WHICH={which} sh ./nic.sh");
        Guest::start(guest, &wire, which, 2, &command, &files("nic.sh"))?.end()
    });
    // It ends when the second one says so, else by its limit.
    let host = host.end();
    both.and(host)
}
