//! One seed: the shop with and without its faults, the agents, and what each policy keeps.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use hooks::otlp::scan;
use hooks::time::UnixNanos;
use hooks::tracing::{BudgetRule, Limits, OrderKey, Randomness, Switches, Threshold, TraceId};
use otlp::{Moment, Tail, TailSettings};
use wire::time::Nanos;

use super::agents::Agents;
use super::faults::{self, EVERY, Fault};
use super::sdk::{self, NOON};
use super::shop::{self, MILLI, Request, SECOND, Scene};

/// The endpoint's own tick.
const TICK: u64 = 100 * MILLI;
/// Spans of all operations have come by then.
const BEGIN: u64 = 20 * SECOND;
/// What happens so long before a fault is told of it, not of the one before.
const BEFORE: u64 = 20 * SECOND;
/// After the last request, until everything is decided.
const AFTER: u64 = 90 * SECOND;

/// What is played, and how the agents are run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub scene: &'static Scene,
    /// The local scraping interval, in nanoseconds.
    pub interval: u64,
    /// Healthy traffic before what is measured, in nanoseconds.
    pub healthy: u64,
}

/// What keeps traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// So many of a thousand, whatever they are.
    Head(u16),
    /// Head sampling with the bytes of [`Policy::All`].
    HeadAtOurs,
    /// By operation and second, from the truth: every trace that lasted in a second in which something that it asks for was faulty.
    Oracle,
    /// Errors, and entry spans above the operation's learnt 99th percentile.
    Plain,
    /// The LMAPs' triggers alone.
    Lmap,
    /// The defaults: a floor of 1 %, errors, latency, LMAPs.
    All,
}

pub const POLICIES: [Policy; 8] = [
    Policy::Head(10),
    Policy::Head(50),
    Policy::Head(200),
    Policy::HeadAtOurs,
    Policy::Oracle,
    Policy::Plain,
    Policy::Lmap,
    Policy::All,
];

/// Shares of what was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// Of the requests that a fault hit.
    pub covered: f64,
    /// Of all traces.
    pub kept: f64,
    /// Of all bytes.
    pub bytes: f64,
    /// Of the kept traces: those that a fault hit.
    pub precision: f64,
    /// Of all traces: kept, and not hit.
    pub beyond: f64,
    /// Of slow and failed requests that no fault touched.
    pub tail: f64,
}

/// What one fault did, and what LMAPs made of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfFault {
    pub hit: f64,
    /// Of the hit ones, the share that an LMAP's trigger kept, and a plain policy.
    pub lmap: f64,
    pub plain: f64,
    /// Traces that the trigger kept beside them, in seconds' worth of traffic: ended before the fault, during it, began after it.
    pub beyond: [f64; 3],
}

/// One seed.
#[derive(Debug)]
pub struct Outcome {
    pub shares: BTreeMap<Policy, Shares>,
    /// In the order of [`Scene::plan`].
    pub faults: Vec<OfFault>,
    /// Traces, hit requests and the quiet tail.
    pub counts: [usize; 3],
    /// Traces kept by all together of which spans are missing.
    pub partial: usize,
    /// Traces that the trigger kept while no fault was near, as a share of all.
    pub false_share: f64,
}

/// What is true of one trace.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    measured: bool,
    hit: bool,
    /// Slow or failed, and not because of a fault.
    quiet: bool,
    /// In the order of [`Scene::plan`]: the fault that is nearest, and when the trace was beside it: before, during, after.
    fault: Option<(usize, usize)>,
}

/// What one tail kept: bytes as they go on, and spans, of each trace.
struct Sink {
    tail: Tail,
    kept: Vec<(u32, u16)>,
}

impl Sink {
    fn new(switches: Switches, seed: u64, traces: usize, now: Moment) -> Result<Self> {
        let settings = TailSettings {
            limits: Limits::default(),
            key: OrderKey::new(u128::from(seed) << 64 | 7),
            switches,
            budget: BudgetRule::default(),
            frontends: Vec::new(),
            node: "shop".to_owned(),
        };
        Ok(Self { tail: Tail::new(&settings, now)?, kept: vec![(0, 0); traces] })
    }

    fn tick(&mut self, now: Moment) -> Result<()> {
        self.tail.tick(now);
        for batch in self.tail.kept() {
            let kept = &mut self.kept;
            scan(&batch.request, |_, span| {
                if let Ok(span) = span
                    && let Some(kept) = kept.get_mut(sdk::number_of(span.trace.bytes()))
                {
                    *kept = (kept.0 + span.encoded.len() as u32, kept.1 + 1);
                }
            })?;
        }
        Ok(())
    }
}

const NONE: Switches = Switches { floor: None, error: false, lmap: false, latency: false, code: false };

fn moment(at: u64) -> Moment {
    Moment { own: Nanos(at), day: UnixNanos(NOON + at) }
}

