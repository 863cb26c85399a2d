//! Runs one seed: the shop with and without its faults, the agents, and the traces kept by each policy.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use hooks::tracing::{BudgetRule, Limits, OrderKey, Randomness, Switches, Threshold, TraceId};
use otlp::codec::scan;
use otlp::{TailSampler, TailSettings, Timestamp};
use wire::time::{Nanos, UnixNanos};

use super::agents::Agents;
use super::faults::{self, EVERY, Fault};
use super::sdk::{self, NOON};
use super::shop::{self, MILLI, Request, SECOND, Scene};

/// Interval of the endpoint's tick.
const TICK: u64 = 100 * MILLI;
/// Time until spans of all operations have arrived.
const BEGIN: u64 = 20 * SECOND;
/// Traces so long before a fault are attributed to it, not to the previous one.
const BEFORE: u64 = 20 * SECOND;
/// Time after the last request until all decisions are made.
const AFTER: u64 = 90 * SECOND;

/// The simulated shop, and parameters of the agents.
#[derive(Clone, Copy, Debug)]
pub struct RunConfig {
    pub scene: &'static Scene,
    /// Scrape interval in nanoseconds.
    pub interval: u64,
    /// Healthy traffic before the measurement, in nanoseconds.
    pub healthy: u64,
}

/// The compared policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// Head sampling: so many of a thousand traces.
    Head(u16),
    /// Head sampling with the bytes of [`Policy::All`].
    HeadAtOurs,
    /// The oracle, from the ground truth by operation and second: every trace in flight in a second in which an
    /// operation of it was faulty.
    Oracle,
    /// The publication's oracle: every trace in flight while there was a fault.
    PublishedOracle,
    /// Plain: errors, and entry spans above the operation's learnt 99th percentile.
    Plain,
    /// The LMAPs' triggers alone.
    Lmap,
    /// The same, of traces that look as usual for their operation one in twenty only.
    Remarkable,
    /// The default policies: a floor of 1 %, errors, latency, LMAPs.
    All,
}

pub const POLICIES: [Policy; 10] = [
    Policy::Head(10),
    Policy::Head(50),
    Policy::Head(200),
    Policy::HeadAtOurs,
    Policy::PublishedOracle,
    Policy::Oracle,
    Policy::Plain,
    Policy::Lmap,
    Policy::Remarkable,
    Policy::All,
];

/// Results of one policy, as shares from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// Kept share of the symptomatic traces, by the publication's definition: its coverage.
    pub symptomatic: f64,
    /// Kept share of the other traces: the publication's overhead.
    pub overhead: f64,
    /// Kept share of the requests that a fault hit.
    pub covered: f64,
    /// Kept share of all traces.
    pub kept: f64,
    /// Kept share of all bytes.
    pub bytes: f64,
    /// Share of the kept traces that a fault hit.
    pub precision: f64,
    /// Share of all traces that were kept but not hit.
    pub beyond: f64,
    /// Kept share of the slow and failed requests that no fault affected.
    pub tail: f64,
}

/// Results for one fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultOutcome {
    pub hit: f64,
    /// Share of the hit requests kept by LMAP triggers, and by the plain policies.
    pub lmap: f64,
    pub plain: f64,
    /// Other traces kept by the trigger, in seconds of traffic: ended before the fault, during it, began after it.
    pub beyond: [f64; 3],
}

/// Results of one seed.
#[derive(Debug)]
pub struct Outcome {
    pub shares: BTreeMap<Policy, Shares>,
    /// Results of each fault, in the order of [`Scene::plan`].
    pub faults: Vec<FaultOutcome>,
    /// Numbers of traces, of hit requests, of slow or failed requests without a fault, and of symptomatic traces.
    pub counts: [usize; 4],
    /// Traces kept by the default policies with missing spans.
    pub partial: usize,
    /// Share of all traces that the trigger kept while there was no fault.
    pub false_share: f64,
}

/// What a trace is by our definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultEffect {
    /// Slow or failed because of a fault.
    Hit,
    /// Slow or failed without a fault.
    QuietTail,
    /// Neither slow nor failed.
    Unremarkable,
}

/// Ground truth of one trace.
#[derive(Clone, Copy, Debug)]
struct Truth {
    measured: bool,
    effect: FaultEffect,
    /// Whether it is symptomatic by the publication's definition, which does not ask for the cause.
    symptomatic: bool,
    /// The nearest fault, by its place in [`Scene::plan`], and whether the trace was before, during or after it.
    fault: Option<(usize, usize)>,
}

