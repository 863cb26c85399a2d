//! The client as a service sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use wire::histogram::Scale;
use wire::metric::Kind;

use region::SlotRun;

use crate::courier::Courier;
use crate::environment;
use crate::handles::{Counter, Gauge, Histogram, Parts, UpDownCounter};
use crate::problem::{Cause, Problem};
use crate::registration::{Asked, Handle, Registration};
use crate::registry::Registry;
use crate::service::Service;
use crate::session::Session;
use crate::spans::{SpanRing, TraceId};
use crate::status::{Connection, Status};

/// What a service and its thread share.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<Session>);

impl Shared {
    /// For the thread, which exists in the process that connected and in no other.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a child after fork: whoever held the lock when it was forked will never release it there.
    fn try_lock(&self) -> Option<MutexGuard<'_, Session>> {
        match self.0.try_lock() {
            Ok(session) => Some(session),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A service's connection to whatever agent there is. Clones are the same client.
///
/// When the last clone is dropped, its thread ends within milliseconds and the agent sees that the replica is gone. Handles go on working.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    service: String,
    instance: String,
    process: u32,
    /// [`Limits::spans`](crate::Limits::spans).
    spans: u32,
    shared: Arc<Shared>,
    courier: Option<Courier>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let forked = self.is_forked();
        match self.courier.take() {
            // The thread is the parent's, and so is the right to end it.
            Some(courier) if forked => std::mem::forget(courier),
            Some(courier) => courier.stop(),
            None => {}
        }
    }
}

/// Connects a service to its node's agent, now or as soon as there is one.
///
/// Never fails and never waits: a thread does the talking. Costs a thread that wakes ten times a second, and shared memory from the first
/// registration on.
#[must_use = "a client that is dropped says goodbye to its agent"]
pub fn connect(service: Service) -> Client {
    let instance = service.instance_name();
    let mut registry = Registry::new(&service.name, service.bounds());
    let hello = match service.hello(&instance) {
        Ok(hello) => Some(hello),
        Err(error) => {
            registry.problems.note(Cause::Service(error));
            None
        }
    };
    let (process, spans) = (environment::process(), service.bounds().spans);
    let talks = hello.is_some();
    let shared = Arc::new(Shared(Mutex::new(Session::new(registry, hello, u64::from(process)))));
    let mut courier = None;
    if talks {
        match Courier::start(Arc::clone(&shared), service.socket_path()) {
            Ok(started) => courier = Some(started),
            Err(error) => shared.lock().registry.problems.note(Cause::Thread(error.to_string())),
        }
    }
    Client(Arc::new(Inner { service: service.name, instance, process, spans, shared, courier }))
}

