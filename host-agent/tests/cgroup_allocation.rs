//! Reading a cgroup allocates nothing: asserted by an allocator that counts, alone in its process.

use allocations::Calls;
use host_agent::cgroup_metrics::{FILE_BYTES, MeasuredCgroup};
use sources::cgroup::hierarchies::{Controller, Hierarchy};
use sources::cgroup::{Measure, Values};

#[test]
fn reading_a_cgroup_allocates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("shop");
    std::fs::create_dir(&folder).unwrap();
    for (name, text) in [
        ("cpu.stat", "user_usec 3\nsystem_usec 2\nnr_throttled 1\n"),
        ("memory.current", "4096\n"),
        ("memory.stat", "anon 4096\ninactive_file 0\npgfault 3\npgmajfault 1\n"),
        ("io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n"),
        ("cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let hierarchy = Hierarchy { controller: Controller::Unified, root: directory.path().to_owned() };
    let cgroup = MeasuredCgroup::open(&[hierarchy], "shop").unwrap();
    let (mut buffer, mut values) = (vec![0; FILE_BYTES], Values::default());

    let calls = allocations::during(|| {
        for _ in 0..100 {
            cgroup.read(&mut buffer, &mut values).unwrap();
        }
    });

    assert_eq!((calls, values.get(Measure::MemoryUsage)), (Calls::default(), Some(4096)));
}
