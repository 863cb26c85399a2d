//! Cgroups of version 2 as folders of files. Those of this system are in `host-agent/tests/edges/cgroups.rs`.

mod network;

use std::fs::{create_dir_all, write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sources::cgroup::Measure;
use sources::cgroup::hierarchies::Controller;
use support::harness::not_run;
use support::wait::Wait;
use wire::id::Incarnation;
use wire::time::Interval;

use super::*;
use crate::control_plane::Settings;

/// A hierarchy of version 2 without a kernel.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(cgroups: &[&str]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for path in cgroups {
            tree.write_new(path);
        }
        tree
    }

    fn write_new(&self, path: &str) {
        create_dir_all(self.at(path)).unwrap();
        self.write(path, "cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n");
        self.write(path, "pids.current", "4\n");
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Overwrites a file in place, so that whoever has it open sees the new text.
    fn write(&self, path: &str, name: &str, text: &str) {
        write(self.at(path).join(name), text).unwrap();
    }

    fn cgroups(&self, patterns: &[(&str, &str)], limit: usize) -> Cgroups {
        let patterns = self::patterns(patterns);
        let (interval, scan_interval) = (Nanos::from_secs(1), Nanos::from_secs(5));
        let identities = Arc::default();
        let settings = CgroupSettings { patterns, containers: None, identities, interval, scan_interval, limit };
        let root = self.0.path().to_owned();
        Cgroups::new(settings, vec![Hierarchy { controller: Controller::Unified, root }], Arc::default())
    }
}

fn node() -> Node {
    let interval = Interval::new(Nanos::from_secs(1)).unwrap();
    Node::new(Settings::new(Incarnation(1), interval), 4, Clock::start(), None)
}

fn patterns(patterns: &[(&str, &str)]) -> Vec<Pattern> {
    patterns.iter().map(|(pattern, service)| Pattern::new(pattern, service).unwrap()).collect()
}

/// Services with their replicas and the number of their metrics.
fn services(node: &Node) -> Vec<(String, Vec<String>, usize)> {
    let lmaps = node.inspect(|plane, _| plane.list()).lmaps;
    let of = lmaps.into_iter().map(|lmap| {
        let replicas = lmap.replicas.into_iter().map(|replica| replica.instance).collect();
        (lmap.service, replicas, lmap.metrics.len())
    });
    of.collect()
}

fn value(cgroups: &Cgroups, path: &str, measure: Measure) -> u64 {
    cgroups.replicas[path].region.slot(series::slot(measure)).unwrap().load(Ordering::Relaxed)
}

/// Cgroups that are not read, by reason, without those of which there is none.
fn unread(cgroups: &Cgroups) -> Vec<(&'static str, u64)> {
    let counts = cgroups.counts.unread.iter().map(|count| count.load(Ordering::Relaxed));
    UNREAD.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
}

#[test]
fn each_cgroup_is_a_replica_of_its_service_and_its_values_go_into_its_region() {
    let tree = Tree::new(&["shop/payment-1", "shop/payment-2", "shop/cart-1", "other/payment-3"]);
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*-*", "{1}")], 10));

    cgroups.round(&node, &|| Nanos::ZERO);
    tree.write("shop/cart-1", "cpu.stat", "usage_usec 9\nuser_usec 6\nsystem_usec 3\n");
    cgroups.round(&node, &|| Nanos::from_secs(1));

    let replicas = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let expected = vec![
        ("cart".to_owned(), replicas(&["cart-1"]), 4),
        ("payment".to_owned(), replicas(&["payment-1", "payment-2"]), 4),
    ];
    assert_eq!(services(&node), expected);
    assert_eq!(value(&cgroups, "shop/cart-1", Measure::CpuUser), 6_000);
    assert_eq!(value(&cgroups, "shop/payment-1", Measure::CpuUser), 3_000);
    assert_eq!(cgroups.counts.samples.get(), 3, "the first samples came with the scan");
}

