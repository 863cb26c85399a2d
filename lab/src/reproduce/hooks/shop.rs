//! A shop in virtual time: the demo's five services or chapter 4's eleven, open-loop arrivals, one worker and a queue
//! in each service, and a call timeout of one second. The random numbers of a request depend on its number only, so
//! that the same request can be compared with and without a fault.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::faults::{Fault, Kind, PlannedFault};

/// Nanoseconds in a millisecond.
pub const MILLI: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Network delay between two services.
const HOP: u64 = MILLI / 5;
/// Timeout of a call, as in the demo.
const PATIENCE: u64 = SECOND;
/// Share of requests that fail without a fault.
const FAILING: f64 = 0.001;
/// Requests per second on average, without bursts.
const RATE: f64 = 100.0;
/// Standard deviations of the logarithms of work and of waiting.
const SPREAD: f64 = 0.4;
/// Median wait per request in addition to work (disk, lock), during which the worker is free.
const WAIT: f64 = 1.5e6;

/// One service of the shop, by its place in [`Scene::services`].
pub type Service = usize;

/// One call of a request, which is a span.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub service: Service,
    pub operation: &'static str,
    /// Index of its caller in the route; the first is its own caller.
    pub parent: usize,
    /// Median work in milliseconds.
    work: f64,
}

pub const fn node(service: Service, operation: &'static str, parent: usize, work: f64) -> Node {
    Node { service, operation, parent, work }
}

/// A kind of request: its percentage, and its calls, callers before callees. Each caller makes its calls one after the
/// other.
pub type Route = (f64, &'static [Node]);

/// The services, the kinds of requests, and the faults.
#[derive(Debug)]
pub struct Scene {
    /// Names of the services as in their spans; requests go to the first.
    pub services: &'static [&'static str],
    pub routes: &'static [Route],
    pub plan: &'static [PlannedFault],
}

impl Scene {
    /// Spans of the longest route.
    fn longest(&self) -> usize {
        self.routes.iter().map(|route| route.1.len()).max().unwrap_or(0)
    }
}

/// The largest number of spans in a route.
const NODES: usize = 9;

/// A hash of `number` (SplitMix64).
pub const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A random number from `number`, uniform in \[0, 1).
pub fn uniform(number: u64) -> f64 {
    (mix(number) >> 11) as f64 / (1_u64 << 53) as f64
}

fn normal(number: u64) -> f64 {
    let (a, b) = (1.0 - uniform(number), uniform(number ^ 0x5555_0000_5555_0000));
    (-2.0 * a.ln()).sqrt() * (core::f64::consts::TAU * b).cos()
}

/// The span of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Start in nanoseconds since the beginning.
    pub start: u64,
    /// End in nanoseconds since the beginning; 0 if it never ended, or was never called.
    pub end: u64,
    pub error: bool,
}

/// One request with its spans.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Index of its kind in [`Scene::routes`].
    pub route: usize,
    nodes: &'static [Node],
    /// Time of its arrival.
    pub at: u64,
    /// Spans in the order of the route's nodes.
    pub spans: [Span; NODES],
    /// Bits of callees whose callers have timed out.
    abandoned: u16,
}

impl Request {
    pub const fn nodes(&self) -> &'static [Node] {
        self.nodes
    }

    /// Nodes and spans that have ended.
    pub fn ended(&self) -> impl Iterator<Item = (usize, &'static Node, &Span)> {
        let all = self.nodes().iter().zip(&self.spans).enumerate();
        all.filter(|(_, (_, span))| span.end > 0).map(|(at, (node, span))| (at, node, span))
    }

    /// Response time in nanoseconds.
    pub const fn took(&self) -> u64 {
        self.spans[0].end - self.spans[0].start
    }

    pub const fn failed(&self) -> bool {
        self.spans[0].error
    }

    /// Whether any of its calls failed, also one whose caller did not wait for it.
    pub fn has_error(&self) -> bool {
        self.ended().any(|(_, _, span)| span.error)
    }
}

/// Events of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request arrives at a node.
    Arrives,
    Worked,
    Waited,
    /// A callee has responded, or the call has timed out.
    Answered {
        callee: usize,
        error: bool,
    },
    /// A service continues after a hang; `node` is the service.
    Resumes,
}

/// All requests until `end`: their rate is a wave of 40 s with bursts and a drift, as in the demo.
fn visits(scene: &Scene, seed: u64, end: u64) -> Vec<Request> {
    let mut drawn = mix(seed ^ 0x7669_7369_7473);
    let mut draw = || {
        drawn = mix(drawn);
        drawn
    };
    let (mut at, mut drift, phase) = (0.0, 0.0, core::f64::consts::TAU * uniform(draw()));
    let mut burst = (5.0, 6.0);
    let mut visits = Vec::new();
    loop {
        let wave = 1.0 + 0.12 * (core::f64::consts::TAU * at / 40.0 + phase).sin();
        let rate = RATE * wave * f64::exp(0.06 * drift) * if burst.0 <= at { 1.5 } else { 1.0 };
        let gap = -(1.0 - uniform(draw())).ln() / rate;
        at += gap;
        let kept = f64::exp(-gap / 6.0);
        drift = drift * kept + (1.0 - kept * kept).sqrt() * normal(draw());
        if burst.1 <= at {
            let start = at + 2.5 + 5.5 * uniform(draw());
            burst = (start, start + 0.3 + 0.9 * uniform(draw()));
        }
        let now = (at * SECOND as f64) as u64;
        if now >= end {
            return visits;
        }
        let mut lot = 100.0 * uniform(draw());
        let route = scene.routes.iter().position(|(share, _)| {
            lot -= share;
            lot < 0.0
        });
        let route = route.unwrap_or(0);
        let nodes = scene.routes[route].1;
        visits.push(Request { route, nodes, at: now, spans: Default::default(), abandoned: 0 });
    }
}

