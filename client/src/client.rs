//! The client: connects a service, registers metrics, reports its status.

use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use wire::histogram::Scale;
use wire::metric::Kind;
use wire::name::MetricName;
use wire::registration::Subject;
use wire::time::Nanos;

use region::SlotRun;

use crate::environment;
use crate::fork;
use crate::handles::{Binding, Counter, Gauge, Histogram, ShardedCounter, UpDownCounter};
use crate::io_thread::{IoThread, Shared};
use crate::metric_spec::MetricSpec;
use crate::problem::{Cause, Problem};
use crate::registration::{Handle, Registration};
use crate::registry::Registry;
use crate::service::{Limits, Service};
use crate::session::Session;
use crate::spans::{Span, SpanRing, TraceId};
use crate::status::{Connection, Status};

/// A service's connection to the node's host agent. Clones share the connection.
///
/// When the last clone is dropped, the I/O thread ends within milliseconds and the agent sees that the replica is gone.
/// Handles go on working.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// A client, for what may outlive it: it does not keep the connection.
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
#[derive(Debug)]
pub(crate) struct WeakClient(std::sync::Weak<Inner>);

#[derive(Debug)]
struct Inner {
    service: String,
    instance: String,
    process: u32,
    limits: Limits,
    shared: Arc<Shared>,
    /// The ring of spans once it is there, to be reached without the session's lock. It is set with that lock held, so
    /// that no child comes upon a ring that is half set ([`fork::watch`]).
    span_ring: OnceLock<Arc<SpanRing>>,
    io_thread: Option<IoThread>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let forked = self.is_forked();
        match self.io_thread.take() {
            // The I/O thread belongs to the parent process.
            Some(io_thread) if forked => std::mem::forget(io_thread),
            Some(io_thread) => io_thread.stop(),
            None => {}
        }
    }
}

/// Connects a service to its node's host agent, now or as soon as there is one.
///
/// Never fails and never waits: an I/O thread connects and registers. The client costs that thread, which wakes ten
/// times a second, and shared memory from the first registration on. Problems are in [`Client::status`].
#[must_use = "dropping the client disconnects from the agent"]
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
    let (process, limits) = (environment::process(), service.bounds());
    let valid = hello.is_some();
    let shared = Arc::new(Shared::new(Session::new(registry, hello, u64::from(process))));
    fork::watch(&shared);
    let mut io_thread = None;
    if valid {
        match IoThread::start(Arc::clone(&shared), service.socket_path(), service.at_thread_start) {
            Ok(started) => io_thread = Some(started),
            Err(error) => shared.lock().registry.problems.note(Cause::Thread(error.to_string())),
        }
    }
    let span_ring = OnceLock::new();
    Client(Arc::new(Inner { service: service.name, instance, process, limits, shared, span_ring, io_thread }))
}