#[test]
fn new_cgroups_are_found_by_the_next_scan_and_more_than_the_limit_are_a_problem() {
    let tree = Tree::new(&["shop/a", "shop/b"]);
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*", "{name}")], 3));
    cgroups.round(&node, &|| Nanos::ZERO);
    assert_eq!((services(&node).len(), cgroups.counts.problems().next()), (2, None));

    for path in ["shop/c", "shop/d"] {
        create_dir_all(tree.at(path)).unwrap();
        tree.write(path, "pids.current", "1\n");
    }
    cgroups.round(&node, &|| Nanos::from_secs(4));
    assert_eq!(services(&node).len(), 2, "not yet");
    cgroups.round(&node, &|| Nanos::from_secs(5));

    assert_eq!(services(&node).len(), 3);
    let problem = cgroups.counts.problems().next().unwrap();
    assert!(problem.contains("than are read (3)") && problem.contains("sources.cgroup_limit"), "{problem}");
    assert_eq!(unread(&cgroups), [("limit", 1)]);
}

#[test]
fn a_name_that_a_rule_has_is_not_that_of_a_cgroup_that_fits_no_rule_also_after_rules_change() {
    let tree = Tree::new(&["system/payment-1", "user/payment-2", "user/cart-1"]);
    let (node, mut cgroups) = (node(), tree.cgroups(&[("*/*-*", "{2}")], 10));
    let rules = |cgroup: &str| -> Arc<[IdentityRule]> {
        let services = Some(vec![ServiceName::new("payment").unwrap()]);
        [IdentityRule { uid: None, cgroup: Some(cgroup.to_owned()), services, of_processes: true }].into()
    };
    let watched = |node: &Node| -> BTreeSet<String> {
        services(node).into_iter().flat_map(|(_, replicas, _)| replicas).collect()
    };
    let named = |names: &[&str]| -> BTreeSet<String> { names.iter().map(ToString::to_string).collect() };

    node.plane(|plane, _| plane.set_identities(rules("/system")));
    cgroups.round(&node, &|| Nanos::ZERO);

    assert_eq!(watched(&node), named(&["cart-1", "payment-1"]), "nobody has the name cart");
    let problems: Vec<_> = cgroups.counts.problems().collect();
    assert!(
        matches!(&problems[..], [line] if line.contains("/user/payment-2 as payment;")
            && line.ends_with("a rule that fits is {cgroup: /user/payment-2, services: [payment]}")),
        "{problems:?}"
    );
    assert_eq!(unread(&cgroups), [("name", 1)]);

    node.plane(|plane, _| plane.set_identities(rules("/user/payment-2")));
    cgroups.round(&node, &|| Nanos::from_secs(1));

    assert_eq!(watched(&node), named(&["cart-1", "payment-2"]), "what had the name has it no more");
    assert!(cgroups.counts.problems().next().is_some_and(|line| line.contains("/system/payment-1 as payment;")));

    node.plane(|plane, _| plane.set_identities(Arc::default()));
    cgroups.round(&node, &|| Nanos::from_secs(2));

    assert_eq!(watched(&node), named(&["cart-1", "payment-1", "payment-2"]));
    assert_eq!((cgroups.counts.problems().next(), unread(&cgroups).len()), (None, 0));
}

#[test]
fn when_patterns_change_a_cgroup_that_keeps_its_service_goes_on_and_others_leave_or_begin() {
    let tree = Tree::new(&["shop/payment-1", "shop/cart-1", "other/db-1"]);
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*-*", "{1}")], 10));
    cgroups.round(&node, &|| Nanos::ZERO);
    let connection = |cgroups: &Cgroups| cgroups.replicas["shop/cart-1"].connection;
    let cart = connection(&cgroups);

    let others = patterns(&[("shop/payment-*", "money"), ("shop/*", "cart"), ("other/*", "{name}")]);
    cgroups.follow(others, &node, &|| Nanos::from_secs(1));

    let found: Vec<_> = services(&node).into_iter().map(|(service, replicas, _)| (service, replicas)).collect();
    let expected = [("cart", "cart-1"), ("db-1", "db-1"), ("money", "payment-1")];
    assert_eq!(found, expected.map(|(service, replica)| (service.to_owned(), vec![replica.to_owned()])));
    assert_eq!(connection(&cgroups), cart, "it was read all the time");

    cgroups.follow(Vec::new(), &node, &|| Nanos::from_secs(2));

    assert!(services(&node).is_empty() && !cgroups.settings.is_wanted());
    assert_eq!(cgroups.counts.cgroups.load(Ordering::Relaxed), 0);
}