/// Runs one seed.
pub fn run(seed: u64, setting: Setting) -> Result<Outcome> {
    let scene = setting.scene;
    let length = setting.healthy + scene.plan.len() as u64 * EVERY * SECOND;
    let faults = faults::plan(scene, seed, setting.healthy);
    let requests = shop::run(scene, seed, length, &faults);
    let healthy = shop::run(scene, seed, length, &[]);
    let truths = truths(&requests, &healthy, &faults, setting);
    drop(healthy);

    let sink = |switches| Sink::new(switches, seed, requests.len(), moment(0));
    let (plain, lmap) = (Switches { error: true, latency: true, ..NONE }, Switches { lmap: true, ..NONE });
    let mut sinks = [sink(plain)?, sink(lmap)?, sink(Switches::default())?];
    let phase = shop::mix(seed ^ 0xFA5E) % (setting.interval / TICK) * TICK + TICK / 2;
    let mut agents = Agents::new(seed, Nanos(setting.interval), Nanos(phase), moment(0));
    let mut bytes = vec![0_u32; requests.len()];
    let mut batches = sdk::batches(scene, seed, &requests, &faults).into_iter().peekable();
    for tick in 0..(length + AFTER) / TICK {
        let now = tick * TICK;
        while let Some(batch) = batches.next_if(|batch| batch.at <= now) {
            let came = batch.encode(scene, seed, &requests);
            scan(&came, |_, span| {
                if let Ok(span) = span {
                    bytes[sdk::number_of(span.trace.bytes())] += span.encoded.len() as u32;
                }
            })?;
            agents.spans(&came, moment(batch.at))?;
            for sink in &mut sinks {
                let found = sink.tail.take(&came, moment(batch.at))?;
                ensure!(found.malformed == 0, "the shop's spans cannot be read");
            }
        }
        if now == BEGIN {
            agents.begin(moment(now))?;
        }
        if now >= BEGIN && now.is_multiple_of(setting.interval) {
            agents.write(moment(now))?;
        }
        if now >= BEGIN && now % setting.interval == phase - TICK / 2 {
            let look = moment(now + TICK / 2);
            agents.look(look, |finding| sinks.iter_mut().for_each(|sink| sink.tail.verdict(finding.clone(), look)));
        }
        for sink in &mut sinks {
            sink.tick(moment(now + TICK - 1))?;
        }
        if now == setting.healthy {
            ensure!(
                agents.armed() == scene.services.len(),
                "{} LMAPs are armed before the first fault",
                agents.armed()
            );
        }
    }
    Ok(outcome(seed, &Seen { requests: &requests, truths: &truths, bytes: &bytes, sinks: &sinks }, setting))
}

/// Hit: changed by a fault, and in error or above the healthy 99th percentile of its operation.
fn truths(requests: &[Request], healthy: &[Request], faults: &[Fault], setting: Setting) -> Vec<Truth> {
    let mut took: Vec<Vec<u64>> = vec![Vec::new(); setting.scene.routes.len()];
    for request in healthy.iter().filter(|request| request.at >= setting.healthy) {
        took[request.route].push(request.took());
    }
    let usual: Vec<u64> = took
        .into_iter()
        .map(|mut took| {
            took.sort_unstable();
            took.get(took.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(u64::MAX)
        })
        .collect();
    let truth = |(request, healthy): (&Request, &Request)| {
        let bad = |request: &Request| request.failed() || request.took() > usual[request.route];
        // Slower by a tenth and more than it would have been: a queue that is one request longer is no fault's doing.
        let changed = request.failed() && !healthy.failed() || request.took() > healthy.took() + healthy.took() / 10;
        let hit = changed && bad(request);
        let fault = faults.iter().rev().find(|fault| fault.start <= request.spans[0].end + BEFORE);
        let fault = fault.and_then(|fault| {
            let when = if request.spans[0].end < fault.start { 0 } else { 1 + usize::from(request.at >= fault.end) };
            Some((setting.scene.plan.iter().position(|planned| planned.0 == fault.name)?, when))
        });
        Truth { measured: request.at >= setting.healthy, hit, quiet: bad(request) && !hit, fault }
    };
    requests.iter().zip(healthy).map(truth).collect()
}

/// All that is known at the end.
struct Seen<'a> {
    requests: &'a [Request],
    truths: &'a [Truth],
    bytes: &'a [u32],
    /// Plain, LMAP, all.
    sinks: &'a [Sink; 3],
}

