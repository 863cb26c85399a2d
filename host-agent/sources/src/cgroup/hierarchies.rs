//! Where the kernel shows cgroups, from /proc/self/mountinfo. Source: proc_pid_mountinfo(5).

use std::path::PathBuf;

use crate::fields::{fields, lines};

/// What a hierarchy accounts for. Version 1 has one for each controller, version 2 one for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Version 2, with all its controllers.
    Unified,
    /// Version 1: CPU limits.
    Cpu,
    /// Version 1: CPU time.
    Cpuacct,
    /// Version 1: memory.
    Memory,
    /// Version 1: block devices.
    Blkio,
    /// Version 1: processes.
    Pids,
}

impl Controller {
    const V1: [(&[u8], Self); 5] = [
        (b"cpu", Self::Cpu),
        (b"cpuacct", Self::Cpuacct),
        (b"memory", Self::Memory),
        (b"blkio", Self::Blkio),
        (b"pids", Self::Pids),
    ];
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// What it accounts for.
    pub controller: Controller,
    /// Folder of its root.
    pub root: PathBuf,
}

/// The hierarchies of a text of mountinfo: the first mount of each controller. Lines that the kernel does not write are
/// left out.
#[must_use]
pub fn hierarchies(text: &[u8]) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for (controllers, root) in lines(text).filter_map(mount) {
        for controller in controllers.into_iter().flatten() {
            if found.iter().all(|known| known.controller != controller) {
                found.push(Hierarchy { controller, root: root.clone() });
            }
        }
    }
    found
}

/// The controllers of a mount of cgroups, and its folder.
fn mount(line: &[u8]) -> Option<([Option<Controller>; 5], PathBuf)> {
    let mut words = fields(line);
    let root = words.nth(4)?;
    // Optional fields end with a dash.
    words.find(|word| *word == b"-")?;
    let kind = words.next()?;
    let options = words.nth(1)?;
    let mut controllers = [None; 5];
    match kind {
        b"cgroup2" => controllers[0] = Some(Controller::Unified),
        b"cgroup" => {
            for (place, (name, controller)) in controllers.iter_mut().zip(Controller::V1) {
                *place = options.split(|byte| *byte == b',').any(|option| option == name).then_some(controller);
            }
        }
        _ => return None,
    }
    Some((controllers, unescaped(root)?))
}

/// Spaces and the like are written as a backslash and three octal digits. `None` if it is no UTF-8.
fn unescaped(path: &[u8]) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let escape = after.get(..3).filter(|_| first == b'\\').and_then(|digits| core::str::from_utf8(digits).ok());
        if let Some(byte) = escape.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = after.get(3..).unwrap_or_default();
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
        42 31 0:38 / /elsewhere rw,relatime - cgroup2 cgroup2 rw\n\
        43 31 0:39 / /my\\040pids rw - cgroup cgroup rw,pids\n";

    #[test]
    fn the_first_mount_of_each_controller_is_found_in_both_versions() {
        let found: Vec<_> =
            hierarchies(MOUNTS).into_iter().map(|found| (found.controller, found.root.display().to_string())).collect();

        let expected = [
            (Controller::Cpu, "/sys/fs/cgroup/cpu,cpuacct"),
            (Controller::Cpuacct, "/sys/fs/cgroup/cpu,cpuacct"),
            (Controller::Memory, "/sys/fs/cgroup/memory"),
            (Controller::Unified, "/sys/fs/cgroup/unified"),
            (Controller::Pids, "/my pids"),
        ];
        assert_eq!(found, expected.map(|(controller, root)| (controller, root.to_owned())));
    }

    #[test]
    fn text_that_is_no_mount_has_no_hierarchy() {
        assert_eq!(hierarchies(b""), []);
        assert_eq!(hierarchies(b"1 2 3 4 5 - cgroup2\n\xff\\ - cgroup x rw,cpu\n"), []);
    }
}
