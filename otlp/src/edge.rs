//! What servers, senders and the clock share.

use core::net::IpAddr;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hooks::otlp::WireError;
use hooks::time::UnixNanos;
use tokio::sync::Semaphore;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::counts::{Count, Counts, Lost, Refused};
use crate::derived::Derived;
use crate::json;
use crate::observer;
use crate::passed::{Passed, Passing};
use crate::queue::{Parcel, Queue};
use crate::room::{Room, Share};
use crate::server::{Refusal, Taken};
use crate::settings::{Settings, StartError, TenantSettings};
use crate::signal::{Encoding, Signal};
use crate::tail::{Finding, Found, Moment, Tail};
use crate::tenants::{DEFAULT, TenantId, Tenants};
use crate::upstream::Upstream;
use crate::walk::walk;

/// A request, as its client sent it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) tenant: TenantId,
    pub(crate) signal: Signal,
    pub(crate) encoding: Encoding,
    /// Unpacked.
    pub(crate) body: Bytes,
    /// What it says in headers that go on.
    pub(crate) passed: Passed,
}

/// The OTLP endpoint: takes requests, and passes them on or keeps traces of them.
#[derive(Debug)]
pub struct Edge {
    /// What happened to requests.
    pub counts: Counts,
    pub(crate) request_bytes: usize,
    /// Headers of clients that go on.
    pub(crate) passing: Passing,
    pub(crate) upstream: Upstream,
    tenants: Tenants,
    /// One for each of them.
    parts: Vec<Part>,
    /// Locked before a tail where both are.
    derived: Option<Mutex<Derived>>,
    /// Keeps nothing; where there is no tail that does.
    observer: Option<Mutex<Tail>>,
    redacted: Vec<String>,
    clock: Clock,
}

/// What a tenant has for itself, so that another's flood takes nothing of it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) room: Room,
    /// Connections that it may still open.
    pub(crate) free: Arc<Semaphore>,
    queues: [Queue; Signal::ALL.len()],
    tail: Option<Mutex<Tail>>,
    /// Requests in which it spoke in another's name.
    renamed: Count,
}

impl Part {
    fn new(settings: &Settings, tail: Option<Tail>) -> Self {
        Self {
            room: Room::new(settings.reading_bytes),
            free: Arc::new(Semaphore::new(settings.connections)),
            queues: core::array::from_fn(|_| Queue::new(settings.queue_bytes)),
            tail: tail.map(Mutex::new),
            renamed: Count::default(),
        }
    }

    fn tail(&self) -> Option<MutexGuard<'_, Tail>> {
        // Nothing in here panics; if something did, the state is still the best there is.
        self.tail.as_ref().map(|tail| tail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Edge {
    pub(crate) fn new(settings: &Settings) -> Result<Self, StartError> {
        let clock = Clock::start();
        let upstream = Upstream::new(&settings.upstream)?;
        let table: Vec<_> = settings.tenants.iter().map(|tenant| tenant.who.clone()).collect();
        let tenants = Tenants::new(&table)?;
        let part = |own: Option<&TenantSettings>| {
            let tail = settings.tail.as_ref().map(|tail| own.map_or_else(|| tail.clone(), |own| own.tail(tail)));
            let tail = tail.map(|tail| Tail::new(&tail, clock.moment())).transpose()?;
            Ok(Part::new(settings, tail))
        };
        let parts = core::iter::once(None).chain(settings.tenants.iter().map(Some)).map(part);
        let parts = parts.collect::<Result<_, StartError>>()?;
        let observed = settings.observed.as_ref().filter(|_| settings.tail.is_none());
        let observer = observed.map(|frontends| observer::settings(frontends, rand::random()));
        let observer = observer.map(|tail| Tail::new(&tail, clock.moment())).transpose()?;
        Ok(Self {
            counts: Counts::default(),
            request_bytes: settings.request_bytes,
            passing: Passing::new(&settings.passed_headers).map_err(StartError::Passed)?,
            upstream,
            tenants,
            parts,
            observer: observer.map(Mutex::new),
            redacted: settings.redacted.clone(),
            derived: settings.derived.map(|derived| Mutex::new(Derived::new(derived, clock.moment()))),
            clock,
        })
    }

    /// An LMAP found its service out of the ordinary: requests through it are kept. Nothing where spans pass through.
    pub fn verdict(&self, finding: Finding<'_>) {
        let (tenant, service) = self.tenants.behind(finding.service);
        if let Some(mut observer) = self.observer().filter(|_| tenant == DEFAULT) {
            observer.verdict(Finding { service, ..finding.clone() }, self.clock.moment());
        }
        if let Some(mut tail) = self.tail(tenant) {
            let now = self.clock.moment();
            if service != finding.service {
                tail.verdict(Finding { service, ..finding.clone() }, now);
            }
            tail.verdict(finding, now);
        }
    }

    /// Looks at what waits of everyone who is in no table, and when; `None` where spans pass through.
    pub fn look<R>(&self, look: impl FnOnce(&Tail, Moment) -> R) -> Option<R> {
        self.look_at(DEFAULT, look)
    }

    /// Looks at what waits of the tenant of this number, and when; `None` where spans pass through, or there is no such tenant.
    pub fn look_at<R>(&self, tenant: TenantId, look: impl FnOnce(&Tail, Moment) -> R) -> Option<R> {
        self.tail(tenant).map(|tail| look(&tail, self.clock.moment()))
    }

    /// The tenants' numbers and names; `default` is the first.
    pub fn tenants(&self) -> impl Iterator<Item = (TenantId, &str)> {
        (0..self.tenants.count()).map(|tenant| (tenant, self.tenants.name(tenant)))
    }

    /// Requests in which a tenant spoke in the name of another's service, which was replaced.
    pub fn renamed(&self, tenant: TenantId) -> u64 {
        self.parts.get(tenant).map_or(0, |part| part.renamed.get())
    }

    /// Counts what is due of spans, and looks at it; `None` where nothing is derived. Spans wait meanwhile.
    pub fn count<R>(&self, look: impl FnOnce(&Derived) -> R) -> Option<R> {
        self.derived().map(|mut derived| {
            derived.advance(self.clock.moment());
            look(&derived)
        })
    }

    /// When requests ended that a row is about which was read at `at`, one `interval` after the row before: see [`Derived::ended`]. `None` where nothing
    /// is derived.
    pub fn ended(&self, at: UnixNanos, interval: Nanos) -> Option<(UnixNanos, UnixNanos)> {
        self.derived().map(|derived| derived.ended(at, interval))
    }

    /// Bytes of `signal` on their way to the upstream.
    pub fn queued_bytes(&self, signal: Signal) -> usize {
        self.parts.iter().map(|part| part.queues[signal as usize].bytes()).sum()
    }

    /// Bytes of requests that are being read.
    pub fn reading_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.room.taken()).sum()
    }

