//! Reads the values of one cgroup. Its files are opened once and stay open: a sample is one pread per file.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use sources::cgroup::Values;
use sources::cgroup::files::{CgroupFile, FILES, interfaces, tcp, tcp_extensions};
use sources::cgroup::hierarchies::{Controller, Hierarchy};

/// Bytes of the buffer for one file. Of a longer one, such as that of a namespace with 500 interfaces, nothing is read.
pub const FILE_BYTES: usize = 64 << 10;
/// Files that are open for one cgroup, at most.
pub const MAX_FILES: usize = FILES.len() + 4;

/// Processes that are looked at to tell whether all are stopped.
const LOOKED_AT: usize = 16;

/// The file with the processes of a cgroup.
const PROCESSES: &str = "cgroup.procs";
/// The group below a container's own in which crun keeps its processes on version 2.
const CRUN: &str = "container";

/// A cgroup that is read.
#[derive(Debug)]
pub struct MeasuredCgroup {
    files: Vec<(CgroupFile, File)>,
    /// Its [`processes_file`] in one hierarchy.
    processes: Option<File>,
    network: Option<Namespace>,
    /// Inode of this process's network namespace.
    own_network: Option<u64>,
}

/// Files of the network namespace of one of its processes. They keep the namespace alive until the cgroup is gone.
#[derive(Debug)]
struct Namespace {
    dev: File,
    snmp: Option<File>,
    netstat: Option<File>,
}

/// The cgroup has vanished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cgroup has vanished")]
pub struct VanishedError;

impl MeasuredCgroup {
    /// Opens the cgroup `path` in all `hierarchies` that have it. `None` if none has a file to be read.
    #[must_use]
    pub fn open(hierarchies: &[Hierarchy], path: &str) -> Option<Self> {
        let mut files = Vec::with_capacity(FILES.len());
        let mut processes = None;
        for hierarchy in hierarchies {
            let folder = hierarchy.root.join(path);
            let of_hierarchy = FILES.iter().filter(|file| file.controller == hierarchy.controller);
            files.extend(of_hierarchy.filter_map(|file| Some((*file, File::open(folder.join(file.name)).ok()?))));
            processes = processes.or_else(|| File::open(processes_file(&folder)).ok());
        }
        let is = |file: &CgroupFile, controller, name| file.controller == controller && file.name == name;
        if files.iter().any(|(file, _)| is(file, Controller::Unified, "cpu.stat")) {
            // Version 2 has CPU time without its controller, too.
            files.retain(|(file, _)| file.controller != Controller::Cpuacct);
        }
        // In the order of the table: memory usage before what is subtracted from it, version 2 after version 1.
        let place =
            |(file, _): &(CgroupFile, File)| FILES.iter().position(|other| is(other, file.controller, file.name));
        files.sort_by_key(place);
        let own_network = namespace(Path::new("/proc/self/ns/net"));
        (!files.is_empty()).then_some(Self { files, processes, network: None, own_network })
    }

    /// Number of files that are open for it.
    #[must_use]
    pub fn files(&self) -> usize {
        let network = self.network.as_ref();
        let network = network.map_or(0, |n| 1 + usize::from(n.snmp.is_some()) + usize::from(n.netstat.is_some()));
        self.files.len() + usize::from(self.processes.is_some()) + network
    }

    /// Reads its values, with `buffer` of [`FILE_BYTES`] for each file. A file that cannot be read or parsed adds none.
    ///
    /// # Errors
    ///
    /// [`VanishedError`] once a file of it has.
    pub fn read(&self, buffer: &mut [u8], values: &mut Values) -> Result<(), VanishedError> {
        values.clear();
        for (file, open) in &self.files {
            match whole(open, buffer) {
                Ok(text) => drop(text.and_then(|text| file.read(text, values))),
                Err(error) if has_vanished(&error) => return Err(VanishedError),
                Err(_) => {}
            }
        }
        if let Some(Namespace { dev, snmp, netstat }) = &self.network {
            if let Ok(Some(text)) = whole_in_parts(dev, buffer) {
                let _ = interfaces(text, values);
            }
            if let Some(Ok(Some(text))) = snmp.as_ref().map(|file| whole_in_parts(file, buffer)) {
                tcp(text, values);
            }
            if let Some(Ok(Some(text))) = netstat.as_ref().map(|file| whole_in_parts(file, buffer)) {
                tcp_extensions(text, values);
            }
        }
        Ok(())
    }

