//! One service of the shop under growing load, with replicas that are really added: how its LMAP reacts to transient
//! and persistent overload.
//!
//! # Source
//! uView, Sec. 4.8.3: a stationary load to learn from, then a load that grows linearly; an autoscaler adds replicas up
//! to a limit. In the paper a replica is a pod and the autoscaler is that of Kubernetes. Here a replica is a process
//! with one worker, which is busy for some time with each request; the autoscaler reads the utilisation of the workers.

mod scaler;
mod visitors;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use axum::http::Method;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};
use wire::proto::operators::{HookEvent, RowEvent, StatusReply};
use wire::time::{Nanos, UnixNanos};

use crate::clock::Clock;
use crate::error::DemoError;
use crate::graph::Service;
use crate::host_agent::{HostAgentClient, next_row};
use crate::http::{CallOutcome, HttpClient};
use crate::screen::Screen;
use crate::shop::{ServiceInfo, ServiceStats};
use crate::testbed::{Testbed, TestbedConfig};
use scaler::{Decision, Scaler};
use visitors::Visitors;

/// The service under test. It has no dependencies, so that all its anomalies are its own.
const SERVICE: Service = Service::Cart;
/// Median time for which a worker is busy with a request: a replica can serve 45 requests per second.
const WAIT: Nanos = Nanos::from_millis(20);
/// Time from the start of a replica's process until it gets requests.
const STARTS: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const ADMIN_WITHIN: Duration = Duration::from_secs(2);

/// The phases of the experiment: their lengths and loads.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed of arrivals and work.
    pub seed: u64,
    /// Scrape interval of the NIC agent in milliseconds.
    pub interval_ms: u32,
    /// Seconds of stationary load after the LMAP's first row.
    pub stationary_s: f64,
    /// Requests per second before the load grows.
    pub per_second: f64,
    /// Growth of the load in requests per second, each second.
    pub growth: f64,
    /// Maximal number of replicas.
    pub replicas: usize,
    /// Seconds of persistent overload at the end.
    pub overloaded_s: f64,
}

impl Default for Plan {
    /// About five minutes: the LMAP is fitted at 120 and at 600 rows before the load grows.
    fn default() -> Self {
        Self {
            seed: 1,
            interval_ms: 100,
            stationary_s: 100.0,
            per_second: 20.0,
            growth: 0.7,
            replicas: 3,
            overloaded_s: 40.0,
        }
    }
}

/// One row of the service's LMAP. All times are seconds since the start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Time of the fetch.
    pub at_s: f64,
    /// Its score, computed by the NIC agent.
    pub score: f64,
    /// The threshold γ at that time; 0 while learning.
    pub gamma: f64,
    /// One value per column.
    pub values: Vec<f64>,
}

/// One alarm of the service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alarm {
    /// Time of its start.
    pub began_s: f64,
    /// Time of its end; `None` if it was still active at the end of the run.
    pub ended_s: Option<f64>,
    /// The top metric of each verdict during the alarm, with its share of the score: (seconds, column, share).
    pub named: Vec<(f64, String, f64)>,
}

/// The data of one autoscaling run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AutoscaleRecord {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// All rows in the order of their arrival.
    pub rows: Vec<Row>,
    /// When the load began to grow.
    pub grows_from_s: f64,
    /// When each replica after the first began to get requests.
    pub added_s: Vec<f64>,
    /// Start of persistent overload at the maximal number of replicas; `None` if that was not reached.
    pub overloaded_from_s: Option<f64>,
    /// Alarms in order.
    pub alarms: Vec<Alarm>,
    /// The top metric of verdicts outside alarms: (seconds, column, share).
    pub named: Vec<(f64, String, f64)>,
    /// Requests sent, and how many of them failed.
    pub sent: (u64, u64),
}

/// Runs the experiment. `program` is the executable of all processes.
///
/// # Errors
///
/// [`DemoError`] if a process ends or an agent does not respond.
pub fn run(plan: &Plan, program: &Path) -> Result<AutoscaleRecord, DemoError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DemoError::Runtime)?;
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        let config = TestbedConfig {
            program: program.to_owned(),
            interval_ms: plan.interval_ms,
            seed: plan.seed,
            per_second: plan.per_second,
            link: false,
        };
        let mut run = Run::begin(plan, &config).await?;
        run.go(plan).await?;
        Ok(run.finish())
    }))
}

struct Run {
    clock: Clock,
    testbed: Testbed,
    agent: HostAgentClient,
    rows: Option<mpsc::Receiver<RowEvent>>,
    replicas: Vec<ServiceInfo>,
    visitors: Rc<RefCell<Visitors>>,
    http: HttpClient,
    scaler: Scaler,
    /// A replica that is starting, and when it will get requests.
    starting: Option<(ServiceInfo, Nanos)>,
    gamma: f64,
    screen: Screen,
    found: AutoscaleRecord,
}

impl Run {
    async fn begin(plan: &Plan, config: &TestbedConfig) -> Result<Self, DemoError> {
        let (clock, screen) = (Clock::start(), Screen::new());
        screen.print("autoscaling: one replica, stationary load");
        let mut testbed = Testbed::empty(config)?;
        let first = testbed.start_replica(SERVICE, 1, plan.seed, WAIT).await?;
        let visitors = Visitors::new(plan.seed, plan.per_second);
        visitors.borrow_mut().open(first.listen);
        tokio::task::spawn_local(visitors::send(visitors.clone()));
        testbed.start_agents(config).await?;
        let agent = HostAgentClient::open(testbed.operators(), clock).await?;
        Ok(Self {
            clock,
            testbed,
            agent,
            rows: None,
            replicas: vec![first],
            visitors,
            http: HttpClient::new(ADMIN_WITHIN),
            scaler: Scaler::new(plan.replicas),
            starting: None,
            gamma: 0.0,
            screen,
            found: AutoscaleRecord::default(),
        })
    }

