//! One run of the demo: healthy traffic until every LMAP is armed, then one fault after another. The result is a
//! [`Record`].

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use rustix::process::Signal;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use wire::proto::operators::{HookEvent, LmapStatus, RowEvent, StatusReply};
use wire::quantity::quantity;
use wire::time::{Nanos, UnixNanos};

use crate::clock::{Clock, runtime_now};
use crate::cost::{self, CpuUsage};
use crate::error::DemoError;
use crate::fault::{Kind, Pace, PlannedFault};
use crate::graph::{Service, Target};
use crate::host_agent::{HostAgentClient, next_row};
use crate::http::{CallOutcome, HttpClient};
use crate::ledger;
use crate::messages;
use crate::record::{Episode, Event, InjectedFault, Point, Record};
use crate::screen::Screen;
use crate::shop::{Injection, ServiceStats, instruments};
use crate::testbed::{Testbed, TestbedConfig, TestbedError};
use crate::traces::Store;
use crate::traces::route::Route;

/// Interval of checks: processes, memory, progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Checks between two status requests to the agent.
const STATUS_EVERY: u32 = 5;
/// Checks between two lists of metrics, for the name of who sends most: five seconds.
const LIST_EVERY: u32 = 50;
/// Timeout of requests to a service's admin port.
const ADMIN_WITHIN: Duration = Duration::from_secs(20);
/// Arming fails if no LMAP gets a row for so long.
const STALLED: Nanos = Nanos::from_secs(20);
/// Time for late verdicts to arrive after the last fault.
const LATE_VERDICTS: Nanos = Nanos::from_secs(1);

/// Carries out one run with `faults`.
pub(crate) async fn run(
    config: &TestbedConfig,
    pace: &Pace,
    faults: &[PlannedFault],
    screen: &mut Screen,
) -> Result<Record, DemoError> {
    let clock = Clock::start();
    let interrupts = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut ctrl_c), Ok(mut term)] = interrupts else { return Err(DemoError::NoSignals) };
    let progress = |what: &str| screen.print(&format!("  starting {what}"));
    let route = Route::open(clock).await.map_err(TestbedError::Spans)?;
    let started = async {
        let mut testbed = Testbed::with_host_agent(config, route).await?;
        let mut agent = HostAgentClient::open(testbed.operators(), clock).await?;
        // Before all else: whoever watches opens it while the shop starts.
        if let Some(address) = agent.page().await {
            screen.print(&messages::page(&address));
        }
        screen.print(&messages::title(config));
        testbed.start_rest(config, &progress).await?;
        Ok::<_, DemoError>((testbed, agent))
    };
    let (testbed, agent) = tokio::select! {
        started = started => started?,
        _ = ctrl_c.recv() => return Err(DemoError::Interrupted),
        _ = term.recv() => return Err(DemoError::Interrupted),
    };
    let skipped = testbed.link.as_ref().and_then(|link| link.as_ref().err().cloned());
    if let Some(why) = &skipped {
        screen.print(&messages::skipped(Kind::SlowLink, why));
    }
    if testbed.link.is_some() {
        screen.print(messages::visitors(testbed.open_link().is_some()));
    }
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let record = Record {
        seed: config.seed,
        started_unix_ms: clock.started().millis(),
        interval: Nanos::from_millis(config.interval_ms.into()),
        link: testbed.open_link().is_some(),
        skipped,
        ..Record::default()
    };
    let now = runtime_now();
    let mut run = Run {
        clock,
        start: now.checked_sub(clock.now().into()).unwrap_or(now),
        testbed,
        agent,
        visitors: None,
        looks,
        looked: 0,
        interrupts: [ctrl_c, term],
        screen,
        record,
        states: BTreeMap::new(),
        alarms: BTreeMap::new(),
        doubling: None,
    };
    run.arm().await?;
    run.stay_healthy(pace).await?;
    let before = CpuUsage::read(&run.testbed, run.clock.now());
    let served = run.served().await;
    let link = run.record.link;
    for planned in faults.iter().filter(|planned| link || planned.service != Target::Link) {
        run.inject(*planned).await?;
        run.recover(pace).await?;
    }
    let after = CpuUsage::read(&run.testbed, run.clock.now());
    run.record.cost = before.cost_until(&after);
    let served = run.served().await.saturating_sub(served);
    run.count_writes(served, &before, &after);
    run.finish().await
}

/// Progress of an LMAP, from the status reply.
#[derive(Clone, Debug, Default)]
struct State {
    name: String,
    rows: u32,
    rows_needed: u32,
}

