//! Injects faults, and undoes them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::programs::RunningProgram;
use super::schedule::{Fault, PlannedFault};
use crate::clients::shop::{Process, ending_with_us};

/// Burners on each core.
const BURNERS: usize = 3;
/// Loops that write to the disk.
const WRITERS: usize = 2;

/// A fault that lasts. Dropping it ends its processes.
#[derive(Debug)]
pub struct ActiveFault<'a> {
    planned: &'a PlannedFault,
    helpers: Vec<Process>,
}

/// Why `fault` cannot be injected here.
pub fn missing(fault: Fault, programs: &[RunningProgram]) -> Option<String> {
    let needs = match fault {
        Fault::CpuHog => "taskset",
        Fault::SlowDisk => "dd",
        _ => "sh",
    };
    if super::programs::program(needs).is_none() {
        return Some(format!("not installed: {needs}"));
    }
    let limits = programs.iter().filter(|running| fault.programs().contains(&running.program));
    let mut refused = limits.filter_map(|running| running.memory.as_ref().err());
    if fault == Fault::MemoryLimit { refused.next().cloned() } else { None }
}

impl<'a> ActiveFault<'a> {
    /// Injects the fault.
    pub fn begin(planned: &'a PlannedFault, programs: &mut [RunningProgram], folder: &Path) -> Result<Self> {
        let log = folder.join("faults.log");
        let mut helpers = Vec::new();
        match planned.fault {
            Fault::CpuHog => {
                let cores = std::thread::available_parallelism()?.get();
                for core in (0..cores).flat_map(|core| [core; BURNERS]) {
                    let mut burner = ending_with_us("taskset");
                    burner.args(["-c", &core.to_string(), "sh", "-c", "while :; do :; done"]);
                    helpers.push(Process::start(&mut burner, &log)?);
                }
            }
            Fault::SlowDisk => {
                for number in 0..WRITERS {
                    let file = folder.join(format!("writer-{number}"));
                    let mut writer = ending_with_us("sh");
                    let text = "while :; do dd if=/dev/zero of=\"$0\" bs=4M count=8 oflag=dsync 2>/dev/null; done";
                    helpers.push(Process::start(writer.args(["-c", text]).arg(file), &log)?);
                }
            }
            _ => {
                let [own] = planned.programs.as_slice() else { return Ok(Self { planned, helpers }) };
                let running = programs.iter_mut().find(|running| running.program == *own);
                let running = running.with_context(|| format!("{own} does not run"))?;
                helpers.extend(begin_in(planned, running, &log)?);
            }
        }
        Ok(Self { planned, helpers })
    }

    /// Ends it: all is as before, but for what it has left behind.
    pub fn end(self, programs: &mut [RunningProgram]) -> Result<()> {
        drop(self.helpers);
        for running in programs.iter_mut().filter(|running| self.planned.programs.contains(&running.program)) {
            match self.planned.fault {
                Fault::Hang => running.signal(Signal::CONT),
                Fault::MemoryLimit => {
                    if let Ok(memory) = &running.memory {
                        memory.lift_memory()?;
                    }
                    running.revive()?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Injects a fault of one program.
fn begin_in(planned: &PlannedFault, running: &mut RunningProgram, log: &Path) -> Result<Option<Process>> {
    let start = |mut command: Command| Process::start(&mut command, log).map(Some);
    match planned.fault {
        Fault::ClientPause => {
            let mut pause = running.client("redis-cli")?;
            pause.args(["CLIENT", "PAUSE", &planned.lasts.as_millis().to_string(), "ALL"]);
            start(pause)
        }
        Fault::Flood => start(running.flood()?),
        Fault::MemoryLimit => {
            if let Ok(memory) = &running.memory {
                memory.limit_memory()?;
            }
            start(running.growth()?)
        }
        Fault::Hang => {
            running.signal(Signal::STOP);
            Ok(None)
        }
        Fault::Restart => {
            running.restart()?;
            Ok(None)
        }
        Fault::CpuHog | Fault::SlowDisk => Ok(None),
    }
}