    async fn go(&mut self, plan: &Plan) -> Result<(), DemoError> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                row = next_row(&mut self.rows) => self.on_row(row),
                verdict = self.agent.verdict() => {
                    let (at, event) = verdict?;
                    self.on_verdict(at, event);
                }
                _ = looks.tick() => {
                    self.testbed.check()?;
                    let status = self.agent.status().await?;
                    self.on_status(&status).await?;
                    if self.act(plan).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn seconds(&self) -> f64 {
        self.clock.now().as_secs_f64()
    }

    fn on_row(&mut self, row: RowEvent) {
        if !row.columns.is_empty() {
            self.found.columns = row.columns;
        }
        let at_s = self.clock.at_wall(UnixNanos(row.at_unix_ns)).as_secs_f64();
        self.found.rows.push(Row { at_s, score: row.score, gamma: self.gamma, values: row.values });
    }

    fn on_verdict(&mut self, at: Nanos, event: HookEvent) {
        if event.service != SERVICE.name() || event.state == "silent" {
            return;
        }
        let at_s = at.as_secs_f64();
        let first = event.reasons.into_iter().next().map(|reason| (at_s, reason.column, reason.share));
        match event.episode.as_str() {
            "began" => {
                self.screen.print(&format!("  {at_s:5.0} s  alarm, {:.1} times γ", event.score / event.gamma));
                // One that is on ends where another begins.
                if let Some(before) = self.found.alarms.last_mut() {
                    before.ended_s.get_or_insert(at_s);
                }
                self.found.alarms.push(Alarm { began_s: at_s, ended_s: None, named: first.into_iter().collect() });
            }
            "ended" => {
                if let Some(alarm) = self.found.alarms.last_mut() {
                    alarm.ended_s = Some(at_s);
                }
            }
            "on" => {
                if let Some(alarm) = self.found.alarms.last_mut() {
                    alarm.named.extend(first);
                }
            }
            _ => self.found.named.extend(first),
        }
    }

    /// Takes γ from a status reply. Subscribes to the rows as soon as the LMAP exists.
    async fn on_status(&mut self, status: &StatusReply) -> Result<(), DemoError> {
        let Some(lmap) = status.lmaps.iter().find(|lmap| lmap.service == SERVICE.name()) else { return Ok(()) };
        if lmap.judges() {
            self.gamma = lmap.gamma;
        }
        if self.rows.is_none() {
            self.rows = Some(self.agent.rows(lmap.lmap).await?);
        }
        Ok(())
    }

    /// One step of the autoscaler. True if the experiment is over.
    async fn act(&mut self, plan: &Plan) -> Result<bool, DemoError> {
        let now = self.seconds();
        let Some(first) = self.found.rows.first().map(|row| row.at_s) else { return Ok(false) };
        if self.found.grows_from_s == 0.0 {
            if now - first >= plan.stationary_s && self.gamma > 0.0 {
                self.screen.print(&format!("  {now:5.0} s  the load grows"));
                self.found.grows_from_s = now;
                self.visitors.borrow_mut().grow(plan.growth);
            }
            return Ok(false);
        }
        self.admit_replica();
        let busy = self.busy().await;
        let waits = self.starting.is_some();
        match self.scaler.look(self.clock.now(), &busy, waits) {
            Decision::Wait => {}
            Decision::Add => {
                let number = self.replicas.len() + 1;
                self.screen.print(&format!("  {now:5.0} s  replica {number} starts"));
                let ready = self.testbed.start_replica(SERVICE, number, plan.seed, WAIT).await?;
                self.starting = Some((ready, self.clock.now().plus(STARTS.into())));
            }
            Decision::Overloaded => {
                if self.found.overloaded_from_s.is_none() {
                    self.screen.print(&format!("  {now:5.0} s  overloaded at the maximal number of replicas"));
                }
                self.found.overloaded_from_s.get_or_insert(now);
            }
        }
        Ok(self.found.overloaded_from_s.is_some_and(|from| now - from >= plan.overloaded_s))
    }

    /// Sends requests to a replica that has started.
    fn admit_replica(&mut self) {
        if let Some((ready, _)) = self.starting.take_if(|(_, at)| *at <= self.clock.now()) {
            self.visitors.borrow_mut().open(ready.listen);
            self.found.added_s.push(self.seconds());
            self.screen.print(&format!("  {:5.0} s  {} replicas", self.seconds(), self.replicas.len() + 1));
            self.replicas.push(ready);
            self.scaler.changed();
        }
    }

    /// Nanoseconds for which each replica's worker has been busy so far.
    async fn busy(&self) -> Vec<u64> {
        let mut busy = Vec::new();
        for ready in &self.replicas {
            let answer = self.http.request(Method::GET, ready.admin, "/stats").await;
            if let CallOutcome::Response(_, bytes) = answer
                && let Ok(stats) = serde_json::from_slice::<ServiceStats>(&bytes)
            {
                busy.push(stats.busy_ns);
            }
        }
        busy
    }

    fn finish(mut self) -> AutoscaleRecord {
        self.found.sent = self.visitors.borrow().sent();
        self.found
    }
}
