//! A fake host agent: accepts connections, validates and records messages, and behaves as a test configures.

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use prost::Message as _;
use region::{AcceptedRegion, ReadMapping, fd_passing};
use support::frames::from_agent;
use support::wait::Wait;
use wire::frame::Frames;
use wire::layout::{Header, Slot};
use wire::proto::registration as proto;
use wire::registration::{PlacedSeries, ServiceMessage, SlotRun};

/// Timeout of every condition on an agent's state, also on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);
/// How tests wait for a condition on something else.
pub const WAIT: Wait = Wait::up_to(Duration::from_mins(2)).pausing(Duration::from_millis(1));

/// How the agent behaves.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Sends a welcome, accepts everything.
    Proper,
    /// Closes the first connections at once, as a dying agent does; then proper.
    Dying(usize),
    /// Sends these bytes on the first connections, one element each, instead of a reply; then proper.
    Garbage(Vec<Vec<u8>>),
    /// Never reads and never replies.
    Unresponsive,
    /// An agent of an earlier protocol: refuses the first hellos and closes the connection; then proper, as after an
    /// upgrade.
    Older(usize),
}

/// What the fake agent has received.
#[derive(Debug, Default)]
pub struct AgentState {
    /// Connections accepted so far.
    pub connections: usize,
    /// Connections that have ended.
    pub ended: usize,
    /// Messages of the last connection.
    pub messages: Vec<ServiceMessage>,
    /// Regions of the last connection, in order.
    pub regions: Vec<AcceptedRegion>,
    /// The span ring of the last connection.
    pub ring: Option<AcceptedRegion>,
    socket: Option<UnixStream>,
}

impl AgentState {
    /// All series announced on the last connection.
    pub fn series(&self) -> Vec<PlacedSeries> {
        let told = self.messages.iter().filter_map(|message| match message {
            ServiceMessage::AddSeries(series) => Some(series.iter().flatten().cloned()),
            _ => None,
        });
        told.flatten().collect()
    }

    /// All slots retired on the last connection.
    pub fn retired(&self) -> Vec<SlotRun> {
        let told = self.messages.iter().filter_map(|message| match message {
            ServiceMessage::Retire(runs) => Some(runs.clone()),
            _ => None,
        });
        told.flatten().collect()
    }

    /// The words of a region, as a reader copies them.
    pub fn words(&self, region: u32) -> Vec<u64> {
        let region = &self.regions[region as usize];
        let mut words = vec![0; region.size().words()];
        let mapping = ReadMapping::map(region.as_fd(), region.size()).expect("an accepted region can be mapped");
        mapping.copy_into(&mut words).expect("the buffer has its length");
        words
    }

    /// The first slot of the series of this title.
    pub fn value(&self, title: &str) -> Option<u64> {
        let placed = self.series().into_iter().find(|placed| placed.series.title() == title)?;
        self.words(placed.region).get(Slot(placed.first.0).word()).copied()
    }

    /// The heartbeat of the first region.
    pub fn heartbeat(&self) -> u64 {
        Header::decode(&self.words(0)).expect("it is a region").heartbeat
    }

    /// Inodes of the regions' memfds.
    pub fn inodes(&self) -> Vec<u64> {
        self.regions.iter().map(|region| rustix::fs::fstat(region).expect("it is open").st_ino).collect()
    }
}

struct Shared {
    state: Mutex<AgentState>,
    changed: Condvar,
    stop: AtomicBool,
    incarnation: u64,
    behaviour: Behaviour,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut AgentState)) {
        change(&mut self.state());
        self.changed.notify_all();
    }
}

/// An agent that runs until it is dropped, which is as sudden as kill -9.
pub struct FakeAgent {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl FakeAgent {
    /// A proper agent at `path`.
    pub fn start(path: &Path, incarnation: u64) -> Self {
        Self::with_behaviour(path, incarnation, Behaviour::Proper)
    }