impl Truth {
    fn hit(&self) -> bool {
        self.effect == FaultEffect::Hit
    }

    fn quiet(&self) -> bool {
        self.effect == FaultEffect::QuietTail
    }
}

/// The output of one tail buffer: forwarded bytes and spans of each trace.
struct Sink {
    tail: TailSampler,
    kept: Vec<(u32, u16)>,
}

impl Sink {
    fn new(switches: Switches, seed: u64, traces: usize, now: Timestamp) -> Result<Self> {
        let settings = TailSettings {
            limits: Limits::default(),
            key: OrderKey::new(u128::from(seed) << 64 | 7),
            switches,
            budget: BudgetRule::default(),
            frontends: Vec::new(),
            node: "shop".to_owned(),
        };
        Ok(Self { tail: TailSampler::new(&settings, now)?, kept: vec![(0, 0); traces] })
    }

    fn tick(&mut self, now: Timestamp) -> Result<()> {
        self.tail.tick(now);
        for batch in self.tail.take_batches() {
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

const NONE: Switches =
    Switches { floor: None, error: false, lmap: false, unremarkable: None, latency: false, trigger: false };
/// Share that [`Policy::Remarkable`] keeps of what looks as usual.
const UNREMARKABLE: f64 = 0.05;

fn timestamp(at: u64) -> Timestamp {
    Timestamp { monotonic: Nanos(at), wall: UnixNanos(NOON + at) }
}

/// Runs one seed with this configuration.
pub fn run(seed: u64, setting: RunConfig) -> Result<Outcome> {
    let scene = setting.scene;
    let length = setting.healthy + scene.plan.len() as u64 * EVERY * SECOND;
    let faults = faults::plan(scene, seed, setting.healthy);
    let requests = shop::run(scene, seed, length, &faults);
    let healthy = shop::run(scene, seed, length, &[]);
    let truths = truths(&requests, &healthy, &faults, setting);
    drop(healthy);

    let sink = |switches| Sink::new(switches, seed, requests.len(), timestamp(0)).map(Box::new);
    let (default, plain) = (Switches::default(), Switches { error: true, latency: true, ..NONE });
    let lmap = Switches { lmap: true, unremarkable: default.unremarkable, ..NONE };
    let remarkable = Switches { unremarkable: Some(Threshold::keeping(UNREMARKABLE)?), ..lmap };
    let mut sinks = [sink(plain)?, sink(lmap)?, sink(remarkable)?, sink(default)?];
    let phase = shop::mix(seed ^ 0xFA5E) % (setting.interval / TICK) * TICK + TICK / 2;
    let mut agents = Agents::new(seed, Nanos(setting.interval), Nanos(phase), timestamp(0));
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
            agents.spans(&came, timestamp(batch.at))?;
            for sink in &mut sinks {
                let found = sink.tail.ingest(&came, timestamp(batch.at))?;
                ensure!(found.malformed == 0, "the shop's spans cannot be read");
            }
        }
        if now == BEGIN {
            agents.begin(timestamp(now))?;
        }
        if now >= BEGIN && now.is_multiple_of(setting.interval) {
            agents.write(timestamp(now))?;
        }
        if now >= BEGIN && now % setting.interval == phase - TICK / 2 {
            let look = timestamp(now + TICK / 2);
            agents.look(look, |finding| sinks.iter_mut().for_each(|sink| sink.tail.verdict(finding.clone(), look)));
        }
        for sink in &mut sinks {
            sink.tick(timestamp(now + TICK - 1))?;
        }
        if now == setting.healthy {
            ensure!(
                agents.armed() == scene.services.len(),
                "{} LMAPs are armed before the first fault",
                agents.armed()
            );
        }
    }
    Ok(outcome(seed, &RunResults { requests: &requests, truths: &truths, bytes: &bytes, sinks: &sinks }, setting))
}

/// Hit: changed by a fault, and in error or above the healthy 99th percentile of its operation. Symptomatic, as
/// published: an error in any call, or above the 99th percentile of its operation before the first fault.
fn truths(requests: &[Request], healthy: &[Request], faults: &[Fault], setting: RunConfig) -> Vec<Truth> {
    let usual = percentiles(setting.scene, healthy.iter().filter(|request| request.at >= setting.healthy));
    let before = percentiles(setting.scene, requests.iter().filter(|request| request.at < setting.healthy));
    let truth = |(request, healthy): (&Request, &Request)| {
        let bad = |request: &Request| request.failed() || request.took() > usual[request.route];
        // At least a tenth slower than without faults: a queue longer by one request is no effect of a fault.
        let changed = request.failed() && !healthy.failed() || request.took() > healthy.took() + healthy.took() / 10;
        let effect = match (bad(request), changed) {
            (true, true) => FaultEffect::Hit,
            (true, false) => FaultEffect::QuietTail,
            (false, _) => FaultEffect::Unremarkable,
        };
        let fault = faults.iter().rev().find(|fault| fault.start <= request.spans[0].end + BEFORE);
        let fault = fault.and_then(|fault| {
            let when = if request.spans[0].end < fault.start { 0 } else { 1 + usize::from(request.at >= fault.end) };
            Some((setting.scene.plan.iter().position(|planned| planned.0 == fault.name)?, when))
        });
        Truth {
            measured: request.at >= setting.healthy,
            effect,
            symptomatic: request.has_error() || request.took() > before[request.route],
            fault,
        }
    };
    requests.iter().zip(healthy).map(truth).collect()
}

/// The 99th percentile of the response times of each route, in nanoseconds.
fn percentiles<'a>(scene: &Scene, requests: impl Iterator<Item = &'a Request>) -> Vec<u64> {
    let mut took: Vec<Vec<u64>> = vec![Vec::new(); scene.routes.len()];
    for request in requests {
        took[request.route].push(request.took());
    }
    let percentile = |mut took: Vec<u64>| {
        took.sort_unstable();
        took.get(took.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(u64::MAX)
    };
    took.into_iter().map(percentile).collect()
}

/// A count out of a total.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    yes: f64,
    of: f64,
}