    /// Whose a peer is.
    pub(crate) fn tenant(&self, peer: IpAddr) -> TenantId {
        self.tenants.of(peer)
    }

    /// What `tenant` has for itself; everyone's if there is no such tenant.
    pub(crate) fn part(&self, tenant: TenantId) -> &Part {
        self.parts.get(tenant).unwrap_or(&self.parts[DEFAULT])
    }

    pub(crate) fn queue(&self, tenant: TenantId, signal: Signal) -> &Queue {
        &self.part(tenant).queues[signal as usize]
    }

    /// Every queue, by its tenant and signal.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (TenantId, Signal)> + use<> {
        (0..self.parts.len()).flat_map(|tenant| Signal::ALL.into_iter().map(move |signal| (tenant, signal)))
    }

    pub(crate) fn moment(&self) -> Moment {
        self.clock.moment()
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Takes a request.
    pub(crate) fn take(&self, asked: Asked, share: &mut Share<'_>) -> Result<Taken, Refusal> {
        let Asked { tenant, signal, encoding, body, passed } = asked;
        let (message, json) = match encoding {
            Encoding::Protobuf => (body, None),
            Encoding::Json => {
                // At worst two characters become eight bytes.
                share.grow(body.len().saturating_mul(4).min(self.request_bytes))?;
                (json::transcode(signal, &body, self.request_bytes)?.into(), Some(body))
            }
        };
        let (message, is_edited) = self.edit(tenant, signal, message, share)?;
        if signal == Signal::Traces
            && let (mut derived, Some(mut tail)) = (self.derived(), self.tail(tenant))
        {
            let derived_to = derived.as_deref_mut().map(|derived| (derived, self.watched(tenant)));
            let found =
                walk(&message, derived_to, Some((&mut tail, &passed)), self.clock.moment()).map_err(malformed)?;
            drop(derived);
            self.counts.of(signal).items.add(found.taken + found.malformed + found.crowded);
            self.send_kept(tenant, tail);
            return Ok(taken(found));
        }
        let items = hooks::otlp::count(&message).map_err(malformed)?;
        if message.is_empty() {
            return Ok(Taken::default());
        }
        let wanted = self.derived.is_some() || self.observer.is_some();
        let spans = (signal == Signal::Traces && wanted).then(|| message.clone());
        // What an upstream takes as it came is not changed on the way.
        let (encoding, body) = match json.filter(|_| self.upstream.takes_json() && !is_edited) {
            Some(json) => (Encoding::Json, json),
            None => (Encoding::Protobuf, message),
        };
        let parcel = Parcel { tenant, signal, encoding, body, passed, spans: 0, since: self.now() };
        let full = |_| Refusal::new(Refused::Busy, "the queue to the upstream is full");
        self.queue(tenant, signal).offer(parcel).map_err(full)?;
        self.counts.of(signal).items.add(items as u64);
        // Not before it was taken: what is refused comes again.
        if let Some(spans) = spans {
            let mut derived = self.derived();
            let mut observer = self.observer().filter(|_| tenant == DEFAULT);
            let derived_to = derived.as_deref_mut().map(|derived| (derived, self.watched(tenant)));
            let nothing = Passed::default();
            let observer = observer.as_deref_mut().map(|observer| (observer, &nothing));
            walk(&spans, derived_to, observer, self.clock.moment()).map_err(malformed)?;
        }
        Ok(Taken::default())
    }

    /// Masks what is to be masked, and takes away names that are another tenant's. Says whether anything is other than it came.
    fn edit(
        &self,
        tenant: TenantId,
        signal: Signal,
        message: Bytes,
        share: &mut Share<'_>,
    ) -> Result<(Bytes, bool), Refusal> {
        let (mut message, mut is_edited) = (message, false);
        if signal == Signal::Traces && !self.redacted.is_empty() {
            share.grow(message.len())?;
            if let Some(masked) = hooks::otlp::mask(&message, &self.redacted).map_err(malformed)? {
                (message, is_edited) = (masked.into(), true);
            }
        }
        if self.tenants.count() > 1 {
            share.grow(message.len())?;
            let name = |service: &str| self.tenants.renamed(tenant, service);
            if let Some(renamed) = hooks::otlp::rename(&message, &name).map_err(malformed)? {
                (message, is_edited) = (renamed.into(), true);
                self.part(tenant).renamed.add(1);
            }
        }
        Ok((message, is_edited))
    }

    /// By which name detectors know a service of `tenant`.
    pub(crate) fn watched(&self, tenant: TenantId) -> impl Fn(&str) -> Cow<'_, str> {
        // Its own copy: what is given back must not outlive what it was made from.
        move |service| Cow::Owned(self.tenants.watched(tenant, service).into_owned())
    }

    /// Ten times a second or so: what is wanted by now is sent on, what waited long enough is dropped.
    pub(crate) fn tick(&self) {
        if let Some(mut observer) = self.observer() {
            observer.tick(self.clock.moment());
        }
        for tenant in 0..self.parts.len() {
            if let Some(mut tail) = self.tail(tenant) {
                tail.tick(self.clock.moment());
                self.send_kept(tenant, tail);
            }
        }
    }

    /// A parcel will not be sent.
    pub(crate) fn lose(&self, parcel: &Parcel, why: Lost) {
        self.counts.of(parcel.signal).lost(why).add(1);
        self.counts.lost_spans.add(parcel.spans);
    }

    /// Queues what is kept, and says that it is. What finds no room is lost: its decision is made, and nobody would send it again.
    pub(crate) fn send_kept(&self, tenant: TenantId, mut tail: MutexGuard<'_, Tail>) {
        let (batches, requests) = (tail.kept(), tail.kept_requests());
        for batch in batches {
            let (signal, encoding) = (Signal::Traces, Encoding::Protobuf);
            let (body, spans, passed) = (batch.request.into(), batch.spans as u64, batch.passed);
            let parcel = Parcel { tenant, signal, encoding, body, passed, spans, since: self.now() };
            if let Err(parcel) = self.queue(tenant, signal).offer(parcel) {
                self.lose(&parcel, Lost::QueueFull);
            }
        }
        drop(tail);
        self.remember(tenant, &requests);
    }

    pub(crate) fn derived(&self) -> Option<MutexGuard<'_, Derived>> {
        self.derived.as_ref().map(|derived| derived.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn observer(&self) -> Option<MutexGuard<'_, Tail>> {
        self.observer.as_ref().map(|tail| tail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn tail(&self, tenant: TenantId) -> Option<MutexGuard<'_, Tail>> {
        self.parts.get(tenant).and_then(Part::tail)
    }
}

fn malformed(error: WireError) -> Refusal {
    Refusal::new(Refused::Malformed, error.to_string())
}

/// What a client is told of its spans.
fn taken(found: Found) -> Taken {
    let Found { malformed, crowded, .. } = found;
    let no_ids = (malformed > 0).then(|| format!("{malformed} spans have no valid trace id or span id"));
    let too_many = (crowded > 0).then(|| format!("{crowded} spans are of a new resource, of which there are too many"));
    let text: Vec<_> = no_ids.into_iter().chain(too_many).collect();
    Taken { rejected: malformed + crowded, text: text.join("; ") }
}
