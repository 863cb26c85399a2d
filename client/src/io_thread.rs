//! The I/O thread: connects to the agent, sends and receives. All decisions are in
//! [`Session`](crate::session::Session).
//!
//! The thread blocks only in `poll`, which waits for the socket, a deadline, or a wake-up by the service.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use region::fd_passing;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown, socket_with};
use wire::frame::Frames;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::session::{Disconnect, Outgoing, Session};

/// The session, shared by the service and the I/O thread.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<Session>);

impl Shared {
    pub(crate) fn new(session: Session) -> Self {
        Self(Mutex::new(session))
    }

    /// For the I/O thread, which exists only in the process that connected.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For who forks, and for a child: where the lock was held during the fork, nobody releases it in the child.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Session>> {
        match self.0.try_lock() {
            Ok(session) => Some(session),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Reads of the socket before the deadlines are checked again.
const MAX_READS: usize = 16;
/// Size of the receive buffer, in bytes.
const READ_BYTES: usize = 4096;

/// Wake-up and stop requests from the owner to the I/O thread.
#[derive(Debug)]
struct Signal {
    wake: OwnedFd,
    stop: AtomicBool,
}

impl Signal {
    fn raise(&self) {
        // Fails only if the eventfd's counter is full: then a wake-up is pending anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// The owner's handle to the I/O thread.
#[derive(Debug)]
pub(crate) struct IoThread {
    signal: Arc<Signal>,
    thread: JoinHandle<()>,
}

impl IoThread {
    /// Starts the thread that connects to `socket`. It calls `first` before anything else.
    pub(crate) fn start(shared: Arc<Shared>, socket: PathBuf, first: Option<fn()>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let signal = Arc::new(Signal { wake, stop: AtomicBool::new(false) });
        let event_loop =
            EventLoop { shared, signal: Arc::clone(&signal), clock: Clock::start(), socket, connection: None };
        let run = move || {
            if let Some(first) = first {
                first();
            }
            event_loop.run();
        };
        let thread = std::thread::Builder::new().name("uview".to_owned()).spawn(run)?;
        Ok(Self { signal, thread })
    }

    /// Wakes the thread, so that it sends what has changed.
    pub(crate) fn wake(&self) {
        self.signal.raise();
    }

    /// Stops the thread and joins it. Takes milliseconds: the thread never blocks for long.
    pub(crate) fn stop(self) {
        self.signal.stop.store(true, Ordering::Relaxed);
        self.signal.raise();
        // The thread does not panic; if it did, the service must not panic as well.
        let _ = self.thread.join();
    }
}

/// An open connection.
struct Connection {
    socket: OwnedFd,
    frames: Frames,
    sending: Option<(Outgoing, usize)>,
}

/// The thread's state.
struct EventLoop {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    clock: Clock,
    socket: PathBuf,
    connection: Option<Connection>,
}

impl EventLoop {
    fn run(mut self) {
        while !self.signal.stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            let actions = self.shared.lock().poll(now);
            if actions.reconnect {
                self.disconnect(&Disconnect::Again);
                continue;
            }
            if actions.connect {
                self.connect();
            }
            if let Some(connection) = &mut self.connection
                && let Err(disconnected) = connection.exchange(&self.shared)
            {
                // When to try again is not when the next heartbeat was due.
                self.disconnect(&disconnected);
                continue;
            }
            if !actions.connect {
                self.wait(actions.next_poll);
            }
        }
        if let Some(connection) = &self.connection {
            // Closing is not enough: a forked child may hold the socket, and the agent must see the end.
            let _ = shutdown(&connection.socket, Shutdown::Both);
        }
    }

    fn connect(&mut self) {
        match open(&self.socket) {
            Ok(socket) => {
                self.shared.lock().connected();
                self.connection = Some(Connection { socket, frames: Frames::default(), sending: None });
            }
            Err(error) => self.disconnect(&Disconnect::System(error)),
        }
    }

    fn disconnect(&mut self, reason: &Disconnect) {
        self.connection = None;
        let now = self.clock.now();
        self.shared.lock().disconnected(now, reason);
    }

    /// Waits for the socket, for the service, or until `deadline`.
    fn wait(&self, deadline: Nanos) {
        let Some(left) = deadline.since(self.clock.now()) else { return };
        let timeout = Timespec { tv_sec: (left.0 / 1_000_000_000) as i64, tv_nsec: (left.0 % 1_000_000_000) as i64 };
        let mut wake = [PollFd::new(&self.signal.wake, PollFlags::IN)];
        // An interrupted `poll` counts as a wake-up.
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
        // Only if woken, not at every heartbeat: system calls show in the service's own process metrics.
        if woken {
            let _ = rustix::io::read(&self.signal.wake, &mut [0; 8]);
        }
    }
}

impl Connection {
    /// Receives and sends whatever is possible without blocking.
    fn exchange(&mut self, shared: &Shared) -> Result<(), Disconnect> {
        self.receive(shared)?;
        self.send(shared)
    }

    fn send(&mut self, shared: &Shared) -> Result<(), Disconnect> {
        loop {
            let Some((outgoing, sent)) = &mut self.sending else {
                match shared.lock().outgoing() {
                    Some(outgoing) => self.sending = Some((outgoing, 0)),
                    None => return Ok(()),
                }
                continue;
            };
            let descriptor = outgoing.region.as_deref().filter(|_| *sent == 0).map(AsFd::as_fd);
            match fd_passing::send(&self.socket, &outgoing.bytes[*sent..], descriptor) {
                Ok(taken) => *sent += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if *sent == outgoing.bytes.len() {
                self.sending = None;
            }
        }
    }

    fn receive(&mut self, shared: &Shared) -> Result<(), Disconnect> {
        let mut buffer = [0; READ_BYTES];
        // Agents do not send descriptors. Any that arrive are closed here.
        let mut descriptors = Vec::new();
        for _ in 0..MAX_READS {
            descriptors.clear();
            match fd_passing::receive(&self.socket, &mut buffer, &mut descriptors) {
                Ok(0) => return Err(Disconnect::Closed),
                Ok(got) => self.frames.push(&buffer[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            while let Some(frame) = self.frames.next_frame().map_err(|error| Disconnect::Protocol(error.to_string()))? {
                shared.lock().incoming(frame)?;
            }
        }
        Ok(())
    }
}

/// Connects to `path` without blocking. An agent whose accept queue is full counts as unreachable.
fn open(path: &PathBuf) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    Ok(socket)
}
