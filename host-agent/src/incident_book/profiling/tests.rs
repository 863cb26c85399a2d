//! Profiles one at a time, and a kernel that refuses them.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};

use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use wire::name::{InstanceName, ServiceName};

use super::*;

/// Says which processes a profile is of as it begins, and ends it at a word of the test.
#[derive(Debug)]
struct Gate {
    begun: Sender<Vec<(u32, String)>>,
    ends: Mutex<Receiver<()>>,
    now: AtomicUsize,
    most: Arc<AtomicUsize>,
}

impl Sampler for Gate {
    fn sample(
        &self,
        plan: &Plan,
        _: &Path,
        _: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<IncidentProfile, ProfileError> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.begun.send(plan.processes.clone()).unwrap();
        lock(&self.ends).recv().unwrap();
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(IncidentProfile { samples: 1, ..IncidentProfile::default() })
    }
}

/// The kernel refuses all.
#[derive(Debug)]
struct Refusing;

impl Sampler for Refusing {
    fn sample(
        &self,
        plan: &Plan,
        _: &Path,
        _: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<IncidentProfile, ProfileError> {
        Err(ProfileError::Refused { process: plan.processes[0].0, source: io::Error::from_raw_os_error(13) })
    }
}

fn wish(service: &str) -> ProfileRequest {
    let incident = "20261127-064215-123".parse().unwrap();
    ProfileRequest { incident, service: service.to_owned(), event: Event::ProcessorTime }
}

fn facts(service: &str, process: u32) -> ReplicaFacts {
    let (service, instance) = (ServiceName::new(service).unwrap(), InstanceName::new(service).unwrap());
    ReplicaFacts { service, instance, number: process, process, named_by: None }
}

/// What comes, while `meanwhile` is done again and again.
fn wait_for<T>(what: &str, mut meanwhile: impl FnMut(), from: &Receiver<T>) -> T {
    for _ in 0..10_000 {
        meanwhile();
        if let Ok(found) = from.recv_timeout(Duration::from_millis(2)) {
            return found;
        }
    }
    panic!("{what} did not come")
}

#[test]
fn profiles_are_taken_one_at_a_time_and_the_next_begins_when_one_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let ((begun, begins), (end, ends), most) = (channel(), channel(), Arc::<AtomicUsize>::default());
    let gate = Gate { begun, ends: Mutex::new(ends), now: AtomicUsize::new(0), most: Arc::clone(&most) };
    let profiler = Profiler::with(ProfileConfig::default(), folder.path().to_owned(), Arc::new(gate));
    let (replicas, cgroups) = ([facts("cart", 7), facts("payment", 8), facts("store", 9)], CgroupFiles::default());
    let go_on = || profiler.go_on((&replicas, &cgroups), |wish| wish.service != "store", UnixNanos(5));
    ["cart", "cart", "payment", "store"].map(wish).into_iter().for_each(|wish| profiler.wish(wish));

    let first = wait_for("the first", go_on, &begins);
    (0..50).for_each(|_| go_on());
    assert_eq!(first, [(7, "cart".to_owned())]);
    assert!(begins.try_recv().is_err() && profiler.taken().is_empty(), "it goes on");
    end.send(()).unwrap();
    let second = wait_for("the second", go_on, &begins);
    end.send(()).unwrap();

    assert_eq!(second, [(8, "payment".to_owned())]);
    let mut taken = Vec::new();
    let mut collect = || taken.extend(profiler.taken().into_iter().map(|of| of.profile));
    // Nobody else sends: the wait ends when the profiler is free again.
    let (free, is_free) = channel();
    let again = || {
        collect();
        if !profiler.is_busy.load(Ordering::Acquire) {
            free.send(()).unwrap();
        }
    };
    wait_for("the end", again, &is_free);
    collect();
    let services: Vec<_> = taken.iter().map(|of| (of.service.as_str(), of.began_unix_ns, of.samples)).collect();
    assert_eq!(services, [("cart", 5, 1), ("payment", 5, 1)]);
    go_on();
    // A third one would be busy from here on, since nobody ends it.
    let is_busy = profiler.is_busy.load(Ordering::Acquire);
    assert!(!is_busy, "the same wish is noted once, and one that is not wanted any more goes");
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

/// How many warnings were logged.
#[derive(Clone, Debug, Default)]
struct Warnings(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(usize::from(*event.metadata().level() == tracing::Level::WARN), Ordering::Relaxed);
    }
}

#[test]
fn a_kernel_that_refuses_is_said_once_in_the_log_and_in_each_profile() {
    let (warnings, state) = (Warnings::default(), Mutex::default());
    let plan = Plan { processes: vec![(7, "cart".to_owned())], event: Event::Waiting, rounds: 1, frequency_hz: 99 };
    let mut pause = |_: Duration| true;

    let subscriber = tracing_subscriber::registry().with(warnings.clone());
    let taken = tracing::subscriber::with_default(subscriber, || {
        [(); 3].map(|()| take(&Refusing, &plan, Path::new("/proc"), &mut pause, &state))
    });

    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
    for profile in taken {
        assert!(profile.problem.starts_with("the kernel refuses to sample process 7: "), "{}", profile.problem);
        assert_eq!((profile.event.as_str(), profile.samples), (Event::Waiting.name(), 0));
    }
}

#[test]
fn without_seconds_nothing_is_wished_for() {
    let config = ProfileConfig { seconds: 0, ..ProfileConfig::default() };
    let profiler = Profiler::with(config, PathBuf::from("/proc"), Arc::new(Refusing));

    profiler.wish(wish("cart"));

    profiler.go_on((&[], &CgroupFiles::default()), |_| panic!("there is a wish"), UnixNanos(5));
    assert!(!profiler.is_busy.load(Ordering::Acquire));
}

#[test]
fn children_of_a_process_are_of_its_service_too() {
    let folder = tempfile::tempdir().unwrap();
    for (task, children) in [("7/task/7", "8 9"), ("7/task/70", "10"), ("9/task/9", "11 7"), ("11/task/11", "")] {
        fs::create_dir_all(folder.path().join(task)).unwrap();
        fs::write(folder.path().join(task).join("children"), children).unwrap();
    }

    let mut all = with_children(folder.path(), 7);

    all.sort_unstable();
    assert_eq!(all, [7, 8, 9, 10, 11]);
    assert_eq!(with_children(folder.path(), 99), [99]);
    let many: Vec<String> = (1_000..3_000).map(|child: u32| child.to_string()).collect();
    fs::write(folder.path().join("7/task/7/children"), many.join(" ")).unwrap();
    assert_eq!(with_children(folder.path(), 7).len(), MAX_PROCESSES);
}
