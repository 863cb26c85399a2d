//! Both agents and the demo's shop in virtual machines: in one, and in two connected guests, where each process is
//! killed in turn. The scripts of the guests are in tests/rdma/vm/agents.

use std::path::PathBuf;

use anyhow::Result;

use super::TestContext;
use super::guest::{Boot, RunningGuest, script};

/// Time limit of a guest in seconds. Its processor is emulated and the machine may be busy: only a hang takes so long.
const LIMIT: u32 = 1800;

/// Regions read by RDMA in one guest, and a host agent with little lockable memory.
///
/// # Errors
///
/// A check in the guest failed.
pub fn one_guest(context: &TestContext) -> Result<()> {
    context.script("one-guest", LIMIT).map(drop)
}

/// A fridge and two NIC agents on a path with delay and loss, made by the guest's kernel (netem).
///
/// # Errors
///
/// The measured values differ from the path's.
pub fn netem(context: &TestContext) -> Result<()> {
    let output = context.script("netem", LIMIT)?;
    if let Some(why) = output.lines().find_map(|line| line.split_once("NOT RUN: ")) {
        println!("!! NOTHING WAS MEASURED ON A PATH THAT DELAYS AND LOSES: {}.", why.1);
    }
    Ok(())
}

/// Host agent and shop in one guest, the NIC agent in another. Each of the two is replaced by a fresh one without
/// notice.
///
/// # Errors
///
/// A process did not recover, a verdict was wrong, or a guest could not be started.
pub fn two_guests(context: &TestContext) -> Result<()> {
    let files = |name: &str| {
        let scripts = ["agents/common.sh", name].map(script);
        [context.uview.clone(), context.tool.clone()].into_iter().chain(scripts).collect::<Vec<PathBuf>>()
    };
    let (host, nic) = (files("agents/host.sh"), files("agents/nic.sh"));
    let start = |name, command: &str, address: u8| -> Result<RunningGuest> {
        let files = if address == 1 { &host } else { &nic };
        context.image.start(&Boot { name, command, files, limit_s: LIMIT, joined: Some(address) })
    };
    let first_host = start("host", "WHICH=first sh ./host.sh", 1)?;
    start("nic", "WHICH=first sh ./nic.sh", 2)?.end()?;
    let second_nic = start("nic 2", "WHICH=second sh ./nic.sh", 2)?;
    // The guest of the second NIC agent ends it; else its time limit does.
    let mut output = first_host.end()?;
    let second_host = start("host 2", "WHICH=second sh ./host.sh", 1)?;
    second_nic.end()?;
    output.push_str(&second_host.end()?);
    context.findings.borrow_mut().read("two-guests", &output);
    Ok(())
}
