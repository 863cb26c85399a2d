//! Both agents and the demo's shop in virtual machines: in one, and in two that are joined by a wire, where everything that can be killed is.
//! What happens in the guests is in tests/rdma-vm/agents.

use std::path::PathBuf;

use anyhow::Result;

use super::Stage;
use super::guest::{Boot, Running, script};

/// How long a guest may run, in seconds. Its processor is emulated, and the machine may have others to serve: only what hangs takes so long.
const LIMIT: u32 = 1800;

/// Regions read by RDMA in one guest, and a host agent that may lock little memory.
///
/// # Errors
///
/// Something did not work.
pub fn one_guest(stage: &Stage) -> Result<()> {
    stage.script("one-guest", LIMIT).map(drop)
}

/// A fridge and two NIC agents on a path with delay and loss that the guest's kernel makes.
///
/// # Errors
///
/// Something else was measured.
pub fn netem(stage: &Stage) -> Result<()> {
    let said = stage.script("netem", LIMIT)?;
    if let Some(why) = said.lines().find_map(|line| line.split_once("NOT RUN: ")) {
        println!("!! NOTHING WAS MEASURED ON A PATH THAT DELAYS AND LOSES: {}.", why.1);
    }
    Ok(())
}

/// Host agent and shop in one guest, the NIC agent in another one. Each of the two is replaced by a fresh one, without a word of warning.
///
/// # Errors
///
/// Something did not recover, a verdict was wrong, or a guest could not be started.
pub fn two_guests(stage: &Stage) -> Result<()> {
    let files = |name: &str| {
        let scripts = ["agents/common.sh", name].map(script);
        [stage.uview.clone(), stage.tool.clone()].into_iter().chain(scripts).collect::<Vec<PathBuf>>()
    };
    let (host, nic) = (files("agents/host.sh"), files("agents/nic.sh"));
    let start = |name, command: &str, address: u8| -> Result<Running> {
        let files = if address == 1 { &host } else { &nic };
        stage.image.start(&Boot { name, command, files, limit_s: LIMIT, joined: Some(address) })
    };
    let first_host = start("host", "WHICH=first sh ./host.sh", 1)?;
    start("nic", "WHICH=first sh ./nic.sh", 2)?.end()?;
    let second_nic = start("nic 2", "WHICH=second sh ./nic.sh", 2)?;
    // It ends when the second NIC agent's guest says so, else by its limit.
    let mut said = first_host.end()?;
    let second_host = start("host 2", "WHICH=second sh ./host.sh", 1)?;
    second_nic.end()?;
    said.push_str(&second_host.end()?);
    stage.findings.borrow_mut().read("two-guests", &said);
    Ok(())
}