impl Ratio {
    fn add(&mut self, yes: bool) {
        self.add_if(true, yes);
    }

    fn add_if(&mut self, counts: bool, yes: bool) {
        self.of += f64::from(u8::from(counts));
        self.yes += f64::from(u8::from(counts && yes));
    }

    fn share(self) -> f64 {
        self.yes / self.of
    }
}

/// All data at the end of a run.
struct RunResults<'a> {
    requests: &'a [Request],
    truths: &'a [Truth],
    bytes: &'a [u32],
    /// Tail buffers with the plain policies, the LMAP policy, that without most of what looks as usual, and all
    /// policies.
    sinks: &'a [Box<Sink>; 4],
}

impl RunResults<'_> {
    fn measured(&self) -> impl Iterator<Item = (usize, &Truth)> {
        self.truths.iter().enumerate().filter(|(_, truth)| truth.measured)
    }

    /// Whether all spans of a trace were kept.
    fn whole(&self, sink: &Sink, at: usize) -> bool {
        sink.kept[at].1 > 0 && usize::from(sink.kept[at].1) == self.requests[at].ended().count()
    }

    /// Shares of a policy; `kept` returns the bytes of a trace and whether it is whole. Only whole traces count as
    /// kept of those that are looked for.
    fn shares(&self, kept: impl Fn(usize) -> (u32, bool)) -> Shares {
        let (mut hit, mut quiet, mut symptomatic) = (Ratio::default(), Ratio::default(), Ratio::default());
        let (mut other, mut all, mut precise) = (Ratio::default(), Ratio::default(), Ratio::default());
        let (mut all_bytes, mut kept_bytes, mut beyond) = (0.0, 0.0, 0.0);
        for (at, truth) in self.measured() {
            let (bytes, whole) = kept(at);
            let any = bytes > 0;
            all_bytes += f64::from(self.bytes[at]);
            kept_bytes += f64::from(bytes);
            beyond += f64::from(u8::from(any && !truth.hit()));
            all.add(any);
            hit.add_if(truth.hit(), whole);
            quiet.add_if(truth.quiet(), whole);
            symptomatic.add_if(truth.symptomatic, whole);
            other.add_if(!truth.symptomatic, any);
            precise.add_if(any, truth.hit());
        }
        Shares {
            symptomatic: symptomatic.share(),
            overhead: other.share(),
            covered: hit.share(),
            kept: all.share(),
            bytes: kept_bytes / all_bytes,
            precision: if precise.of > 0.0 { precise.share() } else { 0.0 },
            beyond: beyond / all.of,
            tail: quiet.share(),
        }
    }

    fn of_sink(&self, sink: &Sink) -> Shares {
        self.shares(|at| (sink.kept[at].0, self.whole(sink, at)))
    }

    fn of_published_oracle(&self, faults: &[Fault]) -> Shares {
        self.shares(|at| {
            let request = &self.requests[at];
            let overlaps = |fault: &Fault| fault.start <= request.spans[0].end && request.at < fault.end;
            let kept = faults.iter().any(overlaps);
            (if kept { self.bytes[at] } else { 0 }, kept)
        })
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

    /// Shares of head sampling, decided by the trace id as in every SDK.
    fn of_head(&self, seed: u64, share: f64) -> Shares {
        let threshold = Threshold::keeping(share).unwrap_or(Threshold::ALL);
        self.shares(|at| {
            let trace = TraceId::new(sdk::trace_of(seed, at));
            let sampled = trace.is_some_and(|trace| threshold.keeps(Randomness::of(trace)));
            (if sampled { self.bytes[at] } else { 0 }, sampled)
        })
    }
}