impl Client {
    /// Asks for a counter: what only grows. An LMAP sees its increments.
    pub fn counter(&self, name: &str) -> Registration<'_, Counter> {
        Registration::new(self, name, Kind::Counter)
    }

    /// Asks for an up-down counter: what comes and goes in steps.
    pub fn up_down_counter(&self, name: &str) -> Registration<'_, UpDownCounter> {
        Registration::new(self, name, Kind::UpDownCounter)
    }

    /// Asks for a gauge: what is measured elsewhere and set.
    pub fn gauge(&self, name: &str) -> Registration<'_, Gauge> {
        Registration::new(self, name, Kind::Gauge)
    }

    /// Asks for a histogram. An LMAP sees count, mean and 99th percentile of each interval.
    pub fn histogram(&self, name: &str) -> Registration<'_, Histogram> {
        Registration::new(self, name, Kind::Histogram(Scale::DEFAULT))
    }

    /// Takes a series back, for all handles to it: further values written through them are read by nobody. The same name and labels may be
    /// registered again, and start at 0. Nothing happens to a handle that nobody reads, to one of another client, to the series that label
    /// sets beyond the limit share, and in a child after fork.
    pub fn remove<H: Handle>(&self, handle: H) {
        let parts = handle.to_parts();
        drop(handle);
        if self.0.is_forked() {
            return;
        }
        self.0.shared.lock().registry.remove(&parts);
        drop(parts);
        self.0.wake();
    }

    /// All values are those of another interval now: for a service that has said
    /// [`changes_every`](crate::Service::changes_every). Takes a lock; does nothing for others, and in a child after fork.
    pub fn changed(&self) {
        if let (false, Some(session)) = (self.0.is_forked(), self.0.session()) {
            session.changed();
        }
    }

    /// Asks for `trace` to be kept, whatever else happens to it, and says why (160 bytes of it). The wish is with the agent within a twentieth of a second; spans of the
    /// trace may come before or later, from whichever services. Costs as much as a span; the first one makes the ring.
    pub fn trigger(&self, trace: TraceId, reason: &str) {
        if let Some(ring) = self.span_ring() {
            ring.keep(trace, reason);
        }
    }

    /// What `tracing` spans become traces by: add it to a `tracing_subscriber::registry()`. Without shared memory it records nothing, which
    /// [`Client::status`] says.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn span_layer(&self) -> crate::spans::SpanLayer {
        crate::spans::SpanLayer::new(self.span_ring())
    }

    /// The ring of this client's spans; made here at the first call.
    fn span_ring(&self) -> Option<Arc<SpanRing>> {
        let inner = &*self.0;
        let forked = inner.is_forked();
        let mut session = inner.session()?;
        if let Some(ring) = session.rings.ring() {
            return Some(ring);
        }
        if forked {
            // The agent could not be told of it.
            session.registry.problems.note(Cause::Forked);
            return None;
        }
        let made = SpanRing::create(&inner.service, inner.spans);
        match made {
            Ok(ring) => {
                session.rings.add(&ring);
                drop(session);
                inner.wake();
                Some(ring)
            }
            Err(error) => {
                session.registry.problems.note(Cause::Memory(error));
                None
            }
        }
    }

    /// How things stand.
    #[must_use]
    pub fn status(&self) -> Status {
        let inner = &*self.0;
        let mut status = Status {
            service: inner.service.clone(),
            instance: inner.instance.clone(),
            connection: Connection::Off,
            connections: 0,
            garbage: 0,
            series: 0,
            waiting: 0,
            detached: 0,
            regions: 0,
            region_bytes: 0,
            forked: inner.is_forked(),
            problems: Vec::new(),
            more_problems: 0,
        };
        let Some(session) = inner.session() else {
            status.problems.push(Problem { cause: Cause::Forked, times: 1 });
            return status;
        };
        if inner.courier.is_some() && !status.forked {
            status.connection = connection(&session);
        }
        let registry = &session.registry;
        status.connections = session.link.connections();
        status.garbage = session.link.garbage();
        status.series = registry.series();
        status.waiting = registry.waiting();
        status.detached = registry.detached();
        (status.regions, status.region_bytes) = registry.regions();
        status.problems = registry.problems.kept().to_vec();
        status.more_problems = registry.problems.more();
        status
    }

    /// A place for what is asked, or memory that nobody reads.
    pub(crate) fn place(&self, asked: &Asked) -> Parts {
        let inner = &*self.0;
        let forked = inner.is_forked();
        let Some(mut session) = inner.session() else {
            return Parts { run: SlotRun::detached(asked.kind.slots()), series: None };
        };
        let parts = session.registry.register(asked, forked);
        drop(session);
        if !forked {
            inner.wake();
        }
        parts
    }
}

impl Inner {
    fn is_forked(&self) -> bool {
        self.process != environment::process()
    }

    /// What is shared with the thread; none in a child that was forked while the lock was held.
    fn session(&self) -> Option<MutexGuard<'_, Session>> {
        if self.is_forked() { self.shared.try_lock() } else { Some(self.shared.lock()) }
    }

    /// Lets the thread see what has changed.
    fn wake(&self) {
        if let Some(courier) = &self.courier {
            courier.wake();
        }
    }
}

fn connection(session: &Session) -> Connection {
    if let Some(agent) = session.registered_with() {
        return Connection::Registered { agent };
    }
    if session.link.is_open() {
        return Connection::Registering;
    }
    Connection::Waiting { attempts: session.link.attempts(), error: session.link.error().map(str::to_owned) }
}

#[cfg(test)]
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests {
    use super::*;

    /// What a child inherits: the same memory under another process id.
    fn child(of: &Client) -> Client {
        let parent = &*of.0;
        Client(Arc::new(Inner {
            service: parent.service.clone(),
            instance: parent.instance.clone(),
            process: parent.process + 1,
            spans: parent.spans,
            shared: Arc::clone(&parent.shared),
            courier: None,
        }))
    }

    #[test]
    fn a_child_that_was_forked_while_the_lock_was_held_does_not_wait_for_it() {
        let client = connect(Service::new("payment").socket("/nonexistent/services.sock"));
        let child = child(&client);
        let held = client.0.shared.lock();

        let counter = child.counter("requests").register();
        counter.add(1);
        child.remove(counter.clone());
        let status = child.status();

        assert_eq!(counter.get(), 1);
        assert!(status.forked);
        assert_eq!(status.problems, [Problem { cause: Cause::Forked, times: 1 }]);
        drop(held);
    }

    #[test]
    fn a_service_that_panicked_while_registering_is_still_served() {
        let client = connect(Service::new("payment").socket("/nonexistent/services.sock"));
        let panicking = client.clone();
        let result = std::thread::spawn(move || {
            let _held = panicking.0.shared.lock();
            panic!("as any service may");
        });
        assert!(result.join().is_err());

        client.counter("requests").register().add(1);

        assert_eq!(client.status().series, 1);
    }
}
