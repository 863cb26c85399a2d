//! Checks of RDMA. They read files only; no module is loaded and no device is opened.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::Finding;

const LIBRARY: &[u8] = b"libibverbs.so.1";

/// Directories of the dynamic loader, besides those in its cache.
const LIBRARY_DIRS: [&str; 5] =
    ["/lib64", "/usr/lib64", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];

/// Enough to register the regions of some thousand services. With less, registering memory for RDMA fails at some
/// point.
const LOCKED_BYTES: u64 = 64 << 20;

pub(super) fn check() -> [Finding; 6] {
    let ports = ports(Path::new("/sys/class/infiniband"));
    let limit = getrlimit(Resource::Memlock).current;
    let (library, has_devices) = (library_is_installed(), !ports.is_empty());
    [
        judge_library(library),
        judge_drivers(drivers(Path::new("/etc/libibverbs.d")), library),
        judge_modules(Path::new("/sys/class/infiniband_verbs").exists()),
        judge_devices(&ports),
        judge_rights(&device_files(Path::new("/dev/infiniband")), has_devices),
        judge_locked_memory(limit, has_devices),
    ]
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
    let found = "not installed: no RDMA; agents on the same host use shared memory, which does not need it";
    Finding::missing(NAME, found, "`apt-get install libibverbs1` or `dnf install libibverbs`")
}

/// The names in a directory, sorted; empty if it does not exist.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The number of drivers of the library, one file each.
fn drivers(directory: &Path) -> usize {
    names(directory).iter().filter(|name| name.ends_with(".driver")).count()
}

fn judge_drivers(drivers: usize, library: bool) -> Finding {
    const NAME: &str = "RDMA drivers";
    if drivers > 0 {
        return Finding::fine(NAME, format!("{drivers} drivers installed"));
    }
    if !library {
        return Finding::fine(NAME, "none; needed with libibverbs only");
    }
    let found = "none: libibverbs finds no device";
    Finding::missing(NAME, found, "`apt-get install ibverbs-providers` or `dnf install libibverbs`")
}

fn judge_modules(loaded: bool) -> Finding {
    const NAME: &str = "RDMA modules";
    if loaded {
        return Finding::fine(NAME, "loaded");
    }
    let found = "ib_uverbs is not loaded: no program can use RDMA";
    Finding::missing(NAME, found, "`modprobe ib_uverbs` and the card's module (mlx5_ib, rdma_rxe)")
}

/// One port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    /// Device and port, such as `mlx5_0/1`.
    name: String,
    active: bool,
    /// Whether it has a RoCE v2 GID or a LID.
    reachable: bool,
}

fn ports(class: &Path) -> Vec<Port> {
    let port = |device: &String, port: &String| {
        let at = class.join(device).join("ports").join(port);
        let read = |file: &str| fs::read_to_string(at.join(file)).unwrap_or_default();
        let lid = read("lid").trim().strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
        // Unused entries of the GID table cannot be read.
        let types = names(&at.join("gid_attrs/types"));
        let is_roce_v2 = |index: &String| read(&format!("gid_attrs/types/{index}")).trim() == "RoCE v2";
        Port {
            name: format!("{device}/{port}"),
            active: read("state").contains("ACTIVE"),
            reachable: lid.is_some_and(|lid| lid > 0) || types.iter().any(is_roce_v2),
        }
    };
    let of = |device: String| {
        let numbers = names(&class.join(&device).join("ports"));
        numbers.iter().map(|number| port(&device, number)).collect::<Vec<_>>()
    };
    names(class).into_iter().flat_map(of).collect()
}

fn judge_devices(ports: &[Port]) -> Finding {
    const NAME: &str = "RDMA devices";
    let list =
        |ports: &mut dyn Iterator<Item = &Port>| ports.map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
    let usable = list(&mut ports.iter().filter(|port| port.active && port.reachable));
    if !usable.is_empty() {
        return Finding::fine(NAME, format!("{usable} (device/port)"));
    }
    if ports.is_empty() {
        let found = "none: the NIC agent has to run on this host, with shared memory";
        let fix = "install an RDMA card and its driver; for tests `modprobe rdma_rxe` and `rdma link add`";
        return Finding::missing(NAME, found, fix);
    }
    let active = list(&mut ports.iter().filter(|port| port.active));
    if active.is_empty() {
        let found = format!("no port is active: {}", list(&mut ports.iter()));
        return Finding::missing(
            NAME,
            found,
            "connect the cable, `ip link set … up`, or start a subnet manager (InfiniBand)",
        );
    }
    let found = format!("{active} is active but has no address: neither a RoCE v2 GID nor a LID");
    Finding::missing(NAME, found, "give its network interface an IP address; for InfiniBand, start a subnet manager")
}

fn device_files(directory: &Path) -> Vec<(PathBuf, bool)> {
    let files = names(directory).into_iter().filter(|name| name.starts_with("uverbs")).map(|name| directory.join(name));
    files.map(|file| (file.clone(), access(&file, Access::READ_OK | Access::WRITE_OK).is_ok())).collect()
}

