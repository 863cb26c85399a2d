//! What reading 100 cgroups costs against the obvious code in the same run: `cargo bench -p host-agent` (as root, to
//! create the cgroups; they are removed at the end).
#![expect(clippy::unwrap_used, reason = "what a benchmark prepares has to work, or it fails")]

use std::collections::HashMap;
use std::fs::{create_dir, read_to_string, remove_dir};
use std::path::PathBuf;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use host_agent::cgroup_metrics::{FILE_BYTES, MeasuredCgroup};
use sources::cgroup::Values;
use sources::cgroup::files::FILES;
use sources::cgroup::hierarchies::{Hierarchy, hierarchies};

const CGROUPS: usize = 100;

fn main() {
    divan::main();
}

/// Cgroups in all hierarchies of this machine.
struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    names: Vec<String>,
}

impl Cgroups {
    fn create() -> Self {
        let hierarchies = hierarchies(&std::fs::read("/proc/self/mountinfo").unwrap());
        let names: Vec<String> = (0..CGROUPS).map(|n| format!("uview-bench-{}-{n}", std::process::id())).collect();
        let all = Self { hierarchies, names };
        all.folders().for_each(|folder| drop(create_dir(folder)));
        all
    }

    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.names.iter().flat_map(|name| self.hierarchies.iter().map(move |hierarchy| hierarchy.root.join(name)))
    }

    /// The files of a cgroup that exist.
    fn files(&self, name: &str) -> Vec<PathBuf> {
        let of = |hierarchy: &Hierarchy| {
            let (controller, root) = (hierarchy.controller, hierarchy.root.join(name));
            let files = FILES.iter().filter(move |file| file.controller == controller);
            files.map(move |file| root.join(file.name)).collect::<Vec<_>>()
        };
        self.hierarchies.iter().flat_map(of).filter(|path| path.exists()).collect()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.folders().for_each(|folder| drop(remove_dir(folder)));
    }
}

/// Files that stay open, one pread each, parsed in place.
#[divan::bench]
fn open_files(bencher: Bencher<'_, '_>) {
    let all = Cgroups::create();
    let open = |name: &String| MeasuredCgroup::open(&all.hierarchies, name).expect("this user may create cgroups");
    let measured: Vec<MeasuredCgroup> = all.names.iter().map(open).collect();
    let (mut buffer, mut values) = (vec![0; FILE_BYTES], Values::default());
    measured[0].read(&mut buffer, &mut values).unwrap();
    eprintln!("{} files and {} metrics of each cgroup", measured[0].files(), values.iter().count());
    bencher.counter(ItemsCount::new(CGROUPS)).bench_local(|| {
        for cgroup in &measured {
            cgroup.read(&mut buffer, &mut values).unwrap();
            black_box(&values);
        }
    });
}

/// The peer: the same files, each opened, read into a string, and split into a map.
#[divan::bench]
fn read_to_string_and_split(bencher: Bencher<'_, '_>) {
    let all = Cgroups::create();
    let paths: Vec<Vec<PathBuf>> = all.names.iter().map(|name| all.files(name)).collect();
    bencher.counter(ItemsCount::new(CGROUPS)).bench_local(|| {
        for path in paths.iter().flatten() {
            let text = read_to_string(path).unwrap();
            let values: HashMap<&str, &str> = text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
            black_box(values);
        }
    });
}

/// What of it is the kernel's: the same files, open, read and not parsed.
#[divan::bench]
fn only_read(bencher: Bencher<'_, '_>) {
    use std::os::unix::fs::FileExt as _;

    let all = Cgroups::create();
    let open = |path: PathBuf| std::fs::File::open(path).unwrap();
    let files: Vec<_> = all.names.iter().flat_map(|name| all.files(name)).map(open).collect();
    let mut buffer = vec![0; FILE_BYTES];
    bencher.counter(ItemsCount::new(CGROUPS)).bench_local(|| {
        for file in &files {
            black_box(file.read_at(&mut buffer, 0).unwrap());
        }
    });
}