fn outcome(seed: u64, seen: &RunResults<'_>, setting: RunConfig) -> Outcome {
    let [plain, lmap, remarkable, all] = seen.sinks;
    let together = seen.of_sink(all);
    let faults = faults::plan(setting.scene, seed, setting.healthy);
    let of = |policy| match policy {
        Policy::Head(permille) => seen.of_head(seed, f64::from(permille) / 1000.0),
        Policy::HeadAtOurs => seen.of_head(seed, together.bytes),
        Policy::PublishedOracle => seen.of_published_oracle(&faults),
        Policy::Oracle => seen.of_oracle(&faults),
        Policy::Plain => seen.of_sink(plain),
        Policy::Lmap => seen.of_sink(lmap),
        Policy::Remarkable => seen.of_sink(remarkable),
        Policy::All => together,
    };
    let shares = POLICIES.into_iter().map(|policy| (policy, of(policy))).collect();
    let count = |what: fn(&Truth) -> bool| seen.measured().filter(|(_, truth)| what(truth)).count();
    let kinds: [fn(&Truth) -> bool; 4] = [|_| true, Truth::hit, Truth::quiet, |truth| truth.symptomatic];
    let counts = kinds.map(count);
    let seconds = (setting.scene.plan.len() as u64 * EVERY) as f64;
    let of_fault = |place: usize| {
        let (mut of, mut per_second) = (FaultOutcome::default(), counts[0] as f64 / seconds);
        per_second = per_second.max(1.0);
        for (at, truth) in seen.measured() {
            let Some((_, when)) = truth.fault.filter(|(fault, _)| *fault == place) else { continue };
            of.hit += f64::from(u8::from(truth.hit()));
            of.lmap += f64::from(u8::from(truth.hit() && seen.whole(lmap, at)));
            of.plain += f64::from(u8::from(truth.hit() && seen.whole(plain, at)));
            of.beyond[when] += f64::from(u8::from(!truth.hit() && lmap.kept[at].1 > 0)) / per_second;
        }
        let hit = of.hit.max(1.0);
        FaultOutcome { lmap: of.lmap / hit, plain: of.plain / hit, ..of }
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

#[cfg(test)]
mod tests {
    use super::super::scenes::DEMO;
    use super::*;

    #[test]
    fn symptomatic_does_not_ask_for_the_cause_and_hit_does() {
        let setting = RunConfig { scene: &DEMO, interval: SECOND, healthy: 100 * SECOND };
        let length = setting.healthy + 2 * EVERY * SECOND;
        let faults = faults::plan(&DEMO, 1, setting.healthy);
        let requests = shop::run(&DEMO, 1, length, &faults);
        let healthy = shop::run(&DEMO, 1, length, &[]);

        let truths = truths(&requests, &healthy, &faults, setting);

        let before = || truths.iter().zip(&requests).filter(|(truth, _)| !truth.measured);
        let slow = before().filter(|(truth, request)| truth.symptomatic && !request.has_error()).count();
        let share = slow as f64 / before().count() as f64;
        assert!((0.008..0.011).contains(&share), "{share} are above their 99th percentile");
        assert!(truths.iter().zip(&requests).all(|(truth, request)| truth.symptomatic || !request.has_error()));
        let of = |what: fn(&Truth) -> bool| truths.iter().filter(|truth| truth.measured && what(truth)).count();
        let (hit, symptomatic) = (of(Truth::hit), of(|truth| truth.symptomatic));
        assert!(0 < hit && hit < symptomatic, "{hit} were hit, {symptomatic} are symptomatic");
        assert!(before().all(|(truth, _)| !truth.hit()));
    }
}
