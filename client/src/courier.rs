//! The thread that talks to the agent. It decides nothing: [`Session`](crate::session::Session) says what to do, and this does it.
//!
//! Nothing here blocks but the one wait for the socket, the clock, or the service.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use region::passing;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown, socket_with};
use wire::frame::Frames;
use wire::time::Nanos;

use crate::client::Shared;
use crate::clock::Clock;
use crate::session::{Lost, Outgoing};

/// How often the socket is read or written in a row before the clock is looked at again.
const IN_A_ROW: usize = 16;
/// How much is read at once.
const READ_BYTES: usize = 4096;

/// What the thread and its owner share.
#[derive(Debug)]
struct Signal {
    wake: OwnedFd,
    stop: AtomicBool,
}

impl Signal {
    fn raise(&self) {
        // A full counter means that the thread has been woken often enough.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// The owner's end of the thread.
#[derive(Debug)]
pub(crate) struct Courier {
    signal: Arc<Signal>,
    thread: JoinHandle<()>,
}

impl Courier {
    /// Starts the thread that connects to `socket`.
    pub(crate) fn start(shared: Arc<Shared>, socket: PathBuf) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let signal = Arc::new(Signal { wake, stop: AtomicBool::new(false) });
        let round = Round { shared, signal: Arc::clone(&signal), clock: Clock::start(), socket, connection: None };
        let thread = std::thread::Builder::new().name("uview".to_owned()).spawn(move || round.run())?;
        Ok(Self { signal, thread })
    }

    /// Lets the thread look at what has changed.
    pub(crate) fn wake(&self) {
        self.signal.raise();
    }

    /// Ends the thread and waits for that: it is never in the middle of something long.
    pub(crate) fn stop(self) {
        self.signal.stop.store(true, Ordering::Relaxed);
        self.signal.raise();
        // It cannot have panicked, and if it had, the service had better not.
        let _ = self.thread.join();
    }
}

/// One open connection.
struct Connection {
    socket: OwnedFd,
    frames: Frames,
    sending: Option<(Outgoing, usize)>,
}

/// The thread's own.
struct Round {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    clock: Clock,
    socket: PathBuf,
    connection: Option<Connection>,
}

impl Round {
    fn run(mut self) {
        while !self.signal.stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            let due = self.shared.lock().poll(now);
            if due.connect {
                self.connect();
            }
            if let Some(connection) = &mut self.connection
                && let Err(lost) = connection.exchange(&self.shared)
            {
                self.lose(&lost);
            }
            if !due.connect {
                self.wait(due.again);
            }
        }
        if let Some(connection) = &self.connection {
            // Not only closed: a forked child may hold the socket, and the agent has to see the end all the same.
            let _ = shutdown(&connection.socket, Shutdown::Both);
        }
    }

    fn connect(&mut self) {
        match open(&self.socket) {
            Ok(socket) => {
                self.shared.lock().connected();
                self.connection = Some(Connection { socket, frames: Frames::default(), sending: None });
            }
            Err(error) => self.lose(&Lost::System(error)),
        }
    }

    fn lose(&mut self, why: &Lost) {
        self.connection = None;
        let now = self.clock.now();
        self.shared.lock().lost(now, why);
    }

    /// Waits for the socket, for the service, or until `deadline`.
    fn wait(&self, deadline: Nanos) {
        let Some(left) = deadline.since(self.clock.now()) else { return };
        let timeout = Timespec { tv_sec: (left.0 / 1_000_000_000) as i64, tv_nsec: (left.0 % 1_000_000_000) as i64 };
        let mut wake = [PollFd::new(&self.signal.wake, PollFlags::IN)];
        // An interrupted wait is one that was over early.
        let woken = match &self.connection {
            Some(connection) => {
                let interest =
                    if connection.sending.is_some() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                let [wake] = wake;
                let mut both = [wake, PollFd::new(&connection.socket, interest)];
                let _ = poll(&mut both, Some(&timeout));
                !both[0].revents().is_empty()
            }
            None => poll(&mut wake, Some(&timeout)).is_ok_and(|ready| ready > 0),
        };
        // Not at every beat: a service's reads are among the metrics that it is judged by.
        if woken {
            let _ = rustix::io::read(&self.signal.wake, &mut [0; 8]);
        }
    }
}

impl Connection {
    /// Sends and receives what can be without waiting.
    fn exchange(&mut self, shared: &Shared) -> Result<(), Lost> {
        self.receive(shared)?;
        self.send(shared)
    }

    fn send(&mut self, shared: &Shared) -> Result<(), Lost> {
        loop {
            let Some((outgoing, sent)) = &mut self.sending else {
                match shared.lock().outgoing() {
                    Some(outgoing) => self.sending = Some((outgoing, 0)),
                    None => return Ok(()),
                }
                continue;
            };
            let descriptor = outgoing.region.as_deref().filter(|_| *sent == 0).map(AsFd::as_fd);
            match passing::send(&self.socket, &outgoing.bytes[*sent..], descriptor) {
                Ok(taken) => *sent += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if *sent == outgoing.bytes.len() {
                self.sending = None;
            }
        }
    }

    fn receive(&mut self, shared: &Shared) -> Result<(), Lost> {
        let mut buffer = [0; READ_BYTES];
        // An agent has no descriptors for us: they are closed here.
        let mut descriptors = Vec::new();
        for _ in 0..IN_A_ROW {
            descriptors.clear();
            match passing::receive(&self.socket, &mut buffer, &mut descriptors) {
                Ok(0) => return Err(Lost::Closed),
                Ok(got) => self.frames.push(&buffer[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            while let Some(frame) = self.frames.next_frame().map_err(|error| Lost::Garbage(error.to_string()))? {
                shared.lock().incoming(frame)?;
            }
        }
        Ok(())
    }
}

/// A connection to `path` that never blocks: an agent whose queue is full counts as none.
fn open(path: &PathBuf) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    Ok(socket)
}