    pub fn with_behaviour(path: &Path, incarnation: u64, behaviour: Behaviour) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("the folder is there");
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            incarnation,
            behaviour,
        });
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || serve(&listener, &shared)
        });
        Self { path: path.to_owned(), shared, thread: Some(thread) }
    }

    /// Waits until `condition` on the state returns a value, and returns that.
    pub fn until<T>(&self, what: &str, mut condition: impl FnMut(&AgentState) -> Option<T>) -> T {
        let mut found = None;
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.state(), LIMIT, |state| {
                found = condition(state);
                found.is_none()
            })
            .unwrap_or_else(PoisonError::into_inner);
        found.unwrap_or_else(|| unreachable!("not within {LIMIT:?}: {what}; seen: {state:?}"))
    }

    /// Applies `look` to the state.
    pub fn look<T>(&self, look: impl FnOnce(&AgentState) -> T) -> T {
        look(&self.shared.state())
    }

    /// Sends a message to the service.
    pub fn send(&self, message: proto::agent_message::Message) {
        let state = self.shared.state();
        let mut socket = state.socket.as_ref().expect("there is a connection");
        socket.write_all(&from_agent(message)).expect("the service listens");
    }

    /// Sends raw bytes to the service.
    pub fn send_bytes(&self, bytes: &[u8]) {
        let state = self.shared.state();
        let mut socket = state.socket.as_ref().expect("there is a connection");
        socket.write_all(bytes).expect("the service listens");
    }

    /// Releases `runs`: no worker reads them any more.
    pub fn release(&self, runs: &[SlotRun]) {
        let runs = runs.iter().copied().map(proto::SlotRun::from).collect();
        self.send(proto::agent_message::Message::Release(proto::SlotRelease { runs }));
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(socket) = self.shared.state().socket.take() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        // Wakes `accept`.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves one connection after the other.
fn serve(listener: &UnixListener, shared: &Shared) {
    while let Ok((socket, _)) = listener.accept() {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let number = shared.state().connections;
        shared.change(|state| {
            state.connections += 1;
            state.messages.clear();
            state.regions.clear();
            state.ring = None;
            state.socket = socket.try_clone().ok();
        });
        converse(&socket, number, shared);
        shared.change(|state| {
            state.socket = None;
            state.ended += 1;
        });
    }
}

fn converse(mut socket: &UnixStream, number: usize, shared: &Shared) {
    match &shared.behaviour {
        Behaviour::Dying(times) if number < *times => return,
        Behaviour::Garbage(bytes) if number < bytes.len() => {
            let _ = socket.write_all(&bytes[number]);
            // Until the service has hung up.
            while fd_passing::receive(socket, &mut [0; 4096], &mut Vec::new()).is_ok_and(|got| got > 0) {}
            return;
        }
        Behaviour::Unresponsive => {
            while !shared.stop.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(1));
            }
            return;
        }
        Behaviour::Older(times) if number < *times => return refuse(socket),
        Behaviour::Proper | Behaviour::Dying(_) | Behaviour::Garbage(_) | Behaviour::Older(_) => {}
    }
    let mut frames = Frames::default();
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    let mut buffer = [0; 4096];
    let mut messages = 0;
    while let Ok(got @ 1..) = fd_passing::receive(socket, &mut buffer, &mut descriptors) {
        frames.push(&buffer[..got]);
        while let Some(frame) = frames.next_frame().expect("a client sends frames") {
            let message = ServiceMessage::decode(frame).expect("a client sends messages");
            messages += 1;
            let mut answers = Vec::new();
            match &message {
                ServiceMessage::Hello(_) => {
                    let welcome = proto::Welcome {
                        agent_incarnation: shared.incarnation,
                        heartbeat_ms: 10,
                        takes_subjects: true,
                        ..Default::default()
                    };
                    answers.extend(from_agent(proto::agent_message::Message::Welcome(welcome)));
                }
                ServiceMessage::AddRegion { size, .. } => {
                    let memory = descriptors.remove(0);
                    let region = AcceptedRegion::accept(memory, *size).expect("a client makes good regions");
                    shared.change(|state| state.regions.push(region));
                }
                ServiceMessage::AddSpanRing { size, .. } => {
                    let memory = descriptors.remove(0);
                    let region = AcceptedRegion::accept(memory, *size).expect("a client makes good regions");
                    shared.change(|state| state.ring = Some(region));
                }
                ServiceMessage::AddSeries(_) | ServiceMessage::Retire(_) | ServiceMessage::Subjects(_) => {}
            }
            shared.change(|state| state.messages.push(message));
            answers.extend(from_agent(proto::agent_message::Message::Acknowledgement(proto::Acknowledgement {
                messages,
            })));
            let _ = socket.write_all(&answers);
        }
    }
}

/// Refuses the hello as an agent of an earlier protocol would.
fn refuse(mut socket: &UnixStream) {
    let (mut frames, mut buffer) = (Frames::default(), [0; 4096]);
    while let Ok(got @ 1..) = fd_passing::receive(socket, &mut buffer, &mut Vec::new()) {
        frames.push(&buffer[..got]);
        let Some(frame) = frames.next_frame().expect("a client sends frames") else { continue };
        let mut message = proto::ServiceMessage::decode(frame).expect("a client sends messages");
        let Some(proto::service_message::Message::Hello(hello)) = &mut message.message else {
            unreachable!("a hello comes first")
        };
        // To an agent of before, our protocol is what the one after ours is to an agent of today.
        hello.protocol += 1;
        let error = ServiceMessage::decode(&message.encode_to_vec()).expect_err("it is of a later protocol");
        let refused = proto::Refusal { what: "frame".to_owned(), reason: error.to_string(), retry_after_ms: 0 };
        let _ = socket.write_all(&from_agent(proto::agent_message::Message::Refusal(refused)));
        return;
    }
}