#[test]
fn the_thread_rests_until_there_is_something_to_read_and_again_afterwards() {
    const WAIT: Wait = Wait::up_to(Duration::from_secs(20));
    let tree = Tree::new(&["shop/a"]);
    let (node, mut cgroups) = (Arc::new(node()), tree.cgroups(&[], 10));
    let counts = Arc::clone(&cgroups.counts);
    let (orders, inbox) = channel();
    let (weak, clock) = (Arc::downgrade(&node), node.clock());
    let thread = std::thread::spawn(move || cgroups.run(&weak, clock, &inbox));
    let thread = CgroupThread { orders, thread };

    for _ in 0..2 {
        thread.patterns().send(patterns(&[("shop/*", "{name}")]));
        WAIT.until("it is read", || services(&node).len() == 1);
        thread.patterns().send(Vec::new());
        WAIT.until("it is not read any more", || services(&node).is_empty());
    }

    thread.end();
    assert_eq!(counts.vanished.get(), 0, "the cgroup is still there");
}

#[test]
fn a_cgroup_of_a_service_that_is_fetched_faster_is_read_as_often_and_says_when() {
    let tree = Tree::new(&["shop/payment", "shop/cart"]);
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*", "{name}")], 10));
    cgroups.round(&node, &|| Nanos::from_millis(500));
    let pace = Interval::new(Nanos::from_millis(250)).unwrap();

    cgroups.times.follow(Arc::new([(ServiceName::new("payment").unwrap(), pace)].into()));
    for path in ["shop/payment", "shop/cart"] {
        tree.write(path, "pids.current", "9\n");
    }
    cgroups.sample(&node, &|| Nanos::from_millis(750));

    let of = |path: &str| (value(&cgroups, path, Measure::Pids), cgroups.replicas[path].region.heartbeat());
    assert_eq!((of("shop/payment"), of("shop/cart")), ((9, 750_000), (4, 500_000)));
    cgroups.round(&node, &|| Nanos::from_millis(1_500));
    assert_eq!(cgroups.replicas["shop/cart"].region.heartbeat(), 1_500_000);
}

#[test]
fn each_cgroup_of_a_turn_says_when_it_was_read_itself_and_all_stay_in_one_turn() {
    let paths = ["shop/a", "shop/b", "shop/c"];
    let tree = Tree::new(&paths);
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*", "{name}")], 10));
    // Between any two looks at the clock there are 20 ms.
    let millis = std::cell::Cell::new(0);
    let time = || {
        millis.set(millis.get() + 20);
        Nanos::from_millis(millis.get())
    };
    let of = |cgroups: &Cgroups| {
        paths.map(|path| (cgroups.replicas[path].region.heartbeat(), cgroups.replicas[path].last.as_millis()))
    };

    // The round begins at 20 ms, and finds nothing to read until 60 ms.
    cgroups.round(&node, &time);
    assert_eq!(of(&cgroups), [(80_000, 20), (100_000, 20), (120_000, 20)]);
    // The turn begins at 1,040 ms, a little after it was due.
    millis.set(1_000);
    cgroups.round(&node, &time);

    assert_eq!(of(&cgroups), [(1_060_000, 1_020), (1_080_000, 1_020), (1_100_000, 1_020)]);
}