/// State of one service: its queue and its current work.
#[derive(Debug, Default)]
struct ServiceState {
    works: bool,
    queue: VecDeque<(usize, usize)>,
}

/// An event with its time, sequence number, request and node.
type ScheduledEvent = (u64, u64, usize, usize, Event);

struct Shop<'a> {
    seed: u64,
    faults: &'a [Fault],
    requests: Vec<Request>,
    desks: Vec<ServiceState>,
    /// Spans of the longest route.
    longest: usize,
    events: BinaryHeap<Reverse<ScheduledEvent>>,
    order: u64,
}

/// Simulates all requests that arrive within `length` nanoseconds, with `faults`.
pub fn run(scene: &Scene, seed: u64, length: u64, faults: &[Fault]) -> Vec<Request> {
    let requests = visits(scene, seed, length);
    let desks = scene.services.iter().map(|_| ServiceState::default()).collect();
    let longest = scene.longest();
    let mut shop = Shop { seed, faults, requests, desks, longest, events: BinaryHeap::new(), order: 0 };
    for request in 0..shop.requests.len() {
        shop.at(shop.requests[request].at, request, 0, Event::Arrives);
    }
    for fault in faults.iter().filter(|fault| fault.kind == Kind::Hang) {
        shop.at(fault.end, 0, fault.service, Event::Resumes);
    }
    while let Some(Reverse((now, _, request, node, event))) = shop.events.pop() {
        shop.happens(now, request, node, event);
    }
    shop.requests
}

impl Shop<'_> {
    fn at(&mut self, time: u64, request: usize, node: usize, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, request, node, event)));
    }

    /// A random number that depends on the request, the node and `what` only.
    fn lot(&self, request: usize, node: usize, what: u64) -> u64 {
        mix(self.seed ^ mix((request * self.longest + node) as u64) ^ what << 56)
    }

    fn happens(&mut self, now: u64, request: usize, place: usize, event: Event) {
        if event == Event::Resumes {
            return self.work(now, place);
        }
        let node = self.requests[request].nodes()[place];
        if let Some(until) = self.hangs(node.service, now) {
            return self.at(until, request, place, event);
        }
        match event {
            Event::Arrives => {
                self.requests[request].spans[place].start = now;
                self.desks[node.service].queue.push_back((request, place));
                self.work(now, node.service);
            }
            Event::Worked => {
                self.desks[node.service].works = false;
                self.work(now, node.service);
                self.worked(now, request, place);
            }
            Event::Waited => self.ask_next(now, request, place, 0),
            Event::Answered { callee, error } => {
                let request_now = &mut self.requests[request];
                if request_now.spans[place].end > 0 || request_now.abandoned >> callee & 1 == 1 {
                    return;
                }
                request_now.abandoned |= 1 << callee;
                if error { self.end(now, request, place, true) } else { self.ask_next(now, request, place, callee) }
            }
            Event::Resumes => {}
        }
    }

    /// The end of a hang of `service`, if it is stopped at `now`.
    fn hangs(&self, service: Service, now: u64) -> Option<u64> {
        let hangs = self.faults.iter().find(|fault| fault.kind == Kind::Hang && fault.is_on(service, "", now));
        hangs.map(|fault| fault.end)
    }

    /// Starts the next queued request if the worker is free.
    fn work(&mut self, now: u64, service: Service) {
        if self.desks[service].works || self.hangs(service, now).is_some() {
            return;
        }
        let Some((request, place)) = self.desks[service].queue.pop_front() else { return };
        self.desks[service].works = true;
        let node = self.requests[request].nodes()[place];
        let slower: f64 = self.faults.iter().map(|fault| fault.slower(service, node.operation, now)).product();
        let work = node.work * MILLI as f64 * f64::exp(SPREAD * normal(self.lot(request, place, 1))) * slower;
        self.at(now + work as u64, request, place, Event::Worked);
    }

    fn worked(&mut self, now: u64, request: usize, place: usize) {
        let Node { service, operation, .. } = self.requests[request].nodes()[place];
        let failing = self.faults.iter().map(|fault| fault.failing(service, operation, now)).fold(0.0, f64::max);
        let usual = if place == 0 { 0.0 } else { FAILING };
        // The same random number for both, so that a request that fails without a fault also fails with it.
        if uniform(self.lot(request, place, 2)) < f64::max(failing, usual) {
            return self.end(now, request, place, true);
        }
        let later: u64 = self.faults.iter().map(|fault| fault.later(service, operation, now)).sum();
        let wait = WAIT * f64::exp(SPREAD * normal(self.lot(request, place, 3)));
        self.at(now + wait as u64 + later, request, place, Event::Waited);
    }

    /// Calls the next callee after `last` (0: the first one), or responds.
    fn ask_next(&mut self, now: u64, request: usize, place: usize, last: usize) {
        let nodes = self.requests[request].nodes();
        let next = (last.max(place) + 1..nodes.len()).find(|callee| nodes[*callee].parent == place);
        match next {
            None => self.end(now, request, place, false),
            Some(callee) => {
                self.at(now + HOP, request, callee, Event::Arrives);
                self.at(now + PATIENCE, request, place, Event::Answered { callee, error: true });
            }
        }
    }

    fn end(&mut self, now: u64, request: usize, place: usize, error: bool) {
        let parent = self.requests[request].nodes()[place].parent;
        let span = &mut self.requests[request].spans[place];
        (span.end, span.error) = (now, error);
        if place > 0 {
            self.at(now + HOP, request, parent, Event::Answered { callee: place, error });
        }
    }
}