struct Run<'a> {
    clock: Clock,
    /// The runtime's time at the demo's start.
    start: Instant,
    testbed: Testbed,
    agent: HostAgentClient,
    /// Rows of the stream of the frontend's visitors, once that is watched.
    visitors: Option<mpsc::Receiver<RowEvent>>,
    looks: Interval,
    looked: u32,
    interrupts: [SignalStream; 2],
    screen: &'a mut Screen,
    record: Record,
    states: BTreeMap<Target, State>,
    /// Active alarms by target and whether it is silence, with their starts.
    alarms: BTreeMap<(Target, bool), Nanos>,
    /// During a leak: the process id, and twice its resident set at the start in bytes.
    doubling: Option<(u32, u64)>,
}

impl Run<'_> {
    /// Processes verdicts and checks until `limit`, or until `done` is true after a check.
    async fn run_until(&mut self, limit: Nanos, done: impl Fn(&Self) -> bool) -> Result<(), DemoError> {
        let limit = self.start + limit.into();
        loop {
            let [ctrl_c, term] = &mut self.interrupts;
            tokio::select! {
                biased;
                _ = ctrl_c.recv() => return Err(DemoError::Interrupted),
                _ = term.recv() => return Err(DemoError::Interrupted),
                verdict = self.agent.verdict() => {
                    let (at, event) = verdict?;
                    self.on_verdict(at, event);
                }
                row = next_row(&mut self.visitors) => self.record.talkers.add_row(&row),
                _ = self.looks.tick() => {
                    self.look().await?;
                    if done(self) {
                        return Ok(());
                    }
                }
                () = sleep_until(limit) => return Ok(()),
            }
        }
    }

    async fn look(&mut self) -> Result<(), DemoError> {
        self.testbed.check()?;
        if let (Some((pid, double)), Some(fault)) = (self.doubling, self.record.faults.last_mut())
            && fault.doubled.is_none()
            && cost::resident_bytes(pid) >= double
        {
            fault.doubled = Some(self.clock.now());
        }
        self.looked += 1;
        if self.looked.is_multiple_of(STATUS_EVERY) {
            let status = self.agent.status().await?;
            self.watch_visitors(&status).await?;
            self.on_status(&status);
        }
        if self.looked.is_multiple_of(LIST_EVERY) {
            self.ask_top_talker().await?;
        }
        Ok(())
    }

    /// Subscribes to the rows of the visitors' stream as soon as there is one.
    async fn watch_visitors(&mut self, status: &StatusReply) -> Result<(), DemoError> {
        let stream = status.lmaps.iter().find(|lmap| lmap.service == Target::VISITORS_SERVICE);
        if self.visitors.is_none()
            && let Some(lmap) = stream
        {
            self.visitors = Some(self.agent.rows(lmap.lmap).await?);
        }
        Ok(())
    }

    /// Records who sends most to the frontend, if its packets are captured.
    async fn ask_top_talker(&mut self) -> Result<(), DemoError> {
        if self.visitors.is_some() {
            let list = self.agent.list().await?;
            self.record.talkers.add_subject(&list);
        }
        Ok(())
    }

    /// Records a verdict, and prints the start or end of an alarm.
    fn on_verdict(&mut self, at: Nanos, event: HookEvent) {
        let Some(service) = Target::named(&event.service) else { return };
        self.record.lost_verdicts += event.lost;
        let event = event_of(at, service, event);
        let key = (service, event.silent);
        if !event.silent
            && let Some(began) = self.alarms.remove(&(service, true))
        {
            self.screen.print(&messages::back(service, at.since(began).unwrap_or_default()));
        }
        match event.episode {
            Episode::Began => {
                self.alarms.insert(key, at);
                let since = self.record.faults.last().map_or(Nanos::ZERO, |fault| fault.started);
                self.screen.print(&messages::began(&event, since));
            }
            Episode::Ended => {
                if let Some(began) = self.alarms.remove(&key) {
                    self.screen.print(&messages::ended(service, at.since(began).unwrap_or_default()));
                }
            }
            Episode::Quiet | Episode::On => {}
        }
        self.record.events.push(event);
    }

    /// Records ticks, states and scores of a status reply.
    fn on_status(&mut self, status: &StatusReply) {
        self.record.ticks = status.workers.iter().map(|worker| worker.ticks).sum();
        self.record.missed_ticks = status.workers.iter().map(|worker| worker.late_ticks).sum();
        for lmap in &status.lmaps {
            let Some(service) = Target::named(&lmap.service) else { continue };
            let state = State { name: lmap.state.clone(), rows: lmap.rows, rows_needed: lmap.rows_needed };
            if lmap.judges() {
                let now = self.clock.now();
                self.record.armed.entry(service).or_insert(now);
                // The provisional threshold before that is of few rows, and soon replaced.
                let noise = self.record.noise.entry(service).or_default();
                *noise = noise.max(lmap.threshold_noise);
            }
            self.states.insert(service, state);
            self.record.columns.insert(service, lmap.columns);
            let points = self.record.scores.entry(service).or_default();
            let at = self.clock.at_wall(UnixNanos(lmap.at_unix_ns));
            points.extend(points_after(points.last().map(|point| point.at), at, lmap));
        }
    }

    /// Phase 1, first part: until every LMAP is armed. On a busy machine rows come late: the limit is extended for as
    /// long as rows come, up to five times.
    async fn arm(&mut self) -> Result<(), DemoError> {
        let began = self.clock.now();
        // Arming takes 120 rows; twice that and 30 s for the start are enough unless the machine is busy.
        let usual = Nanos(self.record.interval.0 * 240).plus(Nanos::from_secs(30));
        let (mut limit, longest) = (began.plus(usual), began.plus(Nanos(usual.0 * 5)));
        let mut furthest = 0.0;
        let all = self.record.targets().count();
        while self.record.armed.len() < all {
            if self.clock.now() >= limit.min(longest) {
                let states = self.states.iter().map(|(service, state)| format!("{service} {}", state.name));
                return Err(DemoError::NotArmed(states.collect::<Vec<_>>().join(", ")));
            }
            self.run_until(self.clock.now().plus(Nanos::from_millis(500)), |_| false).await?;
            let (share, message) = self.arming();
            if share > furthest {
                (furthest, limit) = (share, limit.max(self.clock.now().plus(STALLED)));
            }
            self.screen.progress(self.clock.now(), share, &message);
        }
        self.screen.no_progress();
        let columns = self.record.columns.values().sum::<u32>();
        let took = self.clock.now().since(began).unwrap_or_default().as_secs_f64();
        self.screen.print(&format!("all {all} LMAPs armed after {took:.0} s, {columns} columns in total"));
        Ok(())
    }

    fn arming(&self) -> (f64, String) {
        let share = |state: &State| match state.name.as_str() {
            "learning" => f64::from(state.rows) / f64::from(state.rows_needed.max(1)),
            _ => 1.0,
        };
        let all = self.record.targets().count() as f64;
        let sum: f64 = self.states.values().map(share).sum();
        let rows = self.states.values().map(|state| format!("{}/{}", state.rows, state.rows_needed));
        let rows = rows.collect::<Vec<_>>().join(" ");
        (sum / all, format!("learning, armed {} of {all}; rows {rows}", self.record.armed.len()))
    }

    /// Phase 1, second part: healthy traffic while armed.
    async fn stay_healthy(&mut self, pace: &Pace) -> Result<(), DemoError> {
        let began = self.clock.now();
        let until = began.plus(pace.healthy);
        while self.clock.now() < until {
            self.run_until(self.clock.now().plus(Nanos::from_millis(500)).min(until), |_| false).await?;
            let passed = self.clock.now().since(began).unwrap_or_default().as_secs_f64();
            let message = format!("healthy traffic, {passed:.0} of {:.0} s", pace.healthy.as_secs_f64());
            self.screen.progress(self.clock.now(), passed / pace.healthy.as_secs_f64(), &message);
        }
        self.screen.no_progress();
        self.ask_top_talker().await?;
        if let Some(talkers) = self.record.talkers.summary() {
            self.screen.print(&messages::talkers(&talkers));
        }
        Ok(())
    }

    /// Phase 2: injects one fault and records until it is over.
    async fn inject(&mut self, planned: PlannedFault) -> Result<(), DemoError> {
        let PlannedFault { service, kind, lasts } = planned;
        let ready = self.testbed.shop(service.service());
        let admin = match service {
            Target::Service(_) => ready.map(|ready| ready.admin),
            Target::Link => self.testbed.open_link().map(|link| link.admin),
        };
        let pid = ready.map_or(0, |ready| ready.pid);
        let Some(admin) = admin else { return Err(DemoError::NotInjected(kind, service)) };
        let started = self.clock.now();
        self.screen.print(&messages::fault(self.record.faults.len() + 1, &planned, started));
        let fault = InjectedFault { service, kind, started, ended: started.plus(lasts), doubled: None };
        self.record.faults.push(fault);
        if kind == Kind::Leak {
            self.doubling = Some((pid, 2 * cost::resident_bytes(pid)));
        }
        if kind == Kind::Hang {
            self.testbed.processes.signal(service.name(), Signal::STOP);
        } else {
            let injection = Injection { kind, ms: lasts.as_millis(), amount: kind.amount() };
            let answer = HttpClient::new(ADMIN_WITHIN).request(Method::POST, admin, &injection.target()).await;
            if !matches!(answer, CallOutcome::Response(status, _) if status.is_success()) {
                return Err(DemoError::NotInjected(kind, service));
            }
        }
        let listened = self.run_until(started.plus(lasts), |_| false).await;
        if kind == Kind::Hang {
            self.testbed.processes.signal(service.name(), Signal::CONT);
        }
        self.doubling = None;
        listened?;
        if let Some(fault) = self.record.faults.last_mut() {
            fault.ended = self.clock.now();
        }
        self.screen.print(&messages::over(service, kind));
        Ok(())
    }

    /// The pause after a fault: longer if an alarm is still active.
    async fn recover(&mut self, pace: &Pace) -> Result<(), DemoError> {
        let now = self.clock.now();
        self.run_until(now.plus(pace.pause), |_| false).await?;
        self.run_until(now.plus(pace.longest_pause), |run| run.alarms.is_empty()).await
    }

    /// Requests that all services have served so far.
    async fn served(&self) -> u64 {
        let http = HttpClient::new(ADMIN_WITHIN);
        let mut served = 0;
        for service in Service::ALL {
            let Some(ready) = self.testbed.shop(service) else { continue };
            if let CallOutcome::Response(_, bytes) = http.request(Method::GET, ready.admin, "/stats").await {
                served += serde_json::from_slice::<ServiceStats>(&bytes).map_or(0, |stats| stats.served);
            }
        }
        served
    }

    /// Adds the cost of metric writes to the cost of instrumentation.
    fn count_writes(&mut self, served: u64, before: &CpuUsage, after: &CpuUsage) {
        let ns = instruments::writes_per_request_ns();
        let seconds = after.at.since(before.at).unwrap_or_default().as_secs_f64().max(1e-3);
        self.record.cost.writes_per_request_ns = ns;
        self.record.cost.instrumentation += served as f64 * ns / 1e9 / seconds;
    }

    async fn finish(mut self) -> Result<Record, DemoError> {
        self.run_until(self.clock.now().plus(LATE_VERDICTS), |_| false).await?;
        let status = self.agent.status().await?;
        self.on_status(&status);
        self.ask_top_talker().await?;
        self.record.ended = self.clock.now();
        let [ctrl_c, term] = &mut self.interrupts;
        self.record.ledger = tokio::select! {
            biased;
            _ = ctrl_c.recv() => return Err(DemoError::Interrupted),
            _ = term.recv() => return Err(DemoError::Interrupted),
            ledger = ledger::collect(&self.testbed, &mut self.agent) => ledger?,
        };
        if let Some(log) = self.testbed.end_load() {
            self.record.visits = ledger::visits(&log, &self.clock);
            self.record.load = Some(log.report);
        }
        if let Some(route) = &self.testbed.route {
            self.record.traces = route.receiver.look(Store::take_traces);
        }
        if let Some(load) = &self.record.load {
            let median = quantity(load.median_us as f64, "us");
            let p99 = quantity(load.p99_us as f64, "us");
            let (sent, failed, dropped) = (load.sent, load.failed, load.dropped);
            self.screen.print(&format!(
                "load: {sent} requests, {failed} failed, {dropped} dropped; median {median}, p99 {p99}"
            ));
        }
        Ok(self.record)
    }
}

fn event_of(at: Nanos, service: Target, event: HookEvent) -> Event {
    let episode = match event.episode.as_str() {
        "began" => Episode::Began,
        "on" => Episode::On,
        "ended" => Episode::Ended,
        _ => Episode::Quiet,
    };
    Event {
        at,
        service,
        score: event.score,
        gamma: event.gamma,
        silent: event.state == "silent",
        episode,
        reasons: event.reasons.into_iter().map(Into::into).collect(),
    }
}

/// The scores of a summary that ends at `at`, spread evenly over its second. Empty if it is recorded already.
fn points_after(last: Option<Nanos>, at: Nanos, lmap: &LmapStatus) -> Vec<Point> {
    let parts = lmap.scores.len() as u64;
    if parts == 0 || last.is_some_and(|last| at <= last.plus(Nanos::from_millis(200))) {
        return Vec::new();
    }
    let step = Nanos::from_secs(1).0 / parts;
    let point = |(number, score): (usize, &f32)| Point {
        at: Nanos(at.0.saturating_sub((parts - 1 - number as u64) * step)),
        score: f64::from(*score),
        gamma: lmap.gamma,
    };
    lmap.scores.iter().enumerate().map(point).collect()
}