#[test]
fn what_the_api_server_says_of_a_pod_needs_no_rule() {
    use kube::runtime::watcher::Event;

    let path = format!("kubepods/pod{:032x}/{}", 1, "a".repeat(64));
    let tree = Tree::new(&[&path, "shop/payment-2"]);
    let (node, mut cgroups) = (node(), tree.cgroups(&[], 10));
    let watch = Arc::new(PodWatch::new(crate::pod_watch::PodPlan::default(), Clock::start()));
    for event in [Event::Init, Event::InitApply(pod(&"a".repeat(64), false)), Event::InitDone] {
        watch.apply(Ok(event));
    }
    let service = watch.member(&path).unwrap().service;
    let patterns = vec![Pattern::new("kubepods/pod*/*", "unused").unwrap()];
    cgroups.settings.containers = Some(ContainerSource { patterns, pods: watch });
    cgroups.settings.patterns = vec![Pattern::new("shop/payment-*", &service).unwrap()];
    let services = Some(vec![ServiceName::new(&service).unwrap()]);
    let rule = IdentityRule { uid: Some(7), cgroup: None, services, of_processes: true };

    node.plane(|plane, _| plane.set_identities([rule].into()));
    cgroups.round(&node, &|| Nanos::ZERO);

    assert_eq!(cgroups.replicas.keys().collect::<Vec<_>>(), [&path], "and another cgroup is not the pod's workload");
    let before = cgroups.replicas[&path].connection;

    cgroups.follow(Vec::new(), &node, &|| Nanos::from_secs(1));

    assert_eq!(cgroups.replicas[&path].connection, before, "no pattern has named it");
}

#[test]
fn values_that_come_later_are_announced_then() {
    let tree = Tree::new(&["shop/a"]);
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*", "{name}")], 3));
    cgroups.round(&node, &|| Nanos::ZERO);
    let before = services(&node);

    tree.write("shop/a", "cpu.stat", "usage_usec 9\nuser_usec 6\nsystem_usec 3\nnr_throttled 2\n");
    cgroups.round(&node, &|| Nanos::from_secs(1));

    assert_eq!((before[0].2, services(&node)[0].2), (4, 5));
    assert_eq!(value(&cgroups, "shop/a", Measure::ThrottledPeriods), 2);
}

#[test]
fn a_folder_that_is_no_cgroup_is_no_service_and_text_that_is_none_keeps_the_last_value() {
    let tree = Tree::new(&["shop/a"]);
    create_dir_all(tree.at("shop/empty")).unwrap();
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*", "{name}")], 3));
    cgroups.round(&node, &|| Nanos::ZERO);

    tree.write("shop/a", "pids.current", "max\n");
    cgroups.round(&node, &|| Nanos::from_secs(1));

    assert_eq!(services(&node).len(), 1);
    assert_eq!(value(&cgroups, "shop/a", Measure::Pids), 4);
}

/// What the kernel has of it, and this program may create.
fn real_root(name: &str) -> Option<(Hierarchy, PathBuf)> {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap();
    let unified = hierarchies(&mounts).into_iter().find(|found| found.controller == Controller::Unified)?;
    let folder = unified.root.join(format!("uview-test-{name}-{}", std::process::id()));
    std::fs::create_dir(&folder).ok()?;
    Some((unified, folder))
}

#[test]
fn a_cgroup_that_vanishes_ends_its_service_and_one_of_the_same_name_begins_anew() {
    let Some((unified, folder)) = real_root("vanishes") else {
        return not_run("cgroups of the kernel: this user may create none");
    };
    let name = Path::new(&folder).file_name().unwrap().to_str().unwrap().to_owned();
    let settings = CgroupSettings {
        containers: None,
        identities: Arc::default(),
        patterns: vec![Pattern::new(&format!("{name}*"), "shop").unwrap()],
        interval: Nanos::from_secs(1),
        scan_interval: Nanos::from_secs(5),
        limit: 3,
    };
    let (node, mut cgroups) = (node(), Cgroups::new(settings, vec![unified], Arc::default()));
    cgroups.round(&node, &|| Nanos::ZERO);
    let first = cgroups.replicas[&name].connection;
    assert_eq!(services(&node).len(), 1);

    std::fs::remove_dir(&folder).unwrap();
    cgroups.round(&node, &|| Nanos::from_secs(1));
    let gone = services(&node).len();
    std::fs::create_dir(&folder).unwrap();
    cgroups.round(&node, &|| Nanos::from_secs(6));
    let again = cgroups.replicas.get(&name).map(|replica| replica.connection);
    std::fs::remove_dir(&folder).unwrap();

    assert_eq!((gone, services(&node).len()), (0, 1));
    assert!(again.is_some_and(|again| again != first));
    assert_eq!(cgroups.counts.vanished.get(), 1);
}

