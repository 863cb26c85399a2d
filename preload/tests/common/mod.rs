//! A host agent that any number of processes register with, the library, and real programs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use region::{AcceptedRegion, ReadMapping, fd_passing};
use support::frames::from_agent;
use support::wait::Wait;
use tempfile::TempDir;
use wire::frame::Frames;
use wire::layout::Slot;
use wire::metric::Kind;
use wire::proto::registration as proto;
use wire::registration::{PlacedSeries, ServiceMessage};

/// How tests wait for a condition.
pub const WAIT: Wait = Wait::up_to(Duration::from_mins(4)).pausing(Duration::from_millis(10));

/// What a process has registered. Its regions stay readable when it is gone.
#[derive(Debug, Default)]
pub struct Replica {
    pub service: String,
    pub process_metrics: bool,
    pub ended: bool,
    series: Vec<PlacedSeries>,
    regions: Vec<AcceptedRegion>,
}

impl Replica {
    fn values(&self) -> BTreeMap<String, i64> {
        let mut values = BTreeMap::new();
        for placed in &self.series {
            let Some(region) = self.regions.get(placed.region as usize) else { continue };
            let mut words = vec![0; region.size().words()];
            let mapping = ReadMapping::map(region.as_fd(), region.size()).expect("an accepted region can be mapped");
            mapping.copy_into(&mut words).expect("the buffer has its length");
            let first = Slot(placed.first.0).word();
            let value = if let Kind::Histogram(scale) = placed.series.kind {
                words[first..first + scale.sum_slot() as usize].iter().sum()
            } else {
                words[first]
            };
            values.insert(placed.series.title(), value.cast_signed());
        }
        values
    }
}

type Replicas = Arc<Mutex<Vec<Replica>>>;

/// An agent that is not ready: it hangs up at once.
#[derive(Debug, Default)]
pub struct Starting {
    is_ready: AtomicBool,
    /// How often it has hung up.
    pub hung_up: AtomicUsize,
}

/// An agent, and the folder of its socket.
pub struct Agent {
    folder: TempDir,
    replicas: Replicas,
    pub starting: Arc<Starting>,
}

impl Agent {
    pub fn start() -> Self {
        let agent = Self::starting();
        agent.becomes_ready();
        agent
    }

    /// One that hangs up on whoever connects, until it [becomes ready](Self::becomes_ready).
    pub fn starting() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let listener = UnixListener::bind(folder.path().join("services.sock")).expect("the folder is there");
        let replicas = Replicas::default();
        let all = Arc::clone(&replicas);
        let starting = Arc::<Starting>::default();
        let state = Arc::clone(&starting);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if !state.is_ready.load(Ordering::Relaxed) {
                    drop(socket);
                    state.hung_up.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let all = Arc::clone(&all);
                thread::spawn(move || converse(&socket, &all));
            }
        });
        // Processes of other users connect, too.
        open_to_all(folder.path());
        open_to_all(&folder.path().join("services.sock"));
        Self { folder, replicas, starting }
    }

    /// From now on it talks to processes.
    pub fn becomes_ready(&self) {
        self.starting.is_ready.store(true, Ordering::Relaxed);
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The command, so that what it starts is watched.
    pub fn watch(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("UVIEW_SOCKET", self.folder().join("services.sock"));
        command.env_remove("UVIEW_PRELOAD").env_remove("UVIEW_SERVICE").env_remove("OTEL_SERVICE_NAME");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    pub fn replicas(&self) -> MutexGuard<'_, Vec<Replica>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sums of all replicas, by title. Of a histogram: its count.
    pub fn values(&self) -> BTreeMap<String, i64> {
        let mut sums = BTreeMap::new();
        for (title, value) in self.replicas().iter().flat_map(Replica::values) {
            *sums.entry(title).or_default() += value;
        }
        sums
    }

    /// The sum of all series whose titles begin so.
    pub fn sum(&self, title: &str) -> i64 {
        self.values().iter().filter(|(name, _)| name.starts_with(title)).map(|(_, value)| value).sum()
    }

    /// Waits until `title` is `expected`.
    #[track_caller]
    pub fn reaches(&self, title: &str, expected: i64) {
        WAIT.until(&format!("{title} is {expected}"), || {
            let is_reached = self.sum(title) == expected;
            if is_reached { Ok(()) } else { Err(self.values()) }
        });
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("it is ours");
}

/// The library: cargo puts it where it puts this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let library = test.parent().expect("a program lies in a folder").join("libuview_preload.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

fn converse(mut socket: &UnixStream, all: &Replicas) {
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let number = {
        let mut replicas = lock();
        replicas.push(Replica::default());
        replicas.len() - 1
    };
    let (mut frames, mut descriptors) = (Frames::default(), Vec::<OwnedFd>::new());
    let (mut buffer, mut messages) = ([0; 4096], 0);
    while let Ok(got @ 1..) = fd_passing::receive(socket, &mut buffer, &mut descriptors) {
        frames.push(&buffer[..got]);
        while let Some(frame) = frames.next_frame().expect("a client sends frames") {
            messages += 1;
            let message = ServiceMessage::decode(frame).expect("a client sends messages");
            let mut replicas = lock();
            let replica = &mut replicas[number];
            let mut answers = Vec::new();
            match message {
                ServiceMessage::Hello(hello) => {
                    (replica.service, replica.process_metrics) = (hello.service.to_string(), hello.process_metrics);
                    let welcome = proto::Welcome { agent_incarnation: 1, heartbeat_ms: 100, ..Default::default() };
                    answers.extend(from_agent(proto::agent_message::Message::Welcome(welcome)));
                }
                ServiceMessage::AddRegion { size, .. } => {
                    let region = AcceptedRegion::accept(descriptors.remove(0), size);
                    replica.regions.push(region.expect("a client makes good regions"));
                }
                ServiceMessage::AddSeries(series) => replica.series.extend(series.into_iter().flatten()),
                ServiceMessage::AddSpanRing { .. } | ServiceMessage::Retire(_) | ServiceMessage::Subjects(_) => {}
            }
            let accepted = proto::Acknowledgement { messages };
            answers.extend(from_agent(proto::agent_message::Message::Acknowledgement(accepted)));
            let _ = socket.write_all(&answers);
        }
    }
    lock()[number].ended = true;
}

/// A program that is killed at the end of its test, with the processes that it has started: workers of nginx outlive
/// their master.
pub struct Program(pub Child);

impl Program {
    pub fn start(command: &mut Command) -> Self {
        Self(command.process_group(0).spawn().expect("the program starts"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.0.id())]).status();
        let _ = self.0.wait();
    }
}

/// Whether all these programs are there. If not, it is said.
pub fn there_are(programs: &[&str]) -> bool {
    let is_there = |name: &&str| {
        let folders = ["", "/usr/bin", "/usr/sbin", "/usr/lib/postgresql/15/bin"];
        folders.iter().any(|folder| Path::new(folder).join(name).is_file())
    };
    let missing: Vec<_> = programs.iter().filter(|name| !is_there(name)).collect();
    if !missing.is_empty() {
        support::harness::not_run(&format!("watching {programs:?}: no {missing:?}"));
    }
    missing.is_empty()
}

/// What a command prints, which must succeed.
pub fn output(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
