//! Which processes a service has that is known by its cgroup.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::name::{InstanceName, ServiceName};

/// Bytes of a list of processes that are read: a thousand and more.
const MAX_BYTES: u64 = 8 << 10;

/// A cgroup that is read, and the file with its processes.
#[derive(Debug)]
struct KnownCgroup {
    service: ServiceName,
    instance: InstanceName,
    file: PathBuf,
}

/// Files with the processes of each cgroup that is read, by its path. There are as many as cgroups are read.
#[derive(Debug, Default)]
pub(crate) struct CgroupFiles(Mutex<BTreeMap<String, KnownCgroup>>);

impl CgroupFiles {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownCgroup>> {
        // Nothing under this lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cgroup `path` is a replica, and its processes stand in `file`.
    pub(crate) fn add(&self, path: &str, (service, instance): (ServiceName, InstanceName), file: PathBuf) {
        self.lock().insert(path.to_owned(), KnownCgroup { service, instance, file });
    }

    /// It is none any more.
    pub(crate) fn remove(&self, path: &str) {
        self.lock().remove(path);
    }

    /// At most `most` processes of `service`, each with the name of its replica. Reads files.
    pub(crate) fn processes(&self, service: &str, most: usize) -> Vec<(u32, String)> {
        let known = self.lock();
        let of_service = known.values().filter(|of| of.service.as_str() == service);
        let files: Vec<_> = of_service.map(|of| (of.instance.to_string(), of.file.clone())).take(most).collect();
        drop(known);
        let read = |file: PathBuf| {
            let mut text = String::new();
            let read = std::fs::File::open(file).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
            // A number that was cut off is one of another process.
            let whole = if read.ok() == Some(MAX_BYTES as usize) { text.rfind('\n').unwrap_or(0) } else { text.len() };
            text.truncate(whole);
            text
        };
        let all = files.into_iter().flat_map(|(instance, file)| {
            let numbers: Vec<u32> = read(file).lines().filter_map(|line| line.trim().parse().ok()).collect();
            numbers.into_iter().map(move |number| (number, instance.clone()))
        });
        all.filter(|(number, _)| *number != 0).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_those_of_the_cgroups_of_the_service() {
        let folder = tempfile::tempdir().unwrap();
        let (files, one, other) = (CgroupFiles::default(), folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, "7\n0\n8\n").unwrap();
        std::fs::write(&other, (1_000..4_000).map(|number| number.to_string()).collect::<Vec<_>>().join("\n")).unwrap();
        let name =
            |service: &str, instance: &str| (ServiceName::new(service).unwrap(), InstanceName::new(instance).unwrap());
        files.add("/a", name("shop", "shop-1"), one);
        files.add("/b", name("store", "store-1"), other);
        files.add("/c", name("shop", "shop-2"), folder.path().join("gone"));

        let of = |number, instance: &str| (number, instance.to_owned());
        assert_eq!(files.processes("shop", 8), [of(7, "shop-1"), of(8, "shop-1")]);
        assert_eq!(files.processes("shop", 1), [of(7, "shop-1")]);
        let store = files.processes("store", 10_000);
        assert!(store.len() > 1_000 && store.iter().all(|(number, _)| (1_000..4_000).contains(number)));

        files.remove("/a");
        assert_eq!(files.processes("shop", 8), []);
    }
}