impl Client {
    /// Starts registering a counter: a value that only grows, such as requests, errors or bytes. The detector (LMAP)
    /// judges its increments.
    pub fn counter(&self, name: &str) -> Registration<'_, Counter> {
        Registration::new(self, name, Kind::Counter)
    }

    /// Starts registering a counter that many threads add to at once: each adds to a word of its own, as far as there
    /// are words, and the agent sums them. It takes up to 1 KiB, as a histogram does, and costs a reader as much as
    /// that many counters: for the few that are added to millions of times a second. Agents that do not know such
    /// counters refuse them ([`Client::status`]).
    pub fn sharded_counter(&self, name: &str) -> Registration<'_, ShardedCounter> {
        Registration::new(self, name, Kind::Counter).shards(environment::shards())
    }

    /// Starts registering an up-down counter: a value that grows and falls in steps, such as requests in flight.
    pub fn up_down_counter(&self, name: &str) -> Registration<'_, UpDownCounter> {
        Registration::new(self, name, Kind::UpDownCounter)
    }

    /// Starts registering a gauge: a value that is measured elsewhere, such as a queue's depth.
    pub fn gauge(&self, name: &str) -> Registration<'_, Gauge> {
        Registration::new(self, name, Kind::Gauge)
    }

    /// Starts registering a histogram: durations or sizes. The detector (LMAP) judges count, mean and 99th percentile
    /// of each interval.
    pub fn histogram(&self, name: &str) -> Registration<'_, Histogram> {
        Registration::new(self, name, Kind::Histogram(Scale::DEFAULT))
    }

    /// Removes a series, for all handles to it: nobody reads values written through them afterwards. The same name and
    /// labels may be registered again; the new series starts at 0.
    ///
    /// Does nothing for a detached handle, for a handle of another client, for the series shared by
    /// label sets beyond the limit, and in a child after fork.
    pub fn remove<H: Handle>(&self, handle: H) {
        let binding = handle.to_binding();
        drop(handle);
        if self.0.is_forked() {
            return;
        }
        self.0.shared.lock().registry.remove(&binding);
        drop(binding);
        self.0.wake();
    }

    /// Announces that all values now are those of the next interval: required after each change for a service with
    /// [`changes_every`](crate::Service::changes_every). Takes a lock. Does nothing for other services, and in a child
    /// after fork.
    pub fn changed(&self) {
        if let (false, Some(session)) = (self.0.is_forked(), self.0.session()) {
            session.changed();
        }
    }

    /// Announces that all values now were measured at `time`, of a clock of the caller that never goes back: in place
    /// of [`changed`](Self::changed) for a service with [`fastest`](crate::Service::fastest). Takes a lock. Does
    /// nothing in a child after fork.
    pub fn sampled(&self, time: Duration) {
        if let (false, Some(session)) = (self.0.is_forked(), self.0.session()) {
            session.sampled(Nanos::from(time));
        }
    }

    /// Says what the values of `metric` are about at present, such as the client behind a share: an alarm that the
    /// metric explains says it, too. Of `text`, up to 160 characters are kept; an empty one is no subject. At most 16
    /// metrics of a service have one.
    ///
    /// For values that change once an interval: takes a lock, and allocates. Does nothing for an invalid name, for
    /// agents that do not know subjects, and in a child after fork.
    pub fn set_subject(&self, metric: &str, text: &str) {
        if let (false, Ok(metric), Some(mut session)) = (self.0.is_forked(), MetricName::new(metric), self.0.session())
            && session.subjects.set(Subject::new(metric, text))
        {
            drop(session);
            self.0.wake();
        }
    }

    /// What [`Client::set_subject`] said last of `metric`; `None` if it is no subject.
    #[must_use]
    pub fn subject(&self, metric: &str) -> Option<String> {
        self.0.session()?.subjects.get(metric)
    }

    /// Asks the agent to keep `trace`, whatever the tail-sampling policies decide. Of `reason`, up to 160 bytes are
    /// kept with the trace.
    ///
    /// The request reaches the agent within 50 ms; spans of the trace may come before or after it, from any service.
    /// Costs as much as recording a span; the first call creates the span ring.
    pub fn trigger(&self, trace: TraceId, reason: &str) {
        if let Some(ring) = self.span_ring() {
            ring.keep(trace, reason);
        }
    }

    /// Begins a span, which ends when it is dropped: for programs that do not use the crate `tracing`. It is within the
    /// span that this thread has entered last ([`Span::enter`]), if any. The first call creates the span ring.
    pub fn span(&self, name: &str) -> Span {
        Span::begin(self.span_ring(), name)
    }

    /// A layer that records `tracing` spans as traces: add it to a `tracing_subscriber::registry()`. Without shared
    /// memory it records nothing, and [`Client::status`] has the problem.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn span_layer(&self) -> crate::spans::SpanLayer {
        crate::spans::SpanLayer::new(self.span_ring())
    }

    /// The ring of this client's spans. The first call creates it; later ones take no lock.
    fn span_ring(&self) -> Option<Arc<SpanRing>> {
        self.0.span_ring.get().cloned().or_else(|| self.create_span_ring())
    }

    /// The ring that another thread has created meanwhile, or a new one.
    fn create_span_ring(&self) -> Option<Arc<SpanRing>> {
        let inner = &*self.0;
        let forked = inner.is_forked();
        let mut session = inner.session()?;
        if let Some(ring) = inner.span_ring.get() {
            return Some(Arc::clone(ring));
        }
        if forked {
            // The child has no connection to announce the ring on.
            session.registry.problems.note(Cause::Forked);
            return None;
        }
        let made = SpanRing::create(&inner.service, inner.limits.spans);
        match made {
            Ok(ring) => {
                session.rings.add(&ring);
                let ring = Arc::clone(inner.span_ring.get_or_init(|| ring));
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

    /// Connection, counts and problems at this moment. `Display` prints them for a log.
    #[must_use]
    pub fn status(&self) -> Status {
        let inner = &*self.0;
        let mut status = Status {
            service: inner.service.clone(),
            instance: inner.instance.clone(),
            connection: Connection::Off,
            connections: 0,
            protocol_errors: 0,
            series: 0,
            pending_release: 0,
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
        if inner.io_thread.is_some() && !status.forked {
            status.connection = connection(&session);
        }
        let registry = &session.registry;
        status.connections = session.link.connections();
        status.protocol_errors = session.link.protocol_errors();
        status.series = registry.series();
        status.pending_release = registry.pending_release();
        status.detached = registry.detached();
        (status.regions, status.region_bytes) = registry.regions();
        status.problems = registry.problems.kept().to_vec();
        status.more_problems = registry.problems.more();
        status
    }

    /// Bounds of what it registers.
    #[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
    pub(crate) fn limits(&self) -> Limits {
        self.0.limits
    }

    /// The client, without keeping its connection.
    #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.0))
    }

    /// Adds a problem to the status.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn note(&self, cause: Cause) {
        if let Some(mut session) = self.0.session() {
            session.registry.problems.note(cause);
        }
    }

    /// Slots for the metric, or a detached binding and its cause if it cannot be registered.
    pub(crate) fn bind(&self, spec: &MetricSpec) -> (Binding, Option<Cause>) {
        let inner = &*self.0;
        let forked = inner.is_forked();
        let Some(mut session) = inner.session() else {
            return (Binding { run: SlotRun::detached(spec.slots()), series: None }, Some(Cause::Forked));
        };
        let binding = session.registry.bind(spec, forked);
        drop(session);
        if !forked {
            inner.wake();
        }
        binding
    }
}

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
impl WeakClient {
    /// The client, unless its last clone was dropped.
    pub(crate) fn upgrade(&self) -> Option<Client> {
        self.0.upgrade().map(Client)
    }
}

impl Inner {
    fn is_forked(&self) -> bool {
        self.process != environment::process()
    }

    /// The shared session; `None` in a child that was forked in spite of a lock that was held ([`fork::watch`]).
    fn session(&self) -> Option<MutexGuard<'_, Session>> {
        if self.is_forked() { self.shared.try_lock() } else { Some(self.shared.lock()) }
    }

    /// Wakes the I/O thread, which sends what has changed.
    fn wake(&self) {
        if let Some(io_thread) = &self.io_thread {
            io_thread.wake();
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
#[cfg(not(miri))] // Needs memfd, which Miri does not have.
mod tests {
    use super::*;

    /// What a child inherits: the same memory under another process id.
    fn child(of: &Client) -> Client {
        let parent = &*of.0;
        Client(Arc::new(Inner {
            service: parent.service.clone(),
            instance: parent.instance.clone(),
            process: parent.process + 1,
            limits: parent.limits,
            shared: Arc::clone(&parent.shared),
            span_ring: parent.span_ring.clone(),
            io_thread: None,
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
    fn a_ring_that_is_there_is_reached_without_the_lock_also_by_a_child() {
        let client = connect(Service::new("payment").socket("/nonexistent/services.sock"));
        assert!(client.span("first").is_recorded());
        let child = child(&client);

        let held = client.0.shared.lock();

        assert!(client.span("charge").is_recorded());
        assert!(child.span("charge").is_recorded());
        drop(held);
    }

    #[test]
    fn a_child_without_a_ring_creates_none_and_says_so() {
        let client = connect(Service::new("payment").socket("/nonexistent/services.sock"));
        let child = child(&client);

        // The I/O thread, or another test that forks, may hold the lock just now: then nothing is noted.
        let is_noted = (0..1000).any(|_| {
            assert!(!child.span("charge").is_recorded());
            client.status().problems.iter().any(|problem| problem.cause == Cause::Forked)
        });

        assert!(is_noted);
        assert!(client.span("charge").is_recorded(), "the parent creates its own");
    }

    #[test]
    fn threads_that_begin_their_first_spans_at_once_share_a_ring() {
        let client = connect(Service::new("payment").socket("/nonexistent/services.sock"));

        let rings = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| client.span_ring())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect::<Vec<_>>()
        });

        assert!(rings.iter().all(|ring| Arc::ptr_eq(ring, &rings[0])));
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
