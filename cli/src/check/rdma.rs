//! What RDMA would need. Nothing is loaded or opened: files are looked at.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::Finding;

const LIBRARY: &[u8] = b"libibverbs.so.1";

/// Where the loader looks; the cache has the rest.
const LIBRARY_DIRS: [&str; 5] =
    ["/lib64", "/usr/lib64", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];

/// Room for the regions of some thousand services; with less, registering memory for RDMA fails halfway.
const LOCKED_BYTES: u64 = 64 << 20;

pub(super) fn look() -> [Finding; 3] {
    let devices = devices(Path::new("/sys/class/infiniband"));
    let limit = getrlimit(Resource::Memlock).current;
    [judge_library(library_is_installed()), judge_locked_memory(limit, !devices.is_empty()), judge_devices(&devices)]
}

fn library_is_installed() -> bool {
    let cached = fs::read("/etc/ld.so.cache").unwrap_or_default();
    cached.windows(LIBRARY.len()).any(|window| window == LIBRARY)
        || LIBRARY_DIRS.iter().any(|directory| Path::new(directory).join("libibverbs.so.1").exists())
}

fn judge_library(installed: bool) -> Finding {
    const NAME: &str = "libibverbs";
    if installed {
        return Finding::fine(NAME, "installed");
    }
    let found = "not installed: no RDMA; agents on the same host use shared memory, which needs none";
    Finding::missing(NAME, found, "`apt-get install libibverbs1` or `dnf install libibverbs`")
}

fn devices(class: &Path) -> Vec<String> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn judge_devices(devices: &[String]) -> Finding {
    const NAME: &str = "RDMA devices";
    if !devices.is_empty() {
        return Finding::fine(NAME, devices.join(", "));
    }
    let found = "none: a NIC agent has to run on this host, with shared memory";
    let fix = "to read from a DPU: a card with RDMA and its driver; to try it: `modprobe rdma_rxe`, `rdma link add`";
    Finding::missing(NAME, found, fix)
}

fn judge_locked_memory(limit: Option<u64>, devices: bool) -> Finding {
    const NAME: &str = "locked memory";
    let shown = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    if limit.is_none_or(|bytes| bytes >= LOCKED_BYTES) {
        return Finding::fine(NAME, shown);
    }
    if !devices {
        return Finding::fine(NAME, format!("{shown}; matters with RDMA only"));
    }
    let found = format!("{shown}: not enough to register the regions of many services for RDMA");
    Finding::missing(NAME, found, "LimitMEMLOCK=infinity of systemd, or `ulimit -l unlimited`")
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn devices_are_listed_by_name() {
        let class = tempfile::tempdir().unwrap();
        for name in ["mlx5_1", "mlx5_0"] {
            fs::create_dir(class.path().join(name)).unwrap();
        }

        assert_eq!(judge_devices(&devices(class.path())).found, "mlx5_0, mlx5_1");
        assert_eq!(judge_devices(&devices(&class.path().join("nothing"))).level, Level::Missing);
    }

    #[test]
    fn little_locked_memory_matters_with_a_device_only() {
        assert_eq!(judge_locked_memory(Some(8 << 20), false).level, Level::Fine);
        assert_eq!(judge_locked_memory(Some(8 << 20), true).level, Level::Missing);
        assert_eq!(judge_locked_memory(None, true).level, Level::Fine);
    }

    #[test]
    fn a_missing_library_names_its_package() {
        assert!(judge_library(false).fix.is_some_and(|fix| fix.contains("libibverbs1")));
    }
}
