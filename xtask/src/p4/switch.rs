//! Runs one vector in the reference switch: frames from a file, registers through its run-time interface, frames that
//! leave in another file.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use support::clock::Stopwatch;

use super::SWITCH;
use super::runtime::Runtime;

/// How long all frames may take.
const PATIENCE: Duration = Duration::from_mins(10);
/// Between two looks at the switch.
const PAUSE: Duration = Duration::from_millis(100);
/// Frames that may wait in front of a port. With the 64 of the default some are dropped if threads do not run in turn.
const QUEUE: u32 = 1 << 20;
/// So many looks without another frame, and no more is expected.
const QUIET: usize = 20;
/// Lengths of a capture's header, and of a frame's.
const FILE_HEADER: usize = 24;
const FRAME_HEADER: usize = 16;

/// A switch that ends with its owner.
struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        // It has no other way to end, and is nobody's if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the vector in `folder`. Returns the number of frames.
///
/// # Errors
///
/// Registers or frames that are not as expected.
pub fn check(json: &Path, folder: &Path) -> Result<usize> {
    let registers: BTreeMap<String, Vec<u64>> =
        serde_json::from_str(&fs::read_to_string(folder.join("registers.json"))?)?;
    let names = register_names(json)?;
    let frames = frames(&folder.join("wire0_expected.pcap"))?;
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let switch = start(json, folder, port)?;
    let clock = Stopwatch::start();
    let mut runtime = loop {
        match Runtime::connect(port) {
            Ok(runtime) => break runtime,
            Err(error) if clock.elapsed() >= PATIENCE => return Err(error),
            Err(_) => sleep(PAUSE),
        }
    };
    runtime.set_queues(QUEUE)?;
    let counter = names.get("frames").context("no register counts frames")?;
    while runtime.registers(counter)? != [frames.len() as i64] {
        ensure!(clock.elapsed() < PATIENCE, "the switch did not process {} frames in {PATIENCE:?}", frames.len());
        sleep(PAUSE);
    }
    for (name, expected) in &registers {
        let full = names.get(name.as_str()).with_context(|| format!("the program has no registers {name}"))?;
        let found = runtime.registers(full)?;
        same(name, expected, &found)?;
    }
    ensure!(registers.len() == names.len(), "the program has registers that the library knows nothing of");
    let left = left(&folder.join("wire0_out.pcap"), frames.len())?;
    drop(switch);
    ensure!(left.len() == frames.len(), "{} frames left, {} came", left.len(), frames.len());
    ensure!(left == frames, "frames left with other bytes, or in another order");
    Ok(frames.len())
}

/// The frames in a file that is being written, once all are there or none was added for a while.
fn left(file: &Path, all: usize) -> Result<Vec<Vec<u8>>> {
    let (mut found, mut quiet) = (0, 0);
    while found < all && quiet < QUIET {
        let now = frames(file).map_or(0, |frames| frames.len());
        quiet = if now > found { 0 } else { quiet + 1 };
        found = now;
        sleep(PAUSE);
    }
    frames(file)
}

fn same(name: &str, expected: &[u64], found: &[i64]) -> Result<()> {
    ensure!(expected.len() == found.len(), "{name}: {} entries, expected {}", found.len(), expected.len());
    for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
        if i64::try_from(*expected) != Ok(*found) {
            bail!("{name}[{at}]: {found}, expected {expected}");
        }
    }
    Ok(())
}

fn start(json: &Path, folder: &Path, port: u16) -> Result<Switch> {
    let log = fs::File::create(folder.join("switch.log"))?;
    // It waits two seconds before the first frame, in which its queues are made larger.
    let child = Command::new(SWITCH)
        .current_dir(folder)
        .args(["--interface", "64@agent64", "--interface", "0@wire0", "--use-files", "2"])
        .args(["--thrift-port", &port.to_string()])
        .arg(json)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    Ok(Switch(child))
}

/// Full names of register arrays by their last parts.
fn register_names(json: &Path) -> Result<BTreeMap<String, String>> {
    let program: Value = serde_json::from_str(&fs::read_to_string(json)?)?;
    let arrays = program.get("register_arrays").and_then(Value::as_array).context("no compiled program")?;
    let names = arrays.iter().filter_map(|array| array.get("name").and_then(Value::as_str));
    Ok(names.map(|name| (name.rsplit('.').next().unwrap_or(name).to_owned(), name.to_owned())).collect())
}

/// The frames of a capture file of this machine's byte order.
fn frames(file: &Path) -> Result<Vec<Vec<u8>>> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let (mut rest, mut frames) = (bytes.get(FILE_HEADER..).context("no capture")?, Vec::new());
    while let Some((header, behind)) = rest.split_at_checked(FRAME_HEADER) {
        let length = header[8..12].iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
        // One that is being written.
        let Some((frame, behind)) = behind.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = behind;
    }
    Ok(frames)
}
