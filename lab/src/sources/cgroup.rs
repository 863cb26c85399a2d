//! A cgroup of version 1, for limits of memory and of processor time. Only root may make one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Memory above what is in use, in bytes.
const LITTLE: u64 = 8 << 20;
/// Limits that are tried, each a little larger.
const TRIES: usize = 16;

/// A cgroup. Dropping it removes it, if no process is left in it.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// A new one of `controller`, or why there is none.
    pub fn new(controller: &str, name: &str) -> Result<Self, String> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        if !root.join("cgroup.procs").is_file() {
            return Err(format!("{} is no hierarchy of version 1", root.display()));
        }
        let folder = root.join(format!("uview-lab-{}-{name}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Moves a process into it.
    pub fn add(&self, process: u32) -> Result<()> {
        self.set("cgroup.procs", &process.to_string())
    }

    /// Writes a value.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.0.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
    }

    /// Limits memory to what cannot be given back (a program's own, and what it shares) and a little more. What it
    /// holds of files is dropped for it. Returns the limit in bytes.
    pub fn limit_memory(&self) -> Result<u64> {
        let text = fs::read_to_string(self.0.join("memory.stat"))?;
        let value = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok()).unwrap_or(0)
        };
        let mut limit = value("total_rss") + value("total_shmem") + LITTLE;
        // Pages that are being written cannot be dropped at once.
        for _ in 0..TRIES {
            if self.set("memory.limit_in_bytes", &limit.to_string()).is_ok() {
                return Ok(limit);
            }
            limit += LITTLE;
        }
        bail!("{} cannot be limited to {limit} bytes", self.0.display())
    }

    /// Lifts the limit.
    pub fn lift_memory(&self) -> Result<()> {
        self.set("memory.limit_in_bytes", "-1")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that were killed leave it within moments.
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                _ => return,
            }
        }
    }
}