impl Seen<'_> {
    fn measured(&self) -> impl Iterator<Item = (usize, &Truth)> {
        self.truths.iter().enumerate().filter(|(_, truth)| truth.measured)
    }

    /// Whether all spans of a trace were kept.
    fn whole(&self, sink: &Sink, at: usize) -> bool {
        sink.kept[at].1 > 0 && usize::from(sink.kept[at].1) == self.requests[at].ended().count()
    }

    /// Of a policy that keeps the traces that `kept` says, with so many bytes. Only whole traces cover.
    fn shares(&self, kept: impl Fn(usize) -> (u32, bool)) -> Shares {
        let (mut hit, mut covered, mut quiet, mut tail) = (0.0, 0.0, 0.0, 0.0);
        let (mut all, mut any, mut all_bytes, mut kept_bytes, mut beyond) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (at, truth) in self.measured() {
            let (bytes, whole) = kept(at);
            all += 1.0;
            all_bytes += f64::from(self.bytes[at]);
            kept_bytes += f64::from(bytes);
            any += f64::from(u8::from(bytes > 0));
            beyond += f64::from(u8::from(bytes > 0 && !truth.hit));
            hit += f64::from(u8::from(truth.hit));
            covered += f64::from(u8::from(truth.hit && whole));
            quiet += f64::from(u8::from(truth.quiet));
            tail += f64::from(u8::from(truth.quiet && whole));
        }
        Shares {
            covered: covered / hit,
            kept: any / all,
            bytes: kept_bytes / all_bytes,
            precision: if any > 0.0 { (any - beyond) / any } else { 0.0 },
            beyond: beyond / all,
            tail: tail / quiet,
        }
    }

    fn of_sink(&self, sink: &Sink) -> Shares {
        self.shares(|at| (sink.kept[at].0, self.whole(sink, at)))
    }

    fn of_oracle(&self, faults: &[Fault]) -> Shares {
        self.shares(|at| {
            let request = &self.requests[at];
            let (from, to) = (request.at / SECOND, request.spans[0].end / SECOND);
            let seconds = |fault: &Fault| fault.start / SECOND <= to && from <= (fault.end - 1) / SECOND;
            let asks = |fault: &Fault| request.nodes().iter().any(|node| fault.is_of(node.service, node.operation));
            let kept = faults.iter().any(|fault| seconds(fault) && asks(fault));
            (if kept { self.bytes[at] } else { 0 }, kept)
        })
    }

    /// Of head sampling: what every SDK would have decided by the trace's id.
    fn of_head(&self, seed: u64, share: f64) -> Shares {
        let threshold = Threshold::keeping(share).unwrap_or(Threshold::ALL);
        self.shares(|at| {
            let trace = TraceId::new(sdk::trace_of(seed, at));
            let sampled = trace.is_some_and(|trace| threshold.keeps(Randomness::of(trace)));
            (if sampled { self.bytes[at] } else { 0 }, sampled)
        })
    }
}

fn outcome(seed: u64, seen: &Seen<'_>, setting: Setting) -> Outcome {
    let [plain, lmap, all] = seen.sinks;
    let together = seen.of_sink(all);
    let faults = faults::plan(setting.scene, seed, setting.healthy);
    let of = |policy| match policy {
        Policy::Head(permille) => seen.of_head(seed, f64::from(permille) / 1000.0),
        Policy::HeadAtOurs => seen.of_head(seed, together.bytes),
        Policy::Oracle => seen.of_oracle(&faults),
        Policy::Plain => seen.of_sink(plain),
        Policy::Lmap => seen.of_sink(lmap),
        Policy::All => together,
    };
    let shares = POLICIES.into_iter().map(|policy| (policy, of(policy))).collect();
    let count = |what: fn(&Truth) -> bool| seen.measured().filter(|(_, truth)| what(truth)).count();
    let counts = [count(|_| true), count(|truth| truth.hit), count(|truth| truth.quiet)];
    let seconds = (setting.scene.plan.len() as u64 * EVERY) as f64;
    let of_fault = |place: usize| {
        let (mut of, mut per_second) = (OfFault::default(), counts[0] as f64 / seconds);
        per_second = per_second.max(1.0);
        for (at, truth) in seen.measured() {
            let Some((_, when)) = truth.fault.filter(|(fault, _)| *fault == place) else { continue };
            of.hit += f64::from(u8::from(truth.hit));
            of.lmap += f64::from(u8::from(truth.hit && seen.whole(lmap, at)));
            of.plain += f64::from(u8::from(truth.hit && seen.whole(plain, at)));
            of.beyond[when] += f64::from(u8::from(!truth.hit && lmap.kept[at].1 > 0)) / per_second;
        }
        let hit = of.hit.max(1.0);
        OfFault { lmap: of.lmap / hit, plain: of.plain / hit, ..of }
    };
    let near = |request: &Request| {
        let window = |fault: &Fault| fault.start.saturating_sub(5 * SECOND)..fault.end + 20 * SECOND;
        faults.iter().any(|fault| window(fault).contains(&request.at))
    };
    let idle = |(at, _): &(usize, &Truth)| lmap.kept[*at].1 > 0 && !near(&seen.requests[*at]);
    let partial = |(at, _): &(usize, &Truth)| all.kept[*at].1 > 0 && !seen.whole(all, *at);
    Outcome {
        shares,
        faults: (0..setting.scene.plan.len()).map(of_fault).collect(),
        counts,
        partial: seen.measured().filter(partial).count(),
        false_share: seen.measured().filter(idle).count() as f64 / counts[0].max(1) as f64,
    }
}