    /// Looks for the network namespace of its first process, unless it is known. Without one of its own there is none.
    pub fn find_network(&mut self, buffer: &mut [u8]) {
        if self.network.is_some() {
            return;
        }
        let Some(pid) = self.first_process(buffer) else { return };
        let process = PathBuf::from(format!("/proc/{pid}"));
        let its = namespace(&process.join("ns/net"));
        if its.is_none() || its == self.own_network {
            return;
        }
        let open = |name: &str| File::open(process.join("net").join(name));
        let network =
            open("dev").ok().map(|dev| Namespace { dev, snmp: open("snmp").ok(), netstat: open("netstat").ok() });
        // Meanwhile the number may have been given to another process.
        if self.first_process(buffer) == Some(pid) {
            self.network = network;
        }
    }

    /// Whether signals have stopped all of its processes: the first 16 of them are looked at.
    #[must_use]
    pub fn is_stopped(&self, buffer: &mut [u8]) -> bool {
        let Some(Ok(bytes)) = self.processes.as_ref().map(|file| file.read_at(buffer, 0)) else { return false };
        let lines = buffer.get(..bytes).unwrap_or_default().split(|byte| *byte == b'\n');
        let pids = lines.filter_map(|line| core::str::from_utf8(line).ok()?.parse().ok());
        let mut is_any = false;
        for pid in pids.take(LOOKED_AT) {
            match state(pid) {
                Some(b'T' | b't') => is_any = true,
                // It has ended, and waits for its parent.
                Some(b'Z') => {}
                _ => return false,
            }
        }
        is_any
    }

    fn first_process(&self, buffer: &mut [u8]) -> Option<u32> {
        let bytes = self.processes.as_ref()?.read_at(buffer, 0).ok()?;
        let first = buffer.get(..bytes)?.split(|byte| *byte == b'\n').next()?;
        core::str::from_utf8(first).ok()?.parse().ok()
    }
}

/// The file with the processes of the cgroup in `folder`. Where it has none itself and crun has put them below, theirs:
/// a container's own processes cannot be anywhere else than in its group or below.
pub(super) fn processes_file(folder: &Path) -> PathBuf {
    let (own, below) = (folder.join(PROCESSES), folder.join(CRUN).join(PROCESSES));
    let is_empty = File::open(&own).and_then(|file| file.read_at(&mut [0_u8], 0)).is_ok_and(|bytes| bytes == 0);
    if is_empty && below.exists() { below } else { own }
}

/// The letter of the state of process `pid`, without allocating.
fn state(pid: u32) -> Option<u8> {
    let (mut path, mut text) = ([0; 32], [0; 256]);
    write!(&mut path[..], "/proc/{pid}/stat").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let bytes = rustix::io::read(&file, &mut text).ok()?;
    let text = text.get(..bytes)?;
    // Its name may have parentheses of its own.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(end + 2).copied()
}

fn namespace(link: &Path) -> Option<u64> {
    std::fs::metadata(link).ok().map(|metadata| metadata.ino())
}

/// The kernel answers so for files of a cgroup that was removed.
fn has_vanished(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// The text of a file that the kernel shows as one record, by one pread. `None` if it may be longer than the buffer.
fn whole<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    let bytes = file.read_at(buffer, 0)?;
    Ok(if bytes < buffer.len() { buffer.get(..bytes) } else { None })
}

/// The text of a file that the kernel shows record by record.
fn whole_in_parts<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    let mut bytes = 0;
    loop {
        let Some(rest) = buffer.get_mut(bytes..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
        let more = file.read_at(rest, bytes as u64)?;
        if more == 0 {
            return Ok(buffer.get(..bytes));
        }
        bytes += more;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};

    use super::*;

    #[test]
    fn processes_that_crun_has_put_into_a_group_below_are_the_containers() {
        let folder = tempfile::tempdir().unwrap();
        let (own, crun) = (folder.path().join(PROCESSES), folder.path().join(CRUN));
        let found = || processes_file(folder.path());
        assert_eq!(found(), own, "it is not there, and neither is another one");

        write(&own, "").unwrap();
        assert_eq!(found(), own, "it has no processes at all");
        create_dir(&crun).unwrap();
        write(crun.join(PROCESSES), "7\n").unwrap();
        assert_eq!(found(), crun.join(PROCESSES));

        write(&own, "8\n").unwrap();
        assert_eq!(found(), own, "a group of that name below one with processes is the container's own affair");
    }
}