fn judge_rights(files: &[(PathBuf, bool)], has_devices: bool) -> Finding {
    const NAME: &str = "RDMA access";
    if !has_devices {
        return Finding::fine(NAME, "no device; needed for RDMA only");
    }
    let denied: Vec<_> = files.iter().filter(|(_, open)| !open).map(|(file, _)| file.display().to_string()).collect();
    if files.is_empty() {
        let found = "no /dev/infiniband/uverbs* although there are devices: a container needs them passed in";
        return Finding::missing(
            NAME,
            found,
            "pass /dev/infiniband (docker --device, a device plugin); else `modprobe ib_uverbs`",
        );
    }
    if denied.is_empty() {
        return Finding::fine(NAME, "device files are readable and writable");
    }
    let found = format!("this user cannot read and write {}", denied.join(", "));
    Finding::missing(NAME, found, "run the agents in the group of these files, or change their mode with a udev rule")
}

fn judge_locked_memory(limit: Option<u64>, devices: bool) -> Finding {
    const NAME: &str = "locked memory";
    let shown = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    if limit.is_none_or(|bytes| bytes >= LOCKED_BYTES) {
        return Finding::fine(NAME, shown);
    }
    if !devices {
        return Finding::fine(NAME, format!("{shown}; needed for RDMA only"));
    }
    let found = format!("{shown}: not enough to register the regions of many services for RDMA");
    Finding::missing(NAME, found, "LimitMEMLOCK=infinity in the systemd unit, or `ulimit -l unlimited`")
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    /// Creates the files of a device's port, laid out as in sysfs.
    fn port(class: &Path, device: &str, state: &str, lid: &str, gid: Option<&str>) {
        let port = class.join(device).join("ports/1");
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        fs::write(port.join("state"), state).unwrap();
        fs::write(port.join("lid"), lid).unwrap();
        if let Some(kind) = gid {
            fs::write(port.join("gid_attrs/types/1"), kind).unwrap();
        }
    }

    #[test]
    fn devices_that_can_be_used_are_listed() {
        let class = tempfile::tempdir().unwrap();
        let at = class.path();
        port(at, "mlx5_1", "4: ACTIVE\n", "0x0\n", Some("RoCE v2\n"));
        port(at, "mlx5_0", "4: ACTIVE\n", "0x5\n", None);
        port(at, "mlx5_2", "1: DOWN\n", "0x0\n", Some("RoCE v2\n"));

        assert_eq!(judge_devices(&ports(at)).found, "mlx5_0/1, mlx5_1/1 (device/port)");
        assert_eq!(judge_devices(&ports(&at.join("nothing"))).level, Level::Missing);
    }

    #[test]
    fn a_device_that_cannot_be_used_is_named_with_the_reason() {
        let class = tempfile::tempdir().unwrap();
        port(class.path(), "mlx5_0", "1: DOWN\n", "0x0\n", Some("RoCE v2\n"));
        let down = judge_devices(&ports(class.path()));
        assert!(down.level == Level::Missing && down.found.contains("no port is active: mlx5_0/1"), "{down:?}");

        port(class.path(), "mlx5_0", "4: ACTIVE\n", "0x0\n", Some("IB/RoCE v1\n"));
        let unaddressed = judge_devices(&ports(class.path()));
        assert!(unaddressed.found.contains("has no address"), "{unaddressed:?}");
        assert!(unaddressed.fix.is_some_and(|fix| fix.contains("IP address")));
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

    #[test]
    fn a_library_without_drivers_names_their_package() {
        let folder = tempfile::tempdir().unwrap();
        assert!(judge_drivers(drivers(folder.path()), true).fix.is_some_and(|fix| fix.contains("ibverbs-providers")));
        assert_eq!(judge_drivers(0, false).level, Level::Fine);
        fs::write(folder.path().join("rxe.driver"), "driver rxe\n").unwrap();

        assert_eq!(judge_drivers(drivers(folder.path()), true).level, Level::Fine);
    }

    #[test]
    fn missing_modules_and_missing_rights_are_different_findings() {
        assert!(judge_modules(false).fix.is_some_and(|fix| fix.contains("modprobe ib_uverbs")));
        assert_eq!(judge_rights(&[], false).level, Level::Fine);
        assert!(judge_rights(&[], true).found.contains("container"));
        let shut = judge_rights(&[(PathBuf::from("/dev/infiniband/uverbs0"), false)], true);
        assert!(shut.found.contains("uverbs0") && shut.fix.is_some_and(|fix| fix.contains("group")));

        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("uverbs0"), "").unwrap();
        fs::write(folder.path().join("rdma_cm"), "").unwrap();
        assert_eq!(device_files(folder.path()), [(folder.path().join("uverbs0"), true)]);
    }
}