/// A pod of two containers: one that is started again whenever it ends, and one that initialises.
fn pod(id: &str, deleted: bool) -> k8s_openapi::api::core::v1::Pod {
    let status = |name: &str, id: &str| {
        serde_json::json!({"name": name, "containerID": format!("containerd://{id}"), "image": "", "imageID": "",
            "ready": true, "restartCount": 0})
    };
    let mut pod = serde_json::json!({
        "metadata": {"name": "payment-1", "namespace": "shop", "uid": format!("{:032x}", 1)},
        "spec": {"containers": [{"name": "app"}], "initContainers": [{"name": "fetch"}]},
        "status": {"containerStatuses": [status("app", id)], "initContainerStatuses": [status("fetch", &"f".repeat(64))],
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    if deleted {
        pod["metadata"]["deletionTimestamp"] = "2026-11-26T08:00:00Z".into();
    }
    serde_json::from_value(pod).unwrap()
}

#[test]
fn a_container_that_ends_and_is_to_run_is_down_until_it_runs_again_or_its_pod_ends() {
    use kube::runtime::watcher::Event;

    let path = |id: &str| format!("kubepods/pod{:032x}/{}", 1, id.repeat(64));
    let tree = Tree::new(&[&path("a"), &path("f")]);
    let (node, mut cgroups) = (node(), tree.cgroups(&[], 10));
    let watch = Arc::new(PodWatch::new(crate::pod_watch::PodPlan::default(), Clock::start()));
    for event in [Event::Init, Event::InitApply(pod(&"a".repeat(64), false)), Event::InitDone] {
        watch.apply(Ok(event));
    }
    let patterns = vec![Pattern::new("kubepods/pod*/*", "unused").unwrap()];
    cgroups.settings.containers = Some(ContainerSource { patterns, pods: Arc::clone(&watch) });
    cgroups.round(&node, &|| Nanos::ZERO);
    assert_eq!(cgroups.replicas.len(), 2);

    // As if the kernel had removed both.
    for path in [path("a"), path("f")] {
        std::fs::remove_dir_all(tree.at(&path)).unwrap();
        cgroups.replicas.get_mut(&path).unwrap().measured = None;
    }
    cgroups.round(&node, &|| Nanos::from_secs(1));
    cgroups.round(&node, &|| Nanos::from_secs(3));

    assert_eq!(cgroups.replicas.len(), 1, "one that initialises has done its work");
    // Its first sample told nothing about the time before.
    assert_eq!(value(&cgroups, &path("a"), Measure::Down), 2_000_000_000);
    assert_eq!((value(&cgroups, &path("a"), Measure::Pids), value(&cgroups, &path("a"), Measure::CpuUser)), (0, 3_000));
    assert_eq!(services(&node).len(), 1, "its service stays");

    let first = cgroups.replicas[&path("a")].connection;
    tree.write_new(&path("b"));
    watch.apply(Ok(Event::Apply(pod(&"b".repeat(64), false))));
    cgroups.round(&node, &|| Nanos::from_secs(4));
    let again = &cgroups.replicas[&path("b")];
    assert_eq!((cgroups.replicas.len(), services(&node)[0].1.len()), (1, 1), "the same replica, once more");
    assert_ne!(again.connection, first);
    assert_eq!(value(&cgroups, &path("b"), Measure::Down), 0);

    std::fs::remove_dir_all(tree.at(&path("b"))).unwrap();
    cgroups.replicas.get_mut(&path("b")).unwrap().measured = None;
    watch.apply(Ok(Event::Apply(pod(&"b".repeat(64), true))));
    cgroups.round(&node, &|| Nanos::from_secs(5));
    assert_eq!((cgroups.replicas.len(), services(&node).len()), (0, 0), "the pod was told to end");
}

#[test]
fn a_cgroup_whose_processes_are_all_stopped_counts_the_time() {
    use std::process::Command;

    let mut sleepers = [(); 2].map(|()| Command::new("sleep").arg("60").spawn().unwrap());
    let signal = |sleeper: &std::process::Child, signal| {
        let pid = rustix::process::Pid::from_raw(sleeper.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        let is_there = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.id())).unwrap();
            stat.contains(") T ") == (signal == rustix::process::Signal::STOP)
        };
        while !is_there() {
            std::thread::yield_now();
        }
    };
    let tree = Tree::new(&["shop/a"]);
    tree.write("shop/a", "cgroup.procs", &format!("{}\n{}\n", sleepers[0].id(), sleepers[1].id()));
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*", "{name}")], 3));
    cgroups.round(&node, &|| Nanos::ZERO);
    cgroups.round(&node, &|| Nanos::from_secs(1));
    let mut counted = Vec::new();
    let mut second = 1;
    let mut round = |cgroups: &mut Cgroups| {
        second += 1;
        cgroups.round(&node, &|| Nanos::from_secs(second));
        counted.push(value(cgroups, "shop/a", Measure::Stopped) / 1_000_000_000);
    };

    signal(&sleepers[0], rustix::process::Signal::STOP);
    round(&mut cgroups);
    signal(&sleepers[1], rustix::process::Signal::STOP);
    round(&mut cgroups);
    round(&mut cgroups);
    tree.write("shop/a", "cpu.stat", "usage_usec 9\nuser_usec 6\nsystem_usec 3\n");
    round(&mut cgroups);
    signal(&sleepers[1], rustix::process::Signal::CONT);
    round(&mut cgroups);

    for sleeper in &mut sleepers {
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
    assert_eq!(counted, [0, 1, 2, 2, 2], "one of them, both, both, one that ran meanwhile, one again");
}

/// Writes files of version 2 with nearly everything that is measured.
fn write_all(tree: &Tree, path: &str) {
    tree.write_new(path);
    let cpu = ["user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec", "nr_bursts", "burst_usec"];
    let memory = [
        "anon",
        "file",
        "shmem",
        "file_mapped",
        "file_dirty",
        "file_writeback",
        "anon_thp",
        "kernel_stack",
        "pagetables",
        "sock",
        "slab_reclaimable",
        "slab_unreclaimable",
        "inactive_anon",
        "active_anon",
        "inactive_file",
        "active_file",
        "unevictable",
        "pgfault",
        "pgmajfault",
        "workingset_refault_anon",
        "workingset_refault_file",
        "workingset_activate_anon",
        "workingset_activate_file",
        "pgscan",
        "pgsteal",
        "pgscan_direct",
        "pgrefill",
    ];
    let lines = |keys: &[&str]| keys.iter().flat_map(|key| [*key, " 3\n"]).collect::<String>();
    tree.write(path, "cpu.stat", &lines(&cpu));
    tree.write(path, "memory.current", "4096\n");
    tree.write(path, "memory.stat", &lines(&memory));
    tree.write(path, "memory.events", &lines(&["low", "high", "max", "oom", "oom_kill"]));
    tree.write(path, "io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n");
    for name in ["cpu.pressure", "memory.pressure", "io.pressure"] {
        tree.write(path, name, "some avg10=0.00 total=7\nfull avg10=0.00 total=7\n");
    }
}

#[test]
fn cgroups_up_to_the_limit_take_the_memory_that_is_stated_and_those_beyond_none() {
    const LIMIT: usize = 20;
    // docs/bounds.md.
    const STATED: isize = 203_168;
    let names: Vec<String> = (0..2 * LIMIT).map(|at| format!("shop/service-{at:03}")).collect();
    let tree = Tree::new(&[]);
    for path in &names {
        write_all(&tree, path);
    }
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*", "{name}")], LIMIT));
    let before = allocations::live();
    allocations::take_peak();

    for second in 0..20 {
        cgroups.round(&node, &|| Nanos::from_secs(second));
    }

    let region = LIMIT as isize * 4_096;
    let most = allocations::take_peak() - before + region;
    let measures = services(&node).iter().map(|(_, _, metrics)| *metrics).min();
    assert_eq!((services(&node).len(), unread(&cgroups)), (LIMIT, vec![("limit", LIMIT as u64)]));
    assert!(measures > Some(40), "{measures:?}");
    let stated = LIMIT as isize * STATED;
    assert!(most < stated, "{most} bytes of {stated}");
    assert!(most - region > stated / 50, "the allocator counts: {most} bytes");
}
